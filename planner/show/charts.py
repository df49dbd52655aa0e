"""The interactive Gantt chart of an answer, for a notebook."""

from __future__ import annotations

from typing import Protocol

from planner.answers.shown import Shown
from planner.show.report.chart import Chart


class WithTimelines(Protocol):
    """An answer that holds timelines: a plan, a simulation, a comparison, a run on devices."""

    @property
    def shown(self) -> tuple[Shown, ...]:
        """The timelines, the first one in front."""


def chart(answer: WithTimelines) -> Chart:
    """Return an answer's timelines as one chart to zoom into; among several a menu chooses."""
    return Chart(answer.shown)
