"""Run an online policy, or replay a plan, in simulated time; try whether its past depends on the future."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from truenorth.executor import Knows, Policy, PolicyError, PolicyFaultError, instance_for, replay
from truenorth.executor import simulate as run
from truenorth.executor.simulation import Action, change_future, first_difference, past
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.errors import QuestionError
from truenorth.models.feasibility import assert_feasible, check
from truenorth.models.instance import Instance
from truenorth.models.metrics import Metrics, measure
from truenorth.models.objective import ObjectiveValue, reported_value, timeline_value
from truenorth.models.record import take
from truenorth.models.scenario import Scenario, TimelineHeader, write_timeline
from truenorth.models.streams import Fitted
from truenorth.models.timeline import Timeline
from truenorth.planner.answers.check import feasible_timeline
from truenorth.planner.answers.policies.parse import OFFLINE, is_own, parse
from truenorth.planner.answers.shown import Shown, WithTimelines, fitted_laws, frame_of_one
from truenorth.planner.answers.uncertain.spec import parse_uncertainty
from truenorth.planner.answers.versions import provenance
from truenorth.planner.questions.policies import SimulateQuestion

if TYPE_CHECKING:
    import pandas as pd

    from truenorth.solvers.budget import Budget


class BrokenRulesError(PolicyFaultError):
    """What a policy of the user's made breaks a rule: nothing follows from it."""


@dataclass(frozen=True, slots=True)
class Simulation(WithTimelines):
    """What happened when a policy ran; encoded with the keys of ``simulate --json``.

    Parameters
    ----------
    scenario, policy
        What ran, and the policy as it was named.
    instance
        The scenario's instance, or the twin that the policy ran on.
    truth
        The same with the run times that held, by which slowdowns count: another one only if estimates were wrong.
    timeline
        What happened.
    warmup
        Fraction of the earliest jobs that the metrics leave out.
    exact
        The scenario's objective over all jobs, exactly (microseconds, a ratio, or a count).
    metrics
        After the warm-up.
    knows
        What the policy's decisions make of run times; whoever replays a plan may know the future, as who looks ahead.
    """

    ENCODED: ClassVar = ("policy", "objective", "metrics", "fitted")

    scenario: Scenario
    policy: str
    instance: Instance
    truth: Instance
    timeline: Timeline
    warmup: Fraction
    exact: Fraction
    metrics: Metrics
    knows: Knows

    @property
    def value(self) -> float:
        """The objective over all jobs in its reported unit."""
        return reported_value(self.scenario.objective, self.exact)

    @property
    def clairvoyant(self) -> bool:
        """Whether the policy may know the future."""
        return self.knows is Knows.FUTURE

    def __repr__(self) -> str:
        objective = self.scenario.objective
        value = f"{objective} {self.value:.6g} {objective.unit}".strip()
        return f"<Simulation of {self.policy!r} on {self.scenario.name!r}: {value}>"

    @property
    def on_a_twin(self) -> bool:
        """Whether the policy ran on a twin, so that its timeline is none of the scenario's."""
        return self.instance is not self.scenario.instance

    @property
    def shown(self) -> tuple[Shown, ...]:
        """The timeline of what happened."""
        return (Shown(self.policy, self.clairvoyant, self.instance, self.timeline, self.truth),)

    def frame(self) -> pd.DataFrame:
        """Return what happened as a row, with the columns of grids."""
        return frame_of_one(self.policy, self.scenario.objective, self.value, self.metrics)

    @property
    def fitted(self) -> list[Fitted]:
        """What step laws were fitted to, and how far off they are; absent if none was."""
        return fitted_laws(self.instance)

    @property
    def objective(self) -> ObjectiveValue:
        """The objective with its value in its reported unit."""
        return ObjectiveValue(self.scenario.objective, self.value)


def write_simulation(ran: Simulation, path: Path, command: str | None = None) -> None:
    """Write the timeline file, whole or not at all; `command` is what made it, if a command did."""
    header = take(TimelineHeader, ran, objective=str(ran.objective.name), versions=provenance(), command=command)
    write_timeline(path, ran.instance, ran.timeline, header)


def is_file(policy: str) -> bool:
    """Say whether a policy is named by a plan or timeline file."""
    return policy.lower().endswith(".json") and not policy.strip().startswith(f"{OFFLINE}:")


def answer_simulation(asked: SimulateQuestion, scenario: Scenario, budget: Budget) -> Simulation:
    """Run a policy; a simulation has no time limit, but can be stopped."""
    stop = budget.stop.is_set
    return simulate(scenario, asked.policy, seed=asked.seed, noise=asked.noise, warmup=asked.warmup, stop=stop)


def simulate(
    scenario: Scenario,
    policy: str,
    *,
    seed: int = 0,
    noise: str | None = None,
    warmup: Fraction = Fraction(0),
    stop: Callable[[], bool] = lambda: False,
) -> Simulation:
    """Run a policy on a scenario in simulated time.

    Parameters
    ----------
    policy
        A policy's name with parameters, ``module:Class``, or the path of a plan or timeline file (``*.json``).
    noise
        Seeded noise on run times and loads, or how far what is told of run times is from what holds, as
        `planner.answers.uncertain.spec.parse_uncertainty` reads it.
    warmup
        Fraction of the earliest jobs that the metrics leave out.
    stop
        Asked at every instant of the simulation whether to give up.

    Raises
    ------
    StoppedError
        If it was told to give up.
    PolicyError, NoiseError, InputError
        If the policy, the noise or the file cannot be used.
    BrokenRulesError
        If a policy of the user's, which can reach what is not its own, made a timeline that breaks a rule.
    """
    uncertainty = parse_uncertainty(noise)
    sides = uncertainty.sides(scenario, seed)
    told, instance = sides.told.instance, scenario.instance
    chosen: Callable[[], Policy]
    if is_file(policy):
        told, chosen = instance, replay(instance, feasible_timeline(instance, Path(policy)))
        knows = Knows.FUTURE
    else:
        chosen = parsed = parse(policy, scenario, sides.told)
        knows = parsed.knows
        told, instance = instance_for(told, chosen), instance_for(instance, chosen)
    truth = told if sides.truth is told else instance_for(sides.truth, chosen)
    shown = uncertainty.shown(scenario.instance)
    timeline = run(told, chosen, seed, uncertainty.noise, None if truth is told else truth, stop, shown)
    _check(truth, timeline, policy)
    if sides.truth is not scenario.instance:
        timeline = replace(timeline, realised=True)
    value = timeline_value(scenario.objective, truth, timeline)
    metrics = measure(truth, timeline, scenario.slo, warmup)
    return Simulation(scenario, policy, instance, truth, timeline, warmup, value, metrics, knows)


def _check(instance: Instance, timeline: Timeline, policy: str) -> None:
    """Refuse what breaks a rule; of a policy of the tree's, or of a replay, that is a bug."""
    if is_file(policy) or not is_own(policy):
        assert_feasible(instance, timeline)
    elif violations := check(instance, timeline):
        where = f"in {len(violations)} places, first {violations[0]}"
        raise BrokenRulesError(f"policy {policy}: its timeline breaks the rules {where}")


@dataclass(frozen=True, slots=True)
class ActionDone:
    """An action, and when it was taken."""

    at_s: float
    action: str


@dataclass(frozen=True, slots=True)
class PastDifference:
    """Where a past depends on the future: in which draw, what is the same before when, and what is done otherwise."""

    draw: int
    same_jobs_before_s: float
    as_it_was: ActionDone | None
    changed: ActionDone | None


def _done(action: Action | None) -> ActionDone | None:
    return None if action is None else ActionDone(action[0] / MICROSECONDS_PER_SECOND, action[1])


@dataclass(frozen=True, slots=True)
class FutureChanged:
    """What changed futures say of a policy.

    Parameters
    ----------
    draws
        Futures that were drawn.
    compared
        Those in which the policy could serve the window.
    difference
        The first past that differs; None if none does.
    """

    ENCODED: ClassVar = ("policy", "draws", "compared", "passed", "difference")

    scenario: Scenario
    policy: str
    draws: int
    compared: int
    difference: PastDifference | None

    @property
    def passed(self) -> bool:
        """Whether there were pasts to compare, and none differs."""
        return self.compared > 0 and self.difference is None


def try_changed_futures(scenario: Scenario, policy: str, draws: int, *, seed: int = 0) -> FutureChanged:
    """Simulate a policy on the window and on windows whose last jobs are others, up to the first past that differs.

    Parameters
    ----------
    policy
        As `planner.answers.simulate` takes it, but for files.
    draws
        Changed futures to try.
    seed
        Of the draws, and of the simulations.

    Raises
    ------
    QuestionError
        If the policy is a file.
    PolicyError
        If the policy cannot serve the window as it stands.
    """
    if is_file(policy):
        raise QuestionError(f"{policy!r} is the plan of one window; allowed are policies", "policy")
    first, rng, compared = simulate(scenario, policy, seed=seed), random.Random(seed), 0  # noqa: S311
    for draw in range(draws):
        future = change_future(scenario.instance, rng)
        try:
            second = simulate(replace(scenario, instance=future.instance), policy, seed=seed)
        except PolicyError:  # pins that do not fit, say
            continue
        compared += 1
        pasts = [past(ran.instance, ran.timeline, future.before_us) for ran in (first, second)]
        differing = first_difference(*pasts)
        if differing is not None:
            before_s = future.before_us / MICROSECONDS_PER_SECOND
            found = PastDifference(draw, before_s, *map(_done, differing))
            return FutureChanged(scenario, policy, draw + 1, compared, found)
    return FutureChanged(scenario, policy, draws, compared, None)
