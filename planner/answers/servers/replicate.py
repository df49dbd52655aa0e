"""The same question over several arrival seeds or windows of a trace: one window does not size a cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import median
from typing import Any

from models import ServiceLevels
from models.scenario import Scenario, build
from planner.answers.servers.answer import ServersAnswer, options, servers
from planner.answers.servers.sizes import Mix
from planner.answers.windows import windows_of


@dataclass(frozen=True, slots=True)
class CountSpread:
    """Least, median and most over the replications in which a size was found, and in how many it was.

    Of servers, or of priced groups of the price per hour.
    """

    least: float | None
    median: float | None
    most: float | None
    found: int

    @classmethod
    def of(cls, sizes: Sequence[float | None]) -> CountSpread:
        """Return the spread of sizes, None where none was found.

        >>> CountSpread.of([3, None, 4])
        CountSpread(least=3, median=3.5, most=4, found=2)
        """
        known = [size for size in sizes if size is not None]
        if not known:
            return cls(None, None, None, 0)
        return cls(min(known), float(median(known)), max(known), len(known))


@dataclass(frozen=True, slots=True)
class Replications:
    """Answers to the same question; the first is about the scenario as it stands.

    Parameters
    ----------
    what
        What differs: ``arrival seeds`` or ``windows of the trace``.
    """

    answers: tuple[ServersAnswer, ...]
    what: str

    @property
    def priced(self) -> bool:
        """Whether sizes are mixes of priced groups, whose prices are compared."""
        return self.answers[0].sizes.prices is not None

    @property
    def spread(self) -> dict[str, CountSpread]:
        """The spread of the plan's size, of its lower bound, and of each policy's."""
        bounds = [answer.lower_bound_price if self.priced else answer.lower_bound for answer in self.answers]
        found = {
            "plan": CountSpread.of([self._size(answer, answer.mix) for answer in self.answers]),
            "lower bound": CountSpread.of([None if bound is None else self._number(bound) for bound in bounds]),
        }
        for position, row in enumerate(self.answers[0].policies):
            found[row.policy] = CountSpread.of(
                [self._size(answer, answer.policies[position].mix) for answer in self.answers]
            )
        return found

    def _size(self, answer: ServersAnswer, mix: Mix | None) -> float | None:
        return None if mix is None else self._number(answer.cost(mix))

    def _number(self, cost: Fraction | int) -> float:
        return float(cost) if self.priced else int(cost)

    def as_dict(self) -> dict[str, Any]:
        """Return what ``servers --json`` adds with replications."""
        return {
            "replications": [answer.as_dict() for answer in self.answers],
            "spread_of": "price_per_hour" if self.priced else "servers",
            "spread": {
                who: {"least": s.least, "median": s.median, "most": s.most, "found": s.found}
                for who, s in self.spread.items()
            },
        }


def scenarios(scenario: Scenario, count: int) -> tuple[list[Scenario], str]:
    """Return the scenario and its replications: the next seeds, or the next windows of the trace.

    Raises
    ------
    QuestionError
        If the workload is a list of jobs, or a trace without a window.
    InputError
        If the trace has no arrival in one of the windows.
    """
    if count == 1:
        return [scenario], "window"
    windows = windows_of(scenario, count)
    section = getattr(scenario.document.workload, windows.section)
    others = [section.model_copy(update={windows.key: value}) for value in windows.values[1:]]
    return [scenario, *(_with(scenario, {windows.section: other}) for other in others)], windows.what


def _with(scenario: Scenario, update: dict[str, Any]) -> Scenario:
    workload = scenario.document.workload.model_copy(update=update)
    return build(scenario.document.model_copy(update={"workload": workload}), scenario.source)


def replicate(
    scenario: Scenario,
    levels: ServiceLevels | None,
    count: int,
    *,
    policies: Sequence[str] | None = None,
    most: int | None = None,
    spare: int = 0,
    time_limit_s: float = 300.0,
    workers: int = 2,
    seed: int = 0,
    tell: Callable[[str], None] = lambda words: None,
    stop: threading.Event | None = None,
) -> Replications:
    """Ask about a scenario and its replications, the time divided evenly; the parameters are those of `servers`."""
    begun, stopped = time.monotonic(), stop or threading.Event()
    asked, what = scenarios(scenario, count)
    answers = []
    for index, one in enumerate(asked):
        left_s = time_limit_s - (time.monotonic() - begun)

        def numbered(words: str, index: int = index) -> None:
            tell(words if count == 1 else f"{index + 1} of {count}: {words}")

        answers.append(
            servers(
                one,
                levels,
                policies=policies,
                most=most,
                spare=spare,
                time_limit_s=max(0.1, left_s / (count - index)),
                workers=workers,
                seed=seed,
                tell=numbered,
                stop=stopped,
            )
        )
    # What repeats an answer is what was asked for, not the share of the time that one replication had.
    said = options(most, spare, time_limit_s, workers, seed, count)
    return Replications(tuple(replace(answer, options=said) for answer in answers), what)
