"""The least size at which an online policy meets the level, by simulation.

Policies are not monotone: one more server can break a level that was met. So every size is simulated, from the lower
bound of all plans upwards, until the first that meets the level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from executor import PolicyError
from models import InstanceError
from planner.answers.servers.decide import meets, reached_by
from planner.answers.servers.hunt import Hunt
from planner.answers.servers.sizes import Mix
from planner.answers.simulate import simulate

DEFAULT_POLICIES = ("srpt", "compass", "jit", "heft", "hash", "static", "receding")
"""Cheap ones first: what they find is where plans start."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """What simulating a policy at one size after the other found.

    Parameters
    ----------
    mix
        The cheapest size at which it meets the level; None if it met it nowhere.
    reached
        Every size that was simulated and the figure reached there that the level limits, in microseconds, as a ratio
        or a share; None where the policy cannot serve at all.
    """

    policy: str
    mix: Mix | None
    reached: tuple[tuple[Mix, Fraction | None], ...]

    @property
    def upto(self) -> Mix | None:
        """The last size that was simulated; None if time was up before the first."""
        return self.reached[-1][0] if self.reached else None


def scan(hunt: Hunt, policies: Sequence[str], share: float) -> list[Scanned]:
    """Simulate policies at the open sizes, for at most a share of the time left; their plans go to the hunt."""
    ask = hunt.question
    reserve = (1 - share) * ask.left_s
    sizes = hunt.open
    return [_scan_one(hunt, policy, sizes, reserve) for policy in policies]


def _scan_one(hunt: Hunt, policy: str, sizes: Sequence[Mix], reserve_s: float) -> Scanned:
    ask = hunt.question
    reached: list[tuple[Mix, Fraction | None]] = []
    for mix in sizes:
        if ask.left_s <= reserve_s:
            break
        ask.tell(f"{policy} on {sum(mix)} servers")
        met, figure = _run(hunt, policy, mix)
        reached.append((mix, figure))
        if met:
            return Scanned(policy, mix, tuple(reached))
    return Scanned(policy, None, tuple(reached))


def _run(hunt: Hunt, policy: str, mix: Mix) -> tuple[bool, Fraction | None]:
    """Say whether a policy meets the level at a size, and what it reaches; where it cannot serve at all it does not."""
    ask = hunt.question
    try:
        scenario = ask.scenario(mix)
    except InstanceError:
        return False, None
    try:
        ran = simulate(scenario, policy, seed=ask.seed)
    except PolicyError:
        return False, None  # for instance a static placement whose models do not all fit
    met = meets(ran.instance, ran.timeline, ask.level)
    if ran.instance is scenario.instance and not ran.timeline.realised:
        hunt.starts.setdefault(mix, []).append(ran.timeline)
        if met:
            hunt.offer(mix, ran.timeline)
    return met, reached_by(ran.instance, ran.timeline, ask.level)
