"""The answer by the interval: the cheapest schedules found, what no schedule costs less than, and how it is told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truenorth.models.record import ABSENT, encode
from truenorth.models.scenario import write_atomically
from truenorth.planner.answers.servers.answer import ServersAnswer, origin_of
from truenorth.planner.answers.servers.day import TARGET, Attained, Autoscaled, Day, Schedule
from truenorth.planner.answers.servers.forces import demand_in_words
from truenorth.planner.answers.servers.record import (
    AutoscalerCosts,
    IntervalCount,
    IntervalLeast,
    IntervalOrdered,
    IntervalRow,
    OptimumCosts,
    ScheduleCosts,
    ScheduleRecord,
    SchedulesFound,
)
from truenorth.planner.answers.servers.sizes import Mix
from truenorth.planner.answers.shown import Answer, frame_of_document
from truenorth.planner.questions.sizes import ScheduleQuestion
from truenorth.solvers.bounds import fluid

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class IntervalFloor:
    """The fewest GPUs that an interval can do with, and the demand that says so; None: nothing does.

    What jobs that are not late are within says `within`, None: their deadlines.
    """

    gpus: int
    demand: fluid.Demand | None
    within: str | None = None


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The cheapest schedule that was found for a policy, or by plans.

    Parameters
    ----------
    schedule
        None if the levels were met nowhere, not even by a fleet that stays.
    fixed
        The least such fleet.
    tried
        How many schedules were looked at.
    attained
        What the jobs of each interval come to by themselves; None if no timeline of the schedule is at hand.
    ends_us
        When its last job ends; None likewise.
    """

    schedule: Schedule | None
    fixed: Mix | None
    tried: int
    attained: tuple[Attained | None, ...] | None = None
    ends_us: int | None = None


@dataclass(frozen=True, slots=True)
class ScheduleAnswer(Answer):
    """The least fleet that stays, and the cheapest schedules.

    Parameters
    ----------
    day, fixed
        The intervals, and the answer for fleets that stay.
    floors
        Per interval.
    lower_bound
        What no schedule costs less than: server-hours of one group, the price of several.
    optimum, policies
        What plans and each policy came to.
    autoscaler
        What an autoscaler above the policy of the least fleet ordered; None if there was none.
    asked
        The question that repeats it, with the levels that held; policies only if they were named.
    interrupted
        Whether the search was interrupted: what was found by then.
    """

    day: Day
    fixed: ServersAnswer
    floors: tuple[IntervalFloor, ...]
    lower_bound: Fraction
    optimum: Scheduled
    policies: dict[str, Scheduled]
    autoscaler: Autoscaled | None
    runtime_s: float
    asked: ScheduleQuestion
    interrupted: bool = False

    def __repr__(self) -> str:
        return f"<ScheduleAnswer of {self.day.count} intervals{', proved' if self.proved else ''}>"

    def frame(self) -> pd.DataFrame:
        """Return one row per interval: jobs, and the servers of the cheapest schedule, of each policy and the bound."""
        return frame_of_document(*self.record.intervals)

    @property
    def proved(self) -> bool:
        """Whether no schedule costs less than the optimum found."""
        found = self.optimum.schedule
        return found is not None and self.day.cost(found) == self.lower_bound

    def least_servers(self, interval: int) -> int:
        """Return the fewest servers that an interval can do with."""
        return -(-self.floors[interval].gpus // max(self.day.sizes.gpus_per_server))

    def forces(self, interval: int) -> str | None:
        """Return, in words, what forces the floor of an interval; None where nothing does."""
        floor = self.floors[interval]
        per_server = min(self.day.sizes.gpus_per_server)
        fewer = (floor.gpus - 1) // per_server * per_server
        if floor.demand is None or not fewer:
            return None
        late = floor.demand.late(fewer)
        return demand_in_words(self.day.instance.models, fewer, floor.demand, late, floor.within)

    @property
    def record(self) -> ScheduleRecord:
        """The keys of ``servers --by --json``."""
        day = self.day
        intervals = [
            IntervalRow(
                k * day.by_us / 1e6,
                (k + 1) * day.by_us / 1e6,
                day.jobs[k],
                IntervalLeast(*_count(self.optimum, k), self.least_servers(k)),
                self.forces(k),
                {name: IntervalCount(*_count(found, k)) for name, found in self.policies.items()},
                None if self.autoscaler is None else _ordered(self.autoscaler, k),
            )
            for k in range(day.count)
        ]
        unpaid = self._unpaid(self.optimum.schedule, self.optimum.ends_us)
        optimum = OptimumCosts(*self._figures(self.optimum), *self._bound(), self.proved, unpaid_server_hours=unpaid)
        costs = {
            name: ScheduleCosts(*self._figures(found), unpaid_server_hours=self._unpaid(found.schedule, found.ends_us))
            for name, found in self.policies.items()
        }
        schedules = SchedulesFound(optimum, costs, None if self.autoscaler is None else self._scaled(self.autoscaler))
        return ScheduleRecord(self.fixed.record(), day.by_us / 1e6, intervals, schedules)

    def _scaled(self, made: Autoscaled) -> AutoscalerCosts:
        hours, price = float(self.day.server_hours(made.schedule)), _number(self.day.price(made.schedule))
        busy = self.day.instance.streams is None
        unpaid, of = self._unpaid(made.schedule, made.ends_us), "GPU time" if busy else "seats or KV"
        return AutoscalerCosts(made.policy, TARGET, of, hours, price, made.met, unpaid)

    def _unpaid(self, schedule: Schedule | None, ends_us: int | None) -> Any:
        """Return what nobody pays as the intervals end before the work; absent where that is nothing, or not known."""
        hours = 0 if schedule is None or ends_us is None else self.day.unpaid_hours(schedule, ends_us)
        return float(hours) if hours else ABSENT

    def _figures(self, found: Scheduled) -> tuple[int, float | None, float | None, float | None, float | None]:
        """Return how many schedules were tried, and hours and price of the best and of a fleet that stays."""
        fixed = None if found.fixed is None else self.day.constant(found.fixed)
        return found.tried, *self._hours_and_price(found.schedule), *self._hours_and_price(fixed)

    def _hours_and_price(self, schedule: Schedule | None) -> tuple[float | None, float | None]:
        if schedule is None:
            return None, None
        return float(self.day.server_hours(schedule)), _number(self.day.price(schedule))

    def _bound(self) -> tuple[float | None, float | None]:
        """Return what no schedule needs less than, in server-hours and as a price."""
        one, prices = len(self.day.sizes.counts) == 1, self.day.prices
        price = self.lower_bound if not one else None if prices is None else self.lower_bound * prices[0]
        return float(self.lower_bound) if one else None, _number(price)


def write_schedule(answer: ScheduleAnswer, folder: Path) -> Path:
    """Write an answer by the interval, and how to repeat it; return the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "schedule.json"
    found = encode(answer.record) | encode(origin_of(answer.fixed, answer.asked))
    write_atomically(path, json.dumps(found, indent=2))
    return path


def _count(found: Scheduled, interval: int) -> tuple[int | None, list[int] | None, float | None, bool | None]:
    """Return servers and mix of an interval, and what its jobs come to by themselves."""
    mix = None if found.schedule is None else found.schedule[interval]
    return None if mix is None else sum(mix), None if mix is None else list(mix), *_alone(found.attained, interval)


def _ordered(made: Autoscaled, interval: int) -> IntervalOrdered:
    return IntervalOrdered(made.schedule[interval][0], *_alone(made.attained, interval))


def _alone(attained: tuple[Attained | None, ...] | None, interval: int) -> tuple[float | None, bool | None]:
    """Return what the jobs of an interval come to by themselves; None where there are none, or it is not known."""
    found = None if attained is None else attained[interval]
    return (None, None) if found is None else (float(found.share), found.met)


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
