"""Where a plan starts: timelines of online policies, simulated under the same rules."""

from __future__ import annotations

from executor import PolicyError, parse_policy, simulate
from models.instance import Instance
from models.timeline import Timeline

START_POLICIES = ("srpt", "compass", "jit", "static")
"""A plan starts from these and is never worse than the best of them."""


def policy_timelines(instance: Instance, seed: int) -> list[Timeline]:
    """Return the timelines of the start policies; a policy that cannot serve the instance is left out."""
    timelines = []
    for name in START_POLICIES:
        try:
            timelines.append(simulate(instance, parse_policy(name), seed=seed))
        except PolicyError:
            continue  # for instance a static placement whose models do not all fit
    return timelines
