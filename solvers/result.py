"""What a search returns: a timeline, a bound, and how both came about."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from truenorth.models.formulations.allowance import Allowance, GivenUpError
from truenorth.models.instance import Instance
from truenorth.models.objective import Objective, Status, gap, proves
from truenorth.models.timeline import Timeline
from truenorth.solvers.clock import Clock
from truenorth.solvers.incumbents import Incumbents, PlanOrigin, Progress
from truenorth.solvers.reductions import Equivalent, Visits, ticks_of
from truenorth.solvers.tuning import USUAL, Tuning

_END_S, _END = 1.0, 0.05
"""Solvers look at the clock now and then: a search may end so many seconds, or so much of its limit, after it."""


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
    skipped
        Proofs that had no turn, each with the reason: what they are for, or what they lacked.
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
    skipped: Mapping[str, str] = field(default_factory=dict)

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


class Search(Incumbents):
    """A running search, as methods are given it: what is known of its window, its clock, and who gave way.

    Parameters
    ----------
    instance, objective, watch, most
        As of `Incumbents`.
    limit
        Its clock, or wall-clock seconds from now.
    tuning
        How methods share its time.
    writes
        Whether proofs that go beyond formulas and prices of the whole window are written down.

    Attributes
    ----------
    left_out, skipped
        Methods that gave way, and those that had no turn, each with the reason.
    confirmed_by
        Who has confirmed a proof that rests on one solver's word.
    written
        What the best of the proofs that are written down proves, and its certificate; None until there is one.
    """

    written: tuple[Fraction, dict[str, Any]] | None = None
    confirmed_by: str | None = None

    def __init__(
        self,
        instance: Instance,
        objective: Objective,
        limit: Clock | float,
        watch: Callable[[Progress], None] | None = None,
        *,
        most: Fraction | float | None = None,
        tuning: Tuning = USUAL,
        writes: bool = False,
    ) -> None:
        super().__init__(instance, objective, limit if isinstance(limit, Clock) else Clock(limit), watch, most)
        self.left_out, self.skipped = dict[str, str](), dict[str, str]()
        self.tuning = tuning
        self.writes, self._cpu_start = writes, time.process_time()

    def part(self, limit_s: float = math.inf, by: Equivalent | None = None) -> Search:
        """Return a part of the search, or the search on a twin, which hands on what it finds.

        Parameters
        ----------
        limit_s
            Seconds from now.
        by
            The reduction whose twin it is on.
        """
        made = Search(
            self.instance if by is None else by.twin, self.objective, self.clock.child(limit_s), tuning=self.tuning
        )
        made.left_out, made.skipped = self.left_out, self.skipped
        made.hand_on_to(self, by)
        return made

    def apart(self, moves: int) -> Search:
        """Return a search that begins with what this one knows, hands on nothing, and ends after so much work."""
        clock = Clock.of_work(moves, self.clock.child(is_done=lambda: self.proved))
        made = Search(self.instance, self.objective, clock, tuning=self.tuning)
        made.left_out, made.skipped = self.left_out, self.skipped
        made.begin_with(self)
        return made

    def on_twin(self) -> Search:
        """Return where plans are looked for: this search, or where GPUs come and go that on its twin.

        Runs on several GPUs are planned with the absences themselves.
        """
        here = self.instance.always_available or self.instance.gangs or self._closes
        return self if here else self.part(by=Visits.of(self.instance))

    def in_ticks(self) -> Search:
        """Return where exact methods look: this search, or that which counts in a longer unit.

        There the plan is rounded down, and the bound up, to whole units, and both are handed on here.
        """
        ticks = ticks_of(self.instance, self.objective)
        return self if ticks is None else self.part(by=ticks)

    def keep(self, bound: Fraction, document: dict[str, Any]) -> None:
        """Keep a certificate if it proves more than the one that is kept."""
        if self.written is None or bound > self.written[0]:
            self.written = bound, document

    @property
    def allowance(self) -> Allowance:
        """What a model may take that is built for this search."""
        return Allowance(lambda: self.clock.left_s)

    def lacks_time(self, method: str, needed_s: float, left_s: float | None = None) -> bool:
        """Say whether a method takes longer than there is before anything can interrupt it; note it if so.

        Parameters
        ----------
        left_s
            What it may take; None: what is left.
        """
        left_s = self.clock.left_s if left_s is None else left_s
        if left_s <= needed_s:
            self.left_out[method] = f"no time to begin it: that takes {needed_s:.2g} s, of which it has {left_s:.2g} s"
        return left_s <= needed_s

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
            tuple(self.trail),
            solver,
            options,
            time.process_time() - self._cpu_start,
            self.origin,
            # What proved something once and gave way later, in a part or for want of time, was not left out.
            {method: why for method, why in self.left_out.items() if method not in self.trust.bounds},
            self.trust.denied_by,
            self.confirmed_by,
            tuple(self.trust.faults),
            self.skipped,
        )
