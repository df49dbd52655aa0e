"""Servers by the interval, shown: how many in each, what that costs, and what forces the peaks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from truenorth.planner.answers.servers.deployable import lead
from truenorth.planner.answers.servers.record import (
    IntervalCount,
    IntervalRow,
    ScheduleCosts,
    ScheduleRecord,
    ServersOrigin,
)
from truenorth.planner.answers.servers.scheduled import ScheduleAnswer
from truenorth.planner.show.canvas import colour_of
from truenorth.planner.show.curves import Curve, Curves
from truenorth.planner.show.section import PageSection, read_both
from truenorth.planner.show.servers import sizes_table, view
from truenorth.planner.show.servers_words import assumptions, describe_mix, knowledge_in_words
from truenorth.planner.show.table import Column, Table, terminal

FILE = "schedule.json"
_PLAN = "plan (offline optimum)"
_MOST_ROWS = 48
"""A terminal shows at most so many intervals; the document has all."""


def intervals_table(found: ScheduleRecord, title: str) -> Table[IntervalRow]:
    """Return a row per interval: floor, plan, policies, the autoscaler, and who misses the level in some of them."""
    policies = found.schedule.policies
    columns: list[Column[IntervalRow]] = [
        Column("from", lambda row: f"{row.from_s:g} s"),
        Column("jobs", lambda row: row.jobs),
        Column("floor", lambda row: row.minimum.lower_bound),
        Column("plan", lambda row: _size(found, row.minimum)),
        *(Column[IntervalRow](who, partial(_size_of, found, who)) for who in policies),
    ]
    if found.schedule.autoscaler is not None:
        columns.append(Column("autoscaler", lambda row: row.autoscaler and row.autoscaler.servers))
    columns += [Column(f"{who} in time", partial(_attained, who), ".1%") for who in policies if _missed(found, who)]
    return Table(title, columns, found.intervals)


def _size_of(found: ScheduleRecord, who: str, row: IntervalRow) -> str | None:
    return _size(found, row.policies[who])


def _attained(who: str, row: IntervalRow) -> float | None:
    return row.policies[who].attainment


def _size(found: ScheduleRecord, count: IntervalCount) -> str | None:
    if count.mix is None:
        return None
    return describe_mix(found.fixed, count.mix) or "0" if len(count.mix) > 1 else str(count.servers)


def schedule_view(answer: ScheduleAnswer) -> Group:
    """Return the fleet that stays, the intervals, and hours and price of both."""
    found = answer.record
    table = intervals_table(found, f"{answer.day.sizes.scenario.name}: servers by {found.by_s:g} s")
    seen = replace(table, rows=found.intervals[:_MOST_ROWS])
    parts: list[Any] = [view(answer.fixed), Text(), terminal(seen)]
    if len(found.intervals) > _MOST_ROWS:
        parts.append(Text(f"and {len(found.intervals) - _MOST_ROWS} intervals more"))
    parts += [Text(line) for line in sentences(found)]
    return Group(*parts)


def schedule_to_order(found: ScheduleRecord) -> str:
    """Return the cheapest schedule of a policy, of those that know least of run times; the plan's where none met it."""
    noise = found.fixed.noise
    met = {name: costs for name, costs in found.schedule.policies.items() if costs.server_hours is not None}
    if not met:
        return f"No policy meets the level on any fleet looked at; a plan {_costs(found.schedule.optimum)}."
    knows = {name: found.fixed.policies[name].knows for name in met}

    def rank(name: str) -> tuple[int, float]:
        return lead(knows[name], noise), met[name].price or met[name].server_hours or 0.0

    best = min(met, key=rank)
    return f"Order by the interval for {best}, {knowledge_in_words(knows[best], noise)}: {_costs(met[best])}."


def sentences(found: ScheduleRecord) -> list[str]:
    """Return hours and price beside those of a fleet that stays, and what forces the interval of the highest floor."""
    optimum, scaled = found.schedule.optimum, found.schedule.autoscaler
    schedules: dict[str, ScheduleCosts] = {_PLAN: optimum, **found.schedule.policies}
    said = [f"{name}: {_costs(costs)}" for name, costs in schedules.items()]
    said += [words for who in found.schedule.policies if (words := _missed_in_words(found, who))]
    if scaled is not None:
        how = "meets the level" if scaled.met else "does not meet the level"
        price = "" if scaled.price is None else f" at {scaled.price:.4g}"
        what = f"an autoscaler above {scaled.policy} that aims at {scaled.target:.0%} busy {how}"
        said.append(f"{what}, with {scaled.server_hours:.4g} server-hours{price}")
    if optimum.proved:
        said.append("No schedule needs less, which is proved.")
    elif optimum.price_lower_bound is not None:
        said.append(f"No schedule, however clever, costs less than {optimum.price_lower_bound:.4g}.")
    elif optimum.server_hours_lower_bound is not None:
        hours = f"{optimum.server_hours_lower_bound:.4g} server-hours"
        said.append(f"No schedule, however clever, needs less than {hours}.")
    peak = max(found.intervals, key=lambda row: row.minimum.lower_bound)
    return said + ([f"The peak: {peak.forces}."] if peak.forces else [])


def _missed(found: ScheduleRecord, policy: str) -> list[tuple[IntervalRow, float]]:
    """Return the intervals whose own jobs miss the level, though all jobs together meet it; the worst first."""
    counts = [(row, row.policies[policy]) for row in found.intervals]
    missed = [(row, count.attainment or 0.0) for row, count in counts if count.met_alone is False]
    return sorted(missed, key=lambda pair: pair[1])


def _missed_in_words(found: ScheduleRecord, policy: str) -> str:
    """Return which interval misses what all together meet; empty if none does."""
    missed = _missed(found, policy)
    if not missed:
        return ""
    worst, share = missed[0]
    in_time = f", {share:.1%} of its jobs in time" if share else ""
    intervals = f"{len(missed)} of {len(found.intervals)} intervals"
    alone = f"misses it in {intervals} taken alone, most from {worst.from_s:g} s on{in_time}"
    return f"{policy} meets the level over all jobs together, but {alone}."


def _costs(costs: ScheduleCosts) -> str:
    if costs.server_hours is None:
        return "meets the level on no fleet that was looked at"
    said = f"{costs.server_hours:.4g} server-hours"
    if costs.price is not None:
        said += f" at {costs.price:.4g}"
    if costs.fixed_server_hours is not None:
        said += f", a fleet that stays {costs.fixed_server_hours:.4g}"
        said += "" if costs.fixed_price is None else f" at {costs.fixed_price:.4g}"
    return said


def section(folder: Path) -> PageSection:
    """Return what a page says of a folder that ``servers --by -o`` wrote.

    Raises
    ------
    InputError
        If its file cannot be read.
    """
    found, origin = read_both(folder / FILE, ScheduleRecord, ServersOrigin)
    levels = found.fixed.levels
    assumed = " ".join(assumptions(found.fixed, origin.scenario)[:-1])
    return PageSection(
        f"{origin.scenario.name}: how many servers in every {found.by_s:g} s are enough for {levels}?",
        schedule_to_order(found),
        sentences(found),
        [
            intervals_table(found, "Servers by the interval"),
            sizes_table(found.fixed, f"A fleet that stays, for {levels}"),
        ],
        [_counts(found)],
        reproduce=origin.steps,
        leading=0,
        notes=[f"What this assumes: {assumed} Servers come and go as ordered, and none fails."],
    )


def _counts(found: ScheduleRecord) -> Curves:
    """Return how many servers there are over time: the floor, the plan, policies and the autoscaler."""
    rows = found.intervals
    series: dict[str, list[int | None]] = {
        "floor": [row.minimum.lower_bound for row in rows],
        "plan (knows the future)": [row.minimum.servers for row in rows],
        **{name: [row.policies[name].servers for row in rows] for name in found.schedule.policies},
    }
    if found.schedule.autoscaler is not None:
        series["autoscaler"] = [row.autoscaler.servers if row.autoscaler else None for row in rows]
    curves = [_steps(rows, name, counts, place) for place, (name, counts) in enumerate(series.items())]
    return Curves(
        "Servers over time", "seconds", "servers", [curve for curve in curves if curve is not None], x_from=0.0
    )


def _steps(rows: list[IntervalRow], name: str, counts: list[int | None], place: int) -> Curve | None:
    known = [(row.from_s, float(count)) for row, count in zip(rows, counts, strict=True) if count is not None]
    if not known:
        return None
    points = [*known, (rows[-1].to_s, known[-1][1])]
    return Curve(name, points, colour_of(place - 1) if place else "", bold=not place, dashed=place > 1, steps=True)
