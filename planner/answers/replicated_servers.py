"""The same question over several arrival seeds or windows of a trace: one window does not size a cluster.

Every replication is a cell of a sweep: it runs on the sweep's pool, is kept when it is finished, and is found again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from statistics import median

from truenorth.models import ServiceLevels
from truenorth.models.record import take
from truenorth.models.scenario import Scenario
from truenorth.planner.answers.questions import ServersQuestion
from truenorth.planner.answers.servers.answer import levels_of
from truenorth.planner.answers.servers.sizes import Sizes
from truenorth.planner.answers.whatif import ask_each
from truenorth.planner.answers.whatif.grid import windows_of
from truenorth.planner.answers.whatif.result import CellError, Counts, Sweep
from truenorth.planner.answers.whatif.verbs import PLAN, Row

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


@dataclass(frozen=True, slots=True, eq=False)
class Replications:
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

    @property
    def replications(self) -> list[dict[str, Row]]:
        """Of every finished replication without an error, its rows by policy."""
        return self.sweep.by_policy

    @property
    def spread(self) -> dict[str, CountSpread]:
        """The spread of the plan's size, of its lower bound, and of each policy's."""
        cells = self.replications
        size, bound = ("price_per_hour", "lower_bound_price_per_hour") if self.priced else ("servers", "lower_bound")
        names = list(cells[0]) if cells else []
        found = {name: self._spread([cell[name][size] for cell in cells]) for name in names}
        return (
            {PLAN: found.pop(PLAN), BOUND: self._spread([cell[PLAN][bound] for cell in cells]), **found}
            if found
            else {}
        )

    def _spread(self, values: Sequence[object]) -> CountSpread:
        windows = [", ".join(str(cell[PLAN][column]) for column in self.sweep.columns) for cell in self.replications]
        sizes = [value if isinstance(value, (int, float)) else None for value in values]
        return CountSpread.of(sizes, windows, self.confidence)

    @property
    def found(self) -> bool:
        """Whether there is a plan in every replication."""
        cells = self.replications
        return len(cells) == self.sweep.counts.cells and all(cell[PLAN]["servers"] is not None for cell in cells)

    @property
    def record(self) -> ReplicationsRecord:
        """The keys of ``servers --json`` with replications."""
        cells = self.replications
        first = {name: _sizes(row) for name, row in cells[0].items()} if cells else {}
        return take(
            ReplicationsRecord,
            self,
            self.sweep,
            slo=self.levels.written,
            minimum=first.pop(PLAN, None),
            policies=first,
            replications=[{name: _sizes(row) for name, row in cell.items()} for cell in cells],
            of=self.what,
            spread_of="price_per_hour" if self.priced else "servers",
            known=self.sweep.counts.known,
        )


@dataclass(frozen=True, slots=True)
class ReplicationsRecord:
    """Answers to the same question; `minimum` and `policies` are of the first."""

    slo: str | list[str]
    minimum: Mapping[str, object] | None
    policies: Mapping[str, Mapping[str, object]]
    replications: Sequence[Mapping[str, Mapping[str, object]]]
    of: str
    spread_of: str
    confidence: Fraction
    spread: Mapping[str, CountSpread]
    errors: Sequence[CellError]
    known: int
    complete: bool


def _sizes(row: Row) -> dict[str, object]:
    left_out = ("cell", "policy", "slo", "error")
    return {key: value for key, value in row.items() if key not in left_out and not key.startswith("workload")}


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
    made = ask_each(replace(asked, slo=levels), scenario, windows, folder, ray=ray, watch=watch)
    return Replications(scenario, levels, windows.what, Sizes(scenario).prices is not None, made, confidence)
