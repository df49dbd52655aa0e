"""One run of CP-SAT, in a thread of its own, so that a signal handler of the main thread can stop it."""

from __future__ import annotations

import math
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from ortools.sat.python import cp_model

from models.formulations.cp_sat import Formulation
from models.formulations.cp_sat_plans import read_timeline
from solvers.faults import CP_SAT, SOLVER_OF
from solvers.result import Search

_POLL_S = 0.05
_EXACT_FLOATS = 2**53
# Of what two workers can run, this pair proved most on the authors' workload: one lifts the bound, one finds plans.
FOR_SUMS = ("objective_lb_search", "max_lp")
# A maximum over jobs is proved now by one, now by another of these: one worker takes turns at all of them. (Two that
# take turns wait for one another half of the time.)
FOR_MAXIMA = ("default_lp", "fixed", "core", "no_lp", "max_lp", "quick_restart", "quick_restart_no_lp", "reduced_costs")
_News = TypeVar("_News")


def solve_until(
    over: Callable[[], bool],
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    solutions: cp_model.CpSolverSolutionCallback | None = None,
) -> str:
    """Solve in a thread of its own, stop as soon as it is over, and return the name of the status.

    Parameters
    ----------
    over
        Asked again and again, in the caller's thread.
    """
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(solver.solve, model, solutions)
        try:
            while wait([running], _POLL_S).not_done:
                if over():
                    solver.stop_search()
        finally:  # whatever went wrong here, the thread must come to its end
            solver.stop_search()
        return solver.status_name(running.result())


class SolverRun:
    """One run of the solver in a thread, followed from the caller's.

    Parameters
    ----------
    search
        Receives plans; its limit and its wish to stop are kept.
    formulation
        Built with the search's plan, if it has one.
    offer_bound
        Receives lower bounds on the scaled objective, already clipped to the formulation's incumbent.
    limit_s
        Seconds that it may take.
    subsolvers
        What the workers run, in turns and without neighbourhood searches if there are more of them than workers;
        empty: as CP-SAT chooses.
    log
        Receives the solver's log, line by line.
    """

    def __init__(
        self,
        search: Search,
        formulation: Formulation,
        offer_bound: Callable[[int], None],
        workers: int,
        seed: int,
        limit_s: float,
        subsolvers: Sequence[str] = (),
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.search, self.formulation, self.offer_bound = search, formulation, offer_bound
        self.solver = cp_model.CpSolver()
        self.solver.parameters.num_workers = workers
        self.solver.parameters.subsolvers.extend(subsolvers)
        if len(subsolvers) > workers:
            self.solver.parameters.interleave_search = True
            self.solver.parameters.use_lns = False
        self.solver.parameters.random_seed = seed
        # The signal belongs to whoever runs the search: the solver's own handler would replace theirs.
        self.solver.parameters.catch_sigint_signal = False
        self.solver.parameters.relative_gap_limit = 5e-7
        self.solver.parameters.max_time_in_seconds = min(limit_s, search.remaining_s)
        if log is not None:
            self.solver.parameters.log_search_progress = True
            self.solver.parameters.log_to_stdout = False
            self.solver.log_callback = log
        self.bounds: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.solver.best_bound_callback = self.bounds.put
        self.solutions = _Solutions()
        self.status = "UNKNOWN"

    def follow(self) -> None:
        """Run to the end, offering plans and bounds as they come."""
        self.status = solve_until(self._over, self.solver, self.formulation.model, self.solutions)
        self._conclude()

    @property
    def proved(self) -> bool:
        """Whether the last plan was proved to be the best of the formulation."""
        return self.status == "OPTIMAL"

    def _over(self) -> bool:
        self._offer_news()
        return self.search.remaining_s <= 0 or self.search.proved

    def _offer_news(self) -> None:
        for values in _drained(self.solutions.found)[-1:]:
            self.search.offer(read_timeline(self.formulation, values))
        for bound in _drained(self.bounds)[-1:]:
            self._offer_bound(bound)

    def _offer_bound(self, scaled: float) -> None:
        """Offer a bound that the solver states in floating point; it holds among plans no worse than the known one."""
        whole = math.floor(scaled if abs(scaled) < _EXACT_FLOATS else math.nextafter(scaled, -math.inf))
        incumbent = self.formulation.incumbent
        self.offer_bound(whole if incumbent is None else min(whole, incumbent))

    def _conclude(self) -> None:
        self._offer_news()
        if self.status in ("OPTIMAL", "FEASIBLE"):
            self._offer_bound(self.solver.best_objective_bound)
        elif self.status == "INFEASIBLE":
            self.search.deny(CP_SAT)
        elif self.status != "UNKNOWN":
            self.search.distrust(SOLVER_OF[CP_SAT], f"CP-SAT says {self.status} of the model of a window")


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
