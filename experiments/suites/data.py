"""Where the collected instances lie, and how files of whole numbers are read."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from experiments.suites.case import Known
from models.scenario import InputError
from models.scenario.errors import quote
from models.scenario.files import read_text

KNOWN_OPTIMA = Path(__file__).parents[3] / "shared" / "data" / "known_optima"
"""Where the data lies beside a clone; not part of the tree. Its SOURCE.txt files name repositories and licences."""

_MOST_DIGITS = 15


def found(path: Path) -> Path:
    """Return a path that exists.

    Raises
    ------
    InputError
        If it does not.
    """
    if not path.exists():
        problem = "is not there; allowed is --data with a folder that holds it, or only suites that need no files"
        raise InputError(str(path), None, "file", problem)
    return path


def rows_of_numbers(path: Path) -> Iterator[tuple[int, list[int]]]:
    """Yield the line number and the whole numbers of every line that is not blank.

    Raises
    ------
    InputError
        At the first word that is no whole number of at least 0.
    """
    for line, text in enumerate(read_text(found(path)).splitlines(), 1):
        words = text.split()
        for word in words:
            if not (word.isascii() and word.isdigit() and len(word) <= _MOST_DIGITS):
                raise InputError(
                    str(path), line, "number", f"{quote(word)} stands here; allowed are whole numbers from 0"
                )
        if words:
            yield line, [int(word) for word in words]


def best_known(path: Path) -> dict[str, Known]:
    """Return the columns `lower_bound` and `upper_bound` of a CSV file by the column `instance`."""
    with found(path).open(newline="") as file:
        return {
            row["instance"]: Known(int(row["lower_bound"]), int(row["upper_bound"])) for row in csv.DictReader(file)
        }
