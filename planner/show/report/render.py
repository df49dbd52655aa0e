"""From templates to HTML: whatever they are given is escaped, in text, in attributes and in scripts' data alike."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from models.record import encode
from planner.show.colours import COLOURS, PLAIN
from planner.show.curves import draw_svg

_SEPARATORS = (",", ":")


def render(template: str, **values: object) -> str:
    """Return a template of this folder, filled; its style and its only script are part of it."""
    environment = Environment(
        loader=PackageLoader("planner.show.report", "."),
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
    return files("planner.show.report").joinpath(name).read_text("utf-8")
