"""Plans that allow for uncertain run times: for the median, for the 90 % quantile, or for samples.

For samples, run-time vectors are drawn from the estimates. Candidates are the plans for some quantiles and for every
sample, each as if it were certain; all are replayed under every sample, and the one with the best mean is kept. That
is sample-average approximation (Kleywegt, Shapiro and Homem-de-Mello, 2002) over a set of candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from models.instance import Instance
from models.objective import Objective, timeline_value
from models.timeline import Timeline
from planner.answers.uncertain.retime import retime
from planner.answers.uncertain.told import Told

SAMPLES = 8
"""Run-time vectors that are drawn unless another number is given."""
QUANTILES = {"p50": 0.5, "p70": 0.7, "p80": 0.8, "p90": 0.9}
"""Levels that candidates are made for, beside the samples."""

Planner = Callable[[Instance], Timeline | None]
"""Plans an instance as if its run times were certain; None if it finds no plan."""


class PlanFor(StrEnum):
    """Which run times a plan is made for."""

    P50 = "p50"
    P90 = "p90"
    SAMPLES = "samples"


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
