"""Flexible job shops, and independent jobs on identical machines.

A job of a flexible job shop is a chain of operations, each eligible on some machines, which are GPUs of a kind each.
Instances of Brandimarte 1993 and of Fattahi, Saidi Mehrabad, Jolai 2007, as collected by SchedulingLab (MIT); best
known values of ScheduleOpt/benchmarks (CC-BY-SA 4.0).

P||Cmax: independent jobs on identical machines (instances of Franca et al. 1994 and Frangioni et al. 2004).
Among them bin-packing triplets: items of which every three fill a bin, and no bin holds more than three. Packed into a
third as many machines as there are items, they end at the bin's size if every bin is filled, and later otherwise; the
known optimum is therefore the capacity. How few bins suffice, without being told, is what
``python -m experiments servers triplets`` asks of the same items.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.suites.case import Bracket, Case, Suite, alike, best_known, least_makespan, rows_of_numbers, unlike
from truenorth.models.scenario import InputError, Scenario


def read_job_shop(path: Path) -> Scenario:
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


def job_shop_cases(folder: Path) -> Iterator[Case]:
    """Yield Fattahi's instances, then Brandimarte's, under the names of the list of best known values."""
    known = best_known(folder / "fjsp" / "scheduleopt_bks.csv")
    fattahi = [f"sfjs{number:02d}" for number in range(1, 11)] + [f"mfjs{number:02d}" for number in range(1, 11)]
    files = {f"fattahi{index}": Path("fattahi") / f"{name}.txt" for index, name in enumerate(fattahi, 1)}
    files |= {f"mk{number:02d}": Path("brandimarte") / f"mk{number:02d}.txt" for number in range(1, 16)}
    for name, file in files.items():
        yield Case(Suite.FLEXIBLE_JOB_SHOP, name, read_job_shop(folder / "fjsp" / file), known[name])


CAPACITY = 1_000_000
"""Size of a bin, in microseconds."""

_SHAPES = ((30, 1), (30, 2), (60, 1), (60, 2), (120, 1), (120, 2), (249, 1))
"""Items and seed."""


def scenario(name: str, times: Sequence[int], machines: int, deadline_us: int | None = None) -> Scenario:
    """Return jobs of these processing times on identical machines, all released at 0 and due together, if at all.

    A time unit is a microsecond; jobs of the same time share a workflow.
    """
    due = {} if deadline_us is None else {"deadline": f"{deadline_us} us"}
    return least_makespan(
        {
            "name": name,
            "cluster": alike(machines),
            "workflows": {f"item_{time}": {"tasks": {"run": {"runtime": f"{time} us"}}} for time in sorted(set(times))},
            "workload": {"jobs": [{"release": "0 us", "workflow": f"item_{time}", **due} for time in times]},
        }
    )


def read_parallel_machines(path: Path) -> tuple[list[int], int]:
    """Return the processing times and the number of machines of a file: machines, jobs, then a time a line.

    Raises
    ------
    InputError
        If there are not as many times as jobs.
    """
    numbers = [number for _, row in rows_of_numbers(path) for number in row]
    if len(numbers) < 3 or numbers[1] != len(numbers) - 2:
        raise InputError(str(path), None, "jobs", "allowed are machines, jobs, and as many times as jobs")
    return numbers[2:], numbers[0]


def parallel_machine_cases(folder: Path) -> Iterator[Case]:
    """Yield every file whose optimum, or bounds of it, are known."""
    for file, known in best_known(folder / "pcmax" / "optima.csv").items():
        name = file.removesuffix(".txt")
        built = scenario(name, *read_parallel_machines(folder / "pcmax" / file))
        yield Case(Suite.PARALLEL_MACHINES, name, built, known)


def triplets(items: int, seed: int) -> list[int]:
    """Return sizes of which every three by construction fill a bin of `CAPACITY`, and no bin holds more than three.

    As in Falkenauer, Journal of Heuristics 2, 1996: one item between 38 and 49 % of the bin, two that fill the rest.
    """
    rng = random.Random(seed)  # noqa: S311
    sizes: list[int] = []
    for _ in range(items // 3):
        first = rng.randrange(380_000, 490_000) // 1000 * 1000
        second = rng.randrange(250_000, (CAPACITY - first) // 2 + 1) // 1000 * 1000
        sizes += [first, second, CAPACITY - first - second]
    rng.shuffle(sizes)
    return sizes


def triplet_cases() -> Iterator[Case]:
    """Yield seeded draws of growing size."""
    for items, seed in _SHAPES:
        name = f"{items} items, seed {seed}"
        built = scenario(name, triplets(items, seed), items // 3)
        yield Case(Suite.TRIPLETS, name, built, Bracket.optimum(CAPACITY))
