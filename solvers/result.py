"""What a search returns: a timeline, a bound, and how both came about."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction

from truenorth.models.feasibility import assert_feasible
from truenorth.models.formulations.allowance import Allowance, GivenUpError
from truenorth.models.instance import Instance
from truenorth.models.objective import Objective, Status, gap, proves, timeline_value
from truenorth.models.timeline import Timeline
from truenorth.solvers.clock import Clock
from truenorth.solvers.faults import SOLVER_OF, SolverFaultWarning

_END_S, _END = 1.0, 0.05
"""Solvers look at the clock now and then: a search may end so many seconds, or so much of its limit, after it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A moment of a search: seconds since its start, best value and bound so far (exact, None if there is none)."""

    seconds: float
    value: Fraction | None
    bound: Fraction | None


class PlanOrigin(StrEnum):
    """Who made a plan.

    Attributes
    ----------
    SEARCH
        A search or a proof.
    START
        The list decoder, from a dispatch rule or a plan that was known: where search begins.
    POLICY
        An online policy that was simulated before.
    HINT
        Whoever asked gave it.
    """

    SEARCH = "search"
    START = "start"
    POLICY = "policy"
    HINT = "hint"


_MAKERS = {
    PlanOrigin.START: "what search began with",
    PlanOrigin.POLICY: "an online policy's",
    PlanOrigin.HINT: "the given one",
}


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
    cpu_s
        What this process got of its processors meanwhile, all threads together.
    origin
        Who made the plan.
    incumbents
        The trail: every moment at which value or bound improved.
    solver, options
        Which solver ran, and how (versions, seed, limits).
    left_out
        Methods that gave way to others because memory or time were too short for them, each with the reason.
    denied_by
        Which method proved that there is no plan; None if none did.
    confirmed_by
        Which other method came to the same where a proof rests on one solver's word; None if there is no such proof,
        or time was too short to ask.
    faults
        What solvers said that a plan contradicts.
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
    cpu_s: float = 0.0
    origin: PlanOrigin = PlanOrigin.SEARCH
    left_out: Mapping[str, str] = field(default_factory=dict)
    denied_by: str | None = None
    confirmed_by: str | None = None
    faults: tuple[str, ...] = ()

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
    def proved_by(self) -> str | None:
        """Which method proved that the plan is optimal, or that there is none; None if nothing is proved."""
        return self.bound_method if self.status is Status.OPTIMAL else self.denied_by

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

    @property
    def fell_back(self) -> str | None:
        """Which plan was kept because search found none better; None if it found one, or this one is optimal."""
        if self.origin is PlanOrigin.SEARCH or self.timeline is None or self.status is Status.OPTIMAL:
            return None
        return f"the plan is {_MAKERS[self.origin]}: search found none better"


def _shown(value: Fraction | None) -> str:
    return "none" if value is None else f"{float(value):.6g}"


class UnsoundBoundError(RuntimeError):
    """A lower bound, or a proof of infeasibility, contradicts a feasible plan: a bug."""


class Search:
    """A running search: its clock, its best plan and bound, and whoever watches.

    Every plan offered is checked against every rule; one that breaks a rule is a bug and raises. A bound that a plan
    contradicts is one, too, unless it rests on the word of a solver: then nothing that this solver said is kept.

    Parameters
    ----------
    instance, objective
        What is searched for.
    limit
        Its clock, or wall-clock seconds from now.
    watch
        Called at every improvement.
    left_out
        Takes down which methods gave way, and why; None: it begins with none.
    """

    def __init__(
        self,
        instance: Instance,
        objective: Objective,
        limit: Clock | float,
        watch: Callable[[Progress], None] | None = None,
        left_out: dict[str, str] | None = None,
    ) -> None:
        self.instance = instance
        self.objective = objective
        self.clock = limit if isinstance(limit, Clock) else Clock(limit)
        self.timeline: Timeline | None = None
        self.value: Fraction | None = None
        self.bound: Fraction | None = None
        self.bound_method: str | None = None
        self.origin = PlanOrigin.SEARCH
        self.left_out = {} if left_out is None else left_out
        self.denied_by: str | None = None
        self.confirmed_by: str | None = None
        self.faults: list[str] = []
        self._bounds: dict[str, Fraction] = {}
        self._distrusted: set[str] = set()
        self._watch = watch
        self._trail: list[Progress] = []
        self._cpu_start = time.process_time()
        self._lock = threading.RLock()

    @property
    def value_of_one(self) -> int:
        """What a value of 1 here is in the window that was asked about: more where time counts in longer units."""
        return 1

    @property
    def proved(self) -> bool:
        """Whether value and bound meet, so that nothing is left to search for."""
        return proves(self.value, self.bound)

    @property
    def allowance(self) -> Allowance:
        """What a model may take that is built for this search."""
        return Allowance(lambda: self.clock.left_s)

    @property
    def infeasible(self) -> bool:
        """Whether it is proved that there is no plan."""
        return self.denied_by is not None

    @property
    def rests_on(self) -> str | None:
        """The method on whose solver's word alone a proof rests; None if nothing is proved, or not by that alone."""
        if self.denied_by is not None:
            return self.denied_by if self.denied_by in SOLVER_OF else None
        proving = {method for method, bound in self._bounds.items() if proves(self.value, bound)}
        return self.bound_method if proving and proving <= SOLVER_OF.keys() and self.value else None

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

    def finish(self, timeline: Timeline) -> Timeline:
        """Return a plan as it is kept; the search on a twin says here what solvers leave open."""
        return timeline

    def offer(self, timeline: Timeline, origin: PlanOrigin = PlanOrigin.SEARCH) -> bool:
        """Keep a plan if it is the best so far, or as good with fewer bytes loaded; say whether it was kept.

        What happened as a policy had it is none if requests were cut as their GPU went (rule E3).
        """
        if timeline.cuts:
            return False
        timeline = self.finish(timeline)
        assert_feasible(self.instance, timeline)
        value = timeline_value(self.objective, self.instance, timeline)
        with self._lock:
            if self.timeline is not None and self.value is not None:
                if value > self.value:
                    return False
                if value == self.value:
                    if self._load_bytes(timeline) >= self._load_bytes(self.timeline):
                        return False
                    self.timeline, self.origin = timeline, origin
                    return True
            self.timeline, self.value, self.origin = timeline, value, origin
            for method, bound in [*self._bounds.items()]:
                if bound > value:
                    self._contradict(method, self._above(bound, method))
            if self.denied_by is not None:
                self._contradict(self.denied_by, self._denied(self.denied_by))
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
            if SOLVER_OF.get(method) in self._distrusted or least <= self._bounds.get(method, -1):
                return
            if self.value is not None and least > self.value:
                self._contradict(method, self._above(least, method))
                return
            self._bounds[method] = least
            if self.bound is None or least > self.bound:
                self.bound, self.bound_method = least, method
                self._report()

    def deny(self, method: str) -> None:
        """Claim that there is no plan.

        Raises
        ------
        UnsoundBoundError
            If there is one, and the method rests on no solver's word.
        """
        with self._lock:
            if SOLVER_OF.get(method) in self._distrusted:
                return
            if self.timeline is not None:
                self._contradict(method, self._denied(method))
            else:
                self.denied_by = method

    def distrust(self, solver: str, said: str) -> None:
        """Keep nothing that a solver has said or will say of this window, and tell whoever listens to warnings."""
        if solver not in self._distrusted:
            self.forget(solver, said)
            fault = SolverFaultWarning(solver, said, self.instance, self.objective, self.timeline)
            warnings.warn(fault, stacklevel=2)

    def forget(self, solver: str, said: str) -> None:
        """Keep nothing that a solver has said or will say of this window; whoever found out why has told of it."""
        with self._lock:
            self._distrusted.add(solver)
            self._bounds = {own: bound for own, bound in self._bounds.items() if SOLVER_OF.get(own) != solver}
            self.bound_method = max(self._bounds, key=lambda own: self._bounds[own], default=None)
            self.bound = None if self.bound_method is None else self._bounds[self.bound_method]
            if self.denied_by is not None and SOLVER_OF.get(self.denied_by) == solver:
                self.denied_by = None
            self._trail = [replace(moment, bound=self._at_most(moment.bound)) for moment in self._trail]
            self.faults.append(said)

    def result(self, solver: str, options: Mapping[str, str | int | float | bool | None]) -> Result:
        """Return what was found."""
        return Result(
            self.objective,
            self.timeline,
            self.value,
            self.bound,
            self.bound_method,
            self.infeasible,
            self.clock.elapsed_s,
            self.clock.limit_s,
            tuple(self._trail),
            solver,
            options,
            time.process_time() - self._cpu_start,
            self.origin,
            # What proved something once and gave way later, in a part or for want of time, was not left out.
            {method: why for method, why in self.left_out.items() if method not in self._bounds},
            self.denied_by,
            self.confirmed_by,
            tuple(self.faults),
        )

    def _contradict(self, method: str, said: str) -> None:
        """Raise over a claim that the best plan contradicts, or distrust the solver on whose word it rests."""
        solver = SOLVER_OF.get(method)
        if solver is None:
            raise UnsoundBoundError(said)
        self.distrust(solver, said)

    def _above(self, bound: Fraction, method: str) -> str:
        return f"bound {float(bound)} ({method}) lies above the plan of value {float(self.value or 0)}"

    def _denied(self, method: str) -> str:
        by = SOLVER_OF.get(method, method)
        return f"{by} claims that there is no plan, but one of value {float(self.value or 0)} is known"

    def _at_most(self, bound: Fraction | None) -> Fraction | None:
        """Return what is left of an earlier bound: no more than the best one that is kept."""
        return None if bound is None or self.bound is None else min(bound, self.bound)

    def _load_bytes(self, timeline: Timeline) -> int:
        weights = self.instance.weight_bytes
        return sum(int(weights[residency.model]) for residency in timeline.residencies if not residency.initial)

    def _report(self) -> None:
        progress = Progress(self.clock.elapsed_s, self.value, self.bound)
        self._trail.append(progress)
        if self._watch is not None:
            self._watch(progress)
