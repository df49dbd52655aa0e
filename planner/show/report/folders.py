"""The folders that verbs left behind: what is in one, read with the manners of every other input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from models.scenario import InputError
from models.scenario.source import read_text
from planner.show.report import timelines


def read_json(path: Path, *keys: str) -> dict[str, Any]:
    """Return the object in a file.

    Parameters
    ----------
    keys
        What the object must have.

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
    missing = [key for key in keys if not isinstance(document, dict) or key not in document]
    if missing:
        raise InputError(str(path), 1, missing[0], "is missing; allowed is what -o wrote: make the folder again")
    assert isinstance(document, dict)  # noqa: S101
    return document


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
    document = read_json(path, "schema_version", "instances", "timelines")
    if document["schema_version"] != timelines.SCHEMA_VERSION:
        problem = f"is {document['schema_version']}; allowed is {timelines.SCHEMA_VERSION}: make the folder again"
        raise InputError(str(path), 1, "schema_version", problem)
    return document
