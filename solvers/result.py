"""What a search returns: a timeline, a bound, and how both came about."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction

from models.feasibility import assert_feasible
from models.formulations.budget import Budget, GivenUpError
from models.instance import Instance
from models.objective import Objective, gap, timeline_value
from models.status import Status, proves
from models.timeline import Timeline

_END_S, _END = 1.0, 0.05
"""Solvers look at the clock now and then: a search may end so many seconds, or so much of its limit, after it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A moment of a search: seconds since its start, best value and bound so far (exact, None if there is none)."""

    seconds: float
    value: Fraction | None
    bound: Fraction | None


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a search.

    Parameters
    ----------
    objective
        What was minimised.
    timeline
        The best plan, or None.
    value
        Its exact objective value (microseconds, a ratio, or a count), or None.
    lower_bound
        A proved lower bound in the units of the value, or None; never above the value.
    bound_method
        Where the bound comes from, or None.
    infeasible
        Whether it was proved that there is no plan.
    runtime_s, time_limit_s
        Wall-clock time of the search, and how much of it was allowed.
    incumbents
        The trail: every moment at which value or bound improved.
    solver, options
        Which solver ran, and how (versions, seed, limits).
    left_out
        Methods that gave way to others because memory or time were too short for them, each with the reason.
    """

    objective: Objective
    timeline: Timeline | None
    value: Fraction | None
    lower_bound: Fraction | None
    bound_method: str | None
    infeasible: bool
    runtime_s: float
    time_limit_s: float
    incumbents: tuple[Progress, ...]
    solver: str
    options: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        figures = f"value {_shown(self.value)}, lower bound {_shown(self.lower_bound)}"
        return f"<Result {self.status} of {self.objective}: {figures}, {self.timeline!r}, {self.solver}>"

    @property
    def status(self) -> Status:
        """What is known, as `Status` defines it."""
        if self.infeasible:
            return Status.INFEASIBLE
        if self.value is None:
            return Status.NO_SOLUTION
        return Status.OPTIMAL if proves(self.value, self.lower_bound) else Status.FEASIBLE

    @property
    def within_limit(self) -> bool:
        """Whether the time limit allowed a first plan, and the search ended by it but for what an end takes."""
        return not self.first_plan_late and self.runtime_s <= self.time_limit_s + max(_END_S, _END * self.time_limit_s)

    @property
    def first_plan_late(self) -> bool:
        """Whether the first plan came after the time limit; it is kept all the same."""
        first = next((moment.seconds for moment in self.incumbents if moment.value is not None), 0.0)
        return first > self.time_limit_s

    @property
    def gap(self) -> float | None:
        """(value - bound) / value, or None without value or bound."""
        return None if self.value is None else gap(self.value, self.lower_bound)


def _shown(value: Fraction | None) -> str:
    return "none" if value is None else f"{float(value):.6g}"


class UnsoundBoundError(RuntimeError):
    """A lower bound, or a proof of infeasibility, contradicts a feasible plan: a bug."""


class SolverFaultError(RuntimeError):
    """A solver contradicts a plan that was checked, or rejects the model: its answer cannot be used."""


class Search:
    """A running search: its clock, its limit, its best plan and bound, and whoever watches.

    Every plan offered is checked against every rule; one that breaks a rule is a bug and raises.

    Parameters
    ----------
    instance, objective
        What is searched for.
    time_limit_s
        Wall-clock seconds from now.
    watch
        Called at every improvement.
    stop
        Set from outside (Ctrl-C) to end the search early with its best plan.
    left_out
        Takes down which methods gave way, and why; None: it begins with none.
    """

    def __init__(
        self,
        instance: Instance,
        objective: Objective,
        time_limit_s: float,
        watch: Callable[[Progress], None] | None = None,
        stop: threading.Event | None = None,
        left_out: dict[str, str] | None = None,
    ) -> None:
        self.instance = instance
        self.objective = objective
        self.stop = stop or threading.Event()
        self.timeline: Timeline | None = None
        self.value: Fraction | None = None
        self.bound: Fraction | None = None
        self.bound_method: str | None = None
        self.infeasible = False
        self.left_out = {} if left_out is None else left_out
        self._watch = watch
        self._trail: list[Progress] = []
        self._start = time.monotonic()
        self._limit_s = time_limit_s
        self._lock = threading.Lock()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    @property
    def remaining_s(self) -> float:
        """Seconds until the limit; 0 once it has passed or a stop was asked for."""
        return 0.0 if self.stop.is_set() else max(0.0, self._limit_s - self.elapsed_s)

    @property
    def proved(self) -> bool:
        """Whether value and bound meet, so that nothing is left to search for."""
        return proves(self.value, self.bound)

    @property
    def budget(self) -> Budget:
        """What a model may take that is built for this search."""
        return Budget(lambda: self.remaining_s)

    @contextmanager
    def giving_way(self, method: str) -> Iterator[None]:
        """Run a method that may be too large for memory or time: then the next one has its turn.

        Parameters
        ----------
        method
            Its name, as that of the bounds it proves.
        """
        try:
            yield
        except GivenUpError as error:
            self.left_out[method] = str(error)
        except MemoryError:
            self.left_out[method] = "memory ran out"

    def offer(self, timeline: Timeline) -> bool:
        """Keep a plan if it is the best so far, or as good with fewer bytes loaded; say whether it was kept."""
        assert_feasible(self.instance, timeline)
        value = timeline_value(self.objective, self.instance, timeline)
        with self._lock:
            if self.timeline is not None and self.value is not None:
                if value > self.value:
                    return False
                if value == self.value:
                    if self._load_bytes(timeline) >= self._load_bytes(self.timeline):
                        return False
                    self.timeline = timeline
                    return True
            self.timeline, self.value = timeline, value
            self._check_bound(self.bound, self.bound_method)
            self._report()
        return True

    def offer_bound(self, bound: Fraction, method: str) -> None:
        """Keep a proved lower bound if it is the best so far; one below 0 counts as 0, for no objective is negative.

        An argument that starts from an incumbent proves only min(bound, its value): clip it before offering it.

        Raises
        ------
        UnsoundBoundError
            If the bound lies above the best plan.
        """
        least = max(bound, Fraction(0))
        with self._lock:
            if self.bound is None or least > self.bound:
                self._check_bound(least, method)
                self.bound, self.bound_method = least, method
                self._report()

    def result(self, solver: str, options: Mapping[str, str | int | float | bool | None]) -> Result:
        """Return what was found.

        Raises
        ------
        UnsoundBoundError
            If infeasibility was claimed although there is a plan.
        """
        if self.infeasible and self.timeline is not None:
            raise UnsoundBoundError(f"{solver} claims that there is no plan, and has one")
        return Result(
            self.objective,
            self.timeline,
            self.value,
            self.bound,
            self.bound_method,
            self.infeasible,
            self.elapsed_s,
            self._limit_s,
            tuple(self._trail),
            solver,
            options,
            dict(self.left_out),
        )

    def _check_bound(self, bound: Fraction | None, method: str | None) -> None:
        """Raise if a bound lies above the best plan: then one of the two is wrong."""
        if bound is not None and self.value is not None and bound > self.value:
            raise UnsoundBoundError(f"bound {float(bound)} ({method}) lies above the plan of value {float(self.value)}")

    def _load_bytes(self, timeline: Timeline) -> int:
        weights = self.instance.weight_bytes
        return sum(int(weights[residency.model]) for residency in timeline.residencies if not residency.initial)

    def _report(self) -> None:
        progress = Progress(self.elapsed_s, self.value, self.bound)
        self._trail.append(progress)
        if self._watch is not None:
            self._watch(progress)
