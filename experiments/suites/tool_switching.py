"""Tool switching on identical machines: IPMTC of Beezao, Cordeau, Laporte, Yanasse, EJOR 257, 2017.

Tools are models of one byte, the magazine is the GPU's memory, a switch is a load, and with overlap off a machine
either switches or works. The makespan is minimised.

*First filling paid*: magazines start empty and every tool that comes in costs a load.

*First filling free*: a machine's first tools, as many as fit, cost nothing. Which they are is for the plan to decide,
so an initial residency, which is given, cannot say it. All jobs are released at capacity x switching time instead, and
that much is subtracted from plan and bound. This is exact. Loads may precede releases and nothing else can happen
before them, so a machine has time for as many loads as its magazine holds tools. Conversely, loads of a machine follow
one another, so no more than that start before the release, and their tools fit together: a plan in which they were
there from the start ends no later.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.suites.case import (
    SIZE_BYTES,
    Bracket,
    Case,
    FirstFilling,
    Suite,
    alike,
    least_makespan,
    machine,
    rows_of_numbers,
)
from experiments.suites.paging import Tools, makespan, shortest_makespan
from truenorth.models.scenario import InputError, Scenario

ENUMERATED_JOBS = 8
"""Up to so many jobs the optimum comes from enumeration."""

Orders = tuple[tuple[int, ...], ...]

DRAWS = (
    (2, 6, 10, 4, 15, 1), (2, 6, 10, 4, 15, 2), (2, 8, 15, 5, 15, 1), (3, 8, 15, 10, 40, 1),
    (2, 15, 20, 10, 15, 1), (3, 25, 20, 10, 40, 1),
)  # fmt: skip
"""Machines, jobs, tools, capacity, switching time, seed."""

BEST_ORDERS: dict[tuple[int, ...], Orders] = {
    (2, 15, 20, 10, 15, 1): ((8, 4, 2, 14, 0, 10, 12), (5, 1, 3, 9, 13, 7, 11, 6)),
    (3, 25, 20, 10, 40, 1): (
        (16, 22, 0, 17, 8, 24, 6, 14),
        (11, 9, 2, 18, 12, 19, 4),
        (23, 21, 15, 10, 5, 1, 20, 7, 13, 3),
    ),
}
"""The jobs of every machine in the best order that is known for a draw too large to enumerate.

They come from twelve million steps of annealing over such orders, each step counted with `keep_tool`.
"""


@dataclass(frozen=True, slots=True)
class ToolSwitching:
    """An instance: the tools that every job needs, and its processing time.

    Parameters
    ----------
    machines, capacity, switching_time
        Identical machines, tools that a magazine holds, time that a tool takes to get there.
    times, needs
        Per job.
    """

    machines: int
    capacity: int
    switching_time: int
    times: Sequence[int]
    needs: Sequence[Tools]

    def scenario(self, name: str, free_filling: bool) -> Scenario:
        """Return it with a time unit of a microsecond; released late enough to fill magazines if that is free."""
        release_us = self.filling_us(free_filling)
        tools = sorted(frozenset[int]().union(*self.needs))
        return least_makespan(
            {
                "name": name,
                "cluster": alike(self.machines, machine(memory_bytes=self.capacity, load_us=self.switching_time)),
                "models": {f"tool{tool}": {"weights": f"{SIZE_BYTES} B"} for tool in tools},
                "workflows": {
                    f"job{job}": {
                        "tasks": {
                            "run": {"runtime": f"{time} us", "models": [f"tool{tool}" for tool in sorted(needed)]}
                        }
                    }
                    for job, (time, needed) in enumerate(zip(self.times, self.needs, strict=True))
                },
                "workload": {
                    "jobs": [{"release": f"{release_us} us", "workflow": f"job{job}"} for job in range(len(self.times))]
                },
                "options": {"overlap_loads": False},
            }
        )

    def filling_us(self, free_filling: bool) -> int:
        """Return what comes off the makespan: the time in which a magazine is filled, if that is free."""
        return self.capacity * self.switching_time if free_filling else 0

    def known(self, free_filling: bool, orders: Orders = ()) -> Bracket | None:
        """Return the optimum where enumeration finds it, and otherwise what given orders reach.

        No plan ends before the machines have done all work in parallel: processing, and a load of every tool that is
        needed, except for those that a first filling may bring along.
        """
        if len(self.times) <= ENUMERATED_JOBS:
            return Bracket.optimum(
                shortest_makespan(
                    self.times, self.needs, self.machines, self.capacity, self.switching_time, free_filling
                )
            )
        if not orders:
            return None
        tools = len(frozenset[int]().union(*self.needs)) - (self.machines * self.capacity if free_filling else 0)
        work = sum(self.times) + self.switching_time * max(0, tools)
        reached = makespan(orders, self.times, self.needs, self.capacity, self.switching_time, free_filling)
        return Bracket(-(-work // self.machines), reached)

    def case(self, name: str, free_filling: bool, orders: Orders = ()) -> Case:
        """Return the case in one of its readings, with what is known of it."""
        name += f", filling {FirstFilling.FREE if free_filling else FirstFilling.PAID}"
        return Case(
            Suite.TOOL_SWITCHING,
            name,
            self.scenario(name, free_filling),
            self.known(free_filling, orders),
            offset_us=self.filling_us(free_filling),
        )


def read(path: Path) -> ToolSwitching:
    """Return the instance of a file.

    First row: machines, jobs, tools, magazine capacity. Then the switching time, the processing times of the jobs, and
    a matrix of 0 and 1 with a row per tool and a column per job. Blank lines are skipped.

    Raises
    ------
    InputError
        If a row is missing or too long, a number is out of range, or a job needs more tools than a magazine holds.
    """
    rows = list(rows_of_numbers(path))
    machines, jobs, tools, capacity = _row(path, rows, 0, "machines, jobs, tools, capacity", 4, 1)
    (switching_time,) = _row(path, rows, 1, "switching time", 1, 1)
    times = _row(path, rows, 2, "processing times", jobs, 1)
    matrix = [_row(path, rows, 3 + tool, f"tool {tool + 1}", jobs, 0, 1) for tool in range(tools)]
    if len(rows) > 3 + tools:
        raise InputError(str(path), rows[3 + tools][0], "rows", f"allowed are the {tools} of the tools, and no more")
    needs = [frozenset(tool for tool in range(tools) if matrix[tool][job]) for job in range(jobs)]
    for job, needed in enumerate(needs):
        if len(needed) > capacity:
            problem = f"needs {len(needed)} tools; allowed are at most the {capacity} that a magazine holds"
            raise InputError(str(path), rows[0][0], f"job {job + 1}", problem)
    return ToolSwitching(machines, capacity, switching_time, times, needs)


def _row(
    path: Path, rows: list[tuple[int, list[int]]], index: int, what: str, length: int, least: int, most: int = 10**9
) -> list[int]:
    """Return the numbers of a row, which must be so many and lie in a range."""
    if index >= len(rows):
        raise InputError(str(path), rows[-1][0] if rows else 1, what, "the file ends before this row")
    line, row = rows[index]
    if len(row) != length or not all(least <= number <= most for number in row):
        raise InputError(str(path), line, what, f"allowed are {length} whole numbers from {least} to {most}")
    return row


def drawn(machines: int, jobs: int, tools: int, capacity: int, switching_time: int, seed: int) -> ToolSwitching:
    """Return a seeded draw: processing times of 5 to 60, and two tools up to a full magazine per job."""
    rng = random.Random(seed)  # noqa: S311
    times = [rng.randint(5, 60) for _ in range(jobs)]
    needs = [frozenset(rng.sample(range(tools), rng.randint(2, capacity))) for _ in range(jobs)]
    return ToolSwitching(machines, capacity, switching_time, times, needs)


def cases(filling: FirstFilling, files: Sequence[Path]) -> Iterator[Case]:
    """Yield seeded draws, or the given files and all files of the given folders instead."""
    readings = (False, True) if filling is FirstFilling.BOTH else (filling is FirstFilling.FREE,)
    for name, instance, orders in _from_files(files) if files else _drawn():
        for free_filling in readings:
            yield instance.case(name, free_filling, orders)


def _from_files(paths: Sequence[Path]) -> Iterator[tuple[str, ToolSwitching, Orders]]:
    for path in paths:
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            yield file.stem, read(file), ()


def _drawn() -> Iterator[tuple[str, ToolSwitching, Orders]]:
    for draw in DRAWS:
        machines, jobs, tools, capacity, switching_time, seed = draw
        name = f"{machines} machines, {jobs} jobs, {capacity} of {tools} tools, switch {switching_time}, seed {seed}"
        yield name, drawn(*draw), BEST_ORDERS.get(draw, ())
