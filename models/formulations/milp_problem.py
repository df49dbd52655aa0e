"""A problem of PuLP's that looks at the clock, and at memory, while it is built."""

from __future__ import annotations

import pulp

from models.formulations.allowance import Allowance

TERM_BYTES, TERM_S = 130, 4e-6
"""What a term of a row takes, as measured: in PuLP's expressions and the solver's copy, to write and to hand over."""
_LOOK_TERMS = 100_000
"""Terms between two looks at memory."""


def new_problem(allowance: Allowance) -> pulp.LpProblem:
    """Return an empty minimisation; whoever adds a row when time or memory is up hears `GivenUpError`."""
    problem, unseen = pulp.LpProblem("truenorth", pulp.LpMinimize), 0
    add_row = problem.addConstraint

    def add_while_there_is_room(row: pulp.LpConstraint, name: str | None = None) -> None:
        nonlocal unseen
        allowance.go_on()
        unseen += len(row)
        if unseen > _LOOK_TERMS:
            allowance.fit(unseen, TERM_BYTES)
            unseen = 0
        add_row(row, name)

    problem.addConstraint = add_while_there_is_room
    return problem
