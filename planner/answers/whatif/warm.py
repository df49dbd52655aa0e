"""Have a worker that has just started import, and read or compile kernels, before its first cell's time limit runs."""

from __future__ import annotations

from models.scenario import Scenario

_LONGEST_S = 2.0
"""Time limit of a plan that is made for the sake of what it loads."""
_PLANS = 2
"""The first may spend its limit on what begins the search, so that the second has yet to load what follows."""
_warm: set[tuple[str, bool, bool]] = set()
"""What this process has planned before, by what decides which kernels a plan takes: objective, batches, kinds."""


def warm_up(scenario: Scenario, time_limit_s: float) -> None:
    """Plan the scenario and throw the plans away, unless this process has planned its like before.

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
    for _ in range(_PLANS):
        plan(scenario, time_limit_s=min(time_limit_s, _LONGEST_S), workers=1)
    _warm.add(like)
