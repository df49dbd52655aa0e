"""Reading back the records that ``-o`` wrote, with the manners of every other input."""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from truenorth.models.record import decode
from truenorth.models.scenario import InputError
from truenorth.models.scenario.files import read_text

Kind = TypeVar("Kind")
Other = TypeVar("Other")


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
