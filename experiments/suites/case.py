"""A case: a scenario whose objective is the makespan, how its value is counted, and what is known and became of it.

Beside it what a person may choose, and how the collected instances are read.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path

import truenorth as tn
from experiments import bench
from truenorth.models import Objective
from truenorth.models.scenario import InputError, Scenario, scenario_from
from truenorth.models.scenario.errors import quote
from truenorth.models.scenario.files import read_text

SIZE_BYTES = 1
"""Every model of a suite has this weight."""
KNOWN_OPTIMA = Path(__file__).parents[3] / "shared" / "data" / "known_optima"
"""Where the data lies beside a clone; not part of the tree. Its SOURCE.txt files name repositories and licences."""

_MOST_DIGITS = 15


class Suite(StrEnum):
    """A family of instances.

    Attributes
    ----------
    HEFT
        The ten tasks on three processors that HEFT was presented with.
    ASYNC_HOW
        Plans of AsyncHow with a GPU per step: the longest path.
    FLEXIBLE_JOB_SHOP
        Brandimarte's and Fattahi's flexible job shops.
    PARALLEL_MACHINES
        P||Cmax.
    TRIPLETS
        Bin packing in which every bin is filled by three items.
    PAGING
        A fixed order of requests on one GPU, against Belady.
    TOOL_SWITCHING
        Jobs and tools on identical machines.
    """

    HEFT = "heft"
    ASYNC_HOW = "asynchow"
    FLEXIBLE_JOB_SHOP = "fjsp"
    PARALLEL_MACHINES = "pcmax"
    TRIPLETS = "triplets"
    PAGING = "paging"
    TOOL_SWITCHING = "tool-switching"


class FirstFilling(StrEnum):
    """Whether the tools that a machine starts with cost their loads, or nothing, or both in turn."""

    PAID = "paid"
    FREE = "free"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Bracket:
    """What is known of an optimum: it lies between a proved bound and the best plan."""

    lower: int
    upper: int

    @classmethod
    def optimum(cls, value: int) -> Bracket:
        """Return what is known of a closed instance."""
        return cls(value, value)


@dataclass(frozen=True, slots=True)
class Case:
    """An instance of a suite; its value is (makespan - offset) / scale, a whole number.

    Parameters
    ----------
    suite, name
        What it is called.
    scenario
        Minimises the makespan.
    known
        In the suite's own units; None: nothing.
    scale_us, offset_us
        A plan that waits for nothing it need not wait for ends at the offset plus a multiple of the scale, so values
        are rounded down (the plan without its idle time) and bounds up.
    """

    suite: str
    name: str
    scenario: Scenario
    known: Bracket | None
    scale_us: int = 1
    offset_us: int = 0

    def value(self, makespan_us: Fraction) -> int:
        """Return the value of a plan in the suite's units."""
        return math.floor((makespan_us - self.offset_us) / self.scale_us)

    def bound(self, bound_us: Fraction) -> int:
        """Return a lower bound of the makespan in the suite's units."""
        return math.ceil((bound_us - self.offset_us) / self.scale_us)


def least_makespan(document: dict[str, object]) -> Scenario:
    """Return the scenario of a document whose makespan is to be minimised."""
    return scenario_from({**document, "objective": str(Objective.MAKESPAN)})


def machine(kind: str = "any", memory_bytes: int = 1, load_us: int = 1) -> dict[str, object]:
    """Return the section of a GPU that loads every model of `SIZE_BYTES` in a given time.

    Its bandwidth takes a microsecond for such a model, the overhead the rest.
    """
    return {
        "kind": kind,
        "memory": f"{memory_bytes} B",
        "load_bandwidth": "1 MB/s",
        "load_overhead": f"{load_us - 1} us",
    }


def alike(count: int, gpu: dict[str, object] | None = None) -> dict[str, object]:
    """Return the cluster section of equal GPUs in servers of their own, a byte between them taking a microsecond."""
    return {"servers": count, "gpu": gpu or machine(), "network": {"bandwidth": "1 MB/s"}}


def unlike(kinds: list[str]) -> dict[str, object]:
    """Return the cluster section of one GPU of each kind, a byte between them taking a microsecond."""
    return {"groups": [{"count": 1, "gpu": machine(kind)} for kind in kinds], "network": {"bandwidth": "1 MB/s"}}


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


def best_known(path: Path) -> dict[str, Bracket]:
    """Return the columns `lower_bound` and `upper_bound` of a CSV file by the column `instance`."""
    with found(path).open(newline="") as file:
        return {
            row["instance"]: Bracket(int(row["lower_bound"]), int(row["upper_bound"])) for row in csv.DictReader(file)
        }


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
    table = bench.markdown(COLUMNS, map(_cells, shown(rows)))
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
