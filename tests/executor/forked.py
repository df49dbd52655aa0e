"""Random workflows with branches."""

from __future__ import annotations

import random
from fractions import Fraction

from truenorth.models import Workflow
from truenorth.models.workload import Branch

HALF = Fraction(1, 2)


def forked(rng: random.Random, workflow: Workflow) -> Workflow:
    """Return a workflow with two branches, one of which may be empty; the same one if a draw contradicts itself."""
    side = [rng.choice((None, 0, 1)) for _ in workflow.tasks]
    if set(side) <= {None}:
        return workflow
    names = [[task.name for task, b in zip(workflow.tasks, side, strict=True) if b == branch] for branch in (0, 1)]
    try:
        return Workflow(workflow.name, workflow.tasks, tuple(Branch(HALF, tuple(members)) for members in names))
    except ValueError:
        return workflow
