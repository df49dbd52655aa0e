"""The best plan and the best bound of a window so far: whatever is found is offered here, and checked."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from truenorth.models.feasibility import assert_feasible
from truenorth.models.instance import Instance
from truenorth.models.metrics import loaded_bytes
from truenorth.models.objective import Objective, proves, timeline_value
from truenorth.models.timeline import Timeline
from truenorth.solvers.clock import Clock
from truenorth.solvers.reductions import Equivalent, close
from truenorth.solvers.trust import SOLVER_OF, SolverFaultWarning, Trust, UnsoundBoundError


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


class Incumbents:
    """The best plan and bound of a window, and the trail of how they came about.

    Every plan offered is checked against every rule; one that breaks a rule is a bug and raises. A bound that a plan
    contradicts is one, too, unless it rests on the word of a solver: then nothing that this solver said is kept.

    Parameters
    ----------
    instance, objective
        What is searched for.
    clock
        Tells when things were found.
    watch
        Called at every improvement.
    most
        Only plans of at most this value are kept, and one is enough: what is asked is whether there is any, infinite
        for whatever value. None: the best one is looked for.
    """

    def __init__(
        self,
        instance: Instance,
        objective: Objective,
        clock: Clock,
        watch: Callable[[Progress], None] | None = None,
        most: Fraction | float | None = None,
    ) -> None:
        self.instance, self.objective, self.clock = instance, objective, clock
        self.timeline: Timeline | None = None
        self.value: Fraction | None = None
        self.bound: Fraction | None = None
        self.bound_method: str | None = None
        self.origin = PlanOrigin.SEARCH
        self.trust = Trust()
        self.trail: list[Progress] = []
        self._watch, self._most = watch, most
        self._above: Incumbents | None = None
        self._by: Equivalent | None = None
        # No GPU comes twice, so that solvers may leave open when residencies end.
        self._closes = False
        self._lock = threading.RLock()

    def begin_with(self, others: Incumbents, by: Equivalent | None = None) -> None:
        """Take over what is known of the same window, or of the one that this one is the twin of."""
        self._closes = by is not None or others._closes
        if others.timeline is not None:
            self.offer(others.timeline if by is None else by.to_twin(others.timeline), others.origin)
        if others.bound is not None and others.bound_method is not None:
            self.offer_bound(others.bound / (1 if by is None else by.value_of_one), others.bound_method)

    def hand_on_to(self, above: Incumbents, by: Equivalent | None = None) -> None:
        """Begin with what others know, and hand on to them what is found here."""
        self.trust = above.trust.without_claims()
        self._above, self._by = above, by
        self.begin_with(above, by)

    @property
    def value_of_one(self) -> int:
        """What a value of 1 here is above: more where time counts in longer units."""
        return 1 if self._by is None else self._by.value_of_one

    @property
    def proved(self) -> bool:
        """Whether nothing is left to search for: value and bound meet, or what was asked is answered."""
        own = proves(self.value, self.bound) if self._most is None else self.infeasible or self.timeline is not None
        return own or (self._above is not None and self._above.proved)

    @property
    def infeasible(self) -> bool:
        """Whether it is proved that there is no plan."""
        return self.trust.denied_by is not None or (self._above is not None and self._above.infeasible)

    @property
    def faults(self) -> list[str]:
        """What solvers said that a plan contradicts."""
        return self.trust.faults

    @property
    def rests_on(self) -> str | None:
        """The method on whose solver's word alone a proof rests; None if nothing is proved, or not by that alone."""
        return self.trust.rests_on(self.value)

    def offer(self, timeline: Timeline, origin: PlanOrigin = PlanOrigin.SEARCH) -> bool:
        """Keep a plan if it is the best so far, or as good with fewer bytes loaded; say whether it was kept.

        What happened as a policy had it may be none.
        """
        if not timeline.is_plan:
            return False
        if self._closes:
            timeline = close(self.instance, timeline)
        assert_feasible(self.instance, timeline)
        kept = self._keep(timeline, timeline_value(self.objective, self.instance, timeline), origin)
        if kept and self._above is not None:
            self._above.offer(timeline if self._by is None else self._by.back(timeline), origin)
        return kept

    def _keep(self, timeline: Timeline, value: Fraction, origin: PlanOrigin) -> bool:
        with self._lock:
            if self._most is not None and value > self._most:
                return False
            if self.timeline is not None and self.value is not None:
                if value > self.value:
                    return False
                if value == self.value:
                    if self._load_bytes(timeline) >= self._load_bytes(self.timeline):
                        return False
                    self.timeline, self.origin = timeline, origin
                    return True
            self.timeline, self.value, self.origin = timeline, value, origin
            for method, bound in [*self.trust.bounds.items()]:
                if bound > value:
                    self._contradict(method, self._above_the_plan(bound, method))
            if self.trust.denied_by is not None:
                self._contradict(self.trust.denied_by, self._denied(self.trust.denied_by))
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
        least = max(bound if self._by is None else self._by.least(self.objective, bound), Fraction(0))
        self._keep_bound(least, method)
        if self._above is not None:
            self._above.offer_bound(least * self.value_of_one, method)

    def _keep_bound(self, least: Fraction, method: str) -> None:
        with self._lock:
            if not self.trust.believes(method) or least <= self.trust.bounds.get(method, -1):
                return
            if self.value is not None and least > self.value:
                self._contradict(method, self._above_the_plan(least, method))
                return
            self.trust.bounds[method] = least
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
        if self._above is not None:
            self._above.deny(method)
            return
        with self._lock:
            if not self.trust.believes(method):
                return
            if self.timeline is not None:
                self._contradict(method, self._denied(method))
            else:
                self.trust.denied_by = method

    def distrust(self, solver: str, said: str) -> None:
        """Keep nothing that a solver has said or will say of this window, and tell whoever listens to warnings."""
        if solver not in self.trust.distrusted:
            self.forget(solver, said)
            fault = SolverFaultWarning(solver, said, self.instance, self.objective, self.timeline)
            warnings.warn(fault, stacklevel=2)

    def forget(self, solver: str, said: str) -> None:
        """Discard all that a solver has said or will say of this window, above as well; the caller has warned of it."""
        with self._lock:
            self.trust.forget(solver, said)
            self.bound, self.bound_method = self.trust.best
            self.trail = [replace(moment, bound=self._at_most(moment.bound)) for moment in self.trail]
        if self._above is not None:
            self._above.forget(solver, said)

    def _contradict(self, method: str, said: str) -> None:
        """Raise over a claim that the best plan contradicts, or distrust the solver on whose word it rests."""
        solver = SOLVER_OF.get(method)
        if solver is None:
            raise UnsoundBoundError(said)
        self.distrust(solver, said)

    def _above_the_plan(self, bound: Fraction, method: str) -> str:
        return f"bound {float(bound)} ({method}) lies above the plan of value {float(self.value or 0)}"

    def _denied(self, method: str) -> str:
        by = SOLVER_OF.get(method, method)
        return f"{by} claims that there is no plan, but one of value {float(self.value or 0)} is known"

    def _at_most(self, bound: Fraction | None) -> Fraction | None:
        """Return what is left of an earlier bound: no more than the best one that is kept."""
        return None if bound is None or self.bound is None else min(bound, self.bound)

    def _load_bytes(self, timeline: Timeline) -> int:
        return loaded_bytes(self.instance, (stay for stay in timeline.residencies if not stay.initial))

    def _report(self) -> None:
        progress = Progress(self.clock.elapsed_s, self.value, self.bound)
        self.trail.append(progress)
        if self._watch is not None:
            self._watch(progress)
