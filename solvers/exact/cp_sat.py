"""CP-SAT on the joint formulation: it improves a search's plan and bound until they meet or time runs out.

A sum over jobs is proved job by job first: what the first k jobs cost without the others is a floor for the first k
in every plan, and each floor narrows the windows of the next proof (Verfaillie, Lemaitre, Schiex: Russian doll search,
AAAI 1996). Nothing the solver says is taken on trust: plans are checked when offered, the best plan known before stays
whatever the solver answers, and others are asked about its proofs (`solvers.confirming`).

Every run of CP-SAT has a thread of its own, so that a signal handler of the main thread can stop it.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from fractions import Fraction
from functools import partial
from importlib.metadata import version
from typing import TypeVar

from ortools.sat.python import cp_model

from truenorth.models.formulations.cp_sat import CpSatFormulation, formulate_scaled, formulate_within, scaled_objective
from truenorth.models.formulations.cp_sat_plans import add_hint, read_timeline
from truenorth.models.formulations.gangs import GangFormulation
from truenorth.models.formulations.gangs import formulate as formulate_gangs
from truenorth.models.formulations.gangs import read_timeline as read_gangs
from truenorth.models.formulations.normal_form import restrict
from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.formulations.windows import METHOD as WINDOWS
from truenorth.models.formulations.windows import cannot_end, completion_lower_us, horizon_us
from truenorth.models.instance import Instance
from truenorth.models.objective import Objective, completion_us, timeline_value
from truenorth.models.timeline import Timeline
from truenorth.solvers.bounds.lagrangian.improve import Priced
from truenorth.solvers.bounds.lagrangian.windows import limits
from truenorth.solvers.result import Result, Search
from truenorth.solvers.trust import CP_SAT, SOLVER_OF

_POLL_S = 0.05
_EXACT_FLOATS = 2**53
# Of what two workers can run, this pair proved most on the authors' workload: one lifts the bound, one finds plans.
FOR_SUMS = ("objective_lb_search", "max_lp")
# A maximum over jobs is proved now by one, now by another of these: one worker takes turns at all of them. (Two that
# take turns wait for one another half of the time.)
FOR_MAXIMA = ("default_lp", "fixed", "core", "no_lp", "max_lp", "quick_restart", "quick_restart_no_lp", "reduced_costs")
_News = TypeVar("_News")


def new_solver(workers: int, seed: int, limit_s: float) -> cp_model.CpSolver:
    """Return a solver with what holds of every run of CP-SAT here: nothing else makes one."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    solver.parameters.max_time_in_seconds = limit_s
    # The signal belongs to whoever runs the search: the solver's own handler would replace theirs.
    solver.parameters.catch_sigint_signal = False
    return solver


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
        formulation: CpSatFormulation | GangFormulation,
        offer_bound: Callable[[int], None],
        workers: int,
        seed: int,
        limit_s: float,
        subsolvers: Sequence[str] = (),
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.search, self.model, self.offer_bound = search, formulation.model, offer_bound
        self.incumbent = formulation.incumbent
        self._read: Callable[[list[int]], Timeline] = (
            partial(read_gangs, formulation, search.instance)
            if isinstance(formulation, GangFormulation)
            else partial(read_timeline, formulation)
        )
        self.solver = new_solver(workers, seed, min(limit_s, search.clock.left_s))
        self.solver.parameters.subsolvers.extend(subsolvers)
        if len(subsolvers) > workers:
            self.solver.parameters.interleave_search = True
            # Neighbourhood searches look for plans, which annealing does better; the workers are there to prove.
            self.solver.parameters.use_lns = False
        # Below what counts as proved, so that it goes no further than anybody asks.
        self.solver.parameters.relative_gap_limit = 5e-7
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
        self.status = solve_until(self._over, self.solver, self.model, self.solutions)
        self._conclude()

    @property
    def proved(self) -> bool:
        """Whether the last plan was proved to be the best of the formulation."""
        return self.status == "OPTIMAL"

    def _over(self) -> bool:
        self._offer_news()
        return self.search.clock.is_set() or self.search.proved

    def _offer_news(self) -> None:
        # The last is the best: each solution improves on the one before.
        for values in _drained(self.solutions.found)[-1:]:
            self.search.offer(self._read(values))
        for bound in _drained(self.bounds)[-1:]:
            self._offer_bound(bound)

    def _offer_bound(self, scaled: float) -> None:
        """Offer a bound that the solver states in floating point; it holds among plans no worse than the known one."""
        # Beyond 2^53 floats are no longer all whole numbers: one step down is surely no higher.
        whole = math.floor(scaled if abs(scaled) < _EXACT_FLOATS else math.nextafter(scaled, -math.inf))
        self.offer_bound(whole if self.incumbent is None else min(whole, self.incumbent))

    def _conclude(self) -> None:
        self._offer_news()
        if self.status in ("OPTIMAL", "FEASIBLE"):
            self._offer_bound(self.solver.best_objective_bound)
        elif self.status == "INFEASIBLE":
            self.search.deny(CP_SAT)
        # MODEL_INVALID, say: a fault of the formulation or the solver, and no statement about the window.
        elif self.status != "UNKNOWN":
            self.search.distrust(SOLVER_OF[CP_SAT], f"CP-SAT says {self.status} of the model of a window")


class _Solutions(cp_model.CpSolverSolutionCallback):
    """Collects solutions in the solver's threads; they are read in the caller's."""

    def __init__(self) -> None:
        super().__init__()
        self.found: queue.SimpleQueue[list[int]] = queue.SimpleQueue()

    def on_solution_callback(self) -> None:
        """Keep the values of all variables."""
        # A copy: the solver reuses its message.
        self.found.put(list(self.response_proto.solution))


def _drained(news: queue.SimpleQueue[_News]) -> list[_News]:
    """Return what has arrived, oldest first."""
    arrived = []
    while not news.empty():
        arrived.append(news.get())
    return arrived


METHOD = CP_SAT
"""Name of the bounds that this solver proves."""

_SHARE_OF_FLOORS = 0.5
_SHARE_OF_ONE_FLOOR = 0.2
_SHARE_OF_FIRST_SEARCH = 0.5
_CLOSE_ENOUGH = Fraction(1, 1_000_000)
_BUILD_S = 6e-4
"""Seconds that building takes per task and GPU."""


def build_s(instance: Instance) -> float:
    """Return how many seconds it takes to build the formulation: nothing can interrupt that."""
    return _BUILD_S * instance.n_tasks * instance.n_gpus


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
    improve(search.on_twin().in_ticks(), workers, seed)
    return search.result(METHOD, {"ortools": version("ortools"), "workers": workers, "seed": seed})


def improve(
    search: Search,
    workers: int = 2,
    seed: int = 0,
    priced: Priced | None = None,
    log: Callable[[str], None] | None = None,
) -> None:
    """Improve a search until it is proved, stopped, or out of time; an instance too large to build in time is left.

    No GPU of its instance comes twice: where some do, the search is that on the twin.

    Parameters
    ----------
    priced
        A Lagrangian bound with its prices: they narrow the windows, and tell what is lost by starting late.
    log
        Receives the solver's log, line by line.

    Warns
    -----
    SolverFaultWarning
        If a plan contradicts the solver.
    """
    if search.faults or search.lacks_time(METHOD, build_s(search.instance)):
        return
    if cannot_end(search.instance):
        search.deny(WINDOWS)
        return
    with search.giving_way(METHOD):
        _improve(search, workers, seed, priced, log)


def _improve(search: Search, workers: int, seed: int, priced: Priced | None, log: Callable[[str], None] | None) -> None:
    """Prove job by job, then the whole.

    Raises
    ------
    GivenUpError
        If a model is too large to build.
    """
    known = search.timeline
    scaled = scaled_objective(search.instance, search.objective, known)
    floors = () if known is None else _floors(search, known, scaled, workers, seed)
    if search.faults or search.proved or search.lacks_time(METHOD, build_s(search.instance)):
        return
    subsolvers = _for_sums(workers) if search.objective.is_sum else ()
    _run(search, scaled, floors, priced, workers, seed, search.clock.left_s, subsolvers, log)


def look_within(search: Search, most: Fraction | None, workers: int, seed: int, presolve: bool = False) -> None:
    """Look for a plan of at most some value, or deny that there is one, in other words than `improve`.

    Nothing is minimised, nothing known beforehand narrows the model, and unless asked for nothing rewrites it.

    Parameters
    ----------
    most
        The value, for which the windows leave room; None: any.
    """
    if search.clock.left_s <= build_s(search.instance):
        return
    with search.giving_way(METHOD):
        formulation = _formulate_within(search, most)
        run = SolverRun(search, formulation, lambda _: None, workers, seed, search.clock.left_s)
        run.solver.parameters.cp_model_presolve = presolve
        run.follow()


def _formulate_within(search: Search, most: Fraction | None) -> CpSatFormulation | GangFormulation:
    instance, objective = search.instance, search.objective
    if not instance.gangs:
        return formulate_within(instance, objective, most, search.allowance)
    horizon = horizon_us(instance)
    scaled = ScaledObjective.of(objective, instance, horizon)
    within = None if most is None else scaled.floor(most)
    return formulate_gangs(instance, scaled, horizon, most=within, allowance=search.allowance)


def ask_plainly(search: Search, workers: int, seed: int, limit_s: float) -> None:
    """Put a window to CP-SAT as it is: nothing is proved beforehand, and CP-SAT chooses how to search.

    Parameters
    ----------
    limit_s
        Seconds from now.
    """
    if search.faults or search.proved or limit_s <= build_s(search.instance):
        return
    scaled = scaled_objective(search.instance, search.objective, search.timeline)
    with search.giving_way(METHOD):
        _run(search, scaled, (), None, workers, seed, limit_s, ())


def prove_maximum(search: Search, workers: int, seed: int, limit_s: float) -> None:
    """Prove that no plan has a lower maximum over its jobs, beside a search for plans, as far as time allows.

    One search of CP-SAT's proves job shops whose tasks have few GPUs to choose from in seconds; others yield to
    another, so one worker tries that one first, then takes turns at all.

    Parameters
    ----------
    limit_s
        Seconds from now.
    """
    clock = search.clock.child(limit_s)
    alone = (_SHARE_OF_FIRST_SEARCH, FOR_MAXIMA[:1]), (1.0, FOR_MAXIMA)
    for share, subsolvers in alone if workers == 1 else ((1.0, ()),):
        if search.faults or search.proved or share * clock.left_s <= build_s(search.instance):
            return
        scaled = scaled_objective(search.instance, search.objective, search.timeline)
        with search.giving_way(METHOD):
            _run(search, scaled, (), None, workers, seed, share * clock.left_s, subsolvers)


def _for_sums(workers: int) -> Sequence[str]:
    return FOR_SUMS if workers == len(FOR_SUMS) else ()


def _run(
    search: Search,
    scaled: ScaledObjective,
    floors: tuple[int, ...],
    priced: Priced | None,
    workers: int,
    seed: int,
    limit_s: float,
    subsolvers: Sequence[str],
    log: Callable[[str], None] | None = None,
) -> None:
    """Run the solver for so many seconds, from the best plan so far."""
    known = search.timeline  # another search may improve on it at any time, so its value is its own
    value = None if known is None else timeline_value(search.objective, search.instance, known)
    limit = None if value is None else scaled.floor(value)
    horizon = max(horizon_us(search.instance), 0 if known is None else int(known.end_us.max()))
    narrowed = None
    if priced is not None and value is not None:
        narrowed = limits(search.instance, scaled, priced, value, horizon)
    least = 0 if search.bound is None else scaled.least(search.instance, search.bound, horizon)
    formulation = formulate_scaled(search.instance, scaled, limit, known, floors, narrowed, least, search.allowance)
    if known is not None:
        add_hint(formulation, known)

    def offer_bound(bound: int) -> None:
        proved = scaled.true_bound(bound)
        # Windows leave out plans worse than the known one: beyond its value the bound says nothing.
        search.offer_bound(proved if value is None else min(proved, value), METHOD)

    SolverRun(search, formulation, offer_bound, workers, seed, limit_s, subsolvers, log).follow()


def _floors(search: Search, known: Timeline, scaled: ScaledObjective, workers: int, seed: int) -> tuple[int, ...]:
    """Return what the first 0, 1, 2, ... jobs cost at least, each proved with the floors before it."""
    jobs = len(search.instance.jobs)
    if not search.objective.is_sum or jobs < search.tuning.floors_jobs:
        return ()
    lower = completion_lower_us(search.instance)
    alone = [weight * term for weight, term in zip(scaled.weights, scaled.terms(search.instance, lower), strict=True)]
    # Floors help the proof of the whole, and must leave it its time.
    floors, kept_s = [0], search.clock.left_s * (1 - _SHARE_OF_FLOORS)
    for count in range(1, jobs):
        budget_s = search.clock.left_s - kept_s
        part = replace(search.instance, jobs=search.instance.jobs[:count])
        if search.faults or budget_s <= build_s(part):
            break
        # Valid without any proof: the job alone, beside what the others cost at least.
        floors.append(floors[-1] + alone[count - 1])
        plan = restrict(search.instance, known, part)
        floors[-1] = _floor(search, part, plan, scaled.first_jobs(count), tuple(floors), budget_s, workers, seed)
        search.offer_bound(scaled.true_bound(floors[-1] + sum(alone[count:])), METHOD)
    return tuple(floors)


def _floor(
    search: Search,
    part: Instance,
    plan: Timeline,
    scaled: ScaledObjective,
    floors: tuple[int, ...],
    budget_s: float,
    workers: int,
    seed: int,
) -> int:
    """Return what some first jobs cost at least, given a plan for them and the floors so far, theirs last."""
    limit = scaled.combine(scaled.terms(part, completion_us(part, plan)))
    if limit - floors[-1] <= _CLOSE_ENOUGH * limit:
        return floors[-1]
    trial = Search(part, search.objective, search.clock.child(budget_s * _SHARE_OF_ONE_FLOOR))
    trial.offer(plan)
    formulation = formulate_scaled(part, scaled, limit, plan, floors, allowance=search.allowance)
    add_hint(formulation, plan)
    bounds = [floors[-1]]
    SolverRun(trial, formulation, bounds.append, workers, seed, trial.clock.left_s, _for_sums(workers)).follow()
    reached = scaled.combine(scaled.terms(part, completion_us(part, trial.timeline or plan)))
    # A bound above a plan of the very same jobs: one of the two is wrong, and the plan is checked.
    if max(bounds) > reached:
        trial.distrust(SOLVER_OF[METHOD], f"{METHOD} bounds first jobs by {max(bounds)}, but has a plan of {reached}")
    for said in trial.faults:
        search.forget(SOLVER_OF[METHOD], said)
    return floors[-1] if trial.faults else max(bounds)
