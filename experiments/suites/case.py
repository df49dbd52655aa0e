"""A case: a scenario whose objective is the makespan, how its value is counted, and what is known of it.

Beside it what a person may choose, and how the collected instances are read.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path

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
class Known:
    """What is known of an optimum: it lies between a proved bound and the best plan."""

    lower: int
    upper: int

    @classmethod
    def optimum(cls, value: int) -> Known:
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
    known: Known | None
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


def best_known(path: Path) -> dict[str, Known]:
    """Return the columns `lower_bound` and `upper_bound` of a CSV file by the column `instance`."""
    with found(path).open(newline="") as file:
        return {
            row["instance"]: Known(int(row["lower_bound"]), int(row["upper_bound"])) for row in csv.DictReader(file)
        }
