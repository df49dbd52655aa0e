"""The answer by the interval: the cheapest schedules found, what no schedule costs less than, and how it is told."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from planner.answers.servers.answer import ServersAnswer
from planner.answers.servers.attained import Attained
from planner.answers.servers.autoscaler import TARGET, Autoscaled
from planner.answers.servers.day import Day, Schedule
from planner.answers.servers.forces import demand_in_words
from planner.answers.servers.sizes import Mix
from solvers.bounds import fluid


@dataclass(frozen=True, slots=True)
class IntervalFloor:
    """The fewest GPUs that an interval can do with, and the demand that says so; None: nothing does."""

    gpus: int
    demand: fluid.Demand | None


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
    """

    schedule: Schedule | None
    fixed: Mix | None
    tried: int
    attained: tuple[Attained | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class ScheduleAnswer:
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
    options
        What else was asked for, as options of the command.
    """

    day: Day
    fixed: ServersAnswer
    floors: tuple[IntervalFloor, ...]
    lower_bound: Fraction
    optimum: Scheduled
    policies: dict[str, Scheduled]
    autoscaler: Autoscaled | None
    runtime_s: float
    options: tuple[str, ...] = ()

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
        if floor.demand is None:
            return None
        fewer = self.day.sizes.at(self._fewer(floor.gpus - 1)).instance if floor.gpus > 1 else None
        return None if fewer is None else demand_in_words(fewer, floor.demand, floor.demand.late(fewer.n_gpus))

    def _fewer(self, gpus: int) -> Mix:
        """Return a mix of as many GPUs, or fewer where servers have several."""
        first, *others = self.day.sizes.gpus_per_server
        return (max(1, gpus // first), *(0 for _ in others))

    def as_dict(self) -> dict[str, Any]:
        """Return what ``servers --by --json`` adds."""
        jobs = self.day.jobs
        return {
            "by_s": self.day.by_us / 1e6,
            "intervals": [
                {
                    "from_s": k * self.day.by_us / 1e6,
                    "to_s": (k + 1) * self.day.by_us / 1e6,
                    "jobs": jobs[k],
                    "minimum": _count(self.optimum, k) | {"lower_bound": self.least_servers(k)},
                    "forces": self.forces(k),
                    "policies": {name: _count(found, k) for name, found in self.policies.items()},
                    "autoscaler": self._ordered(k),
                }
                for k in range(self.day.count)
            ],
            "schedule": {
                "optimum": self._figures(self.optimum) | self._bound() | {"proved": self.proved},
                "policies": {name: self._figures(found) for name, found in self.policies.items()},
                "autoscaler": self._autoscaled(),
            },
        }

    def _ordered(self, interval: int) -> dict[str, Any] | None:
        made = self.autoscaler
        if made is None:
            return None
        return {"servers": made.schedule[interval][0]} | _alone(made.attained, interval)

    def _autoscaled(self) -> dict[str, Any] | None:
        made = self.autoscaler
        if made is None:
            return None
        hours, price = float(self.day.server_hours(made.schedule)), _number(self.day.price(made.schedule))
        figures = {"server_hours": hours, "price": price, "met": made.met}
        return {"policy": made.policy, "target": TARGET, **figures}

    def _figures(self, found: Scheduled) -> dict[str, Any]:
        fixed = None if found.fixed is None else self.day.constant(found.fixed)
        figures: dict[str, Any] = {"tried": found.tried}
        for which, plan in (("", found.schedule), ("fixed_", fixed)):
            figures[f"{which}server_hours"] = None if plan is None else float(self.day.server_hours(plan))
            figures[f"{which}price"] = None if plan is None else _number(self.day.price(plan))
        return figures

    def _bound(self) -> dict[str, Any]:
        one, prices = len(self.day.sizes.counts) == 1, self.day.prices
        price = self.lower_bound if not one else None if prices is None else self.lower_bound * prices[0]
        return {
            "server_hours_lower_bound": float(self.lower_bound) if one else None,
            "price_lower_bound": _number(price),
        }


def _count(found: Scheduled, interval: int) -> dict[str, Any]:
    mix = None if found.schedule is None else found.schedule[interval]
    counts = {"servers": None if mix is None else sum(mix), "mix": None if mix is None else list(mix)}
    return counts | _alone(found.attained, interval)


def _alone(attained: tuple[Attained | None, ...] | None, interval: int) -> dict[str, Any]:
    """Return what the jobs of an interval come to by themselves; null where there are none, or it is not known."""
    found = None if attained is None else attained[interval]
    return {"attainment": None, "met_alone": None} if found is None else found.as_dict()


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
