"""What becomes of a plan when run times are not those it was made for: the one engine replays it.

Placement, the order of runs and of loads on every engine, and evictions are kept; times follow.
"""

from __future__ import annotations

from executor import replay, simulate
from models.instance import Instance
from models.timeline import Timeline


def retime(told: Instance, plan: Timeline, truth: Instance) -> Timeline:
    """Return the timeline of `truth` that a plan leads to.

    Parameters
    ----------
    told
        The instance that the plan was made for.
    truth
        The same with the run times that hold.

    Raises
    ------
    PolicyError
        If the plan breaks a rule.
    """
    if told is truth:
        return plan
    return simulate(told, replay(told, plan), truth=truth)
