"""The section of a server count: how many servers are enough, how that is known, and what forces the last one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from executor import Knows
from models.cluster import MICROSECONDS_PER_SECOND
from models.scenario import load_scenario, read_timeline
from models.slo import ServiceLevel
from planner.answers.servers.deployable import lead
from planner.answers.shown import Shown
from planner.show.colours import colour_of
from planner.show.curves import Curve, Curves, Point, dots, lines
from planner.show.order import order_in_words
from planner.show.report import documents
from planner.show.section import PageSection, read_typed
from planner.show.servers import (
    ALTERNATIVES,
    ALTERNATIVES_TITLE,
    NOT_MONOTONE,
    STRAINS,
    STRAINS_TITLE,
    Found,
    alternatives,
    assumptions,
    describe_mix,
    describe_size,
    levels,
    priced,
    rows,
    sentences,
    strains,
    untried,
)
from planner.show.table import Table, of_cells
from planner.show.timelines import Timelines, timelines_of

NAME = "answer.json"


def section(folder: Path) -> PageSection:
    """Return what a page says of a folder that ``servers -o`` wrote; its plan's timeline is read from the plan file.

    Raises
    ------
    InputError
        If a file in it cannot be read.
    """
    found = read_typed(folder / NAME, documents.ServerCount)
    return PageSection(
        f"{found['scenario']['name']}: {'which servers' if priced(found) else 'how many servers'} are enough for "
        f"{levels(found)}?",
        order_in_words(found),
        sentences(found) if found["alternatives"] else [],
        [_sizes(found), *_near(found)],
        [*_costs(found), *_reached(found)],
        leading=0,
        notes=[f"What this assumes: {' '.join(assumptions(found))}", *untried(found), NOT_MONOTONE],
        timelines=_plan(folder),
        reproduce={
            "command": found["command"],
            "scenario hash (sha256)": found["scenario"]["hash"],
            "versions": ", ".join(f"{name} {version}" for name, version in found["versions"].items()),
        },
    )


def _sizes(found: Found) -> Table[Any]:
    what = "cheapest mix" if priced(found) else "servers"
    return of_cells(f"Servers for {levels(found)}", ["", "knows", what, "how it is known"], rows(found), words=4)


def _near(found: Found) -> list[Table[Any]]:
    near = alternatives(found)
    tables = [of_cells(ALTERNATIVES_TITLE, ALTERNATIVES, near, words=3)] if near else []
    return tables + ([of_cells(STRAINS_TITLE, STRAINS, strains(found), words=2)] if found["sensitivity"] else [])


def _reached(found: Found) -> list[Curves]:
    """Return what plan and policies reach over the number of servers or the price, beside what each level asks."""
    asked = levels(found).levels
    return [curve for place, level in enumerate(asked) for curve in _reached_of(found, level, place, len(asked))]


def _reached_of(found: Found, level: ServiceLevel, place: int, count: int) -> list[Curves]:
    """Return the picture of one level, where there is anything to show."""
    series: dict[str, list[tuple[Mapping[str, Any], float]]] = {}
    for name, sizes in [
        ("plan (knows the future)", [found["minimum"]]),
        *((policy, size["reached"]) for policy, size in found["policies"].items()),
    ]:
        values = [(at, at["value"] if count == 1 or at["value"] is None else at["value"][place]) for at in sizes]
        points = [(at, value) for at, value in values if value is not None]
        if points:
            series[name] = points
    if not series:
        return []
    logarithmic = level.measure != "lateness"
    label = f"{_measured(level)} (logarithmic)" if logarithmic else _measured(level)
    if priced(found):
        title = f"{_measured(level)} over the price of the mixes simulated"
        placed = {name: [_at_price(found, *point) for point in points] for name, points in series.items()}
        return [dots(title, "price per hour", label, placed, _limit(level), logarithmic)]
    title = f"{_measured(level)} over the number of servers"
    counted: dict[str, list[Point]] = {
        name: [(at["servers"], value) for at, value in points] for name, points in series.items()
    }
    return [lines(title, "servers", label, counted, _limit(level), logarithmic)]


def _costs(found: Found) -> list[Curves]:
    """Return, per level about times, the least size or price that was seen to keep each limit, tight or loose.

    Of policies that know no more of run times than the one to order.
    """
    asked, policies = levels(found).levels, [size for size in found["policies"].values() if _knows_no_more(found, size)]
    made = []
    for place, level in enumerate(asked):
        reached = [at for size in policies for at in size["reached"] if at["value"] is not None]
        values = [(at["value"] if len(asked) == 1 else at["value"][place], _cost(found, at), at) for at in reached]
        seen = sorted((value, cost, describe_size(found, at)) for value, cost, at in values if value is not None)
        # What costs no less than a size that reaches less is no reason to loosen the level.
        best = [each for rank, each in enumerate(seen) if all(each[1] < before[1] for before in seen[:rank])]
        if level.measure == "lateness" or len(best) < 2:
            continue
        unit = "price per hour" if priced(found) else "servers"
        words = [f"{size} reaches {value:.5g}" for value, _, size in best]
        limit, top = _limit(level), max(cost for _, cost, _ in best)
        curves = [
            Curve(limit[0], [(limit[1], 0.0), (limit[1], top)], bold=True),
            Curve("least, of policies simulated", [(v, c) for v, c, _ in best], colour_of(0), steps=True, words=words),
        ]
        title = f"What a tighter or looser limit costs: {unit} over {_measured(level)}"
        made.append(Curves(title, f"{_measured(level)} (logarithmic)", unit, curves, x_logarithmic=True))
    return made


def _knows_no_more(found: Found, policy: Mapping[str, Any]) -> bool:
    leads = [lead(Knows(each["knows"]), found["noise"]) for each in (policy, *found["alternatives"][:1])]
    return leads[0] <= leads[-1]


def _cost(found: Found, at: Mapping[str, Any]) -> float:
    return float(at["price_per_hour"] if priced(found) else at["servers"])


def _at_price(found: Found, at: Mapping[str, Any], value: float) -> tuple[float, float, str]:
    mix, price = describe_mix(found, at["mix"]), at["price_per_hour"]
    return price, value, f"{value:.5g} with {mix} at {price:g} per hour"


def _measured(level: ServiceLevel) -> str:
    if level.measure == "lateness":
        of = f" of {level.workflow}" if level.workflow is not None else ""
        return f"share of jobs{of} within their deadline"
    return f"{str(level).split(' <= ')[0]}{' in s' if level.measure == 'latency' else ''}"


def _limit(level: ServiceLevel) -> tuple[str, float]:
    """Return the name and height of the line that the level draws."""
    if level.measure == "lateness":
        return str(level), float(level.share or 1)
    return str(level), float(level.limit / MICROSECONDS_PER_SECOND if level.measure == "latency" else level.limit)


def _plan(folder: Path) -> Timelines | None:
    plan, scenario = folder / "plan.json", folder / "enough.json"
    if not (plan.is_file() and scenario.is_file()):
        return None
    instance = load_scenario(scenario).instance
    return timelines_of([Shown("plan", True, instance, read_timeline(plan, instance).timeline)])
