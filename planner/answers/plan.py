"""Plan a window: starts from online policies, improves by search, proves by bounds, within one time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.instance import Instance
from models.metrics import Metrics, measure
from models.objective import Objective, reported_bound, reported_value
from models.scenario import Scenario, TimelineHeader, write_timeline
from models.timeline import Timeline
from planner.answers.starts import starts_for
from planner.answers.versions import versions
from solvers import portfolio
from solvers.portfolio import Method, SearchOptions
from solvers.result import Progress, Result

if TYPE_CHECKING:
    import pandas as pd

    from planner.show.report import Chart


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of a scenario, with what is proved about it; it knows the future, as no online policy does."""

    scenario: Scenario
    result: Result

    @property
    def timeline(self) -> Timeline | None:
        """What happens when; None if no plan was found."""
        return self.result.timeline

    @property
    def metrics(self) -> Metrics | None:
        """The plan's metrics over all jobs; None without a plan."""
        return None if self.timeline is None else self.measured(Fraction(0))

    def measured(self, warmup: Fraction) -> Metrics:
        """Return the plan's metrics after a warm-up fraction of the earliest jobs."""
        return measure(self.scenario.instance, self._timeline(), self.scenario.slo, warmup)

    @property
    def tasks(self) -> pd.DataFrame:
        """One row per task: where and when it runs."""
        from planner.show.frames import tasks_frame

        return tasks_frame(self.scenario.instance, self._timeline())

    @property
    def residencies(self) -> pd.DataFrame:
        """One row per residency: which model is where, and when."""
        from planner.show.frames import residencies_frame

        return residencies_frame(self.scenario.instance, self._timeline())

    @property
    def jobs(self) -> pd.DataFrame:
        """One row per job: latency and slowdown."""
        from planner.show.frames import jobs_frame

        return jobs_frame(self.scenario.instance, self._timeline())

    def _timeline(self) -> Timeline:
        if self.timeline is None:
            raise ValueError(f"no plan was found ({self.result.status})")
        return self.timeline

    def save(self, path: Path) -> None:
        """Write the plan file, whole or not at all."""
        write_timeline(path, self.scenario.instance, self._timeline(), self.header())

    def header(self) -> TimelineHeader:
        """Return what a plan file says about the plan besides its timeline."""
        summary = self.as_dict()
        return TimelineHeader(
            status=str(self.result.status),
            objective=summary["objective"]["name"],
            value=summary["objective"]["value"],
            lower_bound=summary["lower_bound"],
            bound_method=self.result.bound_method,
            gap=self.result.gap,
            runtime_s=self.result.runtime_s,
            solver=self.result.solver,
            options=dict(self.result.options),
            versions=versions(),
            incumbents=summary["incumbents"],
        )

    def as_dict(self, path: Path | None = None) -> dict[str, Any]:
        """Return the plan's summary with the keys of ``plan --json``; `path` is where it was written."""
        result, objective = self.result, self.scenario.objective
        metrics = self.metrics

        def value(progress: Progress) -> float | None:
            return None if progress.value is None else reported_value(objective, progress.value)

        def bound(progress: Progress) -> float | None:
            return None if progress.bound is None else reported_bound(objective, progress.bound)

        return {
            "status": str(result.status),
            "objective": {
                "name": str(objective),
                "value": None if result.value is None else reported_value(objective, result.value),
            },
            "lower_bound": None if result.lower_bound is None else reported_bound(objective, result.lower_bound),
            "bound_method": result.bound_method,
            "gap": result.gap,
            "runtime_s": result.runtime_s,
            "within_time_limit": result.within_limit,
            "incumbents": [[moment.seconds, value(moment), bound(moment)] for moment in result.incumbents],
            "metrics": None if metrics is None else metrics.as_dict(),
            "plan": None if path is None else str(path),
        }

    @property
    def chart(self) -> Chart:
        """The plan as an interactive Gantt chart, for a notebook."""
        from planner.show.report import Chart, Shown

        return Chart((Shown("plan", True, self.scenario.instance, self._timeline()),))

    def _repr_html_(self) -> str:
        """Show the summary and the chart in a notebook."""
        from planner.show.frames import summary_html
        from planner.show.tables import plan_summary

        return summary_html(plan_summary(self)) + ("" if self.timeline is None else self.chart._repr_html_())


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
) -> Plan:
    """Plan a scenario as well as the time allows.

    Parameters
    ----------
    time_limit_s
        Wall-clock seconds for plan and bound together; the first plan is made even if it takes longer.
    method, workers, seed, iterations
        As in `solvers.portfolio.SearchOptions`.
    hint
        A feasible timeline; the plan is never worse.
    starts
        Timelines of online policies that were simulated before; None: simulate some first.
    watch
        Called whenever plan or bound improve.
    stop
        Set it to end early with the best plan so far.
    """
    options = SearchOptions(time_limit_s, method, workers, seed, iterations)
    result = solve(scenario.instance, scenario.objective, options, hint=hint, starts=starts, watch=watch, stop=stop)
    return Plan(scenario, result)


def solve(
    instance: Instance,
    objective: Objective,
    options: SearchOptions,
    *,
    hint: Timeline | None = None,
    starts: Sequence[Timeline] | None = None,
    watch: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Plan an instance, starting from online policies; the parameters are those of `plan`."""
    first = starts_for(instance, options.seed, starts)
    return portfolio.solve(instance, objective, options, hint=hint, starts=first, watch=watch, stop=stop)
