"""``python -m experiments.estimation_error_2026_11_21``: fills results.csv cell by cell, then draws the picture.

A cell is one draw of arrivals at one rate with one error of the estimates. Cells that the file already holds are not
computed again, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from executor import simulate
from experiments import authors
from experiments.estimation_error_2026_11_21.answer import answer
from experiments.estimation_error_2026_11_21.cells import CONTENDERS, LEVELS, PLAN_OF_TRUTH, ErrorCell, Level
from experiments.estimation_error_2026_11_21.figure import draw
from experiments.resumed import fill
from models import assert_feasible, timeline_value
from models.instance import Instance
from models.scenario import Scenario, load_scenario, write_atomically
from models.timeline import Timeline
from planner.answers.policies.offline import anneal
from planner.answers.policies.parse import parse
from planner.answers.uncertain.spec import Sides
from planner.answers.uncertain.told import Told, stretch
from planner.show.canvas import png

FOLDER = Path(__file__).parent
MOVES = 40_000
"""Of the plan that knows the truth, as of the plan for p50."""


@dataclass(frozen=True, slots=True)
class Row:
    """The mean slowdown of one contender in one cell."""

    jobs_per_s: float
    seed: int
    jobs: int
    side: str
    kind: str
    size: float
    contender: str
    mean_slowdown: float

    @property
    def cell(self) -> ErrorCell:
        """What was asked."""
        return ErrorCell(self.jobs_per_s, self.seed, self.jobs, Level(self.side, self.kind, self.size))


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the missing cells and draw the picture."""
    parser = argparse.ArgumentParser(prog="python -m experiments.estimation_error_2026_11_21", description=__doc__)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rates", type=float, nargs="+", default=[2.0, 3.0, 4.0], help="jobs per second")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where results.csv and the picture lie")
    options = parser.parse_args(arguments)
    cells = [
        ErrorCell(rate, seed, options.jobs, level)
        for seed in options.seeds
        for rate in options.rates
        for level in LEVELS
    ]
    wanted = fill(options.folder / "results.csv", Row, cells, measured, tell)
    values = {(row.cell, row.contender): row.mean_slowdown for row in wanted}
    for line in answer(values, options.rates):
        print(line)
    write_atomically(options.folder / "estimation_error.png", png(draw(values, options.rates)))


def tell(cell: ErrorCell, rows: Sequence[Row]) -> None:
    """Print what a cell came to."""
    figures = ", ".join(f"{row.contender} {row.mean_slowdown:.4g}" for row in rows)
    print(f"{cell.jobs_per_s:g}/s, draw {cell.seed}, {cell.level}: {figures}", flush=True)


def measured(cell: ErrorCell) -> Iterator[Row]:
    """Yield the mean slowdown of the plan that knows the truth, and of every contender."""
    like = load_scenario(FOLDER.parent / "scenarios" / "compass_edge.yaml")
    given = authors.instance(authors.poisson(cell.jobs_per_s, cell.jobs, cell.seed))
    sides = told_and_true(cell.level, given, cell.seed)
    scenario = replace(like, instance=sides.told.instance)
    plan = anneal(sides.truth, scenario.objective, MOVES, 0)
    assert plan is not None
    for name, timeline in [(PLAN_OF_TRUTH, plan), *_carried_out(scenario, sides, cell.seed)]:
        assert_feasible(sides.truth, timeline)
        value = float(timeline_value(scenario.objective, sides.truth, timeline))
        level = cell.level
        yield Row(cell.jobs_per_s, cell.seed, cell.jobs, level.side, level.kind, level.size, name, value)


def told_and_true(level: Level, given: Instance, seed: int) -> Sides:
    """Return what is told and what holds; the work that holds is the given one, on average."""
    if level.error is None:
        return Sides(Told.exactly(given), given)
    if level.side == "told":
        return Sides(level.error.told(level.error.around(given, seed)), given)
    medians = stretch(given, np.full(given.n_tasks, 1 / level.mean_factor))
    return Sides(level.error.told(medians), level.error.around(medians, seed))


def _carried_out(scenario: Scenario, sides: Sides, seed: int) -> Iterator[tuple[str, Timeline]]:
    for name, policy in CONTENDERS.items():
        chosen = parse(policy, scenario, sides.told)
        truth = None if sides.truth is scenario.instance else sides.truth
        yield name, simulate(scenario.instance, chosen, seed, truth=truth)


if __name__ == "__main__":
    main()
