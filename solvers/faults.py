"""Solvers that are taken at their word, and what a user is told of one that contradicts a plan or itself.

What the bounds of this project prove can be computed again, or follows from a programme that tries everything. What
CP-SAT or a MILP solver calls optimal or infeasible is their word: it holds as long as no plan contradicts it.
"""

from __future__ import annotations

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
