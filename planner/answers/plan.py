"""Plan a window: starts from online policies, improves by search, proves by bounds, within one time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.instance import Instance
from models.metrics import Metrics, measure
from models.objective import Objective, ObjectiveValue, reported_bound, reported_value
from models.scenario import Scenario, TimelineHeader, write_timeline
from models.status import Status
from models.timeline import Timeline
from planner.answers.convergence import is_converged
from planner.answers.pool.farm import farm_at
from planner.answers.shown import Shown
from planner.answers.starts import starts_for
from planner.answers.versions import provenance
from solvers import portfolio
from solvers.farm import Farm
from solvers.first_use import compile_once
from solvers.options import Method, SearchOptions
from solvers.result import Progress, Result


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of a scenario, with what is proved about it; it knows the future, as no online policy does.

    Parameters
    ----------
    scenario
        What was planned.
    result
        Timeline, bound and how they came about.
    metrics
        Of the timeline over all jobs; None without one.
    """

    scenario: Scenario
    result: Result
    metrics: Metrics | None

    @classmethod
    def of(cls, scenario: Scenario, result: Result) -> Plan:
        """Return a result as a plan, measured."""
        timeline = result.timeline
        return cls(scenario, result, None if timeline is None else measure(scenario.instance, timeline, scenario.slo))

    def __repr__(self) -> str:
        return f"<Plan of {self.scenario!r}: {self.result!r}>"

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
    def value(self) -> float | None:
        """The objective in its reported unit; None without a plan."""
        return None if self.result.value is None else reported_value(self.scenario.objective, self.result.value)

    @property
    def lower_bound(self) -> float | None:
        """The bound in the unit of the objective, rounded down; None without one."""
        bound = self.result.lower_bound
        return None if bound is None else reported_bound(self.scenario.objective, bound)

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

    def record(self, path: Path | None = None) -> PlanRecord:
        """Return the plan's summary with the keys of ``plan --json``; `path` is where it was written."""
        result = self.result
        return PlanRecord(
            result.status,
            ObjectiveValue(self.scenario.objective, self.value),
            self.lower_bound,
            result.bound_method,
            result.gap,
            is_converged(result.gap, result.bound_method),
            result.fell_back,
            result.proved_by,
            result.confirmed_by,
            result.faults,
            result.runtime_s,
            result.cpu_s,
            result.within_limit,
            result.left_out,
            self.incumbents,
            self.metrics,
            None if path is None else str(path),
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
    header = TimelineHeader(
        status=str(result.status),
        objective=str(made.scenario.objective),
        value=made.value,
        lower_bound=made.lower_bound,
        bound_method=result.bound_method,
        gap=result.gap,
        runtime_s=result.runtime_s,
        solver=result.solver,
        seed=seed if isinstance(seed, int) else None,
        options=dict(result.options),
        versions=provenance(),
        command=command,
        incumbents=made.incumbents,
    )
    write_timeline(path, made.scenario.instance, result.timeline, header)


def plan(
    scenario: Scenario,
    *,
    time_limit_s: float = 60.0,
    method: Method = Method.AUTO,
    workers: int = 2,
    seed: int = 0,
    iterations: int | None = None,
    hint: Timeline | None = None,
    starts: Sequence[Timeline] | None = None,
    watch: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
    ray: str | None = None,
) -> Plan:
    """Plan a scenario as well as the time allows.

    Parameters
    ----------
    time_limit_s
        Wall-clock seconds for plan and bound together; the first plan is made even if it takes longer.
    method, workers, seed, iterations
        As in `solvers.options.SearchOptions`.
    hint
        A feasible timeline; the plan is never worse.
    starts
        Timelines of online policies that were simulated before; None: simulate some first.
    watch
        Called whenever plan or bound improve.
    stop
        Set it to end early with the best plan so far.
    ray
        Address of a Ray cluster whose workers look for plans as well.

    Raises
    ------
    QuestionError
        If there is no such cluster.
    """
    compile_once(scenario.instance)
    options = SearchOptions(time_limit_s, method, workers, seed, iterations)
    told: dict[str, Any] = {"hint": hint, "starts": starts, "watch": watch, "stop": stop}
    with farm_at(ray) as farm:
        return Plan.of(scenario, solve(scenario.instance, scenario.objective, options, farm=farm, **told))


def solve(
    instance: Instance,
    objective: Objective,
    options: SearchOptions,
    *,
    hint: Timeline | None = None,
    starts: Sequence[Timeline] | None = None,
    watch: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
    farm: Farm | None = None,
) -> Result:
    """Plan an instance, starting from online policies; the parameters are those of `plan`, or of `portfolio.solve`."""
    first = starts_for(instance, options.seed, starts)
    return portfolio.solve(instance, objective, options, hint=hint, starts=first, watch=watch, stop=stop, farm=farm)
