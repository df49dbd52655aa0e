"""What to order: every mix near the best price at which a policy met the levels, and what that hangs on.

That is how much more traffic the first of them takes, whether it survives a failure, and what it reaches with one model
larger or slower than it was said to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import partial
from typing import Any

from truenorth.executor import Knows, StoppedError, parse_policy
from truenorth.executor.policies.gateways import Gateway
from truenorth.models import BatchClass, Instance, InstanceError, Metrics, Task
from truenorth.models.cluster import ALWAYS, FOREVER, MICROSECONDS_PER_SECOND, Availability
from truenorth.models.scenario import Scenario
from truenorth.models.streams import StreamSpeed
from truenorth.planner.answers.policies.parse import is_own, needs_solver
from truenorth.planner.answers.servers.at_once import least_limit
from truenorth.planner.answers.servers.by_policy import SizeTrial, begin_trials, serve, simulate_at, survives
from truenorth.planner.answers.servers.decide import Reached, figures, meets, reached_by, share_of_limit
from truenorth.planner.answers.servers.hunt import Hunt
from truenorth.planner.answers.servers.record import GrowthTaken, LimitReached, LimitsTried, StrainReached, WorkDone
from truenorth.planner.answers.servers.sizes import Mix, Sizing
from truenorth.planner.answers.simulate import Simulation
from truenorth.planner.answers.uncertain.spec import parse_uncertainty

FEWER_AT_ONCE = "fewer requests at once than seats"
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
    knows, uses
        What it knows of run times, and the information used in words.
    limit
        Most requests at once on a node, None: as many as its engine has seats.
    gone
        What is reached in the worst case of servers that are spare and gone; None if none are.
    ran
        The simulation.
    work
        What is computed of what is offered until the last job ends, as far as servers are there: a batch counts once,
        with its share of the GPU.
    """

    policy: str
    knows: Knows
    uses: str
    mix: Mix
    reached: Reached | None
    ran: Simulation
    work: WorkDone
    limit: int | None = None
    gone: Reached | None = None

    @property
    def metrics(self) -> Metrics:
        """The metrics of the simulation."""
        return self.ran.metrics


@dataclass(frozen=True, slots=True)
class Deployable:
    """What met the levels, and what is known of the first of them; `ServersAnswer` has the same fields."""

    alternatives: tuple[Alternative, ...] = ()
    growth: GrowthTaken | None = None
    strains: tuple[StrainReached, ...] = ()
    survives_failure: bool | None = None


def deploy(hunt: Hunt, trials: Sequence[SizeTrial], shares: Sequence[float], before: Deployable) -> Deployable:
    """Return what can be deployed: look nearby, then try the first answer unless it was the first before.

    Parameters
    ----------
    shares
        Of the time left, in turn: for what costs little more, for a failure, for more traffic, and for other figures.
    """
    nearby, failing, growing, straining = shares
    look_nearby(hunt, trials, nearby)
    found = tuple(rank(hunt, trials))
    if not found or [(each.policy, each.mix) for each in before.alternatives[:1]] == [(found[0].policy, found[0].mix)]:
        return replace(before, alternatives=found)
    survives = fail(hunt, trials, found[0], failing)
    growth = grow(hunt, found[0], growing)
    return Deployable(found, growth, strain(hunt, found[0], straining), survives)


def look_nearby(hunt: Hunt, trials: Sequence[SizeTrial], share: float) -> None:
    """Simulate policies at what costs little more than the best of those that know as much, in a share of the time."""
    ask = hunt.question
    least = _least(ask, ((trial.knows, mix) for trial in trials for mix in trial.met_at))
    reserve_s = (1 - share) * ask.left_s
    for mix in hunt.unrefuted:
        for trial in trials:
            best = least.get(lead(trial.knows, ask.noise))
            near = best is not None and best <= ask.sizes.cost(mix) <= NEAR * best
            if near and mix not in trial.reached and not simulate_at(hunt, trial, mix, reserve_s):
                return


def rank(hunt: Hunt, trials: Sequence[SizeTrial]) -> list[Alternative]:
    """Return what met the levels at up to `NEAR` times the least price of those that know as much.

    Who knows no more than can be known comes first, so that the first one can be ordered; then the cheapest, then by
    mean latency.
    """
    ask = hunt.question
    every = [_alternative(ask, row, mix, ran) for row in trials for mix, ran in row.met_at.items()]
    least = _least(ask, ((each.knows, each.mix) for each in every))
    near = [each for each in every if ask.sizes.cost(each.mix) <= NEAR * least[lead(each.knows, ask.noise)]]

    def rank_of(each: Alternative) -> tuple[Any, ...]:
        size = ask.sizes.rank(each.mix)
        return lead(each.knows, ask.noise), size, each.metrics.mean_latency_s, each.mix, each.policy

    return sorted(near, key=rank_of)


def _alternative(ask: Sizing, row: SizeTrial, mix: Mix, ran: Simulation) -> Alternative:
    gone = [row.runs[case].reached for case in ask.cases(mix) if case.mix != mix]
    reached = [each for each in gone if each is not None]
    worst = max(reached, key=lambda each: share_of_limit(ask.levels, each) or 0.0, default=None)
    work = _work(ask, mix, ran.metrics)
    return Alternative(row.policy, row.knows, row.uses, mix, row.reached[mix], ran, work, row.limit, worst)


def _work(ask: Sizing, mix: Mix, metrics: Metrics) -> WorkDone:
    until_us = round(metrics.makespan_s * MICROSECONDS_PER_SECOND)
    gpus = ask.scenario(mix).instance.cluster.gpus
    offered_us = sum(gpu.gpus * gpu.available.available_us(0, until_us) for gpu in gpus)
    offered_s = offered_us / MICROSECONDS_PER_SECOND
    return WorkDone(metrics.compute_busy * offered_s, offered_s)


def lead(knows: Knows, noise: str | None) -> int:
    """Return by how much a policy knows more than can be known when requests come: not, exact run times, the future.

    Under noise on run times or on what is told of them only clairvoyant policies do. One that does not say may use run
    times.
    """
    if knows in (Knows.RUN_TIMES, Knows.UNDECLARED):
        return int(parse_uncertainty(noise).tells_exactly)
    return 2 if knows is Knows.FUTURE else 0


def _least(ask: Sizing, met: Iterable[tuple[Knows, Mix]]) -> dict[int, Fraction]:
    """Return the least cost at which policies met the levels, by their lead."""
    least: dict[int, Fraction] = {}
    for knows, mix in met:
        group = lead(knows, ask.noise)
        least[group] = min(ask.sizes.cost(mix), least.get(group, ask.sizes.cost(mix)))
    return least


def try_limits(hunt: Hunt, trials: list[SizeTrial], share: float) -> LimitsTried | None:
    """Simulate the best gateway with fewer requests at once, in a share of the time left; None if there is nothing to.

    It is tried at a size below the least that met the levels, where it came closest to them. The best limit joins the
    trials if it meets them there.

    Raises
    ------
    StoppedError
        If time was up before any was tried.
    """
    found = _where(hunt, trials) if _seats(hunt.question.sizes.scenario) > 1 else None
    if found is None:
        return None
    base, mix = found
    most = _seats(hunt.question.scenario(mix))
    ask, reserve_s, made = hunt.question, (1 - share) * hunt.question.left_s, dict[int, SizeTrial]()

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
    if without is None or most == 1:
        return None
    best = least_limit(reach, most, without)
    if not made:
        raise StoppedError
    if best in made and mix in made[best].met_at:
        trials.append(made[best])
    values = [
        LimitReached(limit, figures(ask.levels, trial.reached[mix]), mix in trial.met_at)
        for limit, trial in sorted(made.items())
    ]
    return LimitsTried(base.policy, ask.sizes.size(mix), most, figures(ask.levels, reached), values)


def _seats(scenario: Scenario) -> int:
    """Return the most requests that an engine serves at once."""
    streams = scenario.instance.streams
    return max(speed.seats for row in streams.speeds for speed in row if speed is not None) if streams else 1


def _where(hunt: Hunt, trials: Sequence[SizeTrial]) -> tuple[SizeTrial, Mix] | None:
    """Return the gateway to try limits with, and at which size: of those that knew least, which came closest below.

    Raises
    ------
    StoppedError
        If there are sizes below at which there was no time for one of them.
    """
    ask, found = hunt.question, list[tuple[float, SizeTrial, Mix]]()
    least = [trial for trial in trials if not lead(trial.knows, ask.noise)]
    met = [ask.sizes.cost(trial.mix) for trial in least if trial.mix is not None]
    below = [mix for mix in hunt.unrefuted if all(ask.sizes.cost(mix) < cost for cost in met)]
    gateways = [trial for trial in least if _takes_a_limit(trial.policy)]
    for trial in gateways:
        for mix, reached in trial.reached.items():
            share = None if reached is None else share_of_limit(ask.levels, reached)
            if share is not None and all(ask.sizes.cost(mix) < cost for cost in met):
                found.append((share, trial, mix))
    if not found and any(mix not in trial.reached for trial in gateways for mix in below):
        raise StoppedError
    # Of equals the policy that comes first.
    return min(found, key=lambda each: each[0])[1:] if found else None


def _takes_a_limit(policy: str) -> bool:
    """Say whether a policy is one of Truenorth's gateways."""
    return not is_own(policy) and not needs_solver(policy) and issubclass(parse_policy(policy).policy, Gateway)


def fail(hunt: Hunt, trials: Sequence[SizeTrial], best: Alternative, share: float) -> bool | None:
    """Say whether the best answer survives one failure, as far as a share of the time left tells."""
    if hunt.question.spare:
        return True
    # Which server is gone says which whole servers still are groups, and when others are away: sizes know neither.
    scenario = hunt.question.sizes.scenario
    if scenario.instance.gangs or scenario.document.cluster.away or hunt.question.failures is not None:
        return None
    trial = next(trial for trial in trials if trial.policy == best.policy)
    return survives(hunt, trial, best.mix, (1 - share) * hunt.question.left_s)


def grow(hunt: Hunt, best: Alternative, share: float) -> GrowthTaken | None:
    """Return the largest growth simulated at which the best answer meets the levels, and the least at which not.

    The same requests come closer together: every release is divided by the factor. None if there was no time for it in
    a share of what is left, or where all come at once already.
    """
    ask = hunt.question
    if not ask.sizes.scenario.instance.job_release_us.any():
        return None
    reserve_s = (1 - share) * ask.left_s
    holds, fails, asked = Fraction(1), None, False
    # Whether more traffic is too much is not monotone either; strides find where to look, halves narrow it down.
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
    size, fell = ask.sizes.size(best.mix), None if fails is None else float(fails)
    return GrowthTaken(best.policy, size, float(holds), fell) if asked else None


def _takes(hunt: Hunt, best: Alternative, factor: Fraction, reserve_s: float) -> bool | None:
    """Say whether so many times the traffic meets the levels in every case of the size; None if time is up."""
    ask = hunt.question
    ask.budget.watch(f"{best.policy} with {float(factor):.3g} times the traffic")
    for case in ask.cases(best.mix):
        if ask.left_s <= reserve_s:
            return None
        try:
            ran = serve(ask, best.policy, partial(with_traffic, ask.scenario_in(case), factor), reserve_s)
        except StoppedError:
            return None
        if ran is None or not meets(ran.truth, ran.timeline, ask.levels):
            return False
    return True


def with_traffic(scenario: Scenario, factor: Fraction) -> Scenario:
    """Return a scenario whose jobs come so many times as fast, releases rounded down.

    When servers are away moves along with the jobs, and lasts as long as before.
    """
    instance = scenario.instance
    jobs = tuple(replace(job, release_us=int(job.release_us / factor)) for job in instance.jobs)
    cluster = instance.cluster
    if not instance.always_available:
        gpus = tuple(replace(gpu, available=_moved(gpu.available, factor)) for gpu in cluster.gpus)
        cluster = replace(cluster, gpus=gpus)
    return replace(scenario, instance=replace(instance, jobs=jobs, cluster=cluster))


def _moved(available: Availability, factor: Fraction) -> Availability:
    """Return when a server is there whose absences begin so many times as soon.

    >>> _moved(Availability(((0, 100), (110, FOREVER))), Fraction(2)).absences(FOREVER)
    [(50, 60)]
    """
    away = ((int(gone / factor), gone, back) for gone, back in available.absences(FOREVER))
    moved = [(begin, FOREVER if back == FOREVER else begin + back - gone) for begin, gone, back in away]
    try:
        return ALWAYS.without(moved)
    except ValueError:
        raise InstanceError("leaves a server no time, as it is away for as long as before") from None


FACTOR = Fraction(6, 5)
"""Each model in turn is so many times as large, or its tasks run so many times as long."""


class ChangedFigure(StrEnum):
    """What is said of a model, and may be wrong."""

    RUN_TIME = "run time"
    SIZE = "size"


def strain(hunt: Hunt, best: Alternative, share: float) -> tuple[StrainReached, ...]:
    """Simulate the best answer with each model larger and slower, in a share of the time left; the worst come first.

    What there is no time for is left out.
    """
    ask = hunt.question
    reserve_s, found = (1 - share) * ask.left_s, list[StrainReached]()
    for model, figure in _figures(ask.scenario(best.mix).instance):
        ask.budget.watch(f"{best.policy} with {model} of more {figure}")
        try:
            found.append(_strain(hunt, best, model, figure, reserve_s))
        except StoppedError:
            break
    return tuple(
        sorted(found, key=lambda each: (each.met, each.share_of_limit is not None, -(each.share_of_limit or 0)))
    )


def _strain(hunt: Hunt, best: Alternative, model: str, figure: ChangedFigure, reserve_s: float) -> StrainReached:
    """Return what is reached in the worst case of the size.

    Raises
    ------
    StoppedError
        If time is up before.
    """
    ask, made = hunt.question, list[StrainReached]()
    for case in ask.cases(best.mix):
        if ask.left_s <= reserve_s:
            raise StoppedError
        ran = serve(ask, best.policy, partial(_with_more, ask.scenario_in(case), model, figure), reserve_s)
        if ran is None:
            return StrainReached(model, figure, float(FACTOR), False, None, None)
        reached = reached_by(ran.truth, ran.timeline, ask.levels)
        met = meets(ran.truth, ran.timeline, ask.levels)
        share = share_of_limit(ask.levels, reached)
        made.append(StrainReached(model, figure, float(FACTOR), met, figures(ask.levels, reached), share))
    # The worst of all cases, as the level must hold in each.
    return max(made, key=lambda each: (not each.met, each.share_of_limit or 0))


def _figures(instance: Instance) -> Iterator[tuple[str, ChangedFigure]]:
    """Yield both figures of every model that some task needs."""
    used = {name for workflow in instance.catalogue for task in workflow.tasks for name in task.models}
    for model in instance.models:
        if model.name in used:
            yield from ((model.name, figure) for figure in ChangedFigure)


def _with_more(scenario: Scenario, model: str, figure: ChangedFigure) -> Scenario:
    return replace(scenario, instance=_worse(scenario.instance, model, figure))


def _worse(instance: Instance, model: str, figure: ChangedFigure) -> Instance:
    if figure is ChangedFigure.SIZE:
        models = tuple(
            replace(each, weight_bytes=int(each.weight_bytes * FACTOR)) if each.name == model else each
            for each in instance.models
        )
        return replace(instance, models=models)
    return instance.with_tasks(lambda task: _slower(task) if model in task.models else task)


def _slower(task: Task) -> Task:
    if task.stream is not None:
        speeds = {kind: _slower_steps(speed) for kind, speed in task.stream.speeds.items()}
        slow = replace(task.stream, speeds=speeds)
        return replace(task, stream=slow, runtime_us=slow.least_us)
    if task.batch is None:
        return task.with_times(lambda us: int(us * FACTOR))
    tables = {
        kind: {size: int(us * FACTOR) for size, us in table.items()} for kind, table in task.batch.runtime_us.items()
    }
    slower: BatchClass = replace(task.batch, runtime_us=tables)
    return Task.of_class(task.name, slower, task.inputs, task.input_bytes)


def _slower_steps(speed: StreamSpeed) -> StreamSpeed:
    steps = {count: int(us * FACTOR) for count, us in speed.step_us.items()}
    context_ps, mixed_us = int(speed.context_ps * FACTOR), int(speed.mixed_us * FACTOR)
    rate = speed.prefill_rate / FACTOR
    return replace(speed, prefill_rate=rate, step_us=steps, context_ps=context_ps, mixed_us=mixed_us)
