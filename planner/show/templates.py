"""From templates to HTML, which escape whatever they are given: a page, and for notebooks the Gantt chart by itself."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from truenorth.models.record import encode
from truenorth.planner.answers.shown import Shown, WithTimelines
from truenorth.planner.show.colours import COLOURS, PLAIN
from truenorth.planner.show.curves import draw_svg
from truenorth.planner.show.timelines import timelines_of

_SEPARATORS = (",", ":")
_ROW, _FRAME, _MOST_ROWS = 92, 180, 8
"""Heights in pixels: of a GPU, of what stands around them; and how many GPUs are seen at once."""
_MOST_BYTES = 5_000_000
"""A notebook that holds more is no pleasure."""


def render(template: str, **values: object) -> str:
    """Return a template of this folder, filled; its style and its only script are part of it."""
    environment = Environment(
        loader=PackageLoader("truenorth.planner.show.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": _SEPARATORS}
    environment.filters["encode"] = encode
    environment.filters["svg"] = lambda curves: Markup(draw_svg(curves))  # noqa: S704 (the drawing escapes its texts)
    script = _asset("gantt.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(template).render(
        script=script, script_hash=digest, style=_asset("page.css"), colours=[*COLOURS, PLAIN], **values
    )


def compact(data: object) -> str:
    """Return data as the JSON that a page holds, but for escapes."""
    return json.dumps(encode(data), separators=_SEPARATORS)


def _asset(name: str) -> str:
    return files("truenorth.planner.show.report").joinpath(name).read_text("utf-8")


@dataclass(frozen=True, slots=True)
class Chart:
    """Timelines that a notebook shows as a Gantt chart: zoom, move, point, and choose among them."""

    shown: tuple[Shown, ...]

    def _repr_html_(self) -> str:
        """Show the chart in a frame of its own."""
        timelines = encode(timelines_of(self.shown))
        if len(compact(timelines)) > _MOST_BYTES:
            return "<p>Too many tasks to be drawn in a notebook; write a folder with -o and make a report of it.</p>"
        page = render("chart.html.j2", timelines=timelines)
        height = _FRAME + _ROW * min(_MOST_ROWS, max(entry.instance.n_gpus for entry in self.shown))
        style = f"width:100%;height:{height}px;border:0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(page)}"></iframe>'


def chart(answer: WithTimelines) -> Chart:
    """Return an answer's timelines as one chart to zoom into; among several a menu chooses."""
    return Chart(tuple(answer.shown))
