"""P||Cmax: independent jobs on identical machines (instances of Franca et al. 1994 and Frangioni et al. 2004)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.suites.case import Case, alike, least_makespan
from experiments.suites.choice import Suite
from experiments.suites.data import best_known, rows_of_numbers
from models.scenario import InputError, Scenario


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


def read(path: Path) -> tuple[list[int], int]:
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


def cases(folder: Path) -> Iterator[Case]:
    """Yield every file whose optimum, or bounds of it, are known."""
    for file, known in best_known(folder / "pcmax" / "optima.csv").items():
        name = file.removesuffix(".txt")
        built = scenario(name, *read(folder / "pcmax" / file))
        yield Case(Suite.PARALLEL_MACHINES, name, built, known)
