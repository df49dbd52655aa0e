"""``python -m experiments.load_2026_11_21 --time-limit 60``: fills results.csv cell by cell, then draws the picture.

A cell is one draw of arrivals at one rate. Cells that the file already holds, for the same jobs and time limit, are
not computed again, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments import authors
from experiments.load_2026_11_21.figure import figure
from experiments.resumed import fill
from models.objective import reported_bound, reported_value
from models.scenario import Scenario, load_scenario, write_atomically
from planner import plan
from planner.answers.simulate import simulate
from planner.show.canvas import png

FOLDER = Path(__file__).parent
RATES = tuple(half / 2 for half in range(1, 10))
POLICIES = ("compass", "jit", "hash", "static", "srpt", "receding")
PLAN, BOUND = "plan", "lower bound"


@dataclass(frozen=True, slots=True)
class Row:
    """The mean slowdown of one contender in one cell."""

    jobs_per_s: float
    seed: int
    jobs: int
    time_limit_s: float
    contender: str
    mean_slowdown: float

    @property
    def cell(self) -> tuple[float, int, int, float]:
        """What was asked."""
        return self.jobs_per_s, self.seed, self.jobs, self.time_limit_s


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the missing cells and draw the picture."""
    parser = argparse.ArgumentParser(prog="python -m experiments.load_2026_11_21", description=__doc__)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per cell for plan and bound together")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="jobs per second")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where results.csv and the picture lie")
    options = parser.parse_args(arguments)
    cells = [(rate, seed, options.jobs, options.time_limit) for seed in options.seeds for rate in options.rates]
    wanted = fill(options.folder / "results.csv", Row, cells, lambda cell: measured(*cell), tell)
    values = {
        contender: {
            rate: [row.mean_slowdown for row in wanted if (row.contender, row.jobs_per_s) == (contender, rate)]
            for rate in options.rates
        }
        for contender in (*POLICIES, PLAN, BOUND)
    }
    write_atomically(options.folder / "load.png", png(figure(values, options.jobs, len(options.seeds))))


def tell(_: object, rows: Sequence[Row]) -> None:
    """Print what a cell came to."""
    print(", ".join(f"{row.contender} {row.mean_slowdown:.4g}" for row in rows), flush=True)


def measured(rate: float, seed: int, jobs: int, time_limit_s: float) -> Iterator[Row]:
    """Yield the mean slowdown of every policy, of the plan, and the lower bound."""
    scenario = _scenario(rate, seed, jobs)
    simulations = [simulate(scenario, policy) for policy in POLICIES]
    starts = [simulation.timeline for simulation in simulations]
    result = plan(scenario, time_limit_s=time_limit_s, starts=starts).result
    assert result.value is not None
    assert result.lower_bound is not None
    objective = scenario.objective
    for simulation in simulations:
        name = simulation.policy
        yield Row(rate, seed, jobs, time_limit_s, name, reported_value(objective, simulation.value))
    yield Row(rate, seed, jobs, time_limit_s, PLAN, reported_value(objective, result.value))
    yield Row(rate, seed, jobs, time_limit_s, BOUND, reported_bound(objective, result.lower_bound))


def _scenario(rate: float, seed: int, jobs: int) -> Scenario:
    """Return the authors' cluster and workflows with these arrivals; the objective is mean slowdown."""
    like = load_scenario(FOLDER.parent / "scenarios" / "compass_edge.yaml")
    return replace(like, instance=authors.instance(authors.poisson(rate, jobs, seed)))


if __name__ == "__main__":
    main()
