"""What ``compare -o FOLDER`` leaves: tables, the plan, a Gantt chart per contender worth a look, an ECDF, a trace.

``comparison.json`` and ``timelines.json`` hold all that ``truenorth report`` needs of it.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from models.identity import scenario_hash
from models.scenario import write_atomically
from planner.answers.compare import Comparison
from planner.answers.contenders import PLAN
from planner.answers.plan import write_plan
from planner.answers.simulate import Simulation
from planner.answers.versions import provenance
from planner.show.canvas import png
from planner.show.curves import slowdown_ecdf
from planner.show.curves_figure import draw, draw_in_a_column
from planner.show.frames import csv_text, frame
from planner.show.gantt import gantt
from planner.show.paper import write_figure, write_table, write_vectors
from planner.show.perfetto import trace_events
from planner.show.regret_figure import regret_bars
from planner.show.report.timelines import slowdowns
from planner.show.report.timelines import write as write_timelines
from planner.show.tables import comparison_table, losses_table


def write(comparison: Comparison, folder: Path) -> list[Path]:
    """Write every file of a comparison; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written, origin = [folder / "table.csv", folder / "comparison.json"], _origin(comparison)
    write_atomically(written[0], csv_text(frame(comparison)))
    write_atomically(written[1], json.dumps(comparison.as_dict() | origin, indent=2))
    written += write_table(comparison_table(comparison), folder / "table")
    written.append(write_timelines(folder, comparison.shown))
    if comparison.plan.timeline is not None:
        written.append(folder / "plan.json")
        write_plan(comparison.plan, written[-1], origin["command"])
    return written + _pictures(comparison, folder) + [_trace(comparison, folder / "trace.json")]


def _origin(comparison: Comparison) -> dict[str, Any]:
    """Return what a report says besides the result: of what it is, how it came about, and how to repeat it."""
    scenario, planned = comparison.scenario, comparison.plan.as_dict()
    instance, options = scenario.instance, shlex.join(comparison.asked.typed())
    return {
        "scenario": {
            "name": scenario.name,
            "file": scenario.source.file,
            "hash": scenario_hash(instance),
            "jobs": len(instance.jobs),
            "tasks": instance.n_tasks,
            "gpus": instance.n_gpus,
            "slo": None if scenario.slo is None else str(scenario.slo),
        },
        "unit": scenario.objective.unit,
        "warmup": str(comparison.warmup),
        "gap": planned["gap"],
        "incumbents": planned["incumbents"],
        "runtime_s": planned["runtime_s"],
        "command": " ".join(["truenorth compare", shlex.quote(scenario.source.file), options]),
        "versions": provenance(),
    }


def _pictures(comparison: Comparison, folder: Path) -> list[Path]:
    """Draw the plan, the best online policy, and everybody's slowdowns."""
    instance, paths = comparison.scenario.instance, []
    if comparison.plan.timeline is not None:
        title = f"Plan of {comparison.scenario.name}: it knows every arrival in advance. {_headline(comparison, PLAN)}"
        paths += write_figure(gantt(instance, comparison.plan.timeline, title), folder / "gantt_plan")
    online = _best_online(comparison)
    if online is not None:
        headline = _headline(comparison, online.policy)
        title = f"Best online policy ({online.policy}): it learns of a job at its release. {headline}"
        paths += write_figure(gantt(online.instance, online.timeline, title), folder / "gantt_online")
    if comparison.regrets:
        paths += write_figure(regret_bars(comparison.regrets), folder / "regret")
        paths += write_table(losses_table(comparison.regrets), folder / "losses")
    if shown := comparison.shown:
        ecdf = slowdown_ecdf({e.name: slowdowns(e) for e in shown}, [e.name for e in shown if e.clairvoyant])
        paths.append(folder / "slowdown_ecdf.png")
        write_atomically(paths[-1], png(draw(ecdf)))
        paths += write_vectors(draw_in_a_column(ecdf), folder / "slowdown_ecdf")
    return paths


def _headline(comparison: Comparison, name: str) -> str:
    row = next(row for row in comparison.rows if row["policy"] == name)
    objective = comparison.scenario.objective
    return f"{str(objective).replace('_', ' ')} {row['objective']:.4g}{f' {objective.unit}' if objective.unit else ''}"


def _best_online(comparison: Comparison) -> Simulation | None:
    online = [ran for ran in comparison.simulations if not ran.clairvoyant and not ran.on_a_twin]
    return min(online, key=lambda simulation: simulation.value, default=None)


def _trace(comparison: Comparison, path: Path) -> Path:
    """Write plan and best online policy as one Perfetto trace."""
    events, process = [], 1
    if comparison.plan.timeline is not None:
        events += trace_events(comparison.scenario.instance, comparison.plan.timeline, PLAN, process)
        process += comparison.scenario.instance.n_gpus
    online = _best_online(comparison)
    if online is not None:
        events += trace_events(online.instance, online.timeline, online.policy, process)
    write_atomically(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
    return path
