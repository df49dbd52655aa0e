"""How much text every job brings and asks for, as recorded: what makes run times depend on the input."""

from __future__ import annotations

import csv
from pathlib import Path

from executor.errors import DeviceError

_COLUMNS = (("prompt", "answer"), ("ContextTokens", "GeneratedTokens"))
"""Names of the two columns; the second pair is that of the Azure traces of language models."""


def read_lengths(path: str) -> list[tuple[int, int]]:
    """Return tokens to read and to write, a pair per row of a CSV file.

    Raises
    ------
    DeviceError
        If it cannot be read, or a row holds no such pair.
    """
    try:
        rows = list(csv.DictReader(Path(path).read_text().splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise DeviceError(f"lengths {path}: cannot be read: {error}") from None
    names = next((pair for pair in _COLUMNS if rows and all(name in rows[0] for name in pair)), None)
    if names is None:
        allowed = " or ".join(",".join(pair) for pair in _COLUMNS)
        raise DeviceError(f"lengths {path}: has no rows under the columns {allowed}")
    found = []
    for line, row in enumerate(rows, 2):
        given = [(row[name] or "").strip() for name in names]
        if not all(text.isascii() and text.isdigit() and int(text) for text in given):
            raise DeviceError(f"lengths {path}:{line}: {','.join(given)}: allowed are whole numbers of at least 1")
        found.append((int(given[0]), int(given[1])))
    return found
