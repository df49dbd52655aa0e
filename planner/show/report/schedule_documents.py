"""What ``schedule.json`` of servers by the interval holds, beside what the answer for a fleet that stays does."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, with_config
from typing_extensions import TypedDict

from planner.show.report.documents import (
    OPEN,
    Count,
    Figure,
    ServersFile,
    figures_of_every_level,
    priced_throughout,
)


@with_config(OPEN)
class CountRow(TypedDict):
    """Servers of one interval."""

    servers: Count | None
    mix: list[Count] | None


@with_config(OPEN)
class FloorRow(CountRow):
    """The plan's, and the fewest that an interval can do with."""

    lower_bound: Count


@with_config(OPEN)
class ScaledRow(TypedDict):
    """What an autoscaler orders for an interval."""

    servers: Count


@with_config(OPEN)
class IntervalRow(TypedDict):
    """An interval."""

    from_s: Figure
    to_s: Figure
    jobs: Count
    minimum: FloorRow
    forces: str | None
    policies: dict[str, CountRow]
    autoscaler: ScaledRow | None


@with_config(OPEN)
class CostRow(TypedDict):
    """What a schedule costs, beside a fleet that stays."""

    server_hours: Figure | None
    fixed_server_hours: Figure | None
    price: Figure | None
    fixed_price: Figure | None


@with_config(OPEN)
class OptimumRow(CostRow):
    """The same of the cheapest one found, and what none costs less than."""

    proved: bool
    server_hours_lower_bound: Figure | None
    price_lower_bound: Figure | None


@with_config(OPEN)
class AutoscalerRow(TypedDict):
    """What an autoscaler came to."""

    policy: str
    target: Figure
    server_hours: Figure
    price: Figure | None
    met: bool


@with_config(OPEN)
class SchedulesOfFile(TypedDict):
    """The schedules that were found."""

    optimum: OptimumRow
    policies: dict[str, CostRow]
    autoscaler: AutoscalerRow | None


@with_config(OPEN)
class ScheduleFile(ServersFile):
    """``schedule.json``."""

    by_s: Figure
    intervals: Annotated[list[IntervalRow], Field(min_length=1)]
    schedule: SchedulesOfFile


def _counted_alike(found: ScheduleFile) -> ScheduleFile:
    """Refuse intervals that are not of the policies and groups of the rest."""
    scaled = found["schedule"]["autoscaler"] is not None
    for row in found["intervals"]:
        counts = [row["minimum"], *row["policies"].values()]
        whole = all(count["mix"] is None or len(count["mix"]) == len(found["groups"]) for count in counts)
        if not whole or row["policies"].keys() != found["schedule"]["policies"].keys():
            raise ValueError("an interval has not a count for each policy and group")
        if (row["autoscaler"] is not None) != scaled:
            raise ValueError("an autoscaler is not there in every interval")
    return found


ScheduleCount = Annotated[
    ScheduleFile,
    AfterValidator(figures_of_every_level),
    AfterValidator(priced_throughout),
    AfterValidator(_counted_alike),
]
