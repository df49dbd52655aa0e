"""CP-SAT on the joint formulation: it improves a search's plan and bound until they meet or time runs out.

The solver runs in a thread of its own, so that a signal handler of the main thread can stop it. Nothing it says is
taken on trust: plans are checked when offered, and the best plan known before stays whatever the solver answers.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable
from importlib.metadata import version
from typing import TypeVar

from ortools.sat.python import cp_model

from models.formulations.cp_sat import Formulation, formulate
from models.formulations.cp_sat_plans import add_hint, read_timeline
from models.instance import Instance
from models.objective import Objective
from models.timeline import Timeline
from solvers.result import Result, Search
from solvers.result import SolverFaultError as SolverFaultError

METHOD = "cp-sat"
"""Name of the bounds that this solver proves."""

_POLL_S = 0.05
_EXACT_FLOATS = 2**53
_News = TypeVar("_News")


def solve(
    instance: Instance,
    objective: Objective,
    time_limit_s: float,
    hint: Timeline | None = None,
    workers: int = 2,
    seed: int = 0,
) -> Result:
    """Return the best plan and bound found within a time limit.

    Parameters
    ----------
    hint
        A feasible timeline to start from.
    workers
        Threads.
    """
    search = Search(instance, objective, time_limit_s)
    if hint is not None:
        search.offer(hint)
    improve(search, workers, seed)
    return search.result(METHOD, {"ortools": version("ortools"), "workers": workers, "seed": seed})


def improve(search: Search, workers: int = 2, seed: int = 0, log: Callable[[str], None] | None = None) -> None:
    """Improve a search until it is proved, stopped, or out of time.

    Parameters
    ----------
    log
        Receives the solver's log, line by line.

    Raises
    ------
    SolverFaultError
        If the solver denies that there is a plan although one is known.
    """
    formulation = formulate(search.instance, search.objective, search.timeline)
    if search.timeline is not None:
        add_hint(formulation, search.timeline)
    _Run(search, formulation, workers, seed, log).follow()


class _Run:
    """One run of the solver in a thread, followed from the caller's."""

    def __init__(
        self, search: Search, formulation: Formulation, workers: int, seed: int, log: Callable[[str], None] | None
    ) -> None:
        self.search, self.formulation = search, formulation
        self.solver = cp_model.CpSolver()
        self.solver.parameters.num_workers = workers
        self.solver.parameters.random_seed = seed
        # The signal belongs to whoever runs the search: the solver's own handler would replace theirs.
        self.solver.parameters.catch_sigint_signal = False
        self.solver.parameters.relative_gap_limit = 5e-7
        self.solver.parameters.max_time_in_seconds = search.remaining_s
        if log is not None:
            self.solver.parameters.log_search_progress = True
            self.solver.parameters.log_to_stdout = False
            self.solver.log_callback = log
        self.bounds: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.solver.best_bound_callback = self.bounds.put
        self.solutions = _Solutions()
        self.known = search.value
        self.status = cp_model.UNKNOWN

    def follow(self) -> None:
        """Run to the end, offering plans and bounds as they come."""
        thread = threading.Thread(target=self._solve)
        thread.start()
        while thread.is_alive():
            thread.join(_POLL_S)
            self._offer_news()
            if self.search.remaining_s <= 0 or self.search.proved:
                self.solver.stop_search()
        self._conclude()

    def _solve(self) -> None:
        self.status = self.solver.solve(self.formulation.model, self.solutions)

    def _offer_news(self) -> None:
        for values in _drained(self.solutions.found)[-1:]:
            self.search.offer(read_timeline(self.formulation, values))
        for bound in _drained(self.bounds)[-1:]:
            self._offer_bound(bound)

    def _offer_bound(self, scaled: float) -> None:
        """Offer a bound that the solver states in floating point; it holds among plans no worse than the known one."""
        whole = math.floor(scaled if abs(scaled) < _EXACT_FLOATS else math.nextafter(scaled, -math.inf))
        bound = self.formulation.objective.true_bound(whole)
        self.search.offer_bound(bound if self.known is None else min(bound, self.known), METHOD)

    def _conclude(self) -> None:
        self._offer_news()
        if self.status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            self._offer_bound(self.solver.best_objective_bound)
        elif self.status == cp_model.INFEASIBLE and self.search.timeline is None:
            self.search.infeasible = True
        elif self.status != cp_model.UNKNOWN:
            raise SolverFaultError(f"CP-SAT says {self.status.name}, but a plan of value {self.search.value} is known")


class _Solutions(cp_model.CpSolverSolutionCallback):
    """Collects solutions in the solver's threads; they are read in the caller's."""

    def __init__(self) -> None:
        super().__init__()
        self.found: queue.SimpleQueue[list[int]] = queue.SimpleQueue()

    def on_solution_callback(self) -> None:
        """Keep the values of all variables."""
        self.found.put(list(self.response_proto.solution))


def _drained(news: queue.SimpleQueue[_News]) -> list[_News]:
    """Return what has arrived, oldest first."""
    arrived = []
    while not news.empty():
        arrived.append(news.get())
    return arrived
