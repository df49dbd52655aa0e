"""Plan a window: starts from online policies, improves by search, proves by bounds, within one time limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from truenorth.executor import PolicyError, StoppedError, parse_policy, simulate
from truenorth.executor.policies.parse import suited
from truenorth.executor.policy import Policy
from truenorth.models.instance import Instance, InstanceError
from truenorth.models.metrics import Metrics, measure
from truenorth.models.objective import Objective, ObjectiveValue, Status, reported_bound, reported_value
from truenorth.models.record import take
from truenorth.models.scenario import Scenario, TimelineHeader, write_timeline
from truenorth.models.timeline import Timeline
from truenorth.planner.answers.shown import Shown, WithTimelines, frame_of_one, is_converged
from truenorth.planner.answers.split import jobs_apart
from truenorth.planner.answers.versions import provenance
from truenorth.planner.questions.searches import PlanQuestion
from truenorth.solvers import portfolio
from truenorth.solvers.budget import Budget
from truenorth.solvers.portfolio import Starts
from truenorth.solvers.result import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Plan(WithTimelines):
    """A plan of a scenario, with what is proved about it; it knows the future, as no online policy does.

    Parameters
    ----------
    scenario
        What was planned.
    result
        Timeline, bound and how they came about.
    metrics
        Of the timeline over all jobs; None without one.
    interrupted
        Whether the search was interrupted: what was found by then.
    """

    scenario: Scenario
    result: Result
    metrics: Metrics | None
    interrupted: bool = False

    @classmethod
    def of(cls, scenario: Scenario, result: Result) -> Plan:
        """Return a result as a plan, measured."""
        timeline = result.timeline
        return cls(scenario, result, None if timeline is None else measure(scenario.instance, timeline, scenario.slo))

    def __repr__(self) -> str:
        objective = self.scenario.objective
        said = [str(self.status).lower()]
        if self.value is not None:
            said.append(f"{objective} {self.value:.6g} {objective.unit}".rstrip())
        if self.lower_bound is not None:
            said.append(f"lower bound {self.lower_bound:.6g}")
        return f"<Plan of {self.scenario.name!r}: {', '.join([*said, *['interrupted'] * self.interrupted])}>"

    @property
    def timeline(self) -> Timeline | None:
        """What happens when; None if no plan was found."""
        return self.result.timeline

    @property
    def shown(self) -> tuple[Shown, ...]:
        """The plan's timeline, if there is one."""
        if self.timeline is None:
            return ()
        return (Shown("plan", True, self.scenario.instance, self.timeline),)

    @property
    def jobs_apart(self) -> int:
        """How many jobs of equal tasks side by side have these begin at different times; see `split.jobs_apart`."""
        return 0 if self.timeline is None else jobs_apart(self.scenario.instance, self.timeline)

    @property
    def value(self) -> float | None:
        """The objective in its reported unit; None without a plan."""
        return None if self.result.value is None else reported_value(self.scenario.objective, self.result.value)

    @property
    def lower_bound(self) -> float | None:
        """The bound in the unit of the objective, rounded down; None without one."""
        bound = self.result.lower_bound
        return None if bound is None else reported_bound(self.scenario.objective, bound)

    @property
    def gap(self) -> float | None:
        """How far the plan may be from the optimum: (value - bound) / value; None without a plan or a bound."""
        return self.result.gap

    @property
    def status(self) -> Status:
        """Whether the plan is optimal, feasible, or why there is none."""
        return self.result.status

    @property
    def objective(self) -> ObjectiveValue:
        """The objective with its value in its reported unit."""
        return ObjectiveValue(self.scenario.objective, self.value)

    @property
    def incumbents(self) -> list[tuple[float, float | None, float | None]]:
        """Seconds, value and bound at each improvement, in reported units."""
        objective = self.scenario.objective
        return [
            (
                moment.seconds,
                None if moment.value is None else reported_value(objective, moment.value),
                None if moment.bound is None else reported_bound(objective, moment.bound),
            )
            for moment in self.result.incumbents
        ]

    def frame(self) -> pd.DataFrame:
        """Return the plan as a row: value, lower bound, gap and metrics, with the columns of grids."""
        proved = {"lower_bound": self.lower_bound, "gap": self.result.gap, "status": str(self.result.status)}
        return frame_of_one("plan", self.scenario.objective, self.value, self.metrics, **proved)

    def record(self, path: Path | None = None) -> PlanRecord:
        """Return the plan's summary with the keys of ``plan --json``; `path` is where it was written."""
        return take(
            PlanRecord,
            self,
            self.result,
            converged=is_converged(self.result.gap, self.result.bound_method),
            within_time_limit=self.result.within_limit,
            plan=None if path is None else str(path),
        )


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan in reported units; incumbents are seconds, value and bound at each improvement."""

    status: Status
    objective: ObjectiveValue
    lower_bound: float | None
    bound_method: str | None
    gap: float | None
    converged: bool
    fell_back: str | None
    proved_by: str | None
    confirmed_by: str | None
    faults: Sequence[str]
    runtime_s: float
    cpu_s: float
    within_time_limit: bool
    left_out: Mapping[str, str]
    jobs_apart: int
    incumbents: list[tuple[float, float | None, float | None]]
    metrics: Metrics | None
    plan: str | None


def write_plan(made: Plan, path: Path, command: str | None = None) -> None:
    """Write the plan file, whole or not at all; `command` is what made it, if a command did.

    Raises
    ------
    ValueError
        If no plan was found.
    """
    result = made.result
    if result.timeline is None:
        raise ValueError(f"no plan was found ({result.status})")
    seed = result.options.get("seed")
    header = take(
        TimelineHeader,
        made,
        result,
        status=str(result.status),
        objective=str(made.scenario.objective),
        seed=seed if isinstance(seed, int) else None,
        options=dict(result.options),
        versions=provenance(),
        command=command,
    )
    write_timeline(path, made.scenario.instance, result.timeline, header)


def answer_plan(asked: PlanQuestion, scenario: Scenario, budget: Budget) -> Plan:
    """Plan a scenario within a budget."""
    return plan_within(scenario, budget, hint=asked.hint, starts=asked.starts)


def plan_within(
    scenario: Scenario, budget: Budget, *, hint: Timeline | None = None, starts: Sequence[Timeline] | None = None
) -> Plan:
    """Plan a scenario; the parameters are those of `planner.questions.searches.PlanQuestion`."""
    return Plan.of(scenario, solve(scenario.instance, scenario.objective, budget, hint=hint, starts=starts))


def solve(
    instance: Instance,
    objective: Objective,
    budget: Budget,
    *,
    hint: Timeline | None = None,
    starts: Sequence[Timeline] | None = None,
) -> Result:
    """Plan an instance, starting from online policies; the parameters are those of `plan_within`."""
    first = starts_for(instance, budget.seed, starts)
    return portfolio.solve(instance, objective, budget, hint=hint, starts=first)


START_POLICIES = ("srpt", "compass", "jit", "static")
"""A plan starts from these and is never worse than the best of them, if there is time to simulate them."""
BATCHING_STARTS = ("clockwork",)
"""Before them, where tasks come in batch classes."""
STREAM_STARTS = ("least_tokens:known=yes", "least_tokens", "least_requests", "prefix_affinity", "round_robin")
"""In place of them, where tasks are requests of streams."""
CACHING_STARTS = ("prefix_affinity:precise=on", "least_delay")
"""Before these, where nodes cache prefixes."""
GANG_STARTS = ("sjf", "qssf", "easy")
"""In place of them, where tasks run on several GPUs."""
LOADING_STARTS = ("compass", "fifo")
"""Besides, where these need models."""

_S_PER_TASK = 2e-5
"""No policy is simulated in fewer seconds per task, so without that much time it is not begun."""


def starts_for(instance: Instance, seed: int, given: Sequence[Timeline] | None = None) -> Starts:
    """Return where a search starts: the given timelines, or those of the start policies, simulated when asked for.

    A policy that cannot serve the instance is left out. In a plan no request is cut, or preempted by priority: where
    that happens in all of the given timelines, the policies serve them anew.
    """

    def run_each(left_s: Callable[[], float]) -> Iterator[Timeline]:
        """Yield what the policies make of it, as far as the time allows."""
        policies = START_POLICIES if instance.streams is None else (*suited(instance), *STREAM_STARTS)
        if instance.streams is not None and instance.streams.prefixes is not None:
            policies = (*CACHING_STARTS, *policies)
        if instance.gangs:
            policies = (*GANG_STARTS, *LOADING_STARTS) if any(instance.needs) else GANG_STARTS
        for name in (*BATCHING_STARTS, *policies) if instance.batches else policies:
            # A simulation that cannot end in time gives no plan at all.
            if left_s() <= _S_PER_TASK * instance.n_tasks:
                return
            try:
                yield uncut(instance, parse_policy(name), seed, lambda: left_s() <= 0)
            except (InstanceError, PolicyError):
                continue  # a branch that nothing runs and no job takes, or models too large for a static placement
            except StoppedError:
                return

    whole = None if given is None else [timeline for timeline in given if timeline.is_plan]
    return run_each if whole is None or (given and not whole) else lambda left_s: whole


def uncut(instance: Instance, policy: Callable[[], Policy], seed: int, stop: Callable[[], bool]) -> Timeline:
    """Return what a policy makes of it if GPUs drain long enough before they go, so that no request is cut."""
    timeline = simulate(instance, policy, seed=seed, stop=stop)
    while timeline.cuts:
        gpus = list(instance.cluster.gpus)
        for run in timeline.cuts:
            # Twice as long at least: who comes in their place may be longer than those that were cut.
            drain_us = max(2 * instance.cluster.gpus[run.gpu].drain_us, run.cut_us - run.start_us + 1)
            gpus[run.gpu] = replace(gpus[run.gpu], drain_us=max(gpus[run.gpu].drain_us, drain_us))
        instance = replace(instance, cluster=replace(instance.cluster, gpus=tuple(gpus)))
        timeline = simulate(instance, policy, seed=seed, stop=stop)
    return timeline
