"""What ``replay -o FOLDER`` leaves: report, predicted and measured timelines, a picture, and a trace with both."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import version
from pathlib import Path
from typing import Any

from models.identity import scenario_hash
from models.objective import reported_value, timeline_value
from models.scenario import TimelineHeader, write_atomically, write_timeline
from planner.answers.replay import Replayed
from planner.answers.versions import provenance
from planner.show import timelines
from planner.show.canvas import png
from planner.show.gantt import predicted_over_measured
from planner.show.perfetto import trace_events


def write(replayed: Replayed, folder: Path) -> list[Path]:
    """Write every file of a run on devices; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    report, predicted, measured, picture, trace = (
        folder / name for name in ("replay.json", "predicted.json", "measured.json", "gantt.png", "trace.json")
    )
    write_atomically(report, json.dumps(_document(replayed), indent=2))
    objective = replayed.scenario.objective
    value = reported_value(objective, timeline_value(objective, replayed.instance, replayed.predicted))
    header = TimelineHeader(objective=str(objective), value=value, policy=replayed.policy)
    write_timeline(predicted, replayed.instance, replayed.predicted, header)
    replayed.save_measured(measured)
    chart = predicted_over_measured(replayed.instance, replayed.predicted, replayed.timeline, _title(replayed))
    write_atomically(picture, png(chart))
    write_atomically(trace, json.dumps({"traceEvents": _events(replayed), "displayTimeUnit": "ms"}))
    return [report, predicted, measured, picture, trace, timelines.write(folder, replayed.shown)]


def _document(replayed: Replayed) -> dict[str, Any]:
    """Return the report, and where it comes from."""
    scenario, settings = replayed.scenario, replayed.settings
    named = ["--policy", replayed.policy] if replayed.plan is None else [replayed.policy]
    options = ["--device", settings.device, "--runner", replayed.runner, "--limit", f"{settings.limit_s:g}"]
    options += [] if settings.sharing is None else ["--virtual", settings.sharing]
    return {
        **replayed.as_dict(),
        "scenario": {
            "name": scenario.name,
            "hash": scenario_hash(replayed.instance),
            "file": scenario.source.file,
        },
        "command": shlex.join(["truenorth", "replay", scenario.source.file, *named, *options]),
        "versions": provenance() | {"torch": version("torch")},
    }


def _title(replayed: Replayed) -> str:
    error = replayed.latency_error
    said = "no job ran to its end" if error is None else f"mean absolute error of job latency {error:.1%}"
    name = replayed.policy if replayed.plan is None else Path(replayed.policy).name
    return f"{name} on {replayed.settings.device}, {replayed.scenario.name}: predicted over measured, {said}"


def _events(replayed: Replayed) -> list[dict[str, object]]:
    """Return the events of both timelines, the GPUs of each as processes of their own."""
    instance = replayed.instance
    predicted = trace_events(instance, replayed.predicted, "predicted", 1)
    return predicted + trace_events(instance, replayed.timeline, "measured", 1 + instance.n_gpus)
