"""What to order: every mix near the best price at which a policy met the levels, and how much more traffic it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from truenorth.executor import Knows, PolicyError, StoppedError
from truenorth.models import Metrics
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.scenario import Scenario
from truenorth.planner.answers.servers.by_policy import Scanned, SizeTrial, simulate_at, survives
from truenorth.planner.answers.servers.decide import Reached, meets
from truenorth.planner.answers.servers.hunt import Hunt
from truenorth.planner.answers.servers.question import Sizing, remainders
from truenorth.planner.answers.servers.sizes import Mix
from truenorth.planner.answers.simulate import simulate
from truenorth.planner.answers.uncertain.spec import parse_uncertainty

NEAR = Fraction(11, 10)
"""Alternatives cost at most so many times the best."""
_STEPS = (Fraction(11, 10), Fraction(3, 2), Fraction(3))
"""Growths of traffic that are tried one after the other until one is too much; then halves between."""
_HALVINGS = 3


@dataclass(frozen=True, slots=True)
class Alternative:
    """A policy on a mix that met the levels in simulation.

    Parameters
    ----------
    knows
        What it knows of run times.
    offered_s
        GPU-seconds until the last job ended, as far as servers were there.
    """

    policy: str
    knows: Knows
    mix: Mix
    reached: Reached | None
    metrics: Metrics
    offered_s: float

    @property
    def work_s(self) -> float:
        """GPU-seconds computed of those offered: a batch counts once, with its share of the GPU."""
        return self.metrics.compute_busy * self.offered_s


@dataclass(frozen=True, slots=True)
class Growth:
    """How much more traffic the best answer of a policy takes: so many times as many requests per second.

    Parameters
    ----------
    holds
        The largest factor simulated at which the levels were met, 1 if none.
    fails
        The least factor above it at which they were not; None if all that were simulated were met.
    """

    policy: str
    mix: Mix
    holds: Fraction
    fails: Fraction | None


def look_nearby(hunt: Hunt, trials: Sequence[SizeTrial], share: float) -> None:
    """Simulate policies at what costs little more than the best of those that know as much, in a share of the time."""
    ask = hunt.question
    least = _least(ask, ((trial.knows, mix) for trial in trials for mix in trial.met_at))
    reserve_s = (1 - share) * ask.left_s
    for mix in hunt.unrefuted:
        for trial in trials:
            best = least.get(lead(trial.knows, ask.noise))
            near = best is not None and best <= ask.cost(mix) <= NEAR * best
            if near and mix not in trial.reached and not simulate_at(hunt, trial, mix, reserve_s):
                return


def rank(hunt: Hunt, scanned: Sequence[Scanned]) -> list[Alternative]:
    """Return what met the levels at up to `NEAR` times the least price of those that know as much.

    Who knows no more than can be known comes first, so that the first one can be ordered; then the cheapest, then by
    mean latency.
    """
    ask = hunt.question
    every = [
        Alternative(row.policy, row.knows, mix, reached, row.met_at[mix], _offered_s(ask, mix, row.met_at[mix]))
        for row in scanned
        for mix, reached in row.reached
        if mix in row.met_at
    ]
    least = _least(ask, ((each.knows, each.mix) for each in every))
    near = [each for each in every if ask.cost(each.mix) <= NEAR * least[lead(each.knows, ask.noise)]]

    def rank_of(each: Alternative) -> tuple[Any, ...]:
        return lead(each.knows, ask.noise), ask.order(each.mix), each.metrics.mean_latency_s, each.policy

    return sorted(near, key=rank_of)


def _offered_s(ask: Sizing, mix: Mix, metrics: Metrics) -> float:
    """Return the GPU-seconds that a mix offers until the last job has ended."""
    until_us = round(metrics.makespan_s * MICROSECONDS_PER_SECOND)
    gpus = ask.scenario(mix).instance.cluster.gpus
    return sum(gpu.available.available_us(0, until_us) for gpu in gpus) / MICROSECONDS_PER_SECOND


def lead(knows: Knows, noise: str | None) -> int:
    """Return by how much a policy knows more than can be known when requests come: not, exact run times, the future.

    Under noise on run times or on what is told of them nobody but who looks ahead does.
    """
    if knows is Knows.RUN_TIMES:
        return int(parse_uncertainty(noise).tells_exactly)
    return 2 if knows is Knows.FUTURE else 0


def _least(ask: Sizing, met: Iterable[tuple[Knows, Mix]]) -> dict[int, Fraction]:
    """Return the least cost at which policies met the levels, by their lead."""
    least: dict[int, Fraction] = {}
    for knows, mix in met:
        group = lead(knows, ask.noise)
        least[group] = min(ask.cost(mix), least.get(group, ask.cost(mix)))
    return least


def fail(hunt: Hunt, trials: Sequence[SizeTrial], best: Alternative, share: float) -> bool | None:
    """Say whether the best answer survives one failure, as far as a share of the time left tells."""
    if hunt.question.spare:
        return True
    trial = next(trial for trial in trials if trial.policy == best.policy)
    return survives(hunt, trial, best.mix, (1 - share) * hunt.question.left_s)


def grow(hunt: Hunt, best: Alternative, share: float) -> Growth | None:
    """Simulate the best answer with ever more traffic, in a share of the time left.

    The same requests come closer together: every release is divided by the factor. None if there was no time, or where
    all come at once already.
    """
    ask = hunt.question
    if not ask.sizes.scenario.instance.job_release_us.any():
        return None
    reserve_s = (1 - share) * ask.left_s
    holds, fails, asked = Fraction(1), None, False
    for factor in _STEPS:
        met = _takes(hunt, best, factor, reserve_s)
        asked = asked or met is not None
        if met is None:
            break
        if not met:
            fails = factor
            break
        holds = factor
    for _ in range(_HALVINGS if fails is not None else 0):
        middle = (holds + (fails or holds)) / 2
        met = _takes(hunt, best, middle, reserve_s)
        if met is None:
            break
        holds, fails = (middle, fails) if met else (holds, middle)
    return Growth(best.policy, best.mix, holds, fails) if asked else None


def _takes(hunt: Hunt, best: Alternative, factor: Fraction, reserve_s: float) -> bool | None:
    """Say whether so many times the traffic meets the levels, with all that is spare gone, too; None if time is up."""
    ask = hunt.question
    ask.budget.watch(f"{best.policy} with {float(factor):.3g} times the traffic")
    for left in (left for gone in range(ask.spare + 1) for left in remainders(best.mix, gone)):
        if ask.left_s <= reserve_s:
            return None
        try:
            busier = with_traffic(ask.scenario(left), factor)
            ran = simulate(
                busier, best.policy, seed=ask.budget.seed, noise=ask.noise, stop=lambda: ask.left_s <= reserve_s
            )
        except StoppedError:
            return None
        except PolicyError:
            return False
        if not meets(ran.truth, ran.timeline, ask.levels):
            return False
    return True


def with_traffic(scenario: Scenario, factor: Fraction) -> Scenario:
    """Return a scenario whose jobs come so many times as fast, releases rounded down."""
    jobs = tuple(replace(job, release_us=int(job.release_us / factor)) for job in scenario.instance.jobs)
    return replace(scenario, instance=replace(scenario.instance, jobs=jobs))
