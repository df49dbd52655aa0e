"""Who is believed: solvers are taken at their word until one contradicts a plan or itself, and a user is told of it.

What the bounds of this project prove can be computed again, or follows from a programme that tries everything. What
CP-SAT or a MILP solver calls optimal or infeasible is their word: it holds as long as no plan contradicts it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from truenorth.models.instance import Instance
    from truenorth.models.objective import Objective
    from truenorth.models.timeline import Timeline

CP_SAT, ARC_FLOW, MILP = "cp-sat", "arc-flow", "milp"
"""Names of the methods that rest on a solver's word."""

SOLVER_OF = {CP_SAT: "CP-SAT", ARC_FLOW: "CP-SAT", MILP: "the MILP solver"}
"""On whose word each of them rests."""


class SolverFaultWarning(UserWarning):
    """A solver contradicts a plan that was checked, or fails; whatever else it said of that window is not used.

    Parameters
    ----------
    solver, said
        Which one, and what it said.
    instance, objective
        What it was asked about.
    timeline
        The best plan that is known, or None.
    """

    def __init__(
        self, solver: str, said: str, instance: Instance, objective: Objective, timeline: Timeline | None
    ) -> None:
        super().__init__(f"{said}; what {solver} says of this window is not used")
        self.solver, self.said = solver, said
        self.instance, self.objective, self.timeline = instance, objective, timeline


class UnsoundBoundError(RuntimeError):
    """A lower bound, or a proof of infeasibility, contradicts a feasible plan: a bug."""


@dataclass(slots=True)
class Trust:
    """What each method claims of a window, and who is believed.

    Parameters
    ----------
    faults
        What solvers said that a plan contradicts.
    distrusted
        Solvers of which nothing is kept.
    bounds
        The best bound of each method.
    denied_by
        Which method claims that there is no plan.
    """

    faults: list[str] = field(default_factory=list)
    distrusted: set[str] = field(default_factory=set)
    bounds: dict[str, Fraction] = field(default_factory=dict)
    denied_by: str | None = None

    def without_claims(self) -> Trust:
        """Return who is believed so far, for a window of which nothing is claimed."""
        return Trust([*self.faults], {*self.distrusted})

    def believes(self, method: str) -> bool:
        """Say whether what a method claims counts."""
        return SOLVER_OF.get(method) not in self.distrusted

    @property
    def best(self) -> tuple[Fraction, str] | tuple[None, None]:
        """The best bound and its method."""
        method = max(self.bounds, key=lambda own: self.bounds[own], default=None)
        return (None, None) if method is None else (self.bounds[method], method)

    def forget(self, solver: str, said: str) -> None:
        """Keep nothing that a solver has claimed or will claim."""
        self.distrusted.add(solver)
        self.bounds = {own: bound for own, bound in self.bounds.items() if SOLVER_OF.get(own) != solver}
        if self.denied_by is not None and SOLVER_OF.get(self.denied_by) == solver:
            self.denied_by = None
        self.faults.append(said)

    def rests_on(self, value: Fraction | None) -> str | None:
        """Return the method on whose solver's word alone a proof rests; None if nothing is proved, or not by that."""
        from truenorth.models.objective import proves  # who only listens for faults needs no numpy

        if self.denied_by is not None:
            return self.denied_by if self.denied_by in SOLVER_OF else None
        proving = {method for method, bound in self.bounds.items() if proves(value, bound)}
        return self.best[1] if proving and proving <= SOLVER_OF.keys() and value else None
