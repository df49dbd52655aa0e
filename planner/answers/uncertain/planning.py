"""Plan a scenario whose run times are estimates; the plan file is one of the scenario, like any other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import chosen
from models.instance import Instance
from models.objective import reported_value, timeline_value
from models.scenario import Scenario
from models.timeline import Timeline
from planner.answers.plan import Plan, solve
from planner.answers.uncertain.plans import QUANTILES, ConsideredPlan, PlanFor, candidates
from planner.answers.uncertain.retime import retime
from planner.answers.uncertain.told import Told
from solvers.bounds import closed_form
from solvers.budget import Budget, tell_nobody
from solvers.result import Search

if TYPE_CHECKING:
    from planner.answers.questions import UncertainPlanQuestion


@dataclass(frozen=True, slots=True)
class UncertainPlan:
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
    """

    plan: Plan
    told: Told
    plan_for: PlanFor
    candidates: tuple[ConsideredPlan, ...]

    def as_dict(self, path: Path | None = None) -> dict[str, Any]:
        """Return the keys of ``plan --json``, and ``estimates``: what the plan is worth if run times are uncertain."""
        objective = self.plan.scenario.objective
        rows = [
            {
                "made_for": candidate.made_for,
                "with_medians": reported_value(
                    objective, timeline_value(objective, self.told.instance, candidate.timeline)
                ),
                "mean": reported_value(objective, candidate.mean),
                "worst": reported_value(objective, max(candidate.values)),
            }
            for candidate in self.candidates
        ]
        samples = len(self.candidates[0].values) if self.candidates else 0
        worth = {"plan_for": str(self.plan_for), "samples": samples, "candidates": rows}
        return self.plan.as_dict(path) | {"estimates": worth}


def plan_uncertain_within(asked: UncertainPlanQuestion, scenario: Scenario, budget: Budget) -> UncertainPlan:
    """Plan a scenario for run times that are estimates, within a budget."""
    told, plan_for = asked.told, chosen(PlanFor, asked.plan_for, "plan_for")
    search = Search.within(budget, scenario.instance, scenario.objective)
    plans = 1 if plan_for is not PlanFor.SAMPLES else asked.samples + len(QUANTILES)

    def planned(instance: Instance) -> Timeline | None:
        part = replace(budget, time_limit_s=budget.time_limit_s / plans, watch=tell_nobody)
        return solve(instance, scenario.objective, part).timeline

    found = candidates(told, scenario.objective, plan_for, planned, budget.seed, asked.samples)
    if found:
        search.offer(retime(told.instance, found[0].timeline, scenario.instance))
    search.offer_bound(*closed_form.best(scenario.instance, scenario.objective))
    options = budget.as_dict() | {"plan_for": str(plan_for), "samples": asked.samples}
    return UncertainPlan(Plan.of(scenario, search.result("truenorth", options)), told, plan_for, tuple(found))
