"""Service levels such as ``p99 slowdown <= 2``: their grammar, and what share of the jobs is within them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from models.instance import Instance, Ints
from models.units import QuantityError, parse_time

_QUANTILE = re.compile(r"p(?P<q>\d+(\.\d+)?)\s+(?P<what>latency|slowdown)\s*<=\s*(?P<limit>.+)")
_MEAN = re.compile(r"mean\s+(?P<what>latency|slowdown)\s*<=\s*(?P<limit>.+)")
_WITHIN = re.compile(r"(?P<q>\d+(\.\d+)?)\s*%\s+within\s+deadline")
EXAMPLES = "'p99 slowdown <= 2', 'p95 latency <= 800 ms', 'mean latency <= 1 s', '95 % within deadline', 'no late jobs'"


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """A demand on the jobs of a timeline.

    Parameters
    ----------
    measure
        ``latency``, ``slowdown`` or ``lateness`` (latency against each job's deadline).
    limit
        Microseconds or a ratio; unused for lateness.
    share
        Least share of jobs within the limit; None: the mean must be within it.
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
        wanted = " ".join(text.split())
        if wanted == "no late jobs":
            return cls("lateness", Fraction(0), Fraction(1))
        if match := _WITHIN.fullmatch(wanted):
            return cls("lateness", Fraction(0), _share(match["q"], text))
        if match := _QUANTILE.fullmatch(wanted) or _MEAN.fullmatch(wanted):
            share = _share(match["q"], text) if "q" in match.groupdict() else None
            return cls(match["what"], _limit(match["what"], match["limit"], text), share)
        raise QuantityError(f"{text!r} is no service level; allowed are, for instance, {EXAMPLES}")

    def met_by(self, instance: Instance, latency: Ints, jobs: Sequence[int] | Ints) -> bool:
        """Say whether the given jobs meet the level for these latencies (microseconds, one per job of the instance)."""
        return self.attainment(instance, latency, jobs) >= (self.share if self.share is not None else 1)

    def attainment(self, instance: Instance, latency: Ints, jobs: Sequence[int] | Ints) -> Fraction:
        """Return the share of the given jobs within the limit, exactly; for a mean, 1 or 0."""
        ratios = [self._within(instance, int(job), int(latency[job])) for job in jobs]
        if self.share is not None:
            return Fraction(sum(value <= limit for value, limit in ratios), len(ratios))
        mean = sum((value for value, _ in ratios), Fraction(0)) / len(ratios)
        return Fraction(int(mean <= self.limit))

    def _within(self, instance: Instance, job: int, latency: int) -> tuple[Fraction, Fraction]:
        """Return what is measured of a job, and its limit."""
        if self.measure == "slowdown":
            return Fraction(latency, int(instance.job_critical_us[job])), self.limit
        if self.measure == "latency":
            return Fraction(latency), self.limit
        deadline = instance.jobs[job].deadline_us
        return Fraction(0 if deadline is None else max(0, latency - deadline)), Fraction(0)


def _share(percent: str, text: str) -> Fraction:
    share = Fraction(percent) / 100
    if not 0 < share <= 1:
        raise QuantityError(f"{text!r}: a share lies above 0 and at most at 100")
    return share


def _limit(measure: str, limit: str, text: str) -> Fraction:
    if measure == "latency":
        return Fraction(parse_time(limit))
    try:
        ratio = Fraction(limit.strip())
    except (ValueError, ZeroDivisionError):
        raise QuantityError(f"{text!r}: a slowdown is compared with a plain number such as 2") from None
    if ratio <= 0:
        raise QuantityError(f"{text!r}: the limit must be positive")
    return ratio
