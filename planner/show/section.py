"""What a page is made of: per folder a question, its answer, tables, figures, timelines, and how to repeat it.

A folder's files are read as the records that verbs wrote, with the manners of every other input.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from truenorth.models.record import decode
from truenorth.models.scenario import InputError
from truenorth.models.scenario.files import read_text
from truenorth.planner.show.curves import Curves
from truenorth.planner.show.table import Table

if TYPE_CHECKING:
    from truenorth.planner.show.timelines import Timelines

Kind = TypeVar("Kind")
Other = TypeVar("Other")


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


def _read(path: Path) -> Any:
    """Return what a JSON file holds."""
    try:
        return json.loads(read_text(path), parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise InputError(str(path), line, "file", f"is no JSON: {error}; make the folder again with -o") from None


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return value


def read_record(path: Path, kind: type[Kind]) -> Kind:
    """Return the record of a type that a JSON file holds; keys of other records are left out.

    Raises
    ------
    InputError
        If it cannot be read, or holds something else.
    """
    return _record(path, _read(path), kind)


def read_both(path: Path, kind: type[Kind], other: type[Other]) -> tuple[Kind, Other]:
    """Return the records of two types that a JSON file holds together; as `read_record`."""
    document = _read(path)
    return _record(path, document, kind), _record(path, document, other)


def _record(path: Path, document: Any, kind: type[Kind]) -> Kind:
    try:
        return decode(kind, document)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
        problem = f"{first['msg']}; allowed is what -o wrote: make the folder again"
        raise InputError(str(path), 1, where or "file", problem) from None
