"""Chains of fastest run times in workflows: what a task takes at least, and what lies before and after it.

Transfers and loads are left out, so that the lengths hold for every placement.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from truenorth.models.instance import Instance
from truenorth.models.tables import NEVER, Arcs, Ints


def fastest_run_us(instance: Instance) -> Ints:
    """Return the shortest run time of each template in this cluster. Shape [templates]."""
    never = np.iinfo(np.int64).max
    return np.asarray(np.where(instance.run_us == NEVER, never, instance.run_us).min(axis=1), np.int64)


def heads_us(instance: Instance) -> Ints:
    """Return the longest chain of fastest run times before each template. Shape [templates]."""
    return _longest(instance, instance.inputs, forwards=True)


def tails_us(instance: Instance) -> Ints:
    """Return the longest chain of fastest run times after each template, itself left out. Shape [templates]."""
    return _longest(instance, instance.outputs, forwards=False)


def _longest(instance: Instance, neighbours: Arcs, *, forwards: bool) -> Ints:
    fastest, longest = fastest_run_us(instance).tolist(), [0] * len(instance.needs)
    for workflow, first in zip(instance.workflows, instance.template_first.tolist(), strict=False):
        order: Iterable[int] = workflow.topological if forwards else reversed(workflow.topological)
        for position in order:
            beside = [first + position + offset for offset, _ in neighbours[first + position]]
            longest[first + position] = max((fastest[t] + longest[t] for t in beside), default=0)
    return np.array(longest, np.int64)
