"""``python -m experiments.batching_2026_11_22 --time-limit 30``: fills results.csv, prints the tables.

A cell is one window and one objective. Cells that the file already holds, for the same time limit, are not computed
again, so an interrupted run goes on where it was. The traces are read from ``../shared/data``, which is not part of
this repository.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated

from experiments import authors
from experiments.bench import ask, carry_out, plan_window
from experiments.gentd26_2026_11_21 import PEAK_HOUR, imported, owners
from experiments.study import Study, markdown, shown
from truenorth.executor import Policy, simulate
from truenorth.models import (
    BatchClass,
    Instance,
    Objective,
    Restrictions,
    Task,
    Timeline,
    check,
    measure,
    timeline_value,
)
from truenorth.models.objective import reported_value
from truenorth.planner.answers.policies.receding_horizon import RecedingHorizon, RecedingOptions

FOLDER = Path(__file__).with_suffix("")
AUTHORS, GENTD26 = "authors, 6 jobs/s", "GenTD26, 3 GPUs"
PLAN, BOUND, RECEDING = "plan", "lower bound", "receding"
POLICIES = ("compass", "srpt")
BATCHING = ("clockwork", "deferred", "lru")
MOVES = 500
"""Of the receding horizon per decision: there are hundreds of decisions, most with a hundred tasks in hand."""
MOST_JOBS = 200
"""Of windows on which it runs: in the longer one it has ever more in hand."""
_LARGEST = 4
"""Of a batch of requests for a diffusion model: an assumption, as is what a batch takes."""


@dataclass(frozen=True, slots=True)
class BatchingRow:
    """What one contender reaches in one cell; of the lower bound only the value of the objective is known.

    A cell is a workload, an objective, whether there are batches, whether models are swapped freely, and a time limit.
    """

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


def batching(
    time_limit: Annotated[float, "seconds per cell for plan and bound together"] = 30.0,
    workloads: tuple[str, ...] = (AUTHORS, GENTD26),
    folder: Annotated[Path, "where results.csv lies"] = FOLDER,
) -> None:
    """Fill the missing cells and print the tables."""
    objectives = str(Objective.MEAN_SLOWDOWN), str(Objective.MAX_SLOWDOWN)
    cells = product(workloads, objectives, (False, True), (False, True), [time_limit])
    Study(BatchingRow, 5, measured, [worth, contenders]).run(cells, folder)


def window(workload: str, batches: bool, swaps: bool) -> Instance:
    """Return a window; without swaps models stay where they are once loaded, or are swapped among their own GPUs only.

    The authors' models fit their GPUs together, so none is ever evicted. The 18 of GenTD26 do not: each belongs to as
    many GPUs as its share of the work asks for, as in the study of that trace.
    """
    if workload == AUTHORS:
        arrivals = authors.recorded(4, 100)
        plain = authors.instance([(release * 4 // 6, name) for release, name in arrivals])
        made = authors.batched(plain) if batches else plain
        return made if swaps else replace(made, restrictions=Restrictions(no_swaps=True))
    plain = imported(*PEAK_HOUR, 3).instance
    made = in_classes(plain) if batches else plain
    if swaps:
        return made
    number = {gpu.id: index for index, gpu in enumerate(plain.cluster.gpus)}
    pins = {model: frozenset(number[gpu] for gpu in on) for model, on in owners(plain).items()}
    return replace(made, restrictions=Restrictions(model_gpus=pins))


def in_classes(plain: Instance) -> Instance:
    """Return an instance in which b tasks of equal models and run time p take p x (0.7 + 0.3 b) together."""

    def classed(task: Task) -> Task:
        runtime_us = task.runtime_us["*"]
        times = {size: runtime_us * (7 + 3 * size) // 10 for size in range(1, _LARGEST + 1)}
        batch = BatchClass(f"{'+'.join(task.models)} of {runtime_us} us", {"*": times}, task.models)
        return Task.of_class(task.name, batch, task.inputs)

    return plain.with_tasks(classed)


def measured(workload: str, objective: str, batches: bool, swaps: bool, time_limit_s: float) -> Iterator[BatchingRow]:
    """Yield what policies, where models are swapped freely, the plan and the lower bound reach."""
    on, aim = window(workload, batches, swaps), Objective(objective)
    cell = workload, objective, batches, swaps, time_limit_s
    ran: dict[str, Timeline] = {}
    if swaps:
        ran = {name: carry_out(on, name)[1] for name in (*POLICIES, *(BATCHING if batches else ()))}
    if swaps and batches and len(on.jobs) <= MOST_JOBS:
        ran[RECEDING] = simulate(on, lambda: _receding(objective))
    found = plan_window(on, aim, time_limit_s, starts=list(ran.values()) or None)
    for name, timeline in {**ran, PLAN: found["result"].timeline}.items():
        assert check(on, timeline) == []
        metrics, value = measure(on, timeline), timeline_value(aim, on, timeline)
        slowdowns = round(metrics.mean_slowdown, 4), round(metrics.p99_slowdown, 4)
        size = None if metrics.mean_batch_size is None else round(metrics.mean_batch_size, 3)
        yield BatchingRow(*cell, name, reported_value(aim, value), *slowdowns, size, metrics.loads)
    yield BatchingRow(*cell, BOUND, found["bound"] or 0.0)


def _receding(objective: str) -> Policy:
    return RecedingHorizon(RecedingOptions(MOVES, objective=objective))


def worth(rows: Sequence[BatchingRow]) -> str:
    """Return what batches and swaps are worth to the plan: one line per workload and objective."""
    heads = "workload", "plan for", "read", "neither", "swaps", "batches", "both", "bound of both"
    found = {(row.workload, row.objective, row.batches, row.swaps, row.contender): row for row in rows}
    lines = []
    for workload, objective in dict.fromkeys((row.workload, row.objective) for row in rows):
        plans = [found[workload, objective, b, s, PLAN] for b, s in product((False, True), (False, True))]
        bound = found[workload, objective, True, True, BOUND].value
        if objective == str(Objective.MEAN_SLOWDOWN):
            read, values, last = "mean", [row.mean_slowdown for row in plans], f"{bound:.4g}"
        else:
            read, values, last = "p99", [row.p99_slowdown for row in plans], f"{bound:.4g} (largest)"
        lines.append([workload, objective.replace("_", " "), read, *(f"{value:.4g}" for value in values), last])
    return markdown(heads, lines) + "\n"


def contenders(rows: Sequence[BatchingRow]) -> str:
    """Return who reaches what where batches and swaps are free, the worst first."""
    heads = "workload", "", "mean slowdown", "x plan", "p99", "mean batch", "loads"
    aim = str(Objective.MEAN_SLOWDOWN)
    here = [row for row in rows if row.objective == aim and row.batches and row.swaps]
    best = {row.workload: row.value for row in here if row.contender == PLAN}
    lines = []
    for row in sorted(here, key=lambda row: (row.workload, -row.value)):
        rest = [shown(value, ".4g") for value in (row.p99_slowdown, row.mean_batch_size, row.loads)]
        ratio = f"{row.value / best[row.workload]:.2f}"
        lines.append([row.workload, row.contender, f"{row.value:.4g}", ratio, *rest])
    return markdown(heads, lines)


if __name__ == "__main__":
    ask(batching)
