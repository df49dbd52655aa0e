"""Flexible job shops: a job is a chain of operations, each eligible on some machines, which are GPUs of a kind each.

Instances of Brandimarte 1993 and of Fattahi, Saidi Mehrabad, Jolai 2007, as collected by SchedulingLab (MIT); best
known values of ScheduleOpt/benchmarks (CC-BY-SA 4.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from experiments.suites.case import Case, Suite, best_known, least_makespan, rows_of_numbers, unlike
from truenorth.models.scenario import InputError, Scenario


def read(path: Path) -> Scenario:
    """Return the flexible job shop of a file, a time unit being a microsecond.

    First line: jobs and machines. Then per job: operations, and per operation the number of machines followed by
    pairs (machine from 0, time).

    Raises
    ------
    InputError
        If a line does not hold what it announces.
    """
    rows = list(rows_of_numbers(path))
    if not rows or len(rows[0][1]) < 2:
        raise InputError(str(path), 1, "header", "allowed are the numbers of jobs and machines")
    n_jobs, n_machines = rows[0][1][:2]
    if len(rows) - 1 < n_jobs:
        raise InputError(str(path), rows[-1][0], "jobs", f"{len(rows) - 1} follow; allowed are the {n_jobs} announced")
    workflows = {
        f"j{index}": {"tasks": _operations(path, *row, n_machines)} for index, row in enumerate(rows[1 : n_jobs + 1])
    }
    return least_makespan(
        {
            "name": path.stem,
            "cluster": unlike([f"M{machine}" for machine in range(n_machines)]),
            "workflows": workflows,
            "workload": {"jobs": [{"release": "0 us", "workflow": name} for name in workflows]},
        }
    )


def _operations(path: Path, line: int, row: list[int], n_machines: int) -> dict[str, object]:
    numbers, tasks = iter(row[1:]), dict[str, object]()
    try:
        for operation in range(row[0]):
            choices = [(next(numbers), next(numbers)) for _ in range(next(numbers))]
            tasks[f"o{operation}"] = {
                "runtime": {f"M{machine}": f"{time} us" for machine, time in choices},
                "after": [f"o{operation - 1}"] if operation else [],
            }
            if any(machine >= n_machines for machine, _ in choices):
                raise InputError(str(path), line, f"operation {operation}", f"allowed are machines below {n_machines}")
    except StopIteration:
        raise InputError(
            str(path), line, f"operation {len(tasks)}", "the line ends here; allowed are its machines and times"
        ) from None
    return tasks


def cases(folder: Path) -> Iterator[Case]:
    """Yield Fattahi's instances, then Brandimarte's, under the names of the list of best known values."""
    known = best_known(folder / "fjsp" / "scheduleopt_bks.csv")
    fattahi = [f"sfjs{number:02d}" for number in range(1, 11)] + [f"mfjs{number:02d}" for number in range(1, 11)]
    files = {f"fattahi{index}": Path("fattahi") / f"{name}.txt" for index, name in enumerate(fattahi, 1)}
    files |= {f"mk{number:02d}": Path("brandimarte") / f"mk{number:02d}.txt" for number in range(1, 16)}
    for name, file in files.items():
        yield Case(Suite.FLEXIBLE_JOB_SHOP, name, read(folder / "fjsp" / file), known[name])
