"""Which proofs there are of small windows, in what order and for how long: a table, and the one loop that runs it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from truenorth.models.features import Features, missing
from truenorth.models.objective import Objective
from truenorth.solvers.bounds import refutation
from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.result import Search
from truenorth.solvers.side_by_side import anneal, dispatch, run_beams, suits_beams

if TYPE_CHECKING:
    from truenorth.solvers.bounds.lagrangian.improve import Priced


@dataclass(frozen=True, slots=True)
class Step:
    """A method with its turn on a window.

    Parameters
    ----------
    method
        Its name, under which a result says why it did not run.
    supports
        Features of the windows that it may see.
    purpose, suits
        What it is for, in a few words, and whether the window is of that kind.
    run
        Takes its turn, of so many seconds.
    share
        Of the time that is left.
    lacks
        What it waits for in vain, in words.
    """

    method: str
    supports: Features
    purpose: str
    suits: bool
    run: Callable[[float], None]
    share: float = 1.0
    lacks: str | None = None

    def why_not(self, search: Search) -> str | None:
        """Return why it has no turn; None if it has one."""
        lacking = missing(search.instance, self.supports)
        if lacking:
            return f"has no support for {', '.join(lacking)}"
        if not self.suits:
            return f"is only for {self.purpose}"
        return self.lacks or ("no time was left" if search.clock.is_set() else None)


def take_turns(search: Search, *steps: Step) -> None:
    """Run one step after the other until the window is proved; note why others are skipped."""
    for step in steps:
        if search.proved:
            return
        why = step.why_not(search)
        if why is None:
            search.skipped.pop(step.method, None)
            step.run(step.share * search.clock.left_s)
        else:
            search.skipped[step.method] = why


def prove(search: Search, budget: Budget, priced: Priced | None) -> None:
    """Close the gap of a search, as far as time allows.

    Parameters
    ----------
    priced
        A bound with its prices, if there is one: it narrows the windows of CP-SAT, and guides start orders.
    """
    take_turns(search, *_proofs(search, budget, priced))


def _proofs(search: Search, budget: Budget, priced: Priced | None) -> tuple[Step, ...]:
    """Return the table of proofs, in the order of their turns."""
    window, tuned, workers, seed = (search.instance, search.objective), search.tuning, budget.workers, budget.seed
    if budget.method is Method.MILP:
        from truenorth.models.formulations.milp import SUPPORTS
        from truenorth.solvers.exact import milp

        def ask_milp() -> None:
            milp.improve(search.in_ticks(), workers, seed)

        only = partial(_or_anneal, search, budget, milp.METHOD, ask_milp)
        return (Step(milp.METHOD, SUPPORTS, "small windows", True, only),)
    from truenorth.models.formulations.cp_sat import SUPPORTS
    from truenorth.solvers.exact import arc_flow, cp_sat, refute, start_orders

    packing = "makespans of independent tasks without models, released at 0, on equal GPUs"
    orders = "sums over jobs whose costs grow with every completion, on GPUs of one kind"
    maxima, both = "maxima and late jobs", "maxima, with workers for both"
    plain = f"windows of up to {tuned.plain_tasks} tasks, where no method is named"
    no_prices = None if priced is not None else "needs prices of the Lagrangian bound, and there are none"

    def pack(limit_s: float) -> None:
        arc_flow.improve(search.in_ticks(), workers, seed, limit_s)

    def ask_cp_sat() -> None:
        # Prices are those of the window's own times.
        cp_sat.improve(search.in_ticks() if priced is None else search, workers, seed, priced)

    order, beside = partial(_order, search, budget, priced), partial(_anneal_and_prove, search, budget)
    is_plain = budget.method is Method.AUTO and search.instance.n_tasks <= tuned.plain_tasks
    ask, last = partial(ask_plainly, search, budget), partial(_or_anneal, search, budget, cp_sat.METHOD, ask_cp_sat)
    ordered, refutes, refuted = start_orders.applies(*window), refutation.applies(*window), tuned.refutation_share
    return (
        Step(arc_flow.METHOD, arc_flow.SUPPORTS, packing, arc_flow.applies(*window), pack, tuned.arc_flow_share),
        Step(start_orders.METHOD, start_orders.SUPPORTS, orders, ordered, order, lacks=no_prices),
        Step(refute.METHOD, refutation.SUPPORTS, maxima, refutes, partial(refute.improve, search), refuted),
        Step("cp-sat beside annealing", SUPPORTS, both, side_by_side(search, budget), beside, tuned.side_by_side_share),
        Step("cp-sat on the window as it is", SUPPORTS, plain, is_plain, ask, tuned.plain_again_share),
        Step(cp_sat.METHOD, SUPPORTS, "small windows", True, last),
    )


def decide_batches(search: Search) -> None:
    """Decide which consecutive tasks of one class run together on one GPU, where that is all there is to decide."""
    from truenorth.solvers.exact import consecutive

    kind, suits = "equal tasks of one batch class on one GPU", consecutive.applies(search.instance, search.objective)
    run, share = partial(consecutive.improve, search), search.tuning.consecutive_share
    take_turns(search, Step(consecutive.METHOD, consecutive.SUPPORTS, kind, suits, run, share))


def decide_packing(search: Search, budget: Budget) -> None:
    """Decide a makespan by packing, where it is a matter of that; its model is small where CP-SAT's is large."""
    if search.objective is Objective.MAKESPAN:
        take_turns(search, _proofs(search, budget, None)[0])


def ask_plainly(search: Search, budget: Budget, limit_s: float) -> None:
    """Put a window to CP-SAT as it is, with a plan to begin with."""
    from truenorth.solvers.exact import cp_sat

    if search.timeline is None:
        dispatch(search)
    cp_sat.ask_plainly(search.in_ticks(), budget.workers, budget.seed, limit_s)


def side_by_side(search: Search, budget: Budget) -> bool:
    """Say whether annealing and CP-SAT go on at the same time: for a maximum, if there are workers for both."""
    return not search.objective.is_sum and budget.workers > 1 and budget.method is not Method.MILP


def _order(search: Search, budget: Budget, priced: Priced | None, limit_s: float) -> None:
    """Run the programme over start orders, and once more from a better plan if the first left it too many states."""
    if priced is None:
        return
    from truenorth.solvers.exact import parts

    clock, tuned = search.clock, search.tuning
    if suits_beams(search.instance, search.objective):
        run_beams(search, budget, priced, tuned.beam_share * clock.left_s)
    before = search.value
    parts.improve(search, priced, tuned.start_orders_share * clock.left_s, budget.workers)
    if not search.proved:
        anneal(search, budget, tuned.better_plan_share * clock.left_s)
    # Only a better plan leaves fewer states within the limit.
    if not search.proved and search.value != before:
        parts.improve(search, priced, tuned.start_orders_share * clock.left_s, budget.workers)


def _anneal_and_prove(search: Search, budget: Budget, limit_s: float) -> None:
    """Anneal a maximum while CP-SAT raises its bound.

    Where tasks have many GPUs to choose from annealing finds by far the better plans, where they have few only CP-SAT
    proves anything; nothing tells beforehand which it is.
    """
    from truenorth.solvers.exact import cp_sat

    provers = budget.workers // 2  # of an odd number annealing gets one more
    with ThreadPoolExecutor(1) as pool:
        proving = pool.submit(cp_sat.prove_maximum, search.in_ticks(), provers, budget.seed, limit_s)
        anneal(search, replace(budget, workers=budget.workers - provers), limit_s)
        proving.result()


def _or_anneal(search: Search, budget: Budget, method: str, ask: Callable[[], None], limit_s: float) -> None:
    """Run a method; if it gave way use its time otherwise, unless moves are counted, which are over by then."""
    ask()
    if budget.iterations is None and method in search.left_out and not search.proved and not search.clock.is_set():
        anneal(search, budget)
