"""What is said of servers by the interval: how many in each, what that costs, and what forces the peaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from executor import Knows
from planner.answers.servers.deployable import lead
from planner.answers.servers.scheduled import ScheduleAnswer
from planner.show.knowledge import knowledge_in_words
from planner.show.servers import Found, describe_mix, view

_PLAN = "plan (offline optimum)"
_MOST_ROWS = 48
"""A terminal shows at most so many intervals; the document has all."""


def schedule_view(answer: ScheduleAnswer) -> Group:
    """Return the fleet that stays, the intervals, and hours and price of both."""
    found = answer.fixed.as_dict() | answer.as_dict()
    name = answer.day.sizes.scenario.name
    table = Table(title=Text(f"{name}: servers by {found['by_s']:g} s"), title_justify="left")
    for column in schedule_columns(found):
        table.add_column(column, justify="right")
    for row in found["intervals"][:_MOST_ROWS]:
        table.add_row(*map(Text, schedule_row(found, row)))
    parts: list[Table | Text | Group] = [view(answer.fixed), Text(), table]
    if len(found["intervals"]) > _MOST_ROWS:
        parts.append(Text(f"and {len(found['intervals']) - _MOST_ROWS} intervals more"))
    parts += [Text(line) for line in sentences(found)]
    return Group(*parts)


def schedule_columns(found: Found) -> list[str]:
    """Return what is said of every interval."""
    scaled = ["autoscaler"] if found["schedule"]["autoscaler"] is not None else []
    in_time = [f"{who} in time" for who in found["schedule"]["policies"] if _missed(found, who)]
    return ["from", "jobs", "floor", "plan", *found["schedule"]["policies"], *scaled, *in_time]


def schedule_row(found: Found, row: Mapping[str, Any]) -> list[str]:
    """Return it of one interval."""
    counts = [row["minimum"], *row["policies"].values()]
    cells = [f"{row['from_s']:g} s", row["jobs"], row["minimum"]["lower_bound"], *(_size(found, c) for c in counts)]
    scaled = [row["autoscaler"]["servers"]] if row["autoscaler"] is not None else []
    in_time = [_share(row["policies"][who]["attainment"]) for who in row["policies"] if _missed(found, who)]
    return [str(cell) for cell in (*cells, *scaled, *in_time)]


def schedule_to_order(found: Found) -> str:
    """Return the cheapest schedule of a policy, of those that know least of run times; the plan's where none met it."""
    schedules = found["schedule"]["policies"]
    met = {name: figures for name, figures in schedules.items() if figures["server_hours"] is not None}
    if not met:
        return f"No policy meets the level on any fleet looked at; a plan {_costs(found['schedule']['optimum'])}."
    knows = {name: Knows(found["policies"][name]["knows"]) for name in met}

    def rank(name: str) -> tuple[int, float]:
        return lead(knows[name], found["noise"]), met[name]["price"] or met[name]["server_hours"]

    best = min(met, key=rank)
    who = f"{best}, {knowledge_in_words(knows[best], found['noise'])}"
    return f"Order by the interval for {who}: {_costs(met[best])}."


def sentences(found: Found) -> list[str]:
    """Return hours and price beside those of a fleet that stays, and what forces the interval of the highest floor."""
    schedules = {_PLAN: found["schedule"]["optimum"], **found["schedule"]["policies"]}
    said = [f"{name}: {_costs(figures)}" for name, figures in schedules.items()]
    said += [words for who in found["schedule"]["policies"] if (words := _missed_in_words(found, who))]
    scaled = found["schedule"]["autoscaler"]
    if scaled is not None:
        how = "meets the level" if scaled["met"] else "does not meet the level"
        price = "" if scaled["price"] is None else f" at {scaled['price']:.4g}"
        what = f"an autoscaler above {scaled['policy']} that aims at {scaled['target']:.0%} busy {how}"
        said.append(f"{what}, with {scaled['server_hours']:.4g} server-hours{price}")
    optimum = found["schedule"]["optimum"]
    if optimum["proved"]:
        said.append("No schedule needs less, which is proved.")
    elif optimum["price_lower_bound"] is not None:
        said.append(f"No schedule, however clever, costs less than {optimum['price_lower_bound']:.4g}.")
    elif optimum["server_hours_lower_bound"] is not None:
        hours = f"{optimum['server_hours_lower_bound']:.4g} server-hours"
        said.append(f"No schedule, however clever, needs less than {hours}.")
    peak = max(found["intervals"], key=lambda row: row["minimum"]["lower_bound"])
    return said + ([f"The peak: {peak['forces']}."] if peak["forces"] else [])


def _missed(found: Found, policy: str) -> list[dict[str, Any]]:
    """Return the intervals whose own jobs miss the level, though all jobs together meet it; the worst first."""
    missed = [row for row in found["intervals"] if row["policies"][policy]["met_alone"] is False]
    return sorted(missed, key=lambda row: float(row["policies"][policy]["attainment"]))


def _missed_in_words(found: Found, policy: str) -> str:
    """Return which interval misses what all together meet; empty if none does."""
    missed = _missed(found, policy)
    if not missed:
        return ""
    worst, share = missed[0], missed[0]["policies"][policy]["attainment"]
    in_time = f", {_share(share)} of its jobs in time" if share else ""
    intervals = f"{len(missed)} of {len(found['intervals'])} intervals"
    alone = f"misses it in {intervals} taken alone, most from {worst['from_s']:g} s on{in_time}"
    return f"{policy} meets the level over all jobs together, but {alone}."


def _share(attained: float | None) -> str:
    return "-" if attained is None else f"{attained:.1%}"


def _costs(figures: dict[str, Any]) -> str:
    if figures["server_hours"] is None:
        return "meets the level on no fleet that was looked at"
    said = f"{figures['server_hours']:.4g} server-hours"
    if figures["price"] is not None:
        said += f" at {figures['price']:.4g}"
    if figures["fixed_server_hours"] is not None:
        said += f", a fleet that stays {figures['fixed_server_hours']:.4g}"
        said += "" if figures["fixed_price"] is None else f" at {figures['fixed_price']:.4g}"
    return said


def _size(found: Found, count: dict[str, Any]) -> str:
    if count["mix"] is None:
        return "-"
    return describe_mix(found, count["mix"]) or "0" if len(count["mix"]) > 1 else str(count["servers"])
