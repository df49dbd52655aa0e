"""Searches on behalf of another: what they find and prove goes on to it, and so does what turns out to be wrong."""

from __future__ import annotations

from fractions import Fraction

from models.instance import Instance
from models.timeline import Timeline
from solvers.result import Origin, Search


class Delegate(Search):
    """A search whose plans, bounds and doubts go on to another.

    Parameters
    ----------
    search
        The other.
    instance
        What this one is searched for; it has the plans of the other's instance.
    limit_s
        Seconds from now.
    """

    def __init__(self, search: Search, instance: Instance, limit_s: float) -> None:
        self._search = search
        super().__init__(instance, search.objective, limit_s, stop=search.stop, left_out=search.left_out)

    @property
    def infeasible(self) -> bool:
        """Whether it is proved that there is no plan."""
        return self._search.infeasible

    def deny(self, method: str) -> None:
        """Claim that there is no plan."""
        self._search.deny(method)

    def forget(self, solver: str, said: str) -> None:
        """Keep nothing that a solver has said or will say of this window, here and in the other search."""
        super().forget(solver, said)
        self._search.forget(solver, said)

    def hand_on(self, timeline: Timeline) -> Timeline:
        """Return a plan as one of the other search."""
        return timeline

    def offer(self, timeline: Timeline, origin: Origin = Origin.SEARCH) -> bool:
        """Keep a plan if it is the best so far; say whether it was kept."""
        kept = super().offer(timeline, origin)
        if kept:
            self._search.offer(self.hand_on(timeline), origin)
        return kept

    def offer_bound(self, bound: Fraction, method: str) -> None:
        """Keep a proved lower bound if it is the best so far."""
        super().offer_bound(bound, method)
        self._search.offer_bound(bound, method)


class Episode(Delegate):
    """A part of a search's time.

    Parameters
    ----------
    search
        Whose instance, plan and bound it begins with.
    limit_s
        Seconds from now.
    """

    def __init__(self, search: Search, limit_s: float) -> None:
        super().__init__(search, search.instance, min(limit_s, search.remaining_s))
        if search.timeline is not None:
            Search.offer(self, search.timeline, search.origin)  # the other has it
        if search.bound is not None and search.bound_method is not None:
            Search.offer_bound(self, search.bound, search.bound_method)

    def finish(self, timeline: Timeline) -> Timeline:
        """Return a plan as the search keeps it."""
        return self._search.finish(timeline)
