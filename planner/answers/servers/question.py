"""What is asked: levels, the sizes that may answer it, and the time there is."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import prod

from truenorth.models import InstanceError, ServiceLevels
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import Scenario
from truenorth.planner.answers.servers.sizes import Mix, Sizes
from truenorth.solvers.budget import Budget

MOST_MIXES = 20_000
"""More mixes of priced groups than these are not enumerated."""
_HEADROOM, _MORE = 2, 8
"""Without a maximum, sizes up to so many times the fluid bound and some more are looked at."""


@dataclass(slots=True)
class Sizing:
    """Which of the sizes is the least that meets the levels.

    Parameters
    ----------
    sizes, levels
        The scenario at any size, and the service levels.
    candidates
        The sizes in question, cheapest first.
    budget
        Time, workers and seed; it is told a few words whenever the work turns to something else.
    spare
        The levels must still be met with any so many servers gone.
    noise
        What policies are told of run times, or what happens in place of them, wherever one is simulated; see
        `planner.answers.uncertain.spec`. Bounds and plans are of the scenario as it stands.
    """

    sizes: Sizes
    levels: ServiceLevels
    candidates: list[Mix]
    budget: Budget
    spare: int = 0
    noise: str | None = None
    _left: dict[Mix, list[Mix]] = field(default_factory=dict)
    _built: dict[Mix, Scenario | InstanceError] = field(default_factory=dict)

    def scenario(self, mix: Mix) -> Scenario:
        """Return the scenario on a mix, with the levels as its own.

        Raises
        ------
        InstanceError
            If some task can run nowhere there.
        """
        if mix not in self._built:
            from dataclasses import replace

            try:
                self._built[mix] = replace(self.sizes.at(mix), slo=self.levels)
            except InstanceError as error:
                self._built[mix] = error
        made = self._built[mix]
        if isinstance(made, InstanceError):
            raise made
        return made

    def cost(self, mix: Mix) -> Fraction:
        """Return what is to be least: the price of several groups, the servers of one."""
        return cost(self.sizes, mix)

    def order(self, mix: Mix) -> tuple[Fraction, int, Mix]:
        """Return what sizes are sorted by: those that cost the same by their servers."""
        return order(self.sizes, mix)

    def left_of(self, mix: Mix) -> list[Mix]:
        """Return every mix that is left of one with all that is spare gone: plans serve it if they serve them all."""
        if mix not in self._left:
            self._left[mix] = remainders(mix, self.spare)
        return self._left[mix]

    @property
    def left_s(self) -> float:
        """Seconds until time is up; 0 after a stop."""
        return self.budget.left_s


def cost(sizes: Sizes, mix: Mix) -> Fraction:
    """Return what is to be least: the price of a mix of several groups for an hour, the servers of one."""
    paid = price(sizes, mix) if len(mix) > 1 else None
    return Fraction(sum(mix)) if paid is None else paid


def price(sizes: Sizes, mix: Mix) -> Fraction | None:
    """Return the price of a mix for an hour; None without prices."""
    prices = sizes.prices
    if prices is None:
        return None
    return sum((price * count for price, count in zip(prices, mix, strict=True)), Fraction(0))


def order(sizes: Sizes, mix: Mix) -> tuple[Fraction, int, Mix]:
    """Return what sizes are sorted by: the cheapest first, then the fewest servers."""
    return cost(sizes, mix), sum(mix), mix


def remainders(mix: Mix, gone: int) -> list[Mix]:
    """Return every mix that may be left of one with so many servers gone, whatever their groups.

    >>> remainders((2, 1), 1), remainders((1, 0), 2)
    ([(1, 1), (2, 0)], [(0, 0)])
    """
    kept = max(0, sum(mix) - gone)
    ranges = (range(max(0, count - gone), count + 1) for count in mix)
    return [left for left in product(*ranges) if sum(left) == kept]


def candidates(sizes: Sizes, most: int | None, least_gpus: int, spare: int = 0) -> list[Mix]:
    """Return the sizes in question, cheapest first: groups up to their counts or `most`, mere servers further.

    Parameters
    ----------
    least_gpus
        A lower bound: sizes with fewer GPUs are left out, except the largest of them, which is refuted by name.

    Raises
    ------
    QuestionError
        If there are too many mixes.
    """
    upto = sizes.counts if most is None else (most,) * len(sizes.counts)
    if most is None and not sizes.grouped:
        least = -(-least_gpus // sizes.gpus_per_server[0])
        upto = (max(sizes.counts[0], _HEADROOM * least + _MORE + spare),)
    if len(upto) > 1 and prod(count + 1 for count in upto) > MOST_MIXES:
        raise QuestionError(f"there are more than {MOST_MIXES} mixes of the groups; allowed are fewer", "most")
    mixes = [mix for mix in product(*(range(count + 1) for count in upto)) if sum(mix)]
    return sorted(mixes, key=lambda mix: order(sizes, mix))
