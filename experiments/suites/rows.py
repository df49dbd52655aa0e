"""What became of a case: a row of results.csv, which keeps finished cases between runs."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from experiments.suites.case import Case
from models.scenario import InputError, write_atomically
from planner import plan


@dataclass(frozen=True, slots=True)
class Row:
    """A case planned: value, bound and what is known, in the suite's units; empty fields are unknown.

    Parameters
    ----------
    time_s, cpu_s
        Wall-clock time, and processor time of all threads.
    """

    suite: str
    instance: str
    value: int | None
    bound: int | None
    known_lower: int | None
    known_upper: int | None
    status: str
    bound_method: str
    time_s: float
    cpu_s: float
    time_limit_s: float

    @property
    def key(self) -> tuple[str, str, float]:
        """What was asked."""
        return self.suite, self.instance, self.time_limit_s

    @property
    def proved(self) -> bool:
        """Whether plan and bound meet."""
        return self.value is not None and self.value == self.bound

    @property
    def excess(self) -> float | None:
        """How far the plan lies above the best known, as a share of it; None if one of them is missing."""
        if self.value is None or self.known_upper is None:
            return None
        return self.value / self.known_upper - 1

    @property
    def verdict(self) -> str:
        """The value beside the best known, in a word."""
        if self.value is None:
            return "no plan"
        if self.known_upper is None:
            return "nothing known"
        if self.bound is not None and self.bound > self.known_upper:
            return "refutes the known value"
        if self.known_lower is not None and self.value < self.known_lower:
            return "below a published bound"
        if self.value == self.known_upper:
            return "equal"
        return "better" if self.value < self.known_upper else f"+{self.excess:.2%}"


def planned(case: Case, time_limit_s: float, workers: int = 2) -> Row:
    """Plan a case as a user would, and return what became of it."""
    began_s = time.process_time()
    result = plan(case.scenario, time_limit_s=time_limit_s, workers=workers).result
    return Row(
        case.suite,
        case.name,
        None if result.value is None else case.value(result.value),
        None if result.lower_bound is None else case.bound(result.lower_bound),
        None if case.known is None else case.known.lower,
        None if case.known is None else case.known.upper,
        str(result.status),
        result.bound_method or "",
        round(result.runtime_s, 2),
        round(time.process_time() - began_s, 2),
        time_limit_s,
    )


def read(path: Path) -> list[Row]:
    """Return the rows of a results file; none if there is no file.

    Raises
    ------
    InputError
        If the file is another table, or a row of it is damaged.
    """
    if not path.exists():
        return []
    with path.open(newline="") as file:
        table = csv.DictReader(file)
        if table.fieldnames != [field.name for field in fields(Row)]:
            raise InputError(str(path), 1, "header", "is another table's; allowed is a folder without such a file")
        return [_row(path, line, row) for line, row in enumerate(table, 2)]


def _row(path: Path, line: int, text: dict[str, str]) -> Row:
    def number(name: str) -> int | None:
        return int(text[name]) if text[name] else None

    try:
        return Row(
            text["suite"],
            text["instance"],
            number("value"),
            number("bound"),
            number("known_lower"),
            number("known_upper"),
            text["status"],
            text["bound_method"],
            float(text["time_s"]),
            float(text["cpu_s"]),
            float(text["time_limit_s"]),
        )
    except (TypeError, ValueError) as error:
        raise InputError(str(path), line, "row", f"{error}; allowed is a row as this command writes it") from None


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write a results file, whole or not at all."""
    text = io.StringIO()
    table = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
    table.writeheader()
    table.writerows(asdict(row) for row in rows)
    write_atomically(path, text.getvalue())
