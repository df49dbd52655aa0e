"""The section of a server count: how many servers are enough, how that is known, and what forces the last one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.cluster import MICROSECONDS_PER_SECOND
from models.scenario import load_scenario, read_timeline
from models.slo import ServiceLevel
from planner.show.curves import Curves, Point, lines
from planner.show.report.folders import read_json
from planner.show.report.section import Section, Table
from planner.show.report.timelines import Shown, document

NAME = "answer.json"
_KEYS = ("slo", "minimum", "policies", "refutation", "runtime_s", "scenario", "command", "versions")


def section(folder: Path) -> Section:
    """Return what a page says of a folder that ``servers -o`` wrote; its plan's timeline is read from the plan file.

    Raises
    ------
    InputError
        If a file in it cannot be read.
    """
    found = read_json(folder / NAME, *_KEYS)
    return Section(
        f"{found['scenario']['name']}: how many servers are enough for {found['slo']}?",
        _answer(found),
        [
            "The plan knows every arrival in advance; the online policies do not. Policies are not monotone in the "
            "number of servers: each was simulated at every size up to the first that meets the level.",
        ],
        [_sizes(found)],
        _curve(found),
        timelines=_plan(folder),
        reproduce={
            "command": found["command"],
            "scenario hash (sha256)": found["scenario"]["hash"],
            "versions": ", ".join(f"{name} {version}" for name, version in found["versions"].items()),
        },
    )


def _answer(found: Mapping[str, Any]) -> str:
    """Return the size, how sure it is, and what forces the last server."""
    minimum, refutation = found["minimum"], found["refutation"]
    count, least = minimum["servers"], minimum["lower_bound"]
    if count is None:
        said = f"No size with a plan within {found['slo']} was found; fewer than {least} servers are proved too few"
    elif minimum["proved"]:
        said = f"{count} {_are(count)} enough, and no cheaper size is, which is proved"
    else:
        said = f"{count} {_are(count)} enough; fewer than {least} are proved too few, and what lies between is open"
    return f"{said}. {refutation['forces']}" if refutation is not None and refutation["forces"] else f"{said}."


def _are(count: int) -> str:
    return "server is" if count == 1 else "servers are"


def _sizes(found: Mapping[str, Any]) -> Table:
    minimum = found["minimum"]
    known = "proved" if minimum["proved"] else f"at least {minimum['lower_bound']}"
    rows = [["plan (offline optimum)", known, _count(minimum["servers"])]]
    for policy, size in found["policies"].items():
        reached = "simulated" if size["servers"] is not None else f"misses up to {_count(size['simulated_up_to'])}"
        rows.append([policy, reached, _count(size["servers"])])
    return Table(f"Servers for {found['slo']}", ["", "how it is known", "servers"], rows, 2)


def _curve(found: Mapping[str, Any]) -> list[Curves]:
    """Return what each policy reaches over the number of servers, beside what the level asks; none for priced mixes."""
    level, minimum = ServiceLevel.parse(found["slo"]), found["minimum"]
    if "mix" in minimum:
        return []
    series: dict[str, list[Point]] = {}
    if minimum["servers"] is not None:
        series["plan (knows the future)"] = [(minimum["servers"], minimum["value"])]
    for policy, size in found["policies"].items():
        points = [(at["servers"], at["value"]) for at in size["reached"] if at["value"] is not None]
        series |= {policy: points} if points else {}
    if not series:
        return []
    shares = level.measure == "lateness"
    label = _measured(level) if shares else f"{_measured(level)} (logarithmic)"
    title = f"{_measured(level)} over the number of servers"
    return [lines(title, "servers", label, series, _limit(level), logarithmic=not shares)]


def _measured(level: ServiceLevel) -> str:
    if level.measure == "lateness":
        return "share of jobs within their deadline"
    return f"{str(level).split(' <= ')[0]}{' in s' if level.measure == 'latency' else ''}"


def _limit(level: ServiceLevel) -> tuple[str, float]:
    """Return the name and height of the line that the level draws."""
    if level.measure == "lateness":
        return str(level), float(level.share or 1)
    return str(level), float(level.limit / MICROSECONDS_PER_SECOND if level.measure == "latency" else level.limit)


def _count(servers: int | None) -> str:
    return "-" if servers is None else str(servers)


def _plan(folder: Path) -> Mapping[str, Any] | None:
    plan, scenario = folder / "plan.json", folder / "enough.json"
    if not (plan.is_file() and scenario.is_file()):
        return None
    instance = load_scenario(scenario).instance
    return document([Shown("plan", True, instance, read_timeline(plan, instance).timeline)])
