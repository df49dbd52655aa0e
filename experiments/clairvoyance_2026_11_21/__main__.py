"""Mean slowdown of policies that know ever more of the future, on the recorded arrivals; one rate per run.

Policies whose figures the results hold already are not run again, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from executor import Policy, parse_policy, simulate
from experiments.authors import ARRIVALS, instance, recorded
from experiments.resumed import fill
from models import Instance, Objective, Timeline, assert_feasible, measure
from planner.answers.policies.receding_horizon import EVERYTHING, Oracle, RecedingHorizon, RecedingOptions
from solvers.result import Search
from solvers.search import annealing

HERE = Path(__file__).parent
SECOND = 1_000_000
LOOKAHEADS = {"0 s": 0, "1 s": SECOND, "5 s": 5 * SECOND, "20 s": 20 * SECOND, "all": EVERYTHING}
ONLINE = ("compass", "jit", "srpt")
RECEDING = "receding, look-ahead "


@dataclass(frozen=True, slots=True)
class Row:
    """A policy's figures at a rate, with so many moves per decision where decisions are searched for and timed."""

    rate: int
    policy: str
    moves: int | None
    mean_slowdown: float
    p99_slowdown: float
    mean_latency_s: float
    loads: int
    decisions: int | None = None
    decision_ms: float | None = None
    p99_decision_ms: float | None = None

    @property
    def cell(self) -> tuple[int, str, int | None]:
        """What was asked."""
        return self.rate, self.policy, self.moves


def main() -> int:
    """Run the policies that results.csv lacks at one rate, and print their rows."""
    options = argparse.ArgumentParser(prog="python -m experiments.clairvoyance_2026_11_21", description=__doc__)
    options.add_argument("--rate", type=int, choices=(2, 3, 4), default=3, help="jobs per second")
    options.add_argument("--jobs", type=int, default=300, help="how many of the recorded jobs (default 300)")
    options.add_argument("--moves", type=int, default=6_000, help="moves per decision (default 6,000)")
    options.add_argument("--lookaheads", default=",".join(LOOKAHEADS), help="which look-aheads (default all five)")
    options.add_argument("--plan", type=float, default=30.0, help="seconds for an offline plan; 0: none (default 30)")
    options.add_argument("--folder", type=Path, default=HERE, help="where the results lie")
    given = options.parse_args()
    if not ARRIVALS.is_dir():
        print(f"the recorded arrivals are not at {ARRIVALS}", file=sys.stderr)
        return 1
    on = instance(recorded(given.rate, given.jobs))
    _warm_up()
    policies = [(policy, None) for policy in ONLINE]
    policies += [(f"{RECEDING}{name}", given.moves) for name in given.lookaheads.split(",")]
    policies += [(f"plan, {given.plan:g} s", None)] if given.plan else []
    cells = [(given.rate, policy, moves) for policy, moves in policies]
    path = given.folder / f"results_{given.jobs}_jobs_{given.rate}_per_s.csv"
    fill(path, Row, cells, lambda cell: [_row(on, *cell, given.plan)], lambda _, rows: print(*rows, flush=True))
    return 0


def _row(on: Instance, rate: int, policy: str, moves: int | None, plan_s: float) -> Row:
    times: list[float] = []
    if moves is not None:
        lookahead = LOOKAHEADS[policy.removeprefix(RECEDING)]
        timeline, times = receding(on, RecedingOptions(moves=moves, lookahead=lookahead))
    elif policy in ONLINE:
        timeline = simulate(on, parse_policy(policy))
    else:
        search = Search(on, Objective.MEAN_SLOWDOWN, plan_s)
        annealing.improve(search)
        assert search.timeline is not None
        timeline = search.timeline
    assert_feasible(on, timeline)
    metrics = measure(on, timeline)
    slowdowns = round(metrics.mean_slowdown, 3), round(metrics.p99_slowdown, 3)
    row = Row(rate, policy, moves, *slowdowns, round(metrics.mean_latency_s, 3), metrics.loads)
    spread = [round(float(value), 1) for value in (np.mean(times), np.percentile(times, 99))] if times else [None, None]
    return replace(row, decisions=len(times) or None, decision_ms=spread[0], p99_decision_ms=spread[1])


def receding(on: Instance, options: RecedingOptions) -> tuple[Timeline, list[float]]:
    """Return the timeline of the receding horizon, and the milliseconds of its decisions."""
    made: list[RecedingHorizon] = []

    def make() -> Policy:
        made.append(RecedingHorizon(options, Oracle(on.jobs) if options.lookahead else None))
        return made[-1]

    factory: Callable[[], Policy] = make
    timeline = simulate(on, factory)
    return timeline, [1000 * seconds for seconds in made[-1].decision_s]


def _warm_up() -> None:
    """Have the kernels compiled before anything is timed."""
    begun = time.monotonic()
    receding(instance([(0, "translation"), (1, "question_answer")]), RecedingOptions(moves=10))
    if time.monotonic() - begun > 1:
        print("kernels compiled", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
