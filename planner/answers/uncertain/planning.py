"""Plan a scenario whose run times are estimates; the plan file is one of the scenario, like any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

from truenorth.models.errors import chosen
from truenorth.models.instance import Instance
from truenorth.models.objective import Objective, reported_value, timeline_value
from truenorth.models.record import spread
from truenorth.models.scenario import Scenario
from truenorth.models.timeline import Timeline
from truenorth.models.torn import torn
from truenorth.planner.answers.plan import Plan, PlanRecord, solve
from truenorth.planner.answers.shown import Answer
from truenorth.planner.inputs.told import Told, retime
from truenorth.planner.questions.options import PlanFor
from truenorth.planner.questions.searches import UncertainPlanQuestion
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.budget import Budget, tell_nobody
from truenorth.solvers.result import Search

SAMPLES = 8
"""Run-time vectors that are drawn unless another number is given."""
QUANTILES = {"p50": 0.5, "p70": 0.7, "p80": 0.8, "p90": 0.9}
"""Levels that candidates are made for, beside the samples."""

Planner = Callable[[Instance], Timeline | None]
"""Plans an instance as if its run times were certain; None if it finds no plan."""


@dataclass(frozen=True, slots=True)
class ConsideredPlan:
    """A plan under consideration.

    Parameters
    ----------
    made_for
        A quantile, such as ``p90``, or ``sample K``.
    timeline
        The plan, timed with the median run times.
    values
        The objective under every sample.
    """

    made_for: str
    timeline: Timeline
    values: tuple[Fraction, ...]

    @property
    def mean(self) -> Fraction:
        """Mean of the objective over the samples."""
        return sum(self.values, Fraction(0)) / len(self.values)


def candidates(
    told: Told, objective: Objective, plan_for: PlanFor, planner: Planner, seed: int, samples: int = SAMPLES
) -> list[ConsideredPlan]:
    """Return the plans for some run times with their value under every sample, the best mean first.

    Parameters
    ----------
    told
        What is known of the run times.
    plan_for
        For p50 and p90 there is one candidate.
    planner
        Asked once per candidate.
    seed
        Of the samples.
    samples
        How many run-time vectors are drawn, at least 1.

    Returns
    -------
    list of ConsideredPlan
        Empty if the planner finds no plan.
    """
    drawn = [told.draw(seed + index) for index in range(samples)]
    levels = QUANTILES if plan_for is PlanFor.SAMPLES else {str(plan_for): QUANTILES[plan_for]}
    wanted = {name: told.at(level) for name, level in levels.items()}
    if plan_for is PlanFor.SAMPLES:
        wanted |= {f"sample {index}": sample for index, sample in enumerate(drawn, 1)}
    found = []
    for name, instance in wanted.items():
        plan = planner(instance)
        if plan is not None:
            timeline = retime(instance, plan, told.instance)
            found.append(ConsideredPlan(name, timeline, values(told.instance, timeline, drawn, objective)))
    return sorted(found, key=lambda candidate: candidate.mean)


def values(told: Instance, plan: Timeline, truths: Sequence[Instance], objective: Objective) -> tuple[Fraction, ...]:
    """Return what an objective comes to if each of these truths holds; times in microseconds."""
    return tuple(timeline_value(objective, truth, retime(told, plan, truth)) for truth in truths)


@dataclass(frozen=True, slots=True)
class UncertainPlan(Answer):
    """A plan for uncertain run times.

    Parameters
    ----------
    plan
        The placement and orders that were chosen, timed with the scenario's run times.
    told
        What was known of the run times.
    plan_for
        Which of them were planned for.
    candidates
        What was considered, best mean over the samples first; the first one is the plan.
    interrupted
        Whether the search was interrupted: what was found by then.
    """

    plan: Plan
    told: Told
    plan_for: PlanFor
    candidates: tuple[ConsideredPlan, ...]
    interrupted: bool = False

    def __repr__(self) -> str:
        return f"<UncertainPlan for {self.plan_for}: {self.plan!r}>"

    def record(self, path: Path | None = None) -> UncertainPlanRecord:
        """Return the keys of ``plan --json``, and what the plan is worth if run times are uncertain."""
        objective, rows = self.plan.scenario.objective, list[CandidateRow]()
        for each in self.candidates:
            medians = timeline_value(objective, self.told.instance, each.timeline)
            worth = (reported_value(objective, value) for value in (medians, each.mean, max(each.values)))
            rows.append(CandidateRow(each.made_for, *worth))
        samples = len(self.candidates[0].values) if self.candidates else 0
        return UncertainPlanRecord(self.plan.record(path), WorthRecord(self.plan_for, samples, rows))


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """What a candidate is worth, in reported units."""

    made_for: str
    with_medians: float
    mean: float
    worst: float


@dataclass(frozen=True, slots=True)
class WorthRecord:
    """What plans are worth if run times are uncertain."""

    plan_for: PlanFor
    samples: int
    candidates: list[CandidateRow]


@dataclass(frozen=True, slots=True)
class UncertainPlanRecord:
    """A plan for uncertain run times, with the keys of ``plan --json``."""

    plan: PlanRecord = field(metadata=spread(PlanRecord))
    estimates: WorthRecord


def answer_uncertain_plan(asked: UncertainPlanQuestion, scenario: Scenario, budget: Budget) -> UncertainPlan:
    """Plan a scenario for run times that are estimates, within a budget."""
    told, plan_for = asked.told, chosen(PlanFor, asked.plan_for, "plan_for")
    search = Search(scenario.instance, scenario.objective, budget.clock, budget.watch)
    plans = 1 if plan_for is not PlanFor.SAMPLES else asked.samples + len(QUANTILES)

    def planned(instance: Instance) -> Timeline | None:
        part = replace(budget, time_limit_s=budget.time_limit_s / plans, watch=tell_nobody)
        return solve(instance, scenario.objective, part).timeline

    found = candidates(told, scenario.objective, plan_for, planned, budget.seed, asked.samples)
    if found:
        search.offer(retime(told.instance, found[0].timeline, scenario.instance))
    search.offer_bound(*closed_form.best(torn(scenario.instance), scenario.objective))
    options = budget.as_dict() | {"plan_for": str(plan_for), "samples": asked.samples}
    return UncertainPlan(Plan.of(scenario, search.result("truenorth", options)), told, plan_for, tuple(found))
