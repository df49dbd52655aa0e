"""The page itself: one HTML file that needs no network, in light, in dark and in print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from truenorth.models.errors import QuestionError
from truenorth.models.scenario import write_atomically
from truenorth.planner.show import comparison, replay, replicated, schedule, servers, sweep, trial
from truenorth.planner.show.section import PageSection
from truenorth.planner.show.templates import compact, render

TIMELINES_BYTES = 2_400_000
"""Room for timelines in a page of at most 3 MB; those that do not fit are named, and left out of the Gantt chart."""
_SECTIONS: Mapping[str, Callable[[Path], PageSection]] = {
    comparison.FILE: comparison.section,
    servers.FILE: servers.section,
    schedule.FILE: schedule.section,
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


def report(folders: Sequence[Path]) -> Report:
    """Return the page of folders that ``compare -o`` and other verbs wrote.

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
    return Report(tuple(sections), render("page.html.j2", sections=sections))


def _section(folder: Path) -> PageSection:
    for name, read in _SECTIONS.items():
        if (folder / name).is_file():
            return read(folder)
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
