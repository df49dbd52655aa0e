"""Fewer requests at once on a node than its engine has seats: whether that meets the levels with a cheaper fleet.

With fewer decodes beside each other steps are shorter, and requests wait longer for a seat: what is reached mostly
falls with the limit and then rises. Halves of the seats, and then what lies beside the best of them, lead to about the
best limit in some ten simulations. It is a setting of the engine, and needs no other router.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from truenorth.executor.policies.gateways import Gateway
from truenorth.executor.policies.parse import parse_policy
from truenorth.planner.answers.policies.parse import is_own, needs_solver
from truenorth.planner.answers.servers.by_policy import SizeTrial, begin_trials, simulate_at
from truenorth.planner.answers.servers.decide import figures, share_of_limit
from truenorth.planner.answers.servers.deployable import lead
from truenorth.planner.answers.servers.hunt import Hunt
from truenorth.planner.answers.servers.record import LimitReached, LimitsTried
from truenorth.planner.answers.servers.sizes import Mix

_REFINEMENTS = 2
"""How often the limits half-way to the neighbours of the best one are tried."""


def try_limits(hunt: Hunt, trials: list[SizeTrial], share: float) -> LimitsTried | None:
    """Simulate the best gateway with fewer requests at once, in a share of the time left; None if there is nothing to.

    It is tried at a size below the least that met the levels, where it came closest to them. The best limit joins the
    trials if it meets them there.
    """
    found = _where(hunt, trials)
    if found is None:
        return None
    base, mix = found
    ask, reserve_s, made = hunt.question, (1 - share) * hunt.question.left_s, dict[int, SizeTrial]()
    streams = ask.scenario(mix).instance.streams
    most = max(speed.seats for row in streams.speeds for speed in row if speed is not None) if streams else 1

    def reach(limit: int) -> float | None:
        """Return which share of the limits of the levels is taken up; None if time was up, or none can be said."""
        (trial,) = begin_trials(hunt, [f"{base.policy}{',' if ':' in base.policy else ':'}limit={limit}"])
        if not simulate_at(hunt, trial, mix, reserve_s):
            return None
        made[limit] = trial
        reached = trial.reached[mix]
        return None if reached is None else share_of_limit(ask.levels, reached)

    reached = base.reached[mix]
    without = None if reached is None else share_of_limit(ask.levels, reached)
    if without is None:
        return None
    best = least_limit(reach, most, without)
    if not made:
        return None
    if best in made and mix in made[best].met_at:
        trials.append(made[best])
    values = [
        LimitReached(limit, figures(ask.levels, trial.reached[mix]), mix in trial.met_at)
        for limit, trial in sorted(made.items())
    ]
    return LimitsTried(base.policy, ask.sizes.size(mix), most, figures(ask.levels, reached), values)


def least_limit(reach: Callable[[int], float | None], most: int, without: float) -> int:
    """Return a limit at which least is reached, found by halves of `most`, where `without` is, and then between them.

    >>> least_limit(lambda limit: abs(limit - 11), 64, 53)
    12
    """
    tried = {most: without}

    def is_better(limit: int) -> bool:
        least, value = min(tried.values()), reach(limit) if limit not in tried else None
        if value is not None:
            tried[limit] = value
        return value is not None and value < least

    limit = most // 2
    while limit and (value := reach(limit)) is not None:
        tried[limit] = value
        if value > min(tried.values()):
            break
        limit //= 2
    for _ in range(_REFINEMENTS):
        at = _best(tried)
        below = max((limit for limit in tried if limit < at), default=at)
        above = min((limit for limit in tried if limit > at), default=at)
        for middle in ((below + at) // 2, (at + above) // 2):
            # One side that is better leaves the other one behind.
            if is_better(middle):
                break
    return _best(tried)


def _best(tried: dict[int, float]) -> int:
    """Return the limit at which least is reached; of equals the largest, which holds up no one for nothing."""
    return min(tried, key=lambda limit: (tried[limit], -limit))


def _where(hunt: Hunt, trials: Sequence[SizeTrial]) -> tuple[SizeTrial, Mix] | None:
    """Return the gateway to try limits with, and at which size: of those that knew least, which came closest below."""
    ask, found = hunt.question, list[tuple[float, SizeTrial, Mix]]()
    least = [trial for trial in trials if not lead(trial.knows, ask.noise)]
    met = [ask.sizes.cost(trial.mix) for trial in least if trial.mix is not None]
    for trial in filter(lambda trial: _takes_a_limit(trial.policy), least):
        for mix, reached in trial.reached.items():
            share = None if reached is None else share_of_limit(ask.levels, reached)
            if share is not None and all(ask.sizes.cost(mix) < cost for cost in met):
                found.append((share, trial, mix))
    # Of equals the policy that comes first.
    return min(found, key=lambda each: each[0])[1:] if found else None


def _takes_a_limit(policy: str) -> bool:
    """Say whether a policy is one of Truenorth's gateways."""
    return not is_own(policy) and not needs_solver(policy) and issubclass(parse_policy(policy).policy, Gateway)
