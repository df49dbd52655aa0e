"""CP-SAT on the joint formulation: it improves a search's plan and bound until they meet or time runs out.

A sum over jobs is proved job by job first: what the first k jobs cost without the others is a floor for the first k
in every plan, and each floor narrows the windows of the next proof (Verfaillie, Lemaitre, Schiex: Russian doll search,
AAAI 1996). Nothing the solver says is taken on trust: plans are checked when offered, the best plan known before stays
whatever the solver answers, and others are asked about its proofs (`solvers.confirming`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from importlib.metadata import version

from models.formulations.cp_sat import formulate_scaled, formulate_within, scaled_objective
from models.formulations.cp_sat_plans import add_hint
from models.formulations.normal_form import restrict
from models.formulations.scale import ScaledObjective
from models.formulations.windows import METHOD as WINDOWS
from models.formulations.windows import cannot_end, completion_lower_us, horizon_us
from models.instance import Instance
from models.objective import Objective, completion_us, timeline_value
from models.timeline import Timeline
from solvers.bounds.lagrangian.improve import Priced
from solvers.bounds.lagrangian.windows import limits
from solvers.exact.cp_sat_run import FOR_MAXIMA, FOR_SUMS, SolverRun
from solvers.faults import CP_SAT, SOLVER_OF
from solvers.result import Result, Search
from solvers.visits import on_twin

METHOD = CP_SAT
"""Name of the bounds that this solver proves."""

_FEWEST_JOBS = 5
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
    improve(on_twin(search), workers, seed)
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
    if search.faults or search.remaining_s <= build_s(search.instance):
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
    if search.faults or search.remaining_s <= build_s(search.instance) or search.proved:
        return
    subsolvers = _for_sums(workers) if search.objective.is_sum else ()
    _run(search, scaled, floors, priced, workers, seed, search.remaining_s, subsolvers, log)


def look_within(search: Search, most: Fraction | None, workers: int, seed: int, presolve: bool = False) -> None:
    """Look for a plan of at most some value, or deny that there is one, in other words than `improve`.

    Nothing is minimised, nothing known beforehand narrows the model, and unless asked for nothing rewrites it.

    Parameters
    ----------
    most
        The value, for which the windows leave room; None: any.
    """
    if search.remaining_s <= build_s(search.instance):
        return
    with search.giving_way(METHOD):
        formulation = formulate_within(search.instance, search.objective, most, search.allowance)
        run = SolverRun(search, formulation, lambda _: None, workers, seed, search.remaining_s)
        run.solver.parameters.cp_model_presolve = presolve
        run.follow()


def prove_maximum(search: Search, workers: int, seed: int, limit_s: float) -> None:
    """Prove that no plan has a lower maximum over its jobs, beside a search for plans, as far as time allows.

    One search of CP-SAT's proves job shops whose tasks have few GPUs to choose from in seconds; others yield to
    another, so one worker tries that one first, then takes turns at all.

    Parameters
    ----------
    limit_s
        Seconds from now.
    """
    end_s = search.elapsed_s + limit_s
    alone = (_SHARE_OF_FIRST_SEARCH, FOR_MAXIMA[:1]), (1.0, FOR_MAXIMA)
    for share, subsolvers in alone if workers == 1 else ((1.0, ()),):
        left_s = min(search.remaining_s, end_s - search.elapsed_s)
        if search.faults or search.proved or share * left_s <= build_s(search.instance):
            return
        scaled = scaled_objective(search.instance, search.objective, search.timeline)
        with search.giving_way(METHOD):
            _run(search, scaled, (), None, workers, seed, share * left_s, subsolvers)


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
        search.offer_bound(proved if value is None else min(proved, value), METHOD)

    SolverRun(search, formulation, offer_bound, workers, seed, limit_s, subsolvers, log).follow()


def _floors(search: Search, known: Timeline, scaled: ScaledObjective, workers: int, seed: int) -> tuple[int, ...]:
    """Return what the first 0, 1, 2, ... jobs cost at least, each proved with the floors before it."""
    jobs = len(search.instance.jobs)
    if not search.objective.is_sum or jobs < _FEWEST_JOBS:
        return ()
    lower = completion_lower_us(search.instance)
    alone = [weight * term for weight, term in zip(scaled.weights, scaled.terms(search.instance, lower), strict=True)]
    floors, kept_s = [0], search.remaining_s * (1 - _SHARE_OF_FLOORS)
    for count in range(1, jobs):
        budget_s = search.remaining_s - kept_s
        part = replace(search.instance, jobs=search.instance.jobs[:count])
        if search.faults or budget_s <= build_s(part):
            break
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
    trial = Search(part, search.objective, budget_s * _SHARE_OF_ONE_FLOOR, stop=search.stop)
    trial.offer(plan)
    formulation = formulate_scaled(part, scaled, limit, plan, floors, allowance=search.allowance)
    add_hint(formulation, plan)
    bounds = [floors[-1]]
    SolverRun(trial, formulation, bounds.append, workers, seed, trial.remaining_s, _for_sums(workers)).follow()
    reached = scaled.combine(scaled.terms(part, completion_us(part, trial.timeline or plan)))
    if max(bounds) > reached:
        trial.distrust(SOLVER_OF[METHOD], f"{METHOD} bounds first jobs by {max(bounds)}, but has a plan of {reached}")
    for said in trial.faults:
        search.forget(SOLVER_OF[METHOD], said)
    return floors[-1] if trial.faults else max(bounds)
