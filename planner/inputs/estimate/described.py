"""Columns that come from a task's source and configuration, which are read and never run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from models.instance import Ints
from models.scenario import InputError
from planner.inputs.estimate.sources import FIELDS, DescriptionCache, describe
from planner.inputs.estimate.tasks import UNKNOWN, Texts

SOURCE_TEXT = "source_text"
"""The words of the sources."""
SOURCE_FIELDS = tuple(f"source_{name}" for name in FIELDS)
"""What the sources say of model, batch size, steps and so on."""
SOURCE_MODEL = "source_model"
_BETWEEN = ";"


def describe_columns(
    table: Path, line: Ints, paths: Texts, cache: DescriptionCache | None = None
) -> Mapping[str, Texts]:
    """Return the columns that the sources of some tasks make.

    Parameters
    ----------
    table
        Whose folder the paths are relative to.
    line
        Of each task. Shape [tasks].
    paths
        Of each task, several joined by ``;``; unknown where it has none. Shape [tasks].

    Raises
    ------
    InputError
        With the table's line, if a source cannot be read.
    """
    codes, distinct = pd.factorize(paths)
    rows: list[dict[str, str]] = []
    for code, text in enumerate(distinct):
        try:
            rows.append(_row(table.parent, text, cache))
        except InputError as error:
            first = int(line[np.argmax(codes == code)])
            raise InputError(str(table), first, "source", f"{error.file}: {error.problem}") from None
    return {name: np.array([row[name] for row in rows], np.object_)[codes] for name in (SOURCE_TEXT, *SOURCE_FIELDS)}


def _row(folder: Path, text: str, cache: DescriptionCache | None) -> dict[str, str]:
    files = [folder / part.strip() for part in text.split(_BETWEEN) if part.strip()]
    if not files:
        return dict.fromkeys((SOURCE_TEXT, *SOURCE_FIELDS), UNKNOWN)
    found = describe(files, cache=cache)
    values = (getattr(found, name) for name in FIELDS)
    fields = {
        f"source_{name}": UNKNOWN if value is None else str(value) for name, value in zip(FIELDS, values, strict=True)
    }
    return {SOURCE_TEXT: found.text, **fields}
