"""The interactive Gantt chart by itself, as notebooks show it."""

from __future__ import annotations

from dataclasses import dataclass

from models.record import encode
from planner.answers.shown import Shown
from planner.show.report.render import compact, render
from planner.show.timelines import timelines_of

_ROW, _FRAME, _MOST_ROWS = 92, 180, 8
"""Heights in pixels: of a GPU, of what stands around them; and how many GPUs are seen at once."""
_MOST_BYTES = 5_000_000
"""A notebook that holds more is no pleasure."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Timelines that a notebook shows as a Gantt chart: zoom, move, point, and choose among them."""

    shown: tuple[Shown, ...]

    def _repr_html_(self) -> str:
        """Show the chart in a frame of its own."""
        from markupsafe import escape

        timelines = encode(timelines_of(self.shown))
        if len(compact(timelines)) > _MOST_BYTES:
            return "<p>Too many tasks to be drawn in a notebook; write a folder with -o and make a report of it.</p>"
        page = render("chart.html.j2", timelines=timelines)
        height = _FRAME + _ROW * min(_MOST_ROWS, max(entry.instance.n_gpus for entry in self.shown))
        style = f"width:100%;height:{height}px;border:0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(page)}"></iframe>'
