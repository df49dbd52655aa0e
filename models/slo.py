"""Service levels such as ``p99 slowdown <= 2``: their grammar, and what share of the jobs is within them.

A level is over all jobs, or over those of one workflow: ``p95 latency of chat <= 2 s``. Of several all must hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.objective import mean_ratio
from truenorth.models.timeline import TokenTimes
from truenorth.models.units import QuantityError, parse_number, parse_time

_FIGURE = r"(?P<what>latency|slowdown|first token|time per token)( of (?P<workflow>.+?))? ?<= ?(?P<limit>[^<=]+)"
_QUANTILE = re.compile(rf"p(?P<q>\d+(\.\d+)?) {_FIGURE}")
_MEAN = re.compile(rf"mean {_FIGURE}")
_WITHIN = re.compile(r"(?P<q>\d+(\.\d+)?) ?%( of (?P<workflow>.+))? within deadline")
_NONE_LATE = re.compile(r"no late jobs( of (?P<workflow>.+))?")
_LONGEST = 400
_LARGEST = {"latency": 10**15, "first token": 10**15, "time per token": 10**15, "slowdown": 10**9}
"""Limits beyond these, in microseconds and as a ratio, are no levels, and leave what floats can hold."""
EXAMPLES = (
    "'p99 slowdown <= 2', 'p95 latency <= 800 ms', 'mean latency <= 1 s', '95 % within deadline', 'no late jobs', "
    "'p95 latency of WORKFLOW <= 2 s', 'p95 first token <= 2 s', 'p95 time per token <= 50 ms'"
)


def is_named(by: str, workflow: str) -> bool:
    """Say whether a workflow is meant by its name, or by what names that begin so end in: an asterisk."""
    return by == workflow or (by.endswith("*") and workflow.startswith(by[:-1]))


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """A demand on the jobs of a timeline.

    Parameters
    ----------
    measure
        ``latency``, ``slowdown`` or ``lateness`` (latency against each job's deadline); of jobs with requests of
        streams also ``first token``, from the release, and of each answer of theirs ``time per token``.
    limit
        Microseconds or a ratio; 0 for lateness.
    share
        Least share of jobs (of time per token: of requests) within the limit; None: the mean must be within it (not for
        lateness).
    workflow
        Name of the workflow whose jobs count; ``chat *`` stands for all whose names begin with ``chat ``. None: all
        jobs do.
    """

    measure: str
    limit: Fraction
    share: Fraction | None
    workflow: str | None = None

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
        if match := _NONE_LATE.fullmatch(wanted):
            return cls("lateness", Fraction(0), Fraction(1), match["workflow"])
        if match := _WITHIN.fullmatch(wanted):
            return cls("lateness", Fraction(0), _share(match["q"], text), match["workflow"])
        if match := _QUANTILE.fullmatch(wanted) or _MEAN.fullmatch(wanted):
            share = _share(match["q"], text) if "q" in match.groupdict() else None
            return cls(match["what"], _limit(match["what"], match["limit"], text), share, match["workflow"])
        raise QuantityError(f"{text!r} is no service level; allowed are, for instance, {EXAMPLES}")

    def __str__(self) -> str:
        """Return the level as it is written.

        >>> [str(ServiceLevel.parse(text)) for text in ("p99 latency <= 1.5 s", "mean slowdown <= 2", "no late jobs")]
        ['p99 latency <= 1.5 s', 'mean slowdown <= 2', 'no late jobs']
        """
        of = f" of {self.workflow}" if self.workflow is not None else ""
        if self.measure == "lateness":
            return (
                f"no late jobs{of}" if self.share == 1 else f"{_plain(100 * (self.share or 0))} %{of} within deadline"
            )
        limit = _plain(self.limit) if self.measure == "slowdown" else _say_time(self.limit)
        return f"{'mean' if self.share is None else f'p{_plain(100 * self.share)}'} {self.measure}{of} <= {limit}"

    @property
    def is_time(self) -> bool:
        """Whether its limit is a time, and not a ratio or a share."""
        return self.measure not in ("slowdown", "lateness")

    def reported(self, value: Fraction) -> float:
        """Return a figure of it as it is reported: times in seconds, ratios and shares as they are."""
        return float(value / MICROSECONDS_PER_SECOND if self.is_time else value)

    def covers(self, instance: Instance) -> NDArray[np.bool_]:
        """Say of every job whether it counts. Shape [jobs]."""
        return np.array([self.names(job.workflow.name) for job in instance.jobs], np.bool_)

    def names(self, workflow: str) -> bool:
        """Say whether the jobs of a workflow count.

        >>> [ServiceLevel.parse("no late jobs of chat *").names(name) for name in ("chat 1 of 4", "chat", "chatter")]
        [True, False, False]
        """
        return self.workflow is None or is_named(self.workflow, workflow)

    def met_by(
        self, instance: Instance, latency: Ints, jobs: Sequence[int] | Ints, tokens: TokenTimes | None = None
    ) -> bool:
        """Say whether the given jobs meet the level for these latencies (microseconds, one per job of the instance)."""
        return self.attainment(instance, latency, jobs, tokens) >= (self.share if self.share is not None else 1)

    def attainment(
        self, instance: Instance, latency: Ints, jobs: Sequence[int] | Ints, tokens: TokenTimes | None = None
    ) -> Fraction:
        """Return the share of the given jobs that count within the limit, exactly; for a mean, 1 or 0.

        It is 1 if none of them counts.

        Parameters
        ----------
        tokens
            When the tokens came; needed for levels on them where jobs have requests of streams.
        """
        chosen = np.asarray(jobs, np.int64)
        chosen = chosen[self.covers(instance)[chosen]]
        if self.measure == "lateness" and chosen.size:
            deadlines = [instance.jobs[job].deadline_us for job in chosen.tolist()]
            late = zip(latency[chosen].tolist(), deadlines, strict=True)
            return _share_of([due is None or flow <= due for flow, due in late])
        flows, units = self._figures(instance, latency, chosen, tokens)
        if not flows:
            return Fraction(1)
        if self.share is None:
            return Fraction(int(mean_ratio(flows, units) <= self.limit))
        most, per = self.limit.as_integer_ratio()
        return _share_of([flow * per <= most * unit for flow, unit in zip(flows, units, strict=True)])

    def _figures(
        self, instance: Instance, latency: Ints, chosen: Ints, tokens: TokenTimes | None
    ) -> tuple[list[int], list[int]]:
        """Return what of the chosen jobs, or of their requests, is limited: microseconds, and what they are per."""
        if self.measure not in ("first token", "time per token"):
            flows = latency[chosen].tolist()
            return flows, instance.job_ideal_us[chosen].tolist() if self.measure == "slowdown" else [1] * len(flows)
        if instance.streams is None:
            return [], []
        if tokens is None:
            raise ValueError(f"the level {self} needs to know when tokens came")
        if self.measure == "first token":
            first_us = tokens.first_us[chosen]
            first_us = first_us[first_us != NONE]
            return first_us.tolist(), [1] * len(first_us)
        counts = np.zeros(len(instance.jobs), np.bool_)
        counts[chosen] = True
        of_these = counts[tokens.job]
        return tokens.span_us[of_these].tolist(), tokens.steps[of_these].tolist()

    def reached(self, instance: Instance, latency: Ints, tokens: TokenTimes | None = None) -> Fraction | None:
        """Return the figure that the level limits: of all that counts the mean or the quantile.

        In microseconds or as a ratio; of lateness it is the share of jobs within their deadlines. None without a job.
        """
        chosen = np.flatnonzero(self.covers(instance))
        if self.measure == "lateness":
            return self.attainment(instance, latency, chosen) if chosen.size else None
        flows, units = self._figures(instance, latency, chosen, tokens)
        if not flows:
            return None
        if self.share is None:
            return mean_ratio(flows, units)
        ordered = sorted(Fraction(flow, unit) for flow, unit in zip(flows, units, strict=True))
        return ordered[quantile_rank(self.share, len(ordered))]


@dataclass(frozen=True, slots=True)
class ServiceLevels:
    """One or several levels, all of which must hold; only `parse` and the reader of scenarios refuse to have none."""

    levels: tuple[ServiceLevel, ...]

    @classmethod
    def parse(cls, *texts: str) -> ServiceLevels:
        """Read levels.

        >>> str(ServiceLevels.parse("p95 latency of chat <= 2 s", "99 % of embed within deadline"))
        'p95 latency of chat <= 2 s and 99 % of embed within deadline'

        Raises
        ------
        QuantityError
            If a text is no service level, or there is none.
        """
        if not texts:
            raise QuantityError(f"there is no service level; allowed are, for instance, {EXAMPLES}")
        return cls(tuple(map(ServiceLevel.parse, texts)))

    def __str__(self) -> str:
        return " and ".join(map(str, self.levels))

    def __iter__(self) -> Iterator[ServiceLevel]:
        return iter(self.levels)

    @property
    def written(self) -> str | list[str]:
        """What stands in a scenario file: one level as text, several as a list."""
        return str(self) if len(self.levels) == 1 else [str(level) for level in self.levels]

    def met_by(
        self, instance: Instance, latency: Ints, jobs: Sequence[int] | Ints, tokens: TokenTimes | None = None
    ) -> bool:
        """Say whether the given jobs meet every level for these latencies (microseconds, one per job)."""
        return all(level.met_by(instance, latency, jobs, tokens) for level in self.levels)

    def attainment(
        self, instance: Instance, latency: Ints, jobs: Sequence[int] | Ints, tokens: TokenTimes | None = None
    ) -> Fraction:
        """Return the least attainment of a level."""
        return min(level.attainment(instance, latency, jobs, tokens) for level in self.levels)


def quantile_rank(share: Fraction, count: int) -> int:
    """Return the 0-based rank of a quantile: p_q is the ceil(q n)-th smallest.

    >>> quantile_rank(Fraction(99, 100), 100), quantile_rank(Fraction(1, 2), 3)
    (98, 1)
    """
    return max(0, -(-share.numerator * count // share.denominator) - 1)


def _say_time(time_us: Fraction) -> str:
    """Return a time in seconds, or in milliseconds below one.

    >>> [_say_time(Fraction(time_us)) for time_us in (800_000, 60_000_000, 1_500_000)]
    ['800 ms', '60 s', '1.5 s']
    """
    return (
        f"{_plain(time_us / 1000)} ms"
        if time_us < MICROSECONDS_PER_SECOND
        else f"{_plain(time_us / MICROSECONDS_PER_SECOND)} s"
    )


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
    most = parse_number(limit) if measure == "slowdown" else Fraction(parse_time(limit))
    if not Fraction(1, _LARGEST["slowdown"]) <= most <= _LARGEST[measure]:
        allowed = "10^-9 to 10^9" if measure == "slowdown" else "1 us to 10^9 s"
        raise QuantityError(f"{text!r}: the limit is out of range; allowed is {allowed}")
    return most
