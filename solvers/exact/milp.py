"""The joint MILP through PuLP and HiGHS.

HiGHS is followed through its callbacks, so that plans and bounds arrive while it runs and a stop takes effect. What it
states is floating point. So a plan is read from the decisions, timed in whole microseconds and checked when offered; a
bound is HiGHS's own, and `_prove` lowers it by what tolerances may have added.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from fractions import Fraction
from importlib.metadata import version
from typing import Any

import numpy as np
import pulp
from highspy import HighsModelStatus as _Status
from highspy import cb

from truenorth.models.formulations import gangs_milp, milp, milp_plans
from truenorth.models.formulations.gangs_milp import GangProblem
from truenorth.models.formulations.milp import MilpFormulation
from truenorth.models.formulations.milp_plans import ContradictoryOrderError
from truenorth.models.formulations.windows import METHOD as WINDOWS
from truenorth.models.formulations.windows import cannot_end
from truenorth.models.instance import Instance
from truenorth.models.objective import Objective
from truenorth.models.timeline import Timeline
from truenorth.solvers.exact import cp_sat
from truenorth.solvers.result import Result, Search
from truenorth.solvers.trust import MILP, SOLVER_OF

METHOD = MILP
"""Name of the bounds that this solver proves."""

_POLL_S = 0.05
_BUILD_S = 1e-4
"""Seconds that building takes per GPU and pair of tasks, and HiGHS to take the problem over."""
_FEASIBLE = 2
"""HiGHS's code of a solution that satisfies every row."""
_SOLUTION_TOLERANCE, _REDUCED_COST_TOLERANCE = 1e-9, 1e-10
"""By how much HiGHS may be wrong: rows, integers and costs of a solution; reduced costs of a bound."""


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
    workers, seed
        As in `improve`.
    """
    search = Search(instance, objective, time_limit_s)
    if hint is not None:
        search.offer(hint)
    improve(search.on_twin().in_ticks(), workers, seed)
    versions = {"pulp": version("pulp"), "highspy": version("highspy")}
    return search.result(METHOD, {**versions, "workers": workers, "seed": seed})


def improve(search: Search, workers: int = 2, seed: int = 0) -> None:
    """Improve a search until it is proved, stopped, or out of time; an instance too large to build in time is left.

    Parameters
    ----------
    workers
        Threads. HiGHS keeps one pool of half the cores per process; here 1 only tells it not to use it.

    Warns
    -----
    SolverFaultWarning
        If the solver fails, or a plan contradicts it.
    """
    if cannot_end(search.instance):
        # No solver is needed for this.
        search.deny(WINDOWS)
        return
    if search.proved or _takes_too_long(search):
        return
    with search.giving_way(METHOD):
        _HighsRun(search, _build(search, known=search.timeline), workers, seed).follow()


def look_within(search: Search, most: Fraction | None, workers: int, seed: int) -> None:
    """Look for a plan of at most some value, or deny that there is one, as far as time and floats allow.

    Parameters
    ----------
    most
        The value, for which the windows leave room; None: any.
    """
    if _takes_too_long(search):
        return
    with search.giving_way(METHOD):
        _SecondOpinion(search, _build(search, most=most), workers, seed).follow()


def _takes_too_long(search: Search) -> bool:
    return search.lacks_time(METHOD, search.instance.n_tasks**2 * search.instance.n_gpus * _BUILD_S)


def _build(search: Search, **more: Any) -> MilpFormulation | GangProblem:
    formulate = gangs_milp.formulate if search.instance.gangs else milp.formulate
    return formulate(search.instance, search.objective, allowance=search.allowance, **more)


def _start(formulation: MilpFormulation | GangProblem, timeline: Timeline) -> dict[str, float]:
    if isinstance(formulation, GangProblem):
        return gangs_milp.start_values(formulation, timeline)
    return milp_plans.start_values(formulation, timeline)


def _read(formulation: MilpFormulation | GangProblem, value: Callable[[pulp.LpVariable], float]) -> Timeline:
    if isinstance(formulation, GangProblem):
        return gangs_milp.read_timeline(formulation, value)
    return milp_plans.read_timeline(formulation, value)


class _HighsRun:
    """HiGHS in a thread: it reports while it runs, stops when told to, and starts from the plan that is known."""

    def __init__(self, search: Search, formulation: MilpFormulation | GangProblem, workers: int, seed: int) -> None:
        self.search, self.formulation, self.known = search, formulation, search.value
        self.reach, self.ending = _reach(formulation.problem), False
        self.start = {} if search.timeline is None else _start(formulation, search.timeline)
        # Only the latest counts, and the thread of HiGHS must never wait for this one.
        self.solutions: deque[list[float]] = deque(maxlen=1)
        self.bounds: deque[float] = deque(maxlen=1)
        self.solver = pulp.HiGHS(
            msg=False,
            timeLimit=search.clock.left_s,
            # To the end: a gap that a solver calls small is none that proves anything.
            gapRel=0.0,
            gapAbs=0.0,
            callbackTuple=(self._hear, None),
            callbacksToActivate=[
                cb.HighsCallbackType.kCallbackMipImprovingSolution,
                cb.HighsCallbackType.kCallbackMipLogging,
                cb.HighsCallbackType.kCallbackMipInterrupt,
            ],
            random_seed=seed,
            parallel="off" if workers == 1 else "choose",
            mip_feasibility_tolerance=_SOLUTION_TOLERANCE,
            dual_feasibility_tolerance=_REDUCED_COST_TOLERANCE,
        )

    def follow(self) -> None:
        """Run to the end, offering plans and bounds as they come."""
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(self._solve)
            try:
                while wait([running], _POLL_S).not_done:
                    self._offer_news()
                    self.ending = self.search.clock.is_set() or self.search.proved
            finally:
                self.ending = True
            running.result()
        self._offer_news()
        self._conclude()

    def _solve(self) -> None:
        problem = self.formulation.problem
        self.solver.createAndConfigureSolver(problem)
        self.solver.buildSolverModel(problem)
        if self.start:  # PuLP hands HiGHS no start
            column = {variable.name: variable.index for variable in problem.variables()}
            index = np.array([column[name] for name in self.start], np.int32)
            problem.solverModel.setSolution(len(index), index, np.array([*self.start.values()], np.float64))
        self.solver.callSolver(problem)

    def _hear(self, event: cb.HighsCallbackType, message: str, report: Any, answer: Any, _: object) -> None:
        """Keep what HiGHS reports, in its thread, and answer whether it is to stop."""
        if event == cb.HighsCallbackType.kCallbackMipImprovingSolution:
            # A copy, made at once: what is reported belongs to HiGHS.
            self.solutions.append(list(report.mip_solution))
        elif event == cb.HighsCallbackType.kCallbackMipLogging:
            self.bounds.append(report.mip_dual_bound)
        elif self.ending:
            # Asked often while HiGHS works: the only way to stop it.
            answer.user_interrupt = True

    def _offer_news(self) -> None:
        while self.solutions:
            self._offer_solution(self.solutions.pop())
        while self.bounds:
            self._offer_bound(self.bounds.pop())

    def _offer_solution(self, values: Sequence[float]) -> None:
        """Offer the plan of a solution; one whose decisions contradict each other within tolerances is none."""
        with suppress(ContradictoryOrderError):
            self.search.offer(_read(self.formulation, lambda variable: values[variable.index]))

    def _conclude(self) -> None:
        highs = self.formulation.problem.solverModel
        status, info = highs.getModelStatus(), highs.getInfo()
        if status in (_Status.kInfeasible, _Status.kUnboundedOrInfeasible):  # costs are never negative
            self._deny()
        elif status not in (_Status.kOptimal, _Status.kTimeLimit, _Status.kInterrupt):
            self.search.distrust(SOLVER_OF[METHOD], f"HiGHS ends with {highs.modelStatusToString(status)}")
        else:
            if info.primal_solution_status == _FEASIBLE:
                self._offer_solution(highs.getSolution().col_value)
            self._offer_bound(info.mip_dual_bound)

    def _offer_bound(self, cost: float) -> None:
        """Offer a bound that the solver states; it holds among plans no worse than the known one."""
        if math.isfinite(cost):
            bound = self._prove(cost)
            self.search.offer_bound(bound if self.known is None else min(bound, self.known), METHOD)

    def _prove(self, cost: float) -> Fraction:
        """Return what a cost that the solver states as a bound proves of the objective.

        A solver calls a basis dual feasible if every reduced cost is within its tolerance. The value of such a basis
        exceeds the optimum of its linear program by at most that tolerance times the sum over columns and rows of how
        far they can move; nodes are cut off, and costs added up, with errors of the tolerance of a solution. All that
        is subtracted. Whatever else a solver tolerates only admits more solutions, which lowers the bound. Every plan
        has a whole number as its scaled value (`ScaledObjective`), so what is left may be rounded up to the next one.
        """
        excess = _SOLUTION_TOLERANCE * (1 + abs(cost)) + _REDUCED_COST_TOLERANCE * self.reach
        certain = self.formulation.variables.units.scaled(cost) - self.formulation.variables.units.scaled(excess)
        return self.formulation.objective.true_bound(math.ceil(certain))

    def _deny(self) -> None:
        """Ask CP-SAT when the solver says that there is no plan: floats prove nothing, whole numbers do."""
        if self.search.timeline is not None:
            self.search.deny(METHOD)
        elif self.search.instance.gangs:
            cp_sat.look_within(self.search, None, workers=1, seed=0, presolve=True)
        else:
            cp_sat.improve(self.search, workers=1)


def _reach(problem: pulp.LpProblem) -> float:
    """Return the sum over all columns and rows of a problem of how far they can move."""
    columns = sum(_width(variable) for variable in problem.variables())
    rows = sum(abs(size) * _width(variable) for row in problem.constraints() for variable, size in row.items())
    return float(columns + rows)


def _width(variable: pulp.LpVariable) -> float:
    return float(variable.upBound - variable.lowBound)


class _SecondOpinion(_HighsRun):
    """HiGHS, asked whether there is a plan at all; where whole numbers said no before, floats are good enough."""

    def _offer_bound(self, cost: float) -> None:
        """Offer nothing: the problem leaves plans out."""

    def _deny(self) -> None:
        self.search.deny(METHOD)
