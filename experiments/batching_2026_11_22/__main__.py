"""``python -m experiments.batching_2026_11_22 --time-limit 30``: fills results.csv, prints the tables.

A cell is one window and one objective. Cells that the file already holds, for the same time limit, are not computed
again, so an interrupted run goes on where it was. The traces are read from ``../shared/data``, which is not part of
this repository.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

from executor import Policy, parse_policy, simulate
from experiments.batching_2026_11_22.windows import AUTHORS, GENTD26, window
from experiments.resumed import fill
from models import Instance, Objective, Timeline, check, measure, timeline_value
from models.objective import reported_bound, reported_value
from planner.answers.plan import solve
from planner.answers.policies.receding_horizon import RecedingHorizon, RecedingOptions
from solvers.budget import Budget

FOLDER = Path(__file__).parent
PLAN, BOUND, RECEDING = "plan", "lower bound", "receding"
POLICIES = ("compass", "srpt")
BATCHING = ("clockwork", "deferred", "lru")
MOVES = 500
"""Of the receding horizon per decision: there are hundreds of decisions, most with a hundred tasks in hand."""
MOST_JOBS = 200
"""Of windows on which it runs: in the longer one it has ever more in hand."""

Cell = tuple[str, str, bool, bool, float]
"""Workload, objective, whether there are batches, whether models are swapped freely, and the time limit in seconds."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one contender reaches in one cell; of the lower bound only the value of the objective is known."""

    workload: str
    objective: str
    batches: bool
    swaps: bool
    time_limit_s: float
    contender: str
    value: float
    mean_slowdown: float | None = None
    p99_slowdown: float | None = None
    mean_batch_size: float | None = None
    loads: int | None = None

    @property
    def cell(self) -> Cell:
        """What was asked."""
        return self.workload, self.objective, self.batches, self.swaps, self.time_limit_s


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the missing cells and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m experiments.batching_2026_11_22", description=__doc__)
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds per cell for plan and bound together")
    parser.add_argument("--workloads", nargs="+", default=[AUTHORS, GENTD26])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where results.csv lies")
    options = parser.parse_args(arguments)
    objectives = Objective.MEAN_SLOWDOWN, Objective.MAX_SLOWDOWN
    asked = product(options.workloads, map(str, objectives), (False, True), (False, True))
    cells = [(*cell, options.time_limit) for cell in asked]
    rows = fill(options.folder / "results.csv", Row, cells, lambda cell: measured(*cell))
    print(worth(rows))
    print(contenders(rows))


def measured(workload: str, objective: str, batches: bool, swaps: bool, time_limit_s: float) -> Iterator[Row]:
    """Yield what policies, where models are swapped freely, the plan and the lower bound reach."""
    on, aim = window(workload, batches, swaps), Objective(objective)
    cell = workload, objective, batches, swaps, time_limit_s
    ran: dict[str, Timeline] = {}
    if swaps:
        ran = {name: simulate(on, parse_policy(name)) for name in (*POLICIES, *(BATCHING if batches else ()))}
    if swaps and batches and len(on.jobs) <= MOST_JOBS:
        ran[RECEDING] = simulate(on, lambda: _receding(objective))
    result = solve(on, aim, Budget(time_limit_s), starts=list(ran.values()) or None)
    assert result.timeline is not None
    for name, timeline in {**ran, PLAN: result.timeline}.items():
        assert check(on, timeline) == []
        yield _row(cell, name, on, aim, timeline)
    yield Row(*cell, BOUND, reported_bound(aim, result.lower_bound or Fraction(0)))


def _receding(objective: str) -> Policy:
    return RecedingHorizon(RecedingOptions(MOVES, objective=objective))


def _row(cell: Cell, contender: str, on: Instance, objective: Objective, timeline: Timeline) -> Row:
    metrics = measure(on, timeline)
    return Row(
        *cell,
        contender,
        reported_value(objective, timeline_value(objective, on, timeline)),
        round(metrics.mean_slowdown, 4),
        round(metrics.p99_slowdown, 4),
        None if metrics.mean_batch_size is None else round(metrics.mean_batch_size, 3),
        metrics.loads,
    )


def worth(rows: Sequence[Row]) -> str:
    """Return what batches and swaps are worth to the plan: one line per workload and objective."""
    heads = "workload", "plan for", "read", "neither", "swaps", "batches", "both", "bound of both"
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    found = {(*row.cell[:4], row.contender): row for row in rows}
    for workload, objective in dict.fromkeys((row.workload, row.objective) for row in rows):
        plans = [found[workload, objective, b, s, PLAN] for b, s in product((False, True), (False, True))]
        bound = found[workload, objective, True, True, BOUND].value
        if objective == str(Objective.MEAN_SLOWDOWN):
            read, values, last = "mean", [row.mean_slowdown for row in plans], f"{bound:.4g}"
        else:
            read, values, last = "p99", [row.p99_slowdown for row in plans], f"{bound:.4g} (largest)"
        cells = [workload, objective.replace("_", " "), read, *(f"{value:.4g}" for value in values), last]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def contenders(rows: Sequence[Row]) -> str:
    """Return who reaches what where batches and swaps are free, the worst first."""
    heads = "workload", "", "mean slowdown", "x plan", "p99", "mean batch", "loads"
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    aim = str(Objective.MEAN_SLOWDOWN)
    here = [row for row in rows if row.objective == aim and row.batches and row.swaps]
    best = {row.workload: row.value for row in here if row.contender == PLAN}
    for row in sorted(here, key=lambda row: (row.workload, -row.value)):
        ratio = f"{row.value / best[row.workload]:.2f}"
        rest = [f"{x:.4g}" if x is not None else "" for x in (row.p99_slowdown, row.mean_batch_size, row.loads)]
        lines.append("| " + " | ".join([row.workload, row.contender, f"{row.value:.4g}", ratio, *rest]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
