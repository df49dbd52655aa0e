"""A case: a scenario whose objective is the makespan, how its value is counted, and what is known of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from models import Objective
from models.scenario import Scenario, scenario_from

SIZE_BYTES = 1
"""Every model of a suite has this weight."""


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
