"""The same question over several arrival seeds or windows of a trace: one window is one draw, and sizes no cluster.

Comparisons are averaged, with confidence intervals; numbers of servers are spread out, with what is enough for the next
window. Every replication is a cell of a sweep: it runs on the sweep's pool, is kept when it is finished, and is found
again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import ceil
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from truenorth.executor import NoiseError
from truenorth.models import ServiceLevels
from truenorth.models.objective import Objective
from truenorth.models.record import Spreading, spread, take
from truenorth.models.scenario import Scenario
from truenorth.planner.answers.intervals import LEVEL, NO_INTERVAL, Interval, interval_of
from truenorth.planner.answers.servers.answer import default_policies, levels_of
from truenorth.planner.answers.servers.sizes import Sizes
from truenorth.planner.answers.shown import WHAT_COUNTS, Answer, WithRows, describe_bound, frame_of, with_value
from truenorth.planner.answers.uncertain.spec import parse_uncertainty
from truenorth.planner.answers.whatif import ask_each
from truenorth.planner.answers.whatif.grid import windows_of
from truenorth.planner.answers.whatif.result import CellError, Counts, Sweep
from truenorth.planner.answers.whatif.verbs import PLAN, ComparedRow, SizeFound, SizeRow
from truenorth.planner.questions.policies import CompareQuestion
from truenorth.planner.questions.sizes import ServersQuestion

_Cell = Mapping[str, ComparedRow]
"""The rows of a replication by policy."""

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Replicated(WithRows):
    """Comparisons over replications, and means over them with confidence intervals.

    Parameters
    ----------
    what
        What differs: ``arrival seeds`` or ``windows of the trace``.
    sweep
        The rows of every replication.
    """

    scenario: Scenario
    what: str
    sweep: Sweep
    settings: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def replications(self) -> Sequence[_Cell]:
        """Of every replication without an error, its rows by policy."""
        return list(self.sweep.by_policy(ComparedRow).values())

    @property
    def against(self) -> str | None:
        """The online policy of the least mean objective among those that ran in every replication, on no twin."""
        cells = self.replications
        aside = {row.policy for cell in cells for row in cell.values() if row.clairvoyant or row.twin or row.problem}
        online = [name for name in _names(cells) if name not in aside]
        everywhere = [name for name in online if all(name in cell for cell in cells)]
        return min(everywhere, key=lambda name: sum(_known(row.value for row in _of(cells, name))), default=None)

    @property
    def rows(self) -> list[ReplicatedPolicy]:
        """A row per contender, least mean objective first."""
        cells, against = self.replications, self.against
        rows = [_row(cells, name, against, self.bound_methods, self.converged_in) for name in _names(cells)]
        return sorted(rows, key=lambda row: (-row.replications, row.objective.mean or 0.0))

    def frame(self) -> pd.DataFrame:
        """Return a row per contender, with the columns of grids."""
        return with_value(frame_of(self.rows), self.scenario.objective)

    @property
    def bound_methods(self) -> str:
        """How the lower bounds were found, in words, the most frequent first."""
        found = Counter(describe_bound(row.bound_method) for row in self._plans)
        return "; ".join(f"{method} in {count}" for method, count in found.most_common())

    @property
    def converged_in(self) -> int:
        """In how many replications the plan is converged."""
        return sum(bool(row.converged) for row in self._plans)

    @property
    def proof(self) -> str:
        """What is proved of the plans: the methods of their bounds, and their mean gap."""
        gaps = _known(row.plan_gap for row in self._plans)
        gap = f"{100 * sum(gaps) / len(gaps):.1f} %" if gaps else "-"
        return f"Lower bounds: {self.bound_methods or 'none'}; gap of the plan: {gap} in the mean."

    @property
    def warning(self) -> str | None:
        """That ratios to plans understate, and in how many replications; None if every plan is converged."""
        count = len(self.replications)
        if self.converged_in == count:
            return None
        left = f"In {count - self.converged_in} of {count} replications the plan is unconverged ({WHAT_COUNTS})"
        between = "between the lower end of ratio to best and the upper end of ratio to bound"
        return f"{left}: ratios to it understate; the truth lies {between}."

    @property
    def _plans(self) -> list[ComparedRow]:
        """Of every replication a row: each says the same of its plan."""
        return [next(iter(cell.values())) for cell in self.replications]

    @property
    def lower_bound(self) -> Interval | None:
        """The mean of the lower bounds; None if a replication has none."""
        known = _known(row.lower_bound for row in self._plans)
        return interval_of(known) if known and len(known) == len(self.replications) else None

    @property
    def note(self) -> str:
        """What has to be known to read the figures."""
        count, failed = len(self.replications), self.sweep.counts.failed
        text = f"Means over {count} {self.what}, each with its {LEVEL:.0%} bootstrap interval."
        if self.against is not None:
            text += f" Differences are to {self.against} in the same replication."
        text += f" {failed} more could not be used." if failed else ""
        twins = [row.policy for row in self.rows if row.twin]
        text += f" On a twin of the scenario, not on the scenario itself: {', '.join(twins)}." if twins else ""
        return text + "".join(f" Without a rank: {row.problem}." for row in self.rows if row.problem)

    @property
    def record(self) -> ReplicatedRecord:
        """The keys of ``compare --json`` with replications."""
        rows = self.rows
        return take(
            ReplicatedRecord,
            self,
            self.sweep,
            objective=self.scenario.objective,
            replications=len(self.replications),
            of=self.what,
            rows=rows,
            lower_bound=self.lower_bound or NO_INTERVAL,
            best=next((row.policy for row in rows if not row.twin and not row.problem), None),
        )


@dataclass(frozen=True, slots=True)
class ReplicatedPolicy(Spreading):
    """A contender over replications.

    Parameters
    ----------
    replications
        In how many it has figures.
    objective, ratio_to_best, ratio_to_bound
        Means; of each replication the mean ratio to the least possible lies between those two.
    difference, better_in
        To `against` in the same replication, and in how many of them it is better than that one.
    bound_methods, converged_in, plan_gap
        What is known of the plans that every ratio is to.
    figures
        The means of the metrics, and of what parts lose.
    problem
        Why a policy of the user's has no figures and no rank.
    """

    policy: str
    clairvoyant: bool
    twin: bool
    replications: int
    objective: Interval = field(metadata=spread(Interval, "objective"))
    ratio_to_best: Interval = field(metadata=spread(Interval, "ratio_to_best"))
    ratio_to_bound: Interval = field(metadata=spread(Interval, "ratio_to_bound"))
    difference: Interval = field(metadata=spread(Interval, "difference"))
    better_in: int | None
    bound_methods: str
    converged_in: int
    plan_gap: float | None
    gap_to_bound: float | None
    figures: Mapping[str, float | None] = field(metadata=spread())
    problem: str | None


@dataclass(frozen=True, slots=True)
class ReplicatedRecord(Spreading):
    """A comparison over replications in reported units."""

    objective: Objective
    replications: int
    of: str
    against: str | None
    rows: list[ReplicatedPolicy]
    lower_bound: Interval = field(metadata=spread(Interval, "lower_bound"))
    bound_methods: str
    converged_in: int
    warning: str | None
    best: str | None
    errors: list[CellError]
    complete: bool
    note: str


def _names(cells: Sequence[_Cell]) -> list[str]:
    return list(dict.fromkeys(name for cell in cells for name in cell))


def _of(cells: Sequence[_Cell], name: str) -> list[ComparedRow]:
    return [cell[name] for cell in cells if name in cell]


def _row(
    cells: Sequence[_Cell], name: str, against: str | None, bound_methods: str, converged_in: int
) -> ReplicatedPolicy:
    rows = _of(cells, name)
    problem = next((row.problem for row in rows if row.problem), None)
    figures = dict.fromkeys(each for row in rows for each in row.figures)
    # Means over the draws in which it breaks no rule would be means over a choice.
    here = [] if problem else rows
    both = [(cell[name], cell.get(str(against))) for cell in cells if name in cell]
    differences = _known(
        None if other is None or row.value is None or other.value is None else row.value - other.value
        for row, other in ([] if problem or against == name else both)
    )
    return ReplicatedPolicy(
        name,
        any(row.clairvoyant for row in rows),
        any(row.twin for row in rows),
        len(here),
        _interval(_known(row.value for row in here)),
        _interval(_known(row.ratio_to_best for row in here)),
        _interval(_known(row.ratio_to_bound for row in here)),
        _interval(differences),
        sum(difference < 0 for difference in differences) if differences else None,
        bound_methods,
        converged_in,
        _mean(row.plan_gap for row in here),
        _mean(row.gap_to_bound for row in here),
        {each: _mean(row.figures.get(each) for row in here) for each in figures},
        problem,
    )


def _interval(values: Sequence[float]) -> Interval:
    return interval_of(values) if values else NO_INTERVAL


def _known(values: Iterable[float | None]) -> list[float]:
    return [float(value) for value in values if value is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return sum(known) / len(known) if known else None


def replicate_comparison(
    asked: CompareQuestion,
    scenario: Scenario,
    count: int,
    folder: str | Path | None = None,
    watch: Callable[[Counts], None] | None = None,
) -> Replicated:
    """Compare over `count` replications, the first being the scenario as it stands.

    Parameters
    ----------
    asked
        Its `time_limit_s` is for each replication, on one core that has loaded what planning needs; its `workers` and
        `ray` say where replications run.
    folder
        Where finished replications are kept; those found there are not run again, so that their number may grow.
    watch
        As of `whatif`, told of replications.

    Raises
    ------
    InputError
        If the scenario comes from no file.
    QuestionError
        If the workload is a list of jobs, or a trace without a window.
    """
    if not parse_uncertainty(asked.noise).keeps_truth:
        problem = "moves plan and bound too; compare allows 'told=KIND:SPREAD', simulate all noise"
        raise NoiseError(f"{asked.noise!r} {problem}")
    scenario.instance.require_no_streams("compare --replications")
    windows = windows_of(scenario, count)
    made = ask_each(asked, scenario, windows, folder, ray=asked.ray, watch=watch)
    said = {name.removeprefix("--"): value for name, value in asked.said()}
    return Replicated(scenario, windows.what, made, {"replications": str(count), **said})


CONFIDENCE = Fraction(9, 10)
BOUND = "lower bound"
"""Name of the spread of the bounds below the plan."""


@dataclass(frozen=True, slots=True)
class CountSpread:
    """Least, median and most over the replications in which a size was found, and in how many it was.

    Of servers, or of priced groups of the price per hour.

    Parameters
    ----------
    enough
        What the next window needs at most with the confidence asked for; None if that takes more replications.
    hardest
        The window that needs most: one in which no size was found, else the first that needs the most found.
    """

    least: float | None
    median: float | None
    most: float | None
    found: int
    enough: float | None
    hardest: str | None

    @classmethod
    def of(
        cls, sizes: Sequence[float | None], windows: Sequence[str], confidence: Fraction = CONFIDENCE
    ) -> CountSpread:
        """Return the spread of sizes, None where none was found, over windows.

        Windows that might as well have come in another order put the next one at or below the k-th smallest of n with
        a probability of at least k / (n + 1).

        >>> CountSpread.of([3, None, 4], "abc")
        CountSpread(least=3, median=3.5, most=4, found=2, enough=None, hardest='b')
        >>> CountSpread.of([3, 5, 4], "abc", Fraction(1, 2)).enough
        4
        """
        known = sorted(size for size in sizes if size is not None)
        rank = ceil(confidence * (len(sizes) + 1))
        enough = known[rank - 1] if rank <= len(known) else None
        hardest = sizes.index(None) if len(known) < len(sizes) else sizes.index(max(known)) if known else None
        least, most = (known[0], known[-1]) if known else (None, None)
        middle = float(median(known)) if known else None
        return cls(least, middle, most, len(known), enough, None if hardest is None else windows[hardest])


@dataclass(frozen=True, eq=False)
class Replications(Answer):
    """Answers to the same question; the first is about the scenario as it stands.

    Parameters
    ----------
    what
        What differs: ``arrival seeds`` or ``windows of the trace``.
    priced
        Whether sizes are mixes of priced groups, whose prices are compared.
    sweep
        The rows of every replication.
    confidence
        With which the next window, too, is to be served.
    """

    scenario: Scenario
    levels: ServiceLevels
    what: str
    priced: bool
    sweep: Sweep
    confidence: Fraction = CONFIDENCE

    def __repr__(self) -> str:
        return f"<Replications of {self.scenario.name!r}: {len(self.replications)} {self.what}>"

    def frame(self) -> pd.DataFrame:
        """Return one row per replication and policy."""
        return self.sweep.frame()

    @cached_property
    def _cells(self) -> Mapping[int, Mapping[str, SizeRow]]:
        return self.sweep.by_policy(SizeRow)

    @property
    def replications(self) -> list[Mapping[str, SizeFound]]:
        """Of every finished replication without an error, the sizes by policy."""
        return [{name: row.found for name, row in cell.items()} for cell in self._cells.values()]

    @property
    def spread(self) -> dict[str, CountSpread]:
        """The spread of the plan's size, of its lower bound, and of each policy's."""
        cells = self.replications
        if not cells:
            return {}
        size, bound = ("price_per_hour", "lower_bound_price_per_hour") if self.priced else ("servers", "lower_bound")
        found = {name: self._spread([getattr(cell[name], size) for cell in cells]) for name in cells[0]}
        return {PLAN: found.pop(PLAN), BOUND: self._spread([getattr(cell[PLAN], bound) for cell in cells]), **found}

    def _spread(self, sizes: Sequence[float | None]) -> CountSpread:
        return CountSpread.of(sizes, [self.sweep.place(cell) for cell in self._cells], self.confidence)

    @property
    def found(self) -> bool:
        """Whether there is a plan in every replication."""
        cells = self.replications
        return len(cells) == self.sweep.counts.cells and all(cell[PLAN].servers is not None for cell in cells)

    @property
    def record(self) -> ReplicationsRecord:
        """The keys of ``servers --json`` with replications."""
        first = dict(next(iter(self.replications), {}))
        return take(
            ReplicationsRecord,
            self,
            self.sweep,
            slo=self.levels.written,
            minimum=first.pop(PLAN, None),
            policies=first,
            of=self.what,
            spread_of="price_per_hour" if self.priced else "servers",
            known=self.sweep.counts.known,
        )


@dataclass(frozen=True, slots=True)
class ReplicationsRecord:
    """Answers to the same question; `minimum` and `policies` are of the first."""

    slo: str | list[str]
    minimum: SizeFound | None
    policies: Mapping[str, SizeFound]
    replications: Sequence[Mapping[str, SizeFound]]
    of: str
    spread_of: str
    confidence: Fraction
    spread: Mapping[str, CountSpread]
    errors: Sequence[CellError]
    known: int
    complete: bool


def replicate_servers(
    asked: ServersQuestion,
    scenario: Scenario,
    count: int,
    *,
    confidence: Fraction = CONFIDENCE,
    folder: str | Path | None = None,
    ray: str | None = None,
    watch: Callable[[Counts], None] | None = None,
) -> Replications:
    """Ask about a scenario and its replications.

    Parameters
    ----------
    asked
        Its time limit is for one replication, on one core; its workers are processes.
    folder
        Where finished replications are kept; those found there are not asked again, so that their number may grow.
    ray, watch
        As of `whatif`.

    Raises
    ------
    InputError
        If the scenario comes from no file.
    QuestionError
        If there is no level, or the workload is a list of jobs or a trace without a window.
    """
    levels, windows = levels_of(scenario, asked.slo), windows_of(scenario, count)
    # All windows are asked about the same policies: a limit on requests that one of them suggests is not theirs.
    policies = default_policies(scenario.instance, asked.noise) if asked.policies is None else asked.policies
    made = ask_each(replace(asked, slo=levels, policies=policies), scenario, windows, folder, ray=ray, watch=watch)
    return Replications(scenario, levels, windows.what, Sizes(scenario).prices is not None, made, confidence)
