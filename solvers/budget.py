"""What an answer may take: one record that every way to a plan or a bound is given, and hands on."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import FrameType
from typing import Any

from truenorth.models.errors import chosen
from truenorth.solvers.clock import Clock
from truenorth.solvers.farm import Farm
from truenorth.solvers.tuning import USUAL, Tuning


class Method(StrEnum):
    """How to search.

    Attributes
    ----------
    AUTO
        CP_SAT where the window is small enough for it and no iterations are counted, otherwise SEARCH.
    CP_SAT
        Online policies and a short local search beside the Lagrangian bound, then the programme over start orders where
        it applies, and CP-SAT for the rest of the time; for a maximum over jobs local search goes on beside it for most
        of the time, if there are workers for both.
    MILP
        The same with the MILP twin (HiGHS through PuLP) in place of CP-SAT: for small windows and cross-checks.
    SEARCH
        Online policies, then local search beside the Lagrangian bound, and where costs grow with ends beams.
    """

    AUTO = "auto"
    CP_SAT = "cp-sat"
    MILP = "milp"
    SEARCH = "search"


_LEAST_S = 0.1
"""No step is given less: the first plan is made whatever it takes."""


def tell_nobody(moment: object) -> None:
    """Take note of nothing."""


@dataclass(frozen=True)
class Budget:
    """What an answer may take, and how it is looked for; its clock runs from when the record is made.

    So it does for what `share` and `dataclasses.replace` make of it.

    Parameters
    ----------
    time_limit_s
        Wall-clock seconds for everything together, plan and bound.
    method
        How to search.
    workers
        Threads to search with: annealing, the lower bound, then annealing with other seeds, no more than there are
        cores; or CP-SAT's threads, which differ in how they search and may be more.
    seed, iterations
        The same seed and number of iterations of the local search give the same plan, if the time suffices for them.
    watch
        Called whenever something is known that was not: with a `solvers.result.Progress` by searches, with a few words
        by what counts servers, with `planner.answers.whatif.Counts` by what has cells.
    stop
        Set it to end early with what is known.
    farm
        Workers elsewhere that look for plans, and price sections of long traces, beside the threads of this process.
    tuning
        How methods share the time.

    Raises
    ------
    ValueError
        If a limit is none.
    QuestionError
        If the method is none.
    """

    time_limit_s: float = 60.0
    method: Method = Method.AUTO
    workers: int = 2
    seed: int = 0
    iterations: int | None = None
    watch: Callable[[Any], None] = field(default=tell_nobody, compare=False, repr=False)
    stop: threading.Event = field(default_factory=threading.Event, compare=False, repr=False)
    farm: Farm | None = field(default=None, compare=False, repr=False)
    tuning: Tuning = field(default=USUAL, repr=False)
    clock: Clock = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", chosen(Method, self.method, "method"))
        if not 0 < self.time_limit_s < math.inf:
            raise ValueError(f"a time limit of {self.time_limit_s} s; allowed is a finite number above 0")
        if self.workers < 1:
            raise ValueError(f"{self.workers} workers; allowed is at least 1")
        object.__setattr__(self, "clock", Clock(self.time_limit_s, self.stop))

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return self.clock.elapsed_s

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; 0 once it has passed or a stop was asked for."""
        return self.clock.left_s

    def share(self, part: float, most_s: float = math.inf) -> Budget:
        """Return a part of what is left, from now on: at least 0.1 s, so that every step has its turn.

        >>> Budget(10).share(0.3).time_limit_s
        3.0
        """
        return replace(self, time_limit_s=max(_LEAST_S, min(round(part * self.left_s, 2), most_s)))

    def on_cores(self) -> Budget:
        """Return the budget with no more threads than there are cores: further ones would take turns with them."""
        return replace(self, workers=min(self.workers, len(os.sched_getaffinity(0))))

    def as_dict(self) -> dict[str, str | int | float | None]:
        """Return by name what decides the outcome, as a result keeps it."""
        return {
            "time_limit_s": self.time_limit_s,
            "method": str(self.method),
            "workers": self.workers,
            "seed": self.seed,
            "iterations": self.iterations,
            "tuning": self.tuning.name,
        }


@contextmanager
def interruptible(*numbers: signal.Signals) -> Iterator[threading.Event]:
    """Turn the first of such signals into an event that searches obey; a second one interrupts at once."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        # Whoever asks twice does not want to wait for the answer so far.
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield stop
    finally:
        # In notebooks and libraries the handlers belong to somebody else.
        for number, handler in before.items():
            signal.signal(number, handler)


def own_interrupts() -> tuple[signal.Signals, ...]:
    """Return Ctrl-C, the interrupt of notebooks, if nobody but Python itself handles it here."""
    is_main = threading.current_thread() is threading.main_thread()
    return (signal.SIGINT,) if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler else ()
