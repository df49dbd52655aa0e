"""Have a worker that has just started import, and read or compile kernels, before its first cell's time limit runs."""

from __future__ import annotations

from models.scenario import Scenario
from solvers.machine_code import count_loaded

_LONGEST_S = 2.0
"""Time limit of a plan that is made for the sake of what it loads."""
_warm: set[tuple[str, bool, bool]] = set()
"""What this process has planned before, by what decides which kernels it took: objective, batches, runs at a time."""


def warm_up(scenario: Scenario, time_limit_s: float) -> None:
    """Plan the scenario, and throw the plan away, until a plan loads nothing more.

    Nothing is done if this process has planned its like before. A plan that has to compile what begins a search has no
    time left for what comes later, so that one of them is not enough.

    Parameters
    ----------
    time_limit_s
        How long is going to be planned: a shorter search takes other ways.
    """
    from planner.answers.plan import plan

    instance = scenario.instance
    like = (str(scenario.objective), bool(instance.batches), instance.one_at_a_time)
    if like in _warm:
        return
    loaded = -1
    while loaded < (now := count_loaded()):
        loaded = now
        plan(scenario, time_limit_s=min(time_limit_s, _LONGEST_S), workers=1)
    _warm.add(like)
