"""Failures of servers, drawn at a rate: a size is enough if it serves the window in every draw.

A server that fails gives no notice: it does not drain, and the requests that it serves are cut and start anew elsewhere
(rule E3). It is back, with empty memory, after a fixed time.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from truenorth.models import Instance, InstanceError
from truenorth.models.cluster import Interval
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import InputError, Scenario
from truenorth.models.units import QuantityError, parse_number, parse_time

_HOUR_US = 3_600_000_000
_PERIODS_US = {
    "hour": _HOUR_US,
    "day": 24 * _HOUR_US,
    "week": 168 * _HOUR_US,
    "month": 730 * _HOUR_US,
    "year": 8760 * _HOUR_US,
}
_DRAWS, _MOST_DRAWS = 10, 1000
_MOST_OUTAGES = 10_000
"""More outages of a server than these are expected in no window that is drawn."""
_SPEC = re.compile(r"\s*(\S+)\s+per\s+node\s+per\s+(\w+)\s*,\s*([^,]+?)\s*(?:,\s*(\d+)\s+draws?\s*)?")


@dataclass(frozen=True, slots=True)
class FailureRate:
    """How often each server fails, for how long, and how many draws of that are simulated.

    Parameters
    ----------
    text
        How often and for how long, as it was asked.
    per_hour
        Failures of a server in an hour while it is there.
    lasts_us
        For how long it is away then.
    """

    text: str
    per_hour: Fraction
    lasts_us: int
    draws: int

    @classmethod
    def parse(cls, text: str) -> FailureRate:
        """Read a rate.

        >>> FailureRate.parse("1 per node per week, 10 min, 20 draws")
        FailureRate(text='1 per node per week, 10 min', per_hour=Fraction(1, 168), lasts_us=600000000, draws=20)

        Raises
        ------
        QuestionError
            If it is none.
        """
        found = _SPEC.fullmatch(text)
        if found is None or found[2] not in _PERIODS_US:
            such = "'1 per node per week, 10 min' or '2 per node per day, 90 s, 20 draws'"
            raise QuestionError(f"{text!r} is no rate of failures; write for example {such}", "failures")
        try:
            count, lasts_us = parse_number(found[1]), parse_time(found[3])
        except QuantityError as error:
            raise QuestionError(str(error), "failures") from None
        draws = int(found[4] or _DRAWS)
        if count <= 0 or lasts_us <= 0 or not 1 <= draws <= _MOST_DRAWS:
            problem = f"{text!r} draws no failures; write a rate and a time above 0, and 1 to {_MOST_DRAWS} draws"
            raise QuestionError(problem, "failures")
        said = f"{found[1]} per node per {found[2]}, {found[3]}"
        return cls(said, count * _HOUR_US / _PERIODS_US[found[2]], lasts_us, draws)

    def outages(self, seed: int, draw: int, group: int, place: int, until_us: int) -> list[Interval]:
        """Return the outages of a server that begin before a time.

        They follow from its group and its place there, so that a server fails at the same times in fleets of all sizes.
        """
        rng, found = random.Random(f"{seed} {draw} {group} {place}"), list[Interval]()  # noqa: S311
        begin_us = self._gap_us(rng)
        while begin_us < until_us:
            found.append((begin_us, begin_us + self.lasts_us))
            begin_us += self.lasts_us + self._gap_us(rng)
        return found

    def _gap_us(self, rng: random.Random) -> int:
        """Return how long a server stays until it fails: exponentially distributed, at least 1 us."""
        return ceil(rng.expovariate(float(self.per_hour)) * _HOUR_US) or 1


@dataclass(frozen=True, slots=True)
class Outages:
    """The draws of a question: when servers fail between the first release and the last.

    Parameters
    ----------
    window_us
        The last release: no outage begins after it.
    """

    rate: FailureRate
    seed: int
    window_us: int

    @classmethod
    def of(cls, text: str, scenario: Scenario, seed: int) -> Outages:
        """Return the draws for a scenario.

        Raises
        ------
        QuestionError, InputError
            If the rate is none, or nothing true can be said of failures there.
        """
        rate, instance = FailureRate.parse(text), scenario.instance
        if instance.streams is None or not all(task.stream for flow in instance.workflows for task in flow.tasks):
            problem = "cut requests of continuous batching; elsewhere policies would know of them. Ask without failures"
            raise QuestionError(problem, "failures")
        if any(gpu.drain_us for gpu in instance.cluster.gpus):
            problem = "servers drain before they go, and a failure gives no notice; leave drain out, or ask without "
            raise InputError(scenario.source.file, None, "cluster", f"{problem}--failures")
        window_us = int(instance.job_release_us[-1])
        if rate.per_hour * window_us > _MOST_OUTAGES * _HOUR_US:
            raise QuestionError(
                f"{text!r} are over {_MOST_OUTAGES} outages of a server; write a lower rate", "failures"
            )
        return cls(rate, seed, window_us)

    def on(self, servers: tuple[int, ...], draw: int) -> list[list[Interval]]:
        """Return the outages of every server of a mix in a draw."""
        places = [(group, place) for group, count in enumerate(servers) for place in range(count)]
        return [self.rate.outages(self.seed, draw, group, place, self.window_us) for group, place in places]

    def count(self, servers: tuple[int, ...]) -> list[int]:
        """Return how many outages of the servers of a mix fall into the window, draw by draw."""
        return [sum(map(len, self.on(servers, draw))) for draw in range(self.rate.draws)]

    def strike(self, scenario: Scenario, servers: tuple[int, ...], draw: int) -> Scenario:
        """Return the scenario on a mix with the outages of a draw.

        Raises
        ------
        InstanceError
            If some server is never there then.
        """
        outages, instance = self.on(servers, draw), scenario.instance
        try:
            gpus = tuple(
                replace(gpu, available=gpu.available.without(outages[gpu.server])) for gpu in instance.cluster.gpus
            )
        except ValueError:
            raise InstanceError("a server is never there") from None
        struck: Instance = replace(instance, cluster=replace(instance.cluster, gpus=gpus))
        return replace(scenario, instance=struck)
