"""Take a policy's timeline apart: hold placement and order as it had them, search for the rest, close with the plan."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import cycle, product
from typing import TypeVar

import numpy as np

from truenorth.executor import PolicyError
from truenorth.models.cluster import GPU
from truenorth.models.features import SEVERAL_AT_A_TIME, Feature, require
from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.objective import Objective, timeline_value
from truenorth.models.scenario import Scenario
from truenorth.models.timeline import Timeline
from truenorth.models.workload import Task, Workflow
from truenorth.planner.answers.check import given_us
from truenorth.planner.answers.plan import plan_within
from truenorth.planner.answers.policies.parse import RECEDING
from truenorth.planner.answers.regret import (
    AS_IT_RAN,
    BATCHES,
    ORDER,
    PLACEMENT,
    RESIDENCY,
    TOGETHER,
    Clairvoyance,
    Regret,
    RegretStep,
)
from truenorth.planner.answers.simulate import Simulation, simulate
from truenorth.planner.inputs.told import with_workflows
from truenorth.solvers.budget import Budget, tell_nobody
from truenorth.solvers.result import Result, Search
from truenorth.solvers.search.decoder import Decisions, Decoder

SUPPORTS = SEVERAL_AT_A_TIME - {Feature.ABSENCES}
RECEDING_ALL = f"{RECEDING}:lookahead=all"
"""The receding horizon that sees the whole window."""

_WIDEST = 4_000_000
"""Tasks x GPUs^2 up to which placements are held fixed: then tables of transfers stay below 100 MB."""
_PLAN_SHARE = Fraction(3, 5)
_BATCHES_SHARE = 0.3
"""Of the time for the steps before the plan, what choosing other batches may take."""
_COUNTED = 9
"""Most tasks of batch classes whose choices, two each, are all tried for a lower bound."""
_ORDER_S_PER_TASK, _LEAST_ORDER_S = 0.05, 5.0
"""Reordering gets so many seconds per task at most, and at least as many as small proofs need."""
_RECEDING_S_PER_SQUARED_JOB = 7e-4
"""A receding horizon that sees the whole window takes at most so many seconds per job^2 (twice what was measured)."""
_RECEDING_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class HeldSteps:
    """The steps that keep something of the policy's: all of the chain but the plan.

    Their lower bounds hold for what they keep; that of all plans may be higher.
    """

    scenario: Scenario
    policy: str
    steps: tuple[RegretStep, ...]

    @property
    def best(self) -> Timeline:
        """The best timeline so far: a plan that starts from it ends the chain."""
        return self.steps[-1].timeline

    def closed_by(self, result: Result, clairvoyance: Clairvoyance | None = None) -> Regret:
        """Return the regret, given a plan that is no worse than `best` and the lower bound of all plans.

        Raises
        ------
        ValueError
            If the result has no plan, or a worse one.
        """
        # No objective is negative.
        bound = result.lower_bound or Fraction(0)
        if result.timeline is None or result.value is None or result.value > self.steps[-1].value:
            raise ValueError("the plan must start from the best timeline of the steps before it")
        part = PLACEMENT if self.steps[-1].part == ORDER else TOGETHER
        backwards = [RegretStep(part, result.timeline, result.value, bound)]
        for step in reversed(self.steps):  # what bounds those with more parts free bounds those with fewer
            backwards.append(replace(step, lower_bound=max(step.lower_bound, backwards[-1].lower_bound)))
        steps = tuple(reversed(backwards))
        return Regret(self.scenario, self.policy, steps, bound, result.bound_method, clairvoyance)


def regret(
    scenario: Scenario,
    timeline: Timeline,
    policy: str,
    *,
    time_limit_s: float = 60.0,
    workers: int = 2,
    seed: int = 0,
    known: Result | None = None,
    stop: threading.Event | None = None,
) -> Regret:
    """Take a timeline's regret apart as well as the time allows.

    Parameters
    ----------
    scenario
        With the instance that the timeline belongs to.
    timeline
        Feasible, with the given run times.
    policy
        Name of whoever made it.
    known
        What is known of the scenario: a plan, and a lower bound of all plans.
    stop
        Set it to end early with the best so far.

    Raises
    ------
    ValueError
        If the timeline happened with other run times than the given ones.
    UnsupportedInstanceError
        If servers come and go.
    """
    budget = Budget(time_limit_s, workers=workers, seed=seed, stop=stop or threading.Event())
    return take_apart(scenario, timeline, policy, budget, known)


def take_apart(
    scenario: Scenario, timeline: Timeline, policy: str, budget: Budget, known: Result | None = None
) -> Regret:
    """Take a timeline's regret apart within a budget; the parameters are those of `regret`."""
    budget = replace(budget, watch=tell_nobody)  # what is found for a part is no progress of the whole
    search = Search(scenario.instance, scenario.objective, budget.clock, budget.watch)
    clairvoyance = worth_of_clairvoyance(scenario, _RECEDING_SHARE * budget.time_limit_s, budget.seed)
    held = hold(scenario, timeline, policy, budget.share(float(1 - _PLAN_SHARE)))
    known_plan = None if known is None else known.timeline
    starts = () if known_plan is None else (known_plan,)
    made = plan_within(scenario, budget.share(1), hint=held.best, starts=starts)
    search.offer(held.best)
    # Whichever is better: the chain closes with the best that anybody knows.
    for found in (known, made.result):
        if found is not None and found.timeline is not None:
            search.offer(found.timeline)
        if found is not None and found.lower_bound is not None and found.bound_method is not None:
            search.offer_bound(found.lower_bound, found.bound_method)
    return held.closed_by(search.result("truenorth", {}), clairvoyance)


def hold(scenario: Scenario, timeline: Timeline, policy: str, budget: Budget) -> HeldSteps:
    """Return the steps that keep placement or order as a timeline has them; parameters as those of `regret`."""
    instance, objective, budget = scenario.instance, scenario.objective, replace(budget, watch=tell_nobody)
    instance.require_always_available("taking a schedule apart")
    require(instance, "taking a schedule apart", SUPPORTS)
    ran = with_given_loads(instance, timeline)
    value = timeline_value(objective, instance, ran)
    steps = [RegretStep(AS_IT_RAN, ran, value, value)]
    # Each step starts from the one before, so that no value ever rises.
    steps.append(_with_free_residency(instance, objective, steps[0]))
    if instance.batches:
        steps.append(_with_free_batches(instance, objective, ran, steps[-1], budget.share(_BATCHES_SHARE)))
    # Wider clusters set order and placement free together, in the step that the plan is.
    if instance.n_tasks * instance.n_gpus**2 <= _WIDEST:
        placed = replace(scenario, instance=with_placement(instance, ran.place))
        start, most_s = steps[-1].timeline, max(_LEAST_ORDER_S, _ORDER_S_PER_TASK * instance.n_tasks)
        made = plan_within(placed, budget.share(1, most_s), hint=start, starts=())
        steps.append(_step(instance, objective, ORDER, made.timeline or start, made.result.lower_bound))
    return HeldSteps(scenario, policy, tuple(steps))


def with_given_loads(instance: Instance, timeline: Timeline) -> Timeline:
    """Return a timeline whose loads take the given times and are ready when they were; everything else stays.

    A load that took longer, for instance because of a write-back, starts later instead, which breaks no rule.

    Raises
    ------
    ValueError
        If a run took another time than the given one, or a load less.
    """
    # A plan has the given times by the rules.
    if not timeline.realised:
        return timeline
    if not np.array_equal(timeline.end_us - timeline.start_us, given_us(instance, timeline)):
        raise ValueError("its runs took other times than the given ones; regret compares what the given times allow")
    residencies = [
        # Later, not earlier: the room that it needs is surely there by then.
        stay if stay.initial else replace(stay, load_start_us=stay.ready_us - instance.load_time(stay.model, stay.gpu))
        for stay in timeline.residencies
    ]
    # An earlier start might need room that was not free yet.
    if any(new.load_start_us < old.load_start_us for new, old in zip(residencies, timeline.residencies, strict=True)):
        raise ValueError("a load took less than the given time; regret compares what the given times allow")
    return Timeline.build(instance.n_tasks, timeline.placements, residencies)


def _with_free_residency(instance: Instance, objective: Objective, ran: RegretStep) -> RegretStep:
    """Keep placement, order and batches; loads and evictions look ahead. Below it lies the same list with no loads."""
    decoder = Decoder(instance, objective)
    decisions = decoder.encode(ran.timeline)
    loads_nothing = Decoder(without_models(instance), objective).timeline(decisions)
    # Same order and places, and nobody waits for a load: nothing that keeps them is better.
    bound = None if loads_nothing is None else timeline_value(objective, instance, loads_nothing)
    found = decoder.timeline(decisions)
    return _best_in_order(instance, objective, RESIDENCY, bound, ran.timeline, ran.timeline, found)


def _with_free_batches(
    instance: Instance, objective: Objective, ran: Timeline, before: RegretStep, budget: Budget
) -> RegretStep:
    """Keep placement and order; tasks join the batch before them on their GPU, or lead their own, as is best.

    Decoding takes the order of starts, so that neighbours may run together. Where all choices can be tried, the best of
    them with no loads lies below.
    """
    decoder = Decoder(instance, objective)
    decisions = decoder.encode(before.timeline)
    in_class = instance.template_batch[instance.task_template] != NONE
    free, bound = decisions.order[in_class[decisions.order]], None
    if len(free) <= _COUNTED:
        best = min(_all_batches(decisions, free), key=decoder.cost)
        bare = Decoder(without_models(instance), objective)
        found = filter(None, map(bare.timeline, _all_batches(decisions, free)))
        bound = min((timeline_value(objective, instance, timeline) for timeline in found), default=None)
    else:
        best = _better_batches(decoder, decisions, free, budget)
    return _best_in_order(instance, objective, BATCHES, bound, ran, before.timeline, decoder.timeline(best))


def _all_batches(decisions: Decisions, free: Ints) -> Iterator[Decisions]:
    """Yield the decisions with every choice of who joins, the given one first."""
    yield decisions
    for chosen in product((0, 1), repeat=len(free)):
        joins = np.array(decisions.joins)
        joins[free] = chosen
        yield replace(decisions, joins=joins)


def _better_batches(decoder: Decoder, decisions: Decisions, free: Ints, budget: Budget) -> Decisions:
    """Turn one choice after the other round; it stays so if that costs less, until none does or the time is up."""
    joins, cost, unchanged = np.array(decisions.joins), decoder.cost(decisions), 0
    for task in cycle(free.tolist()):
        if unchanged == len(free) or budget.left_s <= 0:
            break
        joins[task] = 1 - joins[task]
        found = decoder.cost(replace(decisions, joins=joins))
        unchanged = 0 if found < cost else unchanged + 1
        if unchanged:
            joins[task] = 1 - joins[task]
        cost = min(cost, found)
    return replace(decisions, joins=joins)


def _best_in_order(
    instance: Instance, objective: Objective, part: str, bound: Fraction | None, ran: Timeline, *found: Timeline | None
) -> RegretStep:
    """Return the step to the best of what was found among those that keep the order in which tasks started.

    With swaps forbidden the decoder may find no room. Side by side, a task may overtake one that waits for its model.
    """
    kept = (timeline for timeline in found if timeline is not None and _same_order(ran, timeline))
    return min((_step(instance, objective, part, timeline, bound) for timeline in kept), key=lambda step: step.value)


def _same_order(before: Timeline, after: Timeline) -> bool:
    """Say whether no task of a GPU starts before one that had started earlier there."""
    by_start = np.lexsort((after.start_us, before.start_us, before.place))
    together = np.diff(before.place[by_start]) == 0
    return bool((np.diff(after.start_us[by_start])[together] >= 0).all())


def _step(
    instance: Instance, objective: Objective, part: str, timeline: Timeline, bound: Fraction | None
) -> RegretStep:
    return RegretStep(part, timeline, timeline_value(objective, instance, timeline), bound or Fraction(0))


def worth_of_clairvoyance(scenario: Scenario, time_limit_s: float, seed: int) -> Clairvoyance | None:
    """Run the receding horizon with and without the whole window in sight, unless that would take too long."""
    # Beside the chain: rather not told than paid for with its time.
    if len(scenario.instance.jobs) ** 2 * _RECEDING_S_PER_SQUARED_JOB > time_limit_s:
        return None
    try:
        runs = [simulate(scenario, name, seed=seed) for name in (RECEDING, RECEDING_ALL)]
    except PolicyError:
        return None  # restrictions that it cannot keep to
    return clairvoyance_in(runs)


def clairvoyance_in(simulations: Sequence[Simulation]) -> Clairvoyance | None:
    """Return what clairvoyance is worth if the receding horizon is among the simulations with and without it."""
    values = {simulation.policy: simulation.exact for simulation in simulations}
    if RECEDING not in values or RECEDING_ALL not in values:
        return None
    return Clairvoyance(RECEDING, values[RECEDING], values[RECEDING_ALL])


Times = TypeVar("Times")


def with_placement(instance: Instance, gpu: Ints) -> Instance:
    """Return the instance in which every task can run on one GPU only.

    Tasks, jobs and GPUs keep their numbers, times and critical paths, so a timeline of one instance that places the
    tasks so is one of the other. Costs memory in proportion to edges x GPUs^2, as every GPU becomes its own class.

    Parameters
    ----------
    gpu
        Per task; tasks of a batch class on different GPUs are then of different ones. Shape [tasks].
    """
    gpus = tuple(replace(device, kind=f"on {device.id}") for device in instance.cluster.gpus)
    jobs = with_workflows(instance, gpu, partial(_placed, instance))
    return replace(instance, cluster=replace(instance.cluster, gpus=gpus), jobs=jobs)


def _placed(instance: Instance, workflow: Workflow, numbers: range, places: Ints) -> Workflow:
    """Return a workflow whose tasks run in one place; the times of other kinds stay, for critical paths."""

    def place(task: Task, number: int, where: int) -> Task:
        """Return a task that runs on one GPU alone."""
        gpu = instance.cluster.gpus[where]
        if task.batch is not None:
            tables = _move_times(task.batch.runtime_us, task.batch.times_on(gpu.kind), gpu)
            batch = replace(task.batch, name=f"{task.batch.name} on {gpu.id}", runtime_us=tables)
            return Task.of_class(task.name, batch, task.inputs, task.input_bytes)
        return replace(task, runtime_us=_move_times(task.runtime_us, instance.run_time(number, where), gpu))

    tasks = tuple(map(place, workflow.tasks, numbers, places.tolist()))
    return Workflow(workflow.name, tasks, ideal_us=workflow.ideal_us)


def _move_times(times: Mapping[str, Times], here: Times, gpu: GPU) -> dict[str, Times]:
    """Return run times by kind in which one GPU is a kind of its own, and no kind of before exists."""
    return {f"of {kind}": time for kind, time in times.items()} | {f"on {gpu.id}": here}


def without_models(instance: Instance) -> Instance:
    """Return the instance in which no task needs a model: no plan of the given one is better than its best."""
    return instance.with_tasks(_without_models, initial=())


def _without_models(task: Task) -> Task:
    if task.batch is not None:
        return Task.of_class(task.name, replace(task.batch, models=()), task.inputs, task.input_bytes)
    return replace(task, models=())
