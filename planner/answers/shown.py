"""A timeline with all that is needed to show it beside others."""

from __future__ import annotations

from dataclasses import dataclass

from models.instance import Instance
from models.timeline import Timeline


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """A timeline to be shown.

    Parameters
    ----------
    name
        Of the plan or policy that made it.
    clairvoyant
        Whether whoever made it knew the future.
    instance
        What the timeline belongs to: the scenario's instance, or a policy's twin of it.
    timeline
        Places every task.
    """

    name: str
    clairvoyant: bool
    instance: Instance
    timeline: Timeline
