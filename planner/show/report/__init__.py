"""One self-contained page of what other verbs found: question, answer, table, pictures, and how to repeat it.

Templates escape whatever they are given; a notebook takes the Gantt chart by itself.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from truenorth.models.errors import QuestionError
from truenorth.models.record import encode
from truenorth.models.scenario import write_atomically
from truenorth.planner.answers.shown import Shown, WithTimelines
from truenorth.planner.show import comparison, replay, replicated, servers, sweep, trial
from truenorth.planner.show.canvas import COLOURS, PLAIN
from truenorth.planner.show.curves import draw_svg
from truenorth.planner.show.section import PageSection
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


TIMELINES_BYTES = 2_400_000
"""Room for timelines in a page of at most 3 MB; those that do not fit are named, and left out of the Gantt chart."""
_SECTIONS: Mapping[str, Callable[[Path], PageSection]] = {
    comparison.FILE: comparison.section,
    servers.FILE: servers.section,
    servers.SCHEDULE_FILE: servers.schedule_section,
    replicated.FILE: replicated.section,
    sweep.FILE: sweep.section,
    replay.FILE: replay.section,
    trial.FILE: trial.section,
}
"""Which file tells what a folder holds, and who reads it."""


@dataclass(frozen=True, slots=True)
class Report:
    """A page.

    Parameters
    ----------
    sections
        One per folder, in the order in which they were given.
    html
        The whole file.
    """

    sections: tuple[PageSection, ...]
    html: str = field(repr=False)

    def save(self, path: Path) -> None:
        """Write the page, whole or not at all.

        Raises
        ------
        InputError
            If the file cannot be written.
        """
        write_atomically(path, self.html)

    def record(self, path: Path) -> ReportRecord:
        """Return the summary with the keys of ``report --json``; `path` is where the page was written."""
        answers = [SectionAnswer(section.question, section.answer) for section in self.sections]
        return ReportRecord(str(path), len(self.html.encode()), answers)


@dataclass(frozen=True, slots=True)
class SectionAnswer:
    """What a section asks and answers."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class ReportRecord:
    """Where a page is, how large, and what it says."""

    report: str
    bytes: int
    sections: list[SectionAnswer]


def report(folders: Sequence[Path], by_line: str = "") -> Report:
    """Return the page of folders that ``compare -o`` and other commands wrote, with today's date.

    Parameters
    ----------
    by_line
        Who stands for it: a name, a team.

    Raises
    ------
    QuestionError
        If a folder holds nothing that a report can show.
    InputError
        If a file in a folder cannot be read.
    """
    sections, room = [], TIMELINES_BYTES
    for folder in folders:
        section, used = _within(_section(folder), room)
        sections.append(section)
        room -= used
    today = date.today().isoformat()
    return Report(tuple(sections), render("page.html.j2", sections=sections, by_line=by_line, date=today))


def _section(folder: Path) -> PageSection:
    for name, read in _SECTIONS.items():
        if (folder / name).is_file():
            return read(folder)
    if not folder.is_dir():
        why = "is a file" if folder.exists() else "does not exist"
        raise QuestionError(
            f"{folder}: {why}; allowed are folders that compare, servers, sweep, replay, trial -o wrote"
        )
    expected = " or ".join(_SECTIONS)
    raise QuestionError(
        f"{folder}: holds no {expected}; allowed are folders that compare, servers, sweep, replay, trial -o wrote"
    )


def _within(section: PageSection, room: int) -> tuple[PageSection, int]:
    """Return a section with as many of its timelines, from the first on, as there is room for, and their size."""
    found = section.timelines
    if found is None:
        return section, 0
    used, kept, dropped = len(compact(replace(found, timelines=[]))), [], []
    for timeline in found.timelines:
        size = len(compact(timeline))
        if used + size <= room:
            used += size
            kept.append(timeline)
        else:
            dropped.append(timeline.name)
    if dropped:
        remark = f"To keep this page small its timelines leave out {', '.join(dropped)}."
        section = replace(section, remarks=[*section.remarks, remark])
    if not kept:
        return replace(section, timelines=None), 0
    return replace(section, timelines=replace(found, timelines=kept)), used


__all__ = ["Report", "report"]
