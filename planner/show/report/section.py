"""What a page is made of: per folder a question, its answer, tables, figures, timelines, and how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a caption.

    Parameters
    ----------
    columns
        Their headings.
    words
        How many columns from the left hold words; the others hold figures and stand flush right.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    note: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a figure.

    Parameters
    ----------
    path
        What an SVG path element calls ``d``.
    colour
        Its colour, or empty for that of the text.
    points
        Where dots stand, and what they say.
    """

    name: str
    path: str
    colour: str = ""
    bold: bool = False
    points: Sequence[tuple[float, float, str]] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawn figure: curves over two axes; ticks are pairs of a position in pixels and a label."""

    title: str
    x_label: str
    y_label: str
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    curves: Sequence[Curve]


@dataclass(frozen=True, slots=True)
class Section:
    """All that a page says of one folder.

    Parameters
    ----------
    question, answer
        A sentence each.
    remarks
        What a reader must know to read the answer rightly.
    timelines
        The document of `planner.show.report.timelines`, or None.
    reproduce
        By name: command, versions, hashes.
    """

    question: str
    answer: str
    remarks: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    timelines: Mapping[str, Any] | None = None
    reproduce: Mapping[str, str] = field(default_factory=dict)
