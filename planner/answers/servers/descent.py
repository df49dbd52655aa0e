"""From a schedule that is enough down to a cheap one, server by server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from truenorth.planner.answers.servers.day import Day, Schedule


class Descent:
    """Takes servers off a schedule as long as what is left is enough.

    Parameters
    ----------
    floors
        Fewest GPUs per interval.
    met
        Says whether a schedule is enough.
    goes_on
        Says whether there is time.
    """

    def __init__(
        self,
        day: Day,
        floors: Sequence[int],
        met: Callable[[Schedule], bool],
        goes_on: Callable[[], bool],
    ) -> None:
        self._day, self._floors, self._met, self._goes_on = day, floors, met, goes_on
        self.tried = 0

    def run(self, start: Schedule) -> Schedule:
        """Return the cheapest schedule on the way down from one that is enough."""
        if self._day.count == 1:  # a fleet that stays
            return start
        found, quietest = start, sorted(range(self._day.count), key=lambda k: (self._day.jobs[k], k))
        for interval in quietest:
            for group in self._dearest():
                found = self._halve(found, interval, group)
        while True:  # what was too little at first may do now: policies are not monotone
            before = found
            for interval, group in ((k, g) for k in quietest for g in self._dearest()):
                fewer = self._with(found, interval, group, found[interval][group] - 1)
                if self._is_enough(fewer, interval):
                    found = fewer
            if found == before:
                return found

    def _dearest(self) -> Iterator[int]:
        prices = self._day.sizes.prices or (Fraction(1),)
        return iter(sorted(range(len(prices)), key=lambda group: -prices[group]))

    def _halve(self, found: Schedule, interval: int, group: int) -> Schedule:
        """Return the schedule with as few servers of a group in an interval as a search by halves comes to."""
        low, high = 0, found[interval][group]
        while low < high and self._goes_on():
            middle = (low + high) // 2
            fewer = self._with(found, interval, group, middle)
            if self._is_enough(fewer, interval):
                found, high = fewer, middle
            else:
                low = middle + 1
        return found

    def _is_enough(self, candidate: Schedule, interval: int) -> bool:
        per_server, mix = self._day.sizes.gpus_per_server, candidate[interval]
        gpus = sum(count * each for count, each in zip(mix, per_server, strict=True))
        if min(mix) < 0 or gpus < self._floors[interval] or not self._goes_on():
            return False
        self.tried += 1
        return self._met(candidate)

    def _with(self, found: Schedule, interval: int, group: int, count: int) -> Schedule:
        mix = (*found[interval][:group], count, *found[interval][group + 1 :])
        return (*found[:interval], mix, *found[interval + 1 :])
