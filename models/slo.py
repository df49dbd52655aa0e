"""Service levels such as ``p99 slowdown <= 2``: their grammar, and what share of the jobs is within them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from models.instance import Instance, Ints
from models.objective import mean_ratio
from models.units import QuantityError, parse_number, parse_time

_QUANTILE = re.compile(r"p(?P<q>\d+(\.\d+)?)\s+(?P<what>latency|slowdown)\s*<=\s*(?P<limit>.+)")
_MEAN = re.compile(r"mean\s+(?P<what>latency|slowdown)\s*<=\s*(?P<limit>.+)")
_WITHIN = re.compile(r"(?P<q>\d+(\.\d+)?)\s*%\s+within\s+deadline")
_LONGEST = 200
_LARGEST = {"latency": 10**15, "slowdown": 10**9}
"""Limits beyond these, in microseconds and as a ratio, are no levels, and leave what floats can hold."""
EXAMPLES = "'p99 slowdown <= 2', 'p95 latency <= 800 ms', 'mean latency <= 1 s', '95 % within deadline', 'no late jobs'"


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """A demand on the jobs of a timeline.

    Parameters
    ----------
    measure
        ``latency``, ``slowdown`` or ``lateness`` (latency against each job's deadline).
    limit
        Microseconds or a ratio; 0 for lateness.
    share
        Least share of jobs within the limit; None: the mean must be within it (not for lateness).
    """

    measure: str
    limit: Fraction
    share: Fraction | None

    @classmethod
    def parse(cls, text: str) -> ServiceLevel:
        """Read a service level.

        >>> ServiceLevel.parse("p99 slowdown <= 2").share
        Fraction(99, 100)

        Raises
        ------
        QuantityError
            If the text is no service level.
        """
        if len(text) > _LONGEST:
            raise QuantityError(f"{text[:40]!r}... is too long for a service level; allowed are {_LONGEST} characters")
        wanted = " ".join(text.split())
        if wanted == "no late jobs":
            return cls("lateness", Fraction(0), Fraction(1))
        if match := _WITHIN.fullmatch(wanted):
            return cls("lateness", Fraction(0), _share(match["q"], text))
        if match := _QUANTILE.fullmatch(wanted) or _MEAN.fullmatch(wanted):
            share = _share(match["q"], text) if "q" in match.groupdict() else None
            return cls(match["what"], _limit(match["what"], match["limit"], text), share)
        raise QuantityError(f"{text!r} is no service level; allowed are, for instance, {EXAMPLES}")

    def __str__(self) -> str:
        """Return the level as it is written.

        >>> [str(ServiceLevel.parse(text)) for text in ("p99 latency <= 1.5 s", "mean slowdown <= 2", "no late jobs")]
        ['p99 latency <= 1500 ms', 'mean slowdown <= 2', 'no late jobs']
        """
        if self.measure == "lateness":
            return "no late jobs" if self.share == 1 else f"{_plain(100 * (self.share or 0))} % within deadline"
        limit = f"{_plain(self.limit / 1000)} ms" if self.measure == "latency" else _plain(self.limit)
        return f"{'mean' if self.share is None else f'p{_plain(100 * self.share)}'} {self.measure} <= {limit}"

    def met_by(self, instance: Instance, latency: Ints, jobs: Sequence[int] | Ints) -> bool:
        """Say whether the given jobs meet the level for these latencies (microseconds, one per job of the instance)."""
        return self.attainment(instance, latency, jobs) >= (self.share if self.share is not None else 1)

    def attainment(self, instance: Instance, latency: Ints, jobs: Sequence[int] | Ints) -> Fraction:
        """Return the share of the given jobs within the limit, exactly; for a mean, 1 or 0."""
        chosen = np.asarray(jobs, np.int64)
        flows: list[int] = latency[chosen].tolist()
        if self.measure == "lateness":
            deadlines = [instance.jobs[job].deadline_us for job in chosen.tolist()]
            return _share_of([due is None or flow <= due for flow, due in zip(flows, deadlines, strict=True)])
        units = instance.job_critical_us[chosen].tolist() if self.measure == "slowdown" else [1] * len(flows)
        if self.share is None:
            return Fraction(int(mean_ratio(flows, units) <= self.limit))
        most, per = self.limit.as_integer_ratio()
        return _share_of([flow * per <= most * unit for flow, unit in zip(flows, units, strict=True)])

    def reached(self, instance: Instance, latency: Ints) -> Fraction:
        """Return the figure that the level limits: of all jobs the mean or the quantile (microseconds or a ratio).

        Of lateness it is the share of jobs within their deadlines.
        """
        if self.measure == "lateness":
            return self.attainment(instance, latency, range(len(latency)))
        flows: list[int] = latency.tolist()
        units = instance.job_critical_us.tolist() if self.measure == "slowdown" else [1] * len(flows)
        if self.share is None:
            return mean_ratio(flows, units)
        ordered = sorted(Fraction(flow, unit) for flow, unit in zip(flows, units, strict=True))
        return ordered[quantile_rank(self.share, len(ordered))]


def quantile_rank(share: Fraction, count: int) -> int:
    """Return the 0-based rank of a quantile: p_q is the ceil(q n)-th smallest.

    >>> quantile_rank(Fraction(99, 100), 100), quantile_rank(Fraction(1, 2), 3)
    (98, 1)
    """
    return max(0, -(-share.numerator * count // share.denominator) - 1)


def _plain(number: Fraction | int) -> str:
    return f"{float(number):.12g}"


def _share_of(within: list[bool]) -> Fraction:
    return Fraction(sum(within), len(within))


def _share(percent: str, text: str) -> Fraction:
    share = Fraction(percent) / 100
    if not 0 < share <= 1:
        raise QuantityError(f"{text!r}: a share lies above 0 and at most at 100")
    return share


def _limit(measure: str, limit: str, text: str) -> Fraction:
    most = Fraction(parse_time(limit)) if measure == "latency" else parse_number(limit)
    if not Fraction(1, _LARGEST["slowdown"]) <= most <= _LARGEST[measure]:
        allowed = "1 us to 10^9 s" if measure == "latency" else "10^-9 to 10^9"
        raise QuantityError(f"{text!r}: the limit is out of range; allowed is {allowed}")
    return most
