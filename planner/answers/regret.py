"""Regret, taken apart: what a policy's timeline loses to residency, to order, to placement, and what stays open.

The parts are set free one after the other: first loads and evictions, then, where tasks come in batch classes, which
neighbours in the order run together, then the order of the tasks as well, then their GPUs. Each time the best timeline
that keeps the rest as the policy had it is searched for, from the one before, so that no step is worse than the one
before; the last step is the plan, and below it lies the lower bound. Whoever frees the parts in another order
attributes other shares to them, for good residency depends on a good order, and a good order on the placement.
What search finds is no proof: each loss comes with the interval in which the exact one lies.
Every step knows the future; what that alone is worth is told beside the chain, by one policy with and without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from truenorth.models.objective import Objective, gap, proves, reported_bound, reported_value
from truenorth.models.record import take
from truenorth.models.scenario import Scenario
from truenorth.models.timeline import Timeline
from truenorth.planner.answers.shown import WithRows, describe_bound, is_converged

AS_IT_RAN, RESIDENCY, BATCHES, ORDER, PLACEMENT, OPEN = (
    *("as it ran", "residency", "batches"),
    *("order", "placement", "open"),
)
"""The steps, by the part that each sets free; the last one is what no plan and no proof decides."""
TOGETHER = "order and placement"
"""The step that sets both free where the cluster is too wide to tell them apart."""

NOTE = (
    "Every step knows the future, keeps what the policy decided except the parts set free so far, and is the best that "
    "search found. Freeing the parts in another order would attribute other shares to them."
)


@dataclass(frozen=True, slots=True, eq=False)
class RegretStep:
    """The best timeline found once a part, and all parts before it, are free.

    Parameters
    ----------
    part
        What this step sets free.
    timeline
        Feasible; for the first step the policy's own.
    value
        Its exact objective, in the units of `models.objective_value`.
    lower_bound
        No timeline that keeps the same parts of the policy's lies below.
    """

    part: str
    timeline: Timeline
    value: Fraction
    lower_bound: Fraction

    @property
    def proved(self) -> bool:
        """Whether no timeline that keeps the same parts is better."""
        return proves(self.value, self.lower_bound)


@dataclass(frozen=True, slots=True)
class Loss:
    """What a part costs: the difference of two steps, and the interval in which the exact difference lies."""

    part: str
    lost: Fraction
    at_least: Fraction
    at_most: Fraction


@dataclass(frozen=True, slots=True)
class Clairvoyance:
    """What knowing the future is worth to one and the same policy: its value without and with all arrivals known."""

    policy: str
    online: Fraction
    all_known: Fraction


@dataclass(frozen=True, slots=True)
class Regret(WithRows):
    """A policy's distance from the lower bound, in parts that add up to it.

    Parameters
    ----------
    scenario
        With the instance that the timeline belongs to: for ``compass-released`` the twin.
    policy
        Whose timeline it is.
    steps
        From the policy's own timeline to the plan; values never rise.
    lower_bound, bound_method
        Of all plans; exact, in the units of `models.objective_value`.
    clairvoyance
        Beside the chain, or None where it was not computed.
    """

    scenario: Scenario
    policy: str
    steps: tuple[RegretStep, ...]
    lower_bound: Fraction
    bound_method: str | None
    clairvoyance: Clairvoyance | None = None

    def __repr__(self) -> str:
        parts = ", ".join(loss.part for loss in self.losses)
        return f"<Regret of {self.policy!r} on {self.scenario.name!r}: {parts}>"

    @property
    def warning(self) -> str | None:
        """That parts may hide in what stays open, since the chain ends in an unconverged plan; else None."""
        left = gap(self.steps[-1].value, self.lower_bound)
        if is_converged(left, self.bound_method):
            return None
        known = "nothing bounds it" if left is None else f"its gap is {100 * left:.1f} %"
        known += f"; bound: {describe_bound(self.bound_method)}"
        return (
            f"The plan that ends the chain is unconverged ({known}): part of what stays open may belong to order and "
            "placement, whose losses are then understated."
        )

    @property
    def total(self) -> Fraction:
        """The policy's value minus the lower bound."""
        return self.steps[0].value - self.lower_bound

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What each part costs, in the order in which they are set free; the last is what stays open."""
        parts = [
            Loss(
                after.part,
                before.value - after.value,
                # The exact values lie between bound and value of their steps: so do their difference's ends.
                max(Fraction(0), before.lower_bound - after.value),
                before.value - after.lower_bound,
            )
            for before, after in pairwise(self.steps)
        ]
        unexplained = self.steps[-1].value - self.lower_bound
        return (*parts, Loss(OPEN, unexplained, Fraction(0), unexplained))

    @property
    def record(self) -> RegretRecord:
        """The regret with the keys of ``regret`` in ``compare --json``, values in reported units."""
        objective, known = self.scenario.objective, self.clairvoyance
        steps = [
            StepRow(
                step.part,
                reported_value(objective, step.value),
                reported_bound(objective, step.lower_bound),
                step.proved,
            )
            for step in self.steps
        ]
        return take(
            RegretRecord,
            self,
            objective=objective,
            steps=steps,
            losses=self.rows,
            lower_bound=reported_bound(objective, self.lower_bound),
            clairvoyance=None if known is None else _known(objective, known),
            note=NOTE,
        )

    @property
    def rows(self) -> list[LossRow]:
        """One row per part, in reported units."""
        return [self._row(loss) for loss in self.losses]

    def _row(self, loss: Loss) -> LossRow:
        # Without any regret no part has a share of it.
        objective, share = self.scenario.objective, float(loss.lost / self.total) if self.total else None
        lost, least, most = (reported_value(objective, value) for value in (loss.lost, loss.at_least, loss.at_most))
        return LossRow(loss.part, lost, least, most, share)


def _known(objective: Objective, known: Clairvoyance) -> ClairvoyanceRow:
    values = (known.online, known.all_known, known.online - known.all_known)
    return ClairvoyanceRow(known.policy, *(reported_value(objective, value) for value in values))


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of a regret: what it sets free, the value it came to, and what no such timeline lies below."""

    free: str
    value: float
    lower_bound: float
    proved: bool


@dataclass(frozen=True, slots=True)
class LossRow:
    """A part of a regret: what search found, the ends between which the exact loss lies, and its share of the whole."""

    part: str
    lost: float
    at_least: float
    at_most: float
    share: float | None


@dataclass(frozen=True, slots=True)
class ClairvoyanceRow:
    """What knowing the future is worth to a policy; it stands beside the chain and is no part of it."""

    policy: str
    online: float
    all_known: float
    worth: float


@dataclass(frozen=True, slots=True)
class RegretRecord:
    """A regret in reported units."""

    policy: str
    objective: Objective
    steps: list[StepRow]
    losses: list[LossRow]
    lower_bound: float
    bound_method: str | None
    clairvoyance: ClairvoyanceRow | None
    note: str
    warning: str | None
