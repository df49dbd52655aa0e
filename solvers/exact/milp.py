"""The joint MILP through PuLP: HiGHS unless asked otherwise, with CBC and whatever else PuLP finds as alternatives.

HiGHS is followed through its callbacks, so that plans and bounds arrive while it runs and a stop takes effect. Of the
others PuLP tells nothing before they end, which is at their time limit or, where they do not watch the clock, later;
they hear no stop either, though in a terminal Ctrl-C reaches them too.

PuLP calls a run that timed out optimal, and what a solver states is floating point. So a plan is read from the
decisions, timed in whole microseconds and checked when offered; a bound is HiGHS's own, or that of another solver
which claims a proved optimum without a gap, and `_prove` lowers it by what tolerances may have added.
"""

from __future__ import annotations

import inspect
import math
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from typing import Any

import numpy as np
import pulp
from highspy import HighsModelStatus as _Status
from highspy import cb

from truenorth.models.formulations import milp_instants
from truenorth.models.formulations.milp import MilpFormulation, formulate
from truenorth.models.formulations.milp_plans import ContradictoryOrderError, read_timeline, start_values
from truenorth.models.formulations.windows import METHOD as WINDOWS
from truenorth.models.formulations.windows import cannot_end
from truenorth.models.instance import Instance
from truenorth.models.objective import Objective
from truenorth.models.timeline import Timeline
from truenorth.solvers.exact import cp_sat
from truenorth.solvers.faults import MILP, SOLVER_OF
from truenorth.solvers.reductions import on_twin
from truenorth.solvers.result import Result, Search

AnyFormulation = MilpFormulation | milp_instants.InstantFormulation

METHOD = MILP
"""Name of the bounds that this solver proves."""

HIGHS = "HiGHS"
"""PuLP's name of the default solver."""

_POLL_S = 0.05
_BUILD_S = 1e-4
"""Seconds that building takes per GPU and pair of tasks, and HiGHS to take the problem over."""
_PREPROCESS_S = 1e-3
"""Seconds per GPU and pair of tasks that another solver needs at least: CBC preprocesses without a clock."""
_FEASIBLE = 2
"""HiGHS's code of a solution that satisfies every row."""


@dataclass(frozen=True, slots=True)
class _Tolerances:
    """By how much a solver may be wrong: rows, integers and costs of a solution; reduced costs of a bound."""

    solution: float
    reduced_cost: float


_HIGHS_TOLERANCES = _Tolerances(1e-9, 1e-10)
_USUAL_TOLERANCES = _Tolerances(1e-6, 1e-6)


def available_solvers() -> list[str]:
    """Return the names of the solvers that PuLP finds on this machine."""
    names: list[str] = pulp.listSolvers(onlyAvailable=True)
    return names


def solve(
    instance: Instance,
    objective: Objective,
    time_limit_s: float,
    hint: Timeline | None = None,
    workers: int = 2,
    seed: int = 0,
    solver: str = HIGHS,
) -> Result:
    """Return the best plan and bound found within a time limit.

    Parameters
    ----------
    hint
        A feasible timeline to start from.
    workers, seed, solver
        As in `improve`.
    """
    search = Search(instance, objective, time_limit_s)
    if hint is not None:
        search.offer(hint)
    improve(on_twin(search), workers, seed, solver)
    versions = {"pulp": version("pulp"), "highspy": version("highspy")}
    return search.result(METHOD, {**versions, "solver": solver, "workers": workers, "seed": seed})


def improve(search: Search, workers: int = 2, seed: int = 0, solver: str = HIGHS) -> None:
    """Improve a search until it is proved, stopped, or out of time; an instance too large to build in time is left.

    Parameters
    ----------
    workers
        Threads. HiGHS keeps one pool of half the cores per process; here 1 only tells it not to use it.
    seed
        Of HiGHS; PuLP hands none to the others.
    solver
        One of `available_solvers`.

    Raises
    ------
    ValueError
        If PuLP does not find the solver.

    Warns
    -----
    SolverFaultWarning
        If the solver fails, or a plan contradicts it.
    """
    if solver not in available_solvers():
        raise ValueError(f"PuLP finds no solver {solver}; it finds {', '.join(available_solvers())}")
    if cannot_end(search.instance):
        # No solver is needed for this.
        search.deny(WINDOWS)
        return
    size = search.instance.n_tasks**2 * search.instance.n_gpus
    if search.proved or search.remaining_s <= size * (_BUILD_S if solver == HIGHS else _PREPROCESS_S):
        return
    with search.giving_way(METHOD):
        _run(search, workers, seed, solver)


def _run(search: Search, workers: int, seed: int, solver: str) -> None:
    """Build the problem and follow a solver.

    Raises
    ------
    GivenUpError
        If the problem is too large to build.
    """
    build = formulate if search.instance.one_at_a_time else milp_instants.formulate
    formulation = build(search.instance, search.objective, search.timeline, search.allowance)
    run = (
        _HighsRun(search, formulation, workers, seed)
        if solver == HIGHS
        else _PlainRun(search, formulation, workers, solver)
    )
    run.follow()


def look_within(search: Search, most: Fraction | None, workers: int, seed: int) -> None:
    """Look for a plan of at most some value, or deny that there is one, as far as time and floats allow.

    Parameters
    ----------
    most
        The value, for which the windows leave room; None: any.
    """
    if search.remaining_s <= search.instance.n_tasks**2 * search.instance.n_gpus * _BUILD_S:
        return
    build = formulate if search.instance.one_at_a_time else milp_instants.formulate
    with search.giving_way(METHOD):
        formulation = build(search.instance, search.objective, allowance=search.allowance, most=most)
        _SecondOpinion(search, formulation, workers, seed).follow()


class _SolverThread(ABC):
    """One run of a solver in a thread, followed from the caller's."""

    def __init__(self, search: Search, formulation: AnyFormulation, tolerances: _Tolerances) -> None:
        self.search, self.formulation, self.tolerances = search, formulation, tolerances
        self.known = search.value
        self.reach = _reach(formulation.problem)
        self.ending = False

    def follow(self) -> None:
        """Run to the end, offering plans and bounds as they come."""
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(self._solve)
            try:
                while wait([running], _POLL_S).not_done:
                    self._offer_news()
                    self.ending = self.search.remaining_s <= 0 or self.search.proved
            finally:
                self.ending = True
            running.result()
        self._offer_news()
        self._conclude()

    @abstractmethod
    def _solve(self) -> None:
        """Call the solver; in a thread of its own."""

    @abstractmethod
    def _conclude(self) -> None:
        """Offer what the solver states at its end."""

    @abstractmethod
    def _offer_news(self) -> None:
        """Offer what has arrived while the solver runs."""

    def _offer_plan(self, value: Callable[[pulp.LpVariable], float]) -> None:
        """Offer the plan of a solution; one whose decisions contradict each other within tolerances is none."""
        with suppress(ContradictoryOrderError):
            self.search.offer(_read(self.formulation, value))

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
        excess = self.tolerances.solution * (1 + abs(cost)) + self.tolerances.reduced_cost * self.reach
        certain = self.formulation.variables.units.scaled(cost) - self.formulation.variables.units.scaled(excess)
        return self.formulation.objective.true_bound(math.ceil(certain))

    def _deny(self) -> None:
        """Ask CP-SAT when the solver says that there is no plan: floats prove nothing, whole numbers do."""
        if self.search.timeline is not None:
            self.search.deny(METHOD)
            return
        cp_sat.improve(self.search, workers=1)


def _start(formulation: AnyFormulation, timeline: Timeline) -> dict[str, float]:
    if isinstance(formulation, MilpFormulation):
        return start_values(formulation, timeline)
    return milp_instants.start_values(formulation, timeline)


def _read(formulation: AnyFormulation, value: Callable[[pulp.LpVariable], float]) -> Timeline:
    if isinstance(formulation, MilpFormulation):
        return read_timeline(formulation, value)
    return milp_instants.read_timeline(formulation, value)


def _reach(problem: pulp.LpProblem) -> float:
    """Return the sum over all columns and rows of a problem of how far they can move."""
    columns = sum(_width(variable) for variable in problem.variables())
    rows = sum(abs(size) * _width(variable) for row in problem.constraints() for variable, size in row.items())
    return float(columns + rows)


def _width(variable: pulp.LpVariable) -> float:
    return float(variable.upBound - variable.lowBound)


class _HighsRun(_SolverThread):
    """HiGHS, which reports while it runs, stops when told to, and starts from the plan that is known."""

    def __init__(self, search: Search, formulation: AnyFormulation, workers: int, seed: int) -> None:
        super().__init__(search, formulation, _HIGHS_TOLERANCES)
        self.start = {} if search.timeline is None else _start(formulation, search.timeline)
        # Only the latest counts, and the thread of HiGHS must never wait for this one.
        self.solutions: deque[list[float]] = deque(maxlen=1)
        self.bounds: deque[float] = deque(maxlen=1)
        self.solver = pulp.HiGHS(
            msg=False,
            timeLimit=search.remaining_s,
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
            mip_feasibility_tolerance=_HIGHS_TOLERANCES.solution,
            dual_feasibility_tolerance=_HIGHS_TOLERANCES.reduced_cost,
        )

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
        self._offer_plan(lambda variable: values[variable.index])

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


class _SecondOpinion(_HighsRun):
    """HiGHS, asked whether there is a plan at all; where whole numbers said no before, floats are good enough."""

    def _offer_bound(self, cost: float) -> None:
        """Offer nothing: the problem leaves plans out."""

    def _deny(self) -> None:
        self.search.deny(METHOD)


class _PlainRun(_SolverThread):
    """Any other solver of PuLP's: one call, with those of the usual options that it knows.

    It gets the time windows that follow from the known plan, but no start: the CBC that PuLP brings along crashes, or
    denies that there is a plan, if it is handed one of a few thousand variables.
    """

    def __init__(self, search: Search, formulation: AnyFormulation, workers: int, solver: str) -> None:
        super().__init__(search, formulation, _USUAL_TOLERANCES)
        wanted = {"gapRel": 0.0} if workers == 1 else {"gapRel": 0.0, "threads": workers}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # PuLP says that its version 4 will not bundle CBC
            known = inspect.signature(type(pulp.getSolver(solver, msg=False))).parameters
            options = {name: value for name, value in wanted.items() if name in known}
            self.solver = pulp.getSolver(solver, msg=False, timeLimit=search.remaining_s, **options)
        self.exact = "gapRel" in known

    def _solve(self) -> None:
        try:
            self.formulation.problem.solve(self.solver)
        except pulp.PulpSolverError as error:
            self.search.distrust(SOLVER_OF[METHOD], str(error))

    def _offer_news(self) -> None:
        """Offer nothing: nothing is heard before the end."""

    def _conclude(self) -> None:
        problem = self.formulation.problem
        if problem.status == pulp.LpStatusInfeasible and self.search.remaining_s > 0:  # no proof at a time-out
            self._deny()
        if problem.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            self._offer_plan(lambda variable: variable.value())
        if problem.sol_status == pulp.LpSolutionOptimal and self.exact:
            self._offer_bound(problem.objective.value() or 0.0)  # PuLP gives no value to a constant
