"""Where the loss comes from: order, memory or not knowing the future; with models and without."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from executor import parse_policy, simulate
from experiments.authors import instance, recorded
from experiments.clairvoyance_2026_11_21.__main__ import receding
from models import Instance, Objective, Timeline, timeline_value
from planner.answers.policies.receding_horizon import EVERYTHING, RecedingOptions
from solvers.result import Search
from solvers.search import annealing


def main() -> int:
    """Print a row per policy."""
    options = argparse.ArgumentParser(prog="python -m experiments.clairvoyance_2026_11_21.loss", description=__doc__)
    options.add_argument("--rate", type=int, choices=(2, 3, 4), default=4, help="jobs per second (default 4)")
    options.add_argument("--jobs", type=int, default=100, help="how many of the recorded jobs (default 100)")
    options.add_argument("--plan", type=float, default=30.0, help="seconds for an offline plan (default 30)")
    given = options.parse_args()
    on = instance(recorded(given.rate, given.jobs))
    free = without_models(on)
    print(f"mean slowdown, {given.jobs} jobs at {given.rate} jobs/s     with models   without")
    for policy in ("compass", "jit", "srpt"):
        _print(policy, [(each, simulate(each, parse_policy(policy))) for each in (on, free)])
    for name, lookahead in (("0 s", 0), ("all", EVERYTHING)):
        chosen = RecedingOptions(moves=6_000, lookahead=lookahead)
        _print(f"receding, look-ahead {name}", [(each, receding(each, chosen)[0]) for each in (on, free)])
    _print(f"plan, {given.plan:g} s", [(each, _plan(each, given.plan)) for each in (on, free)])
    return 0


def without_models(on: Instance) -> Instance:
    """Return the instance whose tasks need no models."""
    return on.with_tasks(lambda task: replace(task, models=()))


def _plan(on: Instance, seconds: float) -> Timeline:
    search = Search(on, Objective.MEAN_SLOWDOWN, seconds)
    annealing.improve(search)
    assert search.timeline is not None
    return search.timeline


def _print(name: str, outcomes: list[tuple[Instance, Timeline]]) -> None:
    values = [float(timeline_value(Objective.MEAN_SLOWDOWN, on, timeline)) for on, timeline in outcomes]
    print(f"{name:45} {values[0]:12.3f} {values[1]:9.3f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
