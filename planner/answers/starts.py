"""Where a plan starts: timelines of online policies, simulated under the same rules, as far as there is time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from executor import PolicyError, StoppedError, parse_policy, simulate
from models.instance import Instance, InstanceError
from models.timeline import Timeline
from solvers.portfolio import Starts

START_POLICIES = ("srpt", "compass", "jit", "static")
"""A plan starts from these and is never worse than the best of them, if there is time to simulate them."""
BATCHING_STARTS = ("clockwork",)
"""Before them, where tasks come in batch classes."""

_S_PER_TASK = 2e-5
"""No policy is simulated in fewer seconds per task, so without that much time it is not begun."""


def starts_for(instance: Instance, seed: int, given: Sequence[Timeline] | None = None) -> Starts:
    """Return where a search starts: the given timelines, or those of the start policies, simulated when asked for.

    A policy that cannot serve the instance is left out.
    """

    def run_each(left_s: Callable[[], float]) -> Iterator[Timeline]:
        """Yield what the policies make of it, as far as the time allows."""
        for name in (*BATCHING_STARTS, *START_POLICIES) if instance.batches else START_POLICIES:
            if left_s() <= _S_PER_TASK * instance.n_tasks:
                return
            try:
                yield simulate(instance, parse_policy(name), seed=seed, stop=lambda: left_s() <= 0)
            except (InstanceError, PolicyError):
                continue  # a branch that nothing runs and no job takes, or models too large for a static placement
            except StoppedError:
                return

    return run_each if given is None else lambda left_s: given
