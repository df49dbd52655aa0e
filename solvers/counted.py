"""Searches limited by work in place of time: the same seed and number of moves give the same plan and bound.

Plans and the bound are looked for in strands of their own, each with a clock that counts its work. A strand knows what
was known when it began, and no more; what strands found is put together in a fixed order. So it matters neither how
fast they are, nor whether they run side by side or one after the other.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from models.timeline import Timeline
from solvers.budget import Budget
from solvers.farm import Deadline
from solvers.result import Search
from solvers.side_by_side import suits_beams
from solvers.visits import on_twin
from solvers.work import MOVE_S, WorkClock

if TYPE_CHECKING:
    from solvers.bounds.lagrangian.improve import Priced

_GUIDE_SHARE = 0.25
"""Of the moves, before there are prices that guide beams."""


def count_out(search: Search, budget: Budget, moves: int) -> Priced | None:
    """Look for plans with so many moves, and raise the bound with as much work; return it with its prices."""
    if not suits_beams(search.instance, search.objective):
        return _run_strands(search, budget, moves, None)
    first = max(1, int(_GUIDE_SHARE * moves))
    priced = _run_strands(search, budget, first, None)
    if priced is None or search.proved or moves == first:
        return priced
    better = _run_strands(search, budget, moves - first, priced)
    return priced if better is None or better.bound < priced.bound else better


def _run_strands(search: Search, budget: Budget, moves: int, priced: Priced | None) -> Priced | None:
    """Run a strand for plans, by beams if there are prices, and one for the bound; keep what they find."""
    from solvers.bounds.lagrangian.improve import improve

    plans = on_twin(search)
    planning, bounding = _Strand(plans, moves), _Strand(search, moves)
    with ThreadPoolExecutor(min(2, budget.workers)) as pool:
        looking, raising = pool.submit(_look, planning, budget.seed, priced), pool.submit(improve, bounding)
        looking.result()
        found = raising.result()
    if planning.timeline is not None:
        plans.offer(planning.timeline, planning.origin)
    if bounding.bound is not None and bounding.bound_method is not None:
        search.offer_bound(bounding.bound, bounding.bound_method)
    return found


class _Strand(Search):
    """A search that begins with what another knows, and ends after so much work or with the other."""

    def __init__(self, search: Search, moves: int) -> None:
        self._search, over = search, Deadline(search, math.inf)
        instance, objective, limit_s = search.instance, search.objective, moves * MOVE_S
        super().__init__(instance, objective, limit_s, stop=over, clock=WorkClock(), left_out=search.left_out)
        if search.timeline is not None:
            self.offer(search.timeline, search.origin)
        if search.bound is not None and search.bound_method is not None:
            self.offer_bound(search.bound, search.bound_method)

    def finish(self, timeline: Timeline) -> Timeline:
        """Return a plan as the other search keeps it."""
        return self._search.finish(timeline)


def _look(strand: Search, seed: int, priced: Priced | None) -> None:
    """Look for plans, by beams if there are prices, then by annealing with the moves that are left."""
    from solvers.search import annealing, beam

    guide = None if priced is None else beam.guide_of(strand, priced)
    if guide is not None:
        beam.improve(strand, guide, strand.remaining_s, seed)
    left = round(strand.remaining_s / MOVE_S)
    if strand.timeline is None or (left > 0 and not strand.proved):  # a first plan is made however late it is
        annealing.improve(strand, seed, max(1, left))
