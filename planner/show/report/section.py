"""What a page is made of: per folder a question, its answer, tables, figures, timelines, and how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.show.curves import Curves


@dataclass(frozen=True, slots=True)
class PageTable:
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
class PageSection:
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
    leading
        How many of the tables stand before the figures; the others follow them.
    notes
        What it all rests on, behind figures and tables.
    """

    question: str
    answer: str
    remarks: Sequence[str] = ()
    tables: Sequence[PageTable] = ()
    figures: Sequence[Curves] = ()
    timelines: Mapping[str, Any] | None = None
    reproduce: Mapping[str, str] = field(default_factory=dict)
    leading: int = 1
    notes: Sequence[str] = ()
