"""JSON Lines as rows in chunks: an object per line, whose keys are columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from models.scenario import InputError
from models.scenario.errors import quote
from models.scenario.files import LONGEST_LINE, read_bounded_lines
from models.scenario.json_text import JSONText
from models.scenario.section import kind_of
from planner.inputs.importers.csv_files import CHUNK_ROWS
from planner.inputs.importers.json_values import json_lines
from planner.inputs.importers.rows import Refusal, Rows
from planner.inputs.importers.source import open_text
from planner.inputs.importers.tally import Tally


def holds_json_lines(path: Path) -> bool:
    """Say whether the first line of a file that is not blank begins an object.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    with open_text(path) as file:
        lines = read_bounded_lines(file, str(path), LONGEST_LINE)
        return next((line for line in lines if line.strip()), "").lstrip().startswith("{")


def json_rows(path: Path, required: Sequence[str], tally: Tally, optional: Sequence[str] = ()) -> Iterator[Rows]:
    """Yield the rows of a file in chunks, and settle each chunk with the tally afterwards.

    Parameters
    ----------
    required
        Keys that every object must have.
    optional
        Keys that count as empty where they are missing. Others are ignored.

    Raises
    ------
    InputError
        If the file cannot be read or, unless the tally skips malformed rows, for the first row that is malformed.
    """
    wanted = dict.fromkeys((*required, *optional))
    with open_text(path) as file:
        texts = json_lines(file, str(path))
        while chunk := list(islice(texts, CHUNK_ROWS)):
            line, found, broken = [], [], []
            for text in chunk:
                try:
                    found.append(_values(text, wanted, optional))
                    line.append(text.first_line)
                except InputError as error:
                    broken.append(Refusal(error, f"{error.field}: is malformed"))
            columns = {key: np.array([row[at] for row in found], np.object_) for at, key in enumerate(wanted)}
            rows = Rows(str(path), np.array(line, np.int64), columns, tally, broken)
            yield rows
            rows.settle()


def _values(text: JSONText, wanted: dict[str, None], optional: Sequence[str]) -> list[str]:
    """Return the values of some keys as text, numbers as they stand."""
    row = text.data()
    if not isinstance(row, dict):
        raise InputError(text.file, text.first_line, "row", f"{kind_of(row)} stands here; allowed is an object")
    found = []
    for key in wanted:
        value = row.get(key, None if key in optional else Ellipsis)
        if value is Ellipsis:
            known = f"its keys: {', '.join(map(quote, row))[:200]}; allowed is an object with {', '.join(wanted)}"
            raise InputError(text.file, text.first_line, "row", f"has no key {key!r}; {known}")
        if value is not None and not isinstance(value, str):
            raise text.error((key,), f"{kind_of(value)} stands here; allowed is text, a number or null")
        found.append(value or "")
    return found
