"""``python -m experiments decisions joint``, ``future``: what single decisions, and the future, are worth.

Cells that the results hold are not computed again, so an interrupted run goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import truenorth as tn
from experiments.bench import Study, ask, markdown
from truenorth.models.scenario import Scenario
from truenorth.planner.answers.intervals import interval_of

HERE = Path(__file__).parent
SCENARIOS = HERE.parents[1] / "scenarios"
JOBS, PLAN, BOUND = 40, "plan", "lower bound"
MEMORIES = ("14 GB", "7 GB")
RATES = (2, 3, 4)
LOOKAHEADS = ("0 s", "1 s", "5 s", "60 s")
"""The last is longer than any window: everything is known."""
ONLINE = ("srpt", "ahead")


@dataclass(frozen=True, slots=True)
class JointRow:
    """Mean slowdown of a plan, and what no plan goes below, where batches and swaps are allowed or not."""

    memory: str
    batches: bool
    swaps: bool
    seed: int
    plan: float
    bound: float
    loads: int


def joint(
    time_limit: Annotated[float, "seconds for a plan and its bound"] = 20.0,
    draws: Annotated[int, "how many windows"] = 5,
    folder: Annotated[Path, "where joint.csv lies"] = HERE,
) -> None:
    """Plan the same jobs with and without batches and swaps, and print what they are worth."""

    def planned(memory: str, batches: bool, swaps: bool, seed: int) -> Iterator[JointRow]:
        """Yield the row of a cell."""
        on = _loaded("compass_batches" if batches else "compass_edge", 6, seed)
        limits = {} if swaps else {"restrictions.no_swaps": True}
        made = tn.plan(on.changed({"cluster.gpu.memory": memory, **limits}), time_limit=time_limit, workers=1)
        assert made.value is not None
        assert made.metrics is not None
        yield JointRow(memory, batches, swaps, seed, made.value, made.lower_bound or 0.0, made.metrics.loads)

    cells = product(MEMORIES, (False, True), (False, True), range(1, draws + 1))
    Study(JointRow, 4, planned, [worth], results="joint.csv").run(cells, folder)


def _loaded(name: str, rate: int, seed: int) -> Scenario:
    poisson = {"rate": f"{rate} /s", "jobs": JOBS, "seed": seed}
    return tn.load(SCENARIOS / f"{name}.yaml").changed({f"workload.poisson.{key}": poisson[key] for key in poisson})


def worth(rows: Sequence[JointRow]) -> str:
    """Return mean slowdowns of plans: one line per memory."""
    lines = []
    for memory in dict.fromkeys(row.memory for row in rows):
        ways = [
            [row for row in rows if (row.memory, row.batches, row.swaps) == (memory, batches, swaps)]
            for batches, swaps in product((False, True), (False, True))
        ]
        cells = [f"{fmean(row.plan for row in way):.3f} ({fmean(row.bound for row in way):.3f})" for way in ways]
        lines.append([memory, *cells])
    return markdown(["memory", "neither", "swaps", "batches", "both"], lines, " --: |")


@dataclass(frozen=True, slots=True)
class FutureRow:
    """Mean slowdown of somebody on a window; `bound` is known of plans."""

    rate: int
    seed: int
    contender: str
    value: float
    bound: float | None = None


def future(
    time_limit: Annotated[float, "seconds for a plan and its bound"] = 20.0,
    draws: Annotated[int, "how many windows per rate"] = 10,
    folder: Annotated[Path, "where future.csv lies"] = HERE,
) -> None:
    """Let the receding horizon know ever more of the future, beside a plan and rules, and print the ratios."""

    def measured(rate: int, seed: int, contender: str) -> Iterator[FutureRow]:
        """Yield the row of a cell."""
        on = _loaded("compass_edge", rate, seed)
        if contender == PLAN:
            made = tn.plan(on, time_limit=time_limit, workers=1)
            assert made.value is not None
            yield FutureRow(rate, seed, contender, made.value, made.lower_bound)
        else:
            yield FutureRow(rate, seed, contender, float(tn.simulate(on, contender).value))

    contenders = [PLAN, *(f"receding:lookahead={known.replace(' ', '')}" for known in LOOKAHEADS), *ONLINE]
    cells = product(RATES, range(1, draws + 1), contenders)
    Study(FutureRow, 3, measured, [distances], results="future.csv").run(cells, folder)


def distances(rows: Sequence[FutureRow]) -> str:
    """Return what each contender takes, times the plan of the same window: mean and interval."""
    found: Mapping[Any, FutureRow] = {(row.rate, row.seed, row.contender): row for row in rows}
    lines = []
    for contender in dict.fromkeys(row.contender for row in rows if row.contender != PLAN):
        cells = []
        for rate in RATES:
            ratio = interval_of([
                row.value / found[rate, row.seed, PLAN].value
                for row in rows if (row.rate, row.contender) == (rate, contender)
            ])  # fmt: skip
            between = "" if ratio.low is None else f" [{ratio.low:.3f}, {ratio.high:.3f}]"
            cells.append(f"{ratio.mean:.3f}{between}")
        lines.append([f"`{contender}`", *cells])
    plans = [[row for row in rows if (row.rate, row.contender) == (rate, PLAN)] for rate in RATES]
    gaps = [fmean(1 - (row.bound or 0) / row.value for row in here) for here in plans]
    lines.append(["gap of the plans", *(f"{gap:.1%}" for gap in gaps)])
    return markdown(["mean slowdown, times the plan's", *(f"{rate} jobs/s" for rate in RATES)], lines, " --: |")


main = partial(ask, {"joint": joint, "future": future})
