"""What a page is made of: per folder a question, its answer, tables, figures, timelines, and how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from truenorth.planner.show.curves import Curves
from truenorth.planner.show.table import Table
from truenorth.planner.show.timelines import Timelines


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
        For the interactive chart, or None.
    reproduce
        By name: command, versions, hashes.
    leading
        How many of the tables stand before the figures; the others follow them.
    notes
        What it all rests on, behind figures and tables.
    scenario
        Its name and file.
    """

    question: str
    answer: str
    remarks: Sequence[str] = ()
    tables: Sequence[Table[Any]] = ()
    figures: Sequence[Curves] = ()
    timelines: Timelines | None = None
    reproduce: Mapping[str, str] = field(default_factory=dict)
    leading: int = 1
    notes: Sequence[str] = ()
    scenario: str = ""
