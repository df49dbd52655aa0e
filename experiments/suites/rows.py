"""What became of a case: a row of results.csv, and rows as a table of text or Markdown with a line per suite."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import truenorth as tn
from experiments import study
from experiments.suites.case import Case

COLUMNS = ("suite", "instance", "value", "bound", "best known", "verdict", "status", "time s", "CPU s")
MOST_SHOWN = 60
"""A suite of more cases than this shows only those that are not at their best known value, or not proved."""


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """A case planned: value, bound and what is known, in the suite's units; empty fields are unknown.

    Parameters
    ----------
    time_s, cpu_s
        Wall-clock time, and processor time of all threads.
    """

    suite: str
    instance: str
    time_limit_s: float
    value: int | None
    bound: int | None
    known_lower: int | None
    known_upper: int | None
    status: str
    bound_method: str | None
    time_s: float
    cpu_s: float

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


def planned(case: Case, time_limit_s: float, workers: int = 2) -> SuiteRow:
    """Plan a case as a user would, and return what became of it."""
    began_s = time.process_time()
    result = tn.plan(case.scenario, time_limit=time_limit_s, workers=workers).result
    return SuiteRow(
        case.suite,
        case.name,
        time_limit_s,
        None if result.value is None else case.value(result.value),
        None if result.lower_bound is None else case.bound(result.lower_bound),
        None if case.known is None else case.known.lower,
        None if case.known is None else case.known.upper,
        str(result.status),
        result.bound_method,
        round(result.runtime_s, 2),
        round(time.process_time() - began_s, 2),
    )


def line(row: SuiteRow) -> str:
    """Return a row for a terminal."""
    return "  ".join(_cells(row))


def markdown(rows: Sequence[SuiteRow]) -> str:
    """Return the table and the summary as a page."""
    table = study.markdown(COLUMNS, map(_cells, shown(rows)))
    return "\n".join([*(f"- {said}" for said in summary(rows)), "", table, ""])


def shown(rows: Sequence[SuiteRow]) -> list[SuiteRow]:
    """Return the rows that a table shows."""
    return [
        row
        for row in rows
        if sum(other.suite == row.suite for other in rows) <= MOST_SHOWN or row.verdict != "equal" or not row.proved
    ]


def summary(rows: Sequence[SuiteRow]) -> list[str]:
    """Return a line per suite: cases, how many are at the best known value and proved, the worst, and the time."""
    return [
        _summary(suite, [row for row in rows if row.suite == suite])
        for suite in dict.fromkeys(row.suite for row in rows)
    ]


def _summary(suite: str, rows: Sequence[SuiteRow]) -> str:
    known = [row for row in rows if row.known_upper is not None]
    counts = [
        f"{len(rows)} case{'s' if len(rows) > 1 else ''}",
        f"{sum(row.proved for row in rows)} proved",
        f"{sum(row.verdict == 'equal' for row in rows)} of {len(known)} at the best known value",
    ]
    for verdict in ("better", "refutes the known value", "below a published bound", "no plan"):
        count = sum(row.verdict == verdict for row in rows)
        counts += [f"{count} {verdict}"] if count else []
    above = [row.excess for row in rows if row.verdict.startswith("+") and row.excess is not None]
    counts += [f"worst +{max(above):.2%}"] if above else []
    return f"{suite}: {', '.join(counts)}, {sum(row.time_s for row in rows):.1f} s"


def _cells(row: SuiteRow) -> tuple[str, ...]:
    best = _number(row.known_upper)
    if row.known_lower != row.known_upper:
        best = f"{_number(row.known_lower)} to {best}"
    return (
        row.suite,
        row.instance,
        _number(row.value),
        _number(row.bound),
        best,
        row.verdict,
        row.status,
        f"{row.time_s:.1f}",
        f"{row.cpu_s:.1f}",
    )


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
