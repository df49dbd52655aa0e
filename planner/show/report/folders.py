"""The folders that verbs left behind: what is in one, read with the manners of every other input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from models.scenario import InputError
from models.scenario.files import read_text
from planner.show.report import documents, timelines


def read_json(path: Path, kind: Any) -> dict[str, Any]:
    """Return the object in a file.

    Parameters
    ----------
    kind
        What it must be: one of `planner.show.report.documents`.

    Raises
    ------
    InputError
        If the file cannot be read, or holds something else.
    """
    try:
        document = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise InputError(str(path), line, "file", f"is no JSON: {error}; make the folder again with -o") from None
    try:
        checked: dict[str, Any] = TypeAdapter(kind).validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
        problem = f"{first['msg']}; allowed is what -o wrote: make the folder again"
        raise InputError(str(path), 1, where or "file", problem) from None
    return checked


def read_timelines(folder: Path) -> dict[str, Any] | None:
    """Return the timelines of a folder, or None if it has none.

    Raises
    ------
    InputError
        If the file cannot be read, or is of another version.
    """
    path = folder / timelines.NAME
    if not path.exists():
        return None
    document = read_json(path, documents.Timelines)
    if document["schema_version"] != timelines.SCHEMA_VERSION:
        problem = f"is {document['schema_version']}; allowed is {timelines.SCHEMA_VERSION}: make the folder again"
        raise InputError(str(path), 1, "schema_version", problem)
    return document
