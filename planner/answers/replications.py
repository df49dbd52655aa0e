"""The same comparison over several arrival seeds or windows of a trace: one window is one draw.

Every replication is a cell of a sweep: it runs on the sweep's pool, is kept when it is finished, and is found again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from truenorth.executor import NoiseError
from truenorth.models.objective import Objective
from truenorth.models.record import Spreading, spread, take
from truenorth.models.scenario import Scenario
from truenorth.planner.answers.intervals import LEVEL, NO_INTERVAL, Interval, interval_of
from truenorth.planner.answers.questions import CompareQuestion
from truenorth.planner.answers.shown import WHAT_COUNTS, WithRows, describe_bound, frame_of, with_value
from truenorth.planner.answers.uncertain.spec import parse_uncertainty
from truenorth.planner.answers.whatif import ask_each
from truenorth.planner.answers.whatif.grid import windows_of
from truenorth.planner.answers.whatif.result import CellError, Counts, Sweep
from truenorth.planner.answers.whatif.verbs import Row

_Cell = Mapping[str, Row]
"""The rows of a replication by policy."""

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False)
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

    @property
    def replications(self) -> Sequence[_Cell]:
        """Of every replication without an error, its rows by policy."""
        return self.sweep.by_policy

    @property
    def against(self) -> str | None:
        """The online policy of the least mean objective among those that ran in every replication, on no twin."""
        cells = self.replications
        online = [name for name in _names(cells) if not _any(cells, name, "clairvoyant", "twin", "problem")]
        everywhere = [name for name in online if all(name in cell for cell in cells)]
        return min(everywhere, key=lambda name: sum(_values(cells, name)), default=None)

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
        found = Counter(describe_bound(None if m is None else str(m)) for m in self._of_plans("bound_method"))
        return "; ".join(f"{method} in {count}" for method, count in found.most_common())

    @property
    def converged_in(self) -> int:
        """In how many replications the plan is converged."""
        return sum(bool(converged) for converged in self._of_plans("converged"))

    @property
    def proof(self) -> str:
        """What is proved of the plans: the methods of their bounds, and their mean gap."""
        gaps = [float(gap) for gap in self._of_plans("plan_gap") if isinstance(gap, (int, float))]
        gap = f"{100 * sum(gaps) / len(gaps):.1f} %" if gaps else "-"
        return f"Lower bounds: {self.bound_methods or 'none'}; gap of the plan: {gap} in the mean."

    @property
    def warning(self) -> str | None:
        """That ratios to plans understate, and in how many replications; None if every plan is converged."""
        count = len(self.replications)
        if self.converged_in == count:
            return None
        left = f"In {count - self.converged_in} of {count} replications the plan is unconverged ({WHAT_COUNTS})"
        between = "between the lower end of x best and the upper end of x bound"
        return f"{left}: ratios to it understate; the truth lies {between}."

    def _of_plans(self, key: str) -> list[str | int | float | bool | None]:
        """Return what every row of a replication says of its plan."""
        return [next(iter(cell.values()))[key] for cell in self.replications]

    @property
    def lower_bound(self) -> Interval | None:
        """The mean of the lower bounds; None if a replication has none."""
        bounds = [next(iter(cell.values()))["lower_bound"] for cell in self.replications]
        known = [float(bound) for bound in bounds if bound is not None]
        return interval_of(known) if known and len(known) == len(bounds) else None

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


def _values(cells: Sequence[_Cell], name: str, key: str = "value") -> list[float]:
    found = (cell[name].get(key) for cell in cells if name in cell)
    return [float(value) for value in found if isinstance(value, (int, float))]


def _any(cells: Sequence[_Cell], name: str, *keys: str) -> bool:
    return any(cell[name][key] for cell in cells if name in cell for key in keys)


def _row(
    cells: Sequence[_Cell], name: str, against: str | None, bound_methods: str, converged_in: int
) -> ReplicatedPolicy:
    here = [cell for cell in cells if name in cell]
    problems = [str(cell[name]["problem"]) for cell in here if cell[name]["problem"]]
    if problems:  # means over the draws in which it breaks no rule would be means over a choice
        here = []
    differences = [] if against in (None, name) else list(_differences(here, name, str(against)))
    plan_gap, gap_to_bound, *figures = _figures(cells, name)
    return ReplicatedPolicy(
        name,
        _any(cells, name, "clairvoyant"),
        _any(cells, name, "twin"),
        len(here),
        _interval(_values(here, name)),
        _interval(_values(here, name, "ratio_to_best")),
        _interval(_values(here, name, "ratio_to_bound")),
        _interval(differences),
        sum(difference < 0 for difference in differences) if differences else None,
        bound_methods,
        converged_in,
        _mean(_values(here, name, plan_gap)),
        _mean(_values(here, name, gap_to_bound)),
        {column: _mean(_values(here, name, column)) for column in figures},
        problems[0] if problems else None,
    )


def _differences(cells: Sequence[_Cell], name: str, other: str) -> Iterator[float]:
    for cell in cells:
        mine, its = _values([cell], name), _values([cell], other)
        if mine and its:
            yield mine[0] - its[0]


def _interval(values: Sequence[float]) -> Interval:
    return interval_of(values) if values else NO_INTERVAL


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _figures(cells: Sequence[_Cell], name: str) -> list[str]:
    """Return the other columns of figures: the gaps, the metrics, and what parts lose."""
    columns = list(dict.fromkeys(key for cell in cells if name in cell for key in cell[name]))
    return ["plan_gap", *columns[columns.index("gap_to_bound") : columns.index("error")]]


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
    words = asked.typed()
    said = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}
    return Replicated(scenario, windows.what, made, {"replications": str(count), **said})
