"""``python -m experiments.estimation_error_2026_11_21``: fills results.csv cell by cell, then draws the picture.

A cell is one draw of arrivals at one rate with one error of the estimates. Cells that the file already holds are not
computed again, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from statistics import NormalDist, fmean, geometric_mean
from typing import TYPE_CHECKING, Annotated

import numpy as np

from experiments import authors
from experiments.bench import ask
from experiments.study import Study, canvas
from truenorth.executor import simulate
from truenorth.models import Instance, Timeline, assert_feasible, timeline_value
from truenorth.models.scenario import Scenario, load_scenario
from truenorth.planner.answers.policies.offline import anneal
from truenorth.planner.answers.policies.parse import parse
from truenorth.planner.answers.uncertain.spec import Error, Sides
from truenorth.planner.answers.uncertain.told import Told, stretch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FOLDER = Path(__file__).with_suffix("")
NONE, TOLD, TRUE = "none", "told", "true"
"""No error; estimates that lie around the truth; truths that lie around the estimates."""
PLAN_OF_TRUTH = "plan that knows the truth"
MOVES = 40_000
"""Of the plan that knows the truth, as of the plan for p50."""
CONTENDERS = {
    # policy, colour (P. Tol's bright set), line, marker
    "plan for p50": ("offline:moves=40000", "#000000", "solid", "o"),
    "plan for p90": ("offline:on=p90,moves=40000", "#000000", "dashed", "s"),
    "plan for samples": ("offline:on=samples,samples=5,moves=20000", "#000000", "dotted", "^"),
    "plan, replanned": ("offline:replan=on,moves=40000", "#AA3377", "solid", "D"),
    "receding horizon": ("receding", "#4477AA", "solid", "o"),
    "srpt": ("srpt", "#228833", "solid", "o"),
    "compass": ("compass", "#EE6677", "solid", "o"),
}
_PLANS = [name for name in CONTENDERS if name.startswith("plan")]


@dataclass(frozen=True, slots=True)
class Level:
    """An error of the estimates, one factor per job: which side errs, the kind of spread and its size."""

    side: str
    kind: str
    size: float

    @property
    def error(self) -> Error | None:
        """The error; None if there is none."""
        return None if self.side == NONE else Error(self.kind, self.size)

    @property
    def mean_factor(self) -> float:
        """Mean of the factor between the two sides."""
        if self.kind == "lognormal":
            return math.exp(self.size**2 / 2)
        levels = (np.arange(100_000) + 0.5) / 100_000
        error = Error(self.kind, self.size)
        return float(np.mean([error.factor(level) for level in levels.tolist()]))

    def __str__(self) -> str:
        return self.side if self.side == NONE else f"{self.side}={self.kind}:{self.size:g}"


LEVELS = (
    Level(NONE, "lognormal", 0.0),
    *(Level(side, "lognormal", sigma) for side in (TRUE, TOLD) for sigma in (0.15, 0.3, 0.6)),
    *(Level(side, "published", 1.0) for side in (TRUE, TOLD)),
)


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """The mean slowdown of one contender in one cell: a draw of arrivals at a rate, with an error."""

    jobs_per_s: float
    seed: int
    jobs: int
    side: str
    kind: str
    size: float
    contender: str
    mean_slowdown: float

    @property
    def level(self) -> Level:
        """The error."""
        return Level(self.side, self.kind, self.size)


def estimation_error(
    jobs: int = 100,
    seeds: tuple[int, ...] = (1, 2, 3),
    rates: Annotated[tuple[float, ...], "jobs per second"] = (2.0, 3.0, 4.0),
    folder: Annotated[Path, "where results.csv and the picture lie"] = FOLDER,
) -> None:
    """Fill the missing cells, print the crossings and draw the picture."""
    study = Study(ErrorRow, 6, measured, [answer], figure, "estimation_error.png", tell=tell)
    cells = product(seeds, rates, LEVELS)
    study.run(((rate, seed, jobs, level.side, level.kind, level.size) for seed, rate, level in cells), folder)


def tell(rows: Sequence[ErrorRow]) -> str:
    """Return what a cell came to."""
    figures = ", ".join(f"{row.contender} {row.mean_slowdown:.4g}" for row in rows)
    return f"{rows[0].jobs_per_s:g}/s, draw {rows[0].seed}, {rows[0].level}: {figures}"


def measured(rate: float, seed: int, jobs: int, side: str, kind: str, size: float) -> Iterator[ErrorRow]:
    """Yield the mean slowdown of the plan that knows the truth, and of every contender."""
    like = load_scenario(FOLDER.parent / "scenarios" / "compass_edge.yaml")
    sides = told_and_true(Level(side, kind, size), authors.instance(authors.poisson(rate, jobs, seed)), seed)
    scenario = replace(like, instance=sides.told.instance)
    plan = anneal(sides.truth, scenario.objective, MOVES, 0)
    assert plan is not None
    for name, timeline in [(PLAN_OF_TRUTH, plan), *_carried_out(scenario, sides, seed)]:
        assert_feasible(sides.truth, timeline)
        value = float(timeline_value(scenario.objective, sides.truth, timeline))
        yield ErrorRow(rate, seed, jobs, side, kind, size, name, value)


def told_and_true(level: Level, given: Instance, seed: int) -> Sides:
    """Return what is told and what holds; the work that holds is the given one, on average."""
    if level.error is None:
        return Sides(Told.exactly(given), given)
    if level.side == TOLD:
        return Sides(level.error.told(level.error.around(given, seed)), given)
    medians = stretch(given, np.full(given.n_tasks, 1 / level.mean_factor))
    return Sides(level.error.told(medians), level.error.around(medians, seed))


def _carried_out(scenario: Scenario, sides: Sides, seed: int) -> Iterator[tuple[str, Timeline]]:
    for name, (policy, *_) in CONTENDERS.items():
        truth = None if sides.truth is scenario.instance else sides.truth
        yield name, simulate(scenario.instance, parse(policy, scenario, sides.told), seed, truth=truth)


def ratios(rows: Sequence[ErrorRow], rate: float, level: Level, contender: str, to: str) -> list[float]:
    """Return the mean slowdowns of a contender at a rate and an error over those of another, draw by draw."""
    here = {
        (row.seed, row.contender): row.mean_slowdown for row in rows if (row.jobs_per_s, row.level) == (rate, level)
    }
    return [here[seed, contender] / here[seed, to] for seed in dict.fromkeys(seed for seed, _ in here)]


def crossing(rows: Sequence[ErrorRow], rate: float, side: str, plan: str, online: str) -> float | None:
    """Return the log-normal spread up to which a plan beats an online policy; 0 for never, None for all asked.

    The mean over the draws of log(plan / online) is taken as linear between the spreads that were asked.
    """
    levels = [level for level in LEVELS if level.side in (NONE, side) and level.kind == "lognormal"]
    points = [(level.size, fmean(map(math.log, ratios(rows, rate, level, plan, online)))) for level in levels]
    if points[0][1] >= 0:
        return 0.0
    for (low, before), (high, after) in pairwise(points):
        if before < 0 <= after:
            return low + (high - low) * before / (before - after)
    return None


def answer(rows: Sequence[ErrorRow]) -> str:
    """Return a line per plan, online policy and side: up to which error the plan is better, at every rate."""
    largest = max(level.size for level in LEVELS if level.kind == "lognormal")
    lines = []
    for side, plan, online in product((TRUE, TOLD), _PLANS, [name for name in CONTENDERS if name not in _PLANS]):
        found = [crossing(rows, rate, side, plan, online) for rate in _rates(rows)]
        words = [f"over {largest:g}" if spread is None else _in_words(spread) for spread in found]
        lines.append(f"{side}: {plan} beats {online} up to a spread of {'; '.join(words)}")
    return "\n".join(lines)


def _rates(rows: Sequence[ErrorRow]) -> list[float]:
    return list(dict.fromkeys(row.jobs_per_s for row in rows))


def _in_words(spread: float) -> str:
    """Return a spread with the median relative error that belongs to it: half of the factors are nearer to 1."""
    return f"{spread:.2f} ({math.exp(NormalDist().inv_cdf(0.75) * spread) - 1:.0%})"


def figure(rows: Sequence[ErrorRow]) -> Figure:
    """Return the chart: regret against the error, a line per contender, a panel per rate and side."""
    made, rates = canvas(11, 7), _rates(rows)
    panels = made.subplots(2, len(rates), sharex=True, sharey=True, squeeze=False)
    titles = {TRUE: "run times stray around the estimates", TOLD: "estimates stray around the run times"}
    for row, (side, title) in zip(panels, titles.items(), strict=True):
        for axes, rate in zip(row, rates, strict=True):
            _panel(axes, rows, rate, side)
            axes.set_title(f"{rate:g} jobs/s, {title}", fontsize=9.5, loc="left")
        row[0].set_ylabel("mean slowdown / that of a\nplan that knows the truth", fontsize=9)
    for axes in panels[1]:
        axes.set_xlabel("standard deviation of the error's logarithm", fontsize=9, loc="left")
    made.suptitle(
        "What do wrong estimates of run times cost? 1 is a plan that knows run times and arrivals.", x=0.01, ha="left"
    )
    made.legend(
        *panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=7, fontsize=9, frameon=False
    )
    return made


def _panel(axes: Axes, rows: Sequence[ErrorRow], rate: float, side: str) -> None:
    levels = [level for level in LEVELS if level.side in (NONE, side)]
    for contender, (_, colour, line, marker) in CONTENDERS.items():
        regret = [geometric_mean(ratios(rows, rate, level, contender, PLAN_OF_TRUTH)) for level in levels]
        last = len(levels) - 1  # the published errors are no point of the line
        axes.plot(regret[:last], linestyle=line, marker=marker, color=colour, label=contender, markersize=4)
        axes.plot([last], regret[last:], linestyle="none", marker=marker, color=colour, markersize=4)
    axes.set_yscale("log")
    ticks = (1, 1.5, 2, 3, 5, 10, 20, 50)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xticks(range(len(levels)), ["none", *(f"{level.size:g}" for level in levels[1:-1]), "pub-\nlished"])
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    ask(estimation_error)
