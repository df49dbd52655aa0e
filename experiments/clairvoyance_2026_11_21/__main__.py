"""Mean slowdown of policies that know ever more of the future, on the recorded arrivals; one rate per run."""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from executor import Policy, parse_policy, simulate
from experiments.authors import instance, recorded
from models import Instance, Objective, Timeline, assert_feasible, measure
from planner.answers.policies.receding_horizon import EVERYTHING, Oracle, RecedingHorizon, RecedingOptions
from solvers.result import Search
from solvers.search import annealing

HERE = Path(__file__).parent
ARRIVALS = HERE.parents[2] / "shared" / "data" / "compass"
SECOND = 1_000_000
LOOKAHEADS = {"0 s": 0, "1 s": SECOND, "5 s": 5 * SECOND, "20 s": 20 * SECOND, "all": EVERYTHING}
COLUMNS = ("rate", "policy", "mean slowdown", "p99 slowdown", "mean latency s", "loads", "decisions", "ms", "p99 ms")


@dataclass(frozen=True, slots=True)
class Row:
    """A policy's figures at a rate; decision times in milliseconds where decisions are timed."""

    rate: int
    policy: str
    mean_slowdown: float
    p99_slowdown: float
    mean_latency_s: float
    loads: int
    decision_ms: list[float]

    def cells(self) -> list[str]:
        """Return the row as text, in the order of COLUMNS."""
        figures = [f"{value:.3f}" for value in (self.mean_slowdown, self.p99_slowdown, self.mean_latency_s)]
        times = ["", "", ""]
        if self.decision_ms:
            spread = float(np.mean(self.decision_ms)), float(np.percentile(self.decision_ms, 99))
            times = [str(len(self.decision_ms)), *(f"{value:.1f}" for value in spread)]
        return [str(self.rate), self.policy, *figures, str(self.loads), *times]


def main() -> int:
    """Run every policy at one rate, print the rows, and write them beside this file."""
    options = argparse.ArgumentParser(prog="python -m experiments.clairvoyance_2026_11_21", description=__doc__)
    options.add_argument("--rate", type=int, choices=(2, 3, 4), default=3, help="jobs per second")
    options.add_argument("--jobs", type=int, default=300, help="how many of the recorded jobs (default 300)")
    options.add_argument("--moves", type=int, default=6_000, help="moves per decision (default 6,000)")
    options.add_argument("--lookaheads", default=",".join(LOOKAHEADS), help="which look-aheads (default all five)")
    options.add_argument("--plan", type=float, default=30.0, help="seconds for an offline plan; 0: none (default 30)")
    given = options.parse_args()
    if not ARRIVALS.is_dir():
        print(f"the recorded arrivals are not at {ARRIVALS}", file=sys.stderr)
        return 1
    on = instance(recorded(ARRIVALS / f"arrivals_{given.rate}_per_s.csv", given.jobs, from_zero=True))
    _warm_up()
    print(f"{'  '.join(COLUMNS)}   ({len(on.jobs)} jobs, {given.moves} moves)")
    with (HERE / f"results_{given.jobs}_jobs_{given.rate}_per_s.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in _rows(on, given.rate, given.moves, given.lookaheads.split(","), given.plan):
            print("  ".join(row.cells()), flush=True)
            writer.writerow(row.cells())
    return 0


def _rows(on: Instance, rate: int, moves: int, lookaheads: list[str], plan_s: float) -> Iterator[Row]:
    for policy in ("compass", "jit", "srpt"):
        yield _row(rate, policy, on, simulate(on, parse_policy(policy)))
    for name in lookaheads:
        timeline, times = receding(on, RecedingOptions(moves=moves, lookahead=LOOKAHEADS[name]))
        yield _row(rate, f"receding, look-ahead {name}", on, timeline, times)
    if plan_s:
        search = Search(on, Objective.MEAN_SLOWDOWN, plan_s)
        annealing.improve(search)
        if search.timeline is not None:
            yield _row(rate, f"plan, {plan_s:g} s", on, search.timeline)


def receding(on: Instance, options: RecedingOptions) -> tuple[Timeline, list[float]]:
    """Return the timeline of the receding horizon, and the milliseconds of its decisions."""
    made: list[RecedingHorizon] = []

    def make() -> Policy:
        made.append(RecedingHorizon(options, Oracle(on.jobs) if options.lookahead else None))
        return made[-1]

    factory: Callable[[], Policy] = make
    timeline = simulate(on, factory)
    return timeline, [1000 * seconds for seconds in made[-1].decision_s]


def _row(rate: int, policy: str, on: Instance, timeline: Timeline, times: list[float] | None = None) -> Row:
    assert_feasible(on, timeline)
    metrics = measure(on, timeline)
    figures = metrics.mean_slowdown, metrics.p99_slowdown, metrics.mean_latency_s
    return Row(rate, policy, *figures, metrics.loads, times or [])


def _warm_up() -> None:
    """Have the kernels compiled before anything is timed."""
    begun = time.monotonic()
    receding(instance([(0, "translation"), (1, "question_answer")]), RecedingOptions(moves=10))
    if time.monotonic() - begun > 1:
        print("kernels compiled", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
