"""The files of an answer: the plan, the certificate, and for each the scenario it belongs to, at its size."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models import Instance, scenario_hash
from models.cluster import MICROSECONDS_PER_SECOND
from models.errors import QuestionError
from models.scenario import Scenario, TimelineHeader, load_scenario, write_atomically, write_timeline
from models.scenario.writing import job_sections, write_scenario
from planner.answers.servers.sizes import Mix
from planner.answers.versions import versions

if TYPE_CHECKING:
    from planner.answers.servers.answer import ServersAnswer
    from planner.answers.servers.schedule import ScheduleAnswer


_FILES = ("enough.json", "plan.json", "too_few.json", "certificate.json", "answer.json")


def write(answer: ServersAnswer, folder: Path) -> list[Path]:
    """Write what there is of plan, certificate, their scenarios and answer; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _FILES:  # what an earlier answer left here would stand beside this one as if it belonged to it
        (folder / name).unlink(missing_ok=True)
    written: list[Path] = []
    plan = certificate = None
    if answer.planned is not None and answer.timeline is not None:
        enough, slo = answer.sizes.at(answer.planned), answer.levels.written
        written.append(_write_scenario(folder / "enough.json", enough, enough.instance, answer.planned, slo))
        plan = folder / "plan.json"
        write_timeline(plan, enough.instance, answer.timeline, TimelineHeader(status="FEASIBLE"))
        written.append(plan)
    done = answer.refutation
    if done is not None and done.goal is not None and done.certificate is not None:
        small = replace(answer.sizes.at(done.mix), objective=done.goal.objective)
        written.append(_write_scenario(folder / "too_few.json", small, done.goal.instance, done.mix, None))
        certificate = folder / "certificate.json"
        write_atomically(certificate, json.dumps(done.certificate))
        written.append(certificate)
    path = folder / "answer.json"
    write_atomically(path, json.dumps(answer.as_dict(plan, certificate) | _origin(answer, answer.options), indent=2))
    return [*written, path]


def write_schedule(answer: ScheduleAnswer, folder: Path) -> Path:
    """Write an answer by the interval, and how to repeat it; return the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "schedule.json"
    found = answer.fixed.as_dict() | answer.as_dict() | _origin(answer.fixed, answer.options)
    write_atomically(path, json.dumps(found, indent=2))
    return path


def _origin(answer: ServersAnswer, options: Sequence[str]) -> dict[str, Any]:
    """Return what a report says besides the answer: of what it is, and how to repeat it."""
    scenario = answer.sizes.scenario
    slo = [word for level in answer.levels for word in ("--slo", str(level))]
    command = ["truenorth", "servers", scenario.source.file, *slo]
    if answer.policies:
        command += ["--policies", ",".join(row.policy for row in answer.policies)]
    command += options
    return {
        "scenario": {
            "name": scenario.name,
            "file": scenario.source.file,
            "hash": scenario_hash(scenario.instance),
            "jobs": len(scenario.instance.jobs),
            "length_s": int(scenario.instance.job_release_us.max()) / MICROSECONDS_PER_SECOND,
            "resident_at_start": len(scenario.instance.initial),
            "overlap_loads": scenario.instance.overlap_loads,
        },
        "command": shlex.join(command),
        "versions": versions(),
    }


def _write_scenario(path: Path, scenario: Scenario, instance: Instance, mix: Mix, slo: str | list[str] | None) -> Path:
    """Write a scenario at a size, its jobs listed one by one, and make sure that it reads as the same instance.

    Raises
    ------
    InputError
        If it comes from no file.
    QuestionError
        If it would read as another instance.
    """
    data = scenario.source.data()
    cluster = data["cluster"]
    if "groups" in cluster and cluster["groups"] is not None:
        cluster["groups"] = [
            {**group, "count": count} for group, count in zip(cluster["groups"], mix, strict=True) if count
        ]
    else:
        cluster["servers"] = mix[0]
    document = scenario.document
    data["workload"] = {"jobs": job_sections(instance)}
    data["objective"] = str(scenario.objective)
    data["slo"] = slo
    restrictions = data.get("restrictions") or {}
    for key, entries in (("pin", document.restrictions.pin), ("forbid", document.restrictions.forbid)):
        if entries:
            restrictions[key] = [
                {("model" if e.model else "workflow"): e.model or e.workflow, "on": list(e.on)} for e in entries
            ]
        elif key in restrictions:
            del restrictions[key]
    options = data.get("options") or {}
    if options.get("initial_residency"):
        kept = {entry.gpu for entry in document.options.initial_residency}
        options["initial_residency"] = [entry for entry in options["initial_residency"] if entry["gpu"] in kept]
    for key, value in (("restrictions", restrictions), ("options", options)):
        data.pop(key, None)
        if value:
            data[key] = value
    write_scenario(path, {key: value for key, value in data.items() if value is not None})
    if scenario_hash(load_scenario(path).instance) != scenario_hash(instance):
        raise QuestionError(f"{path}: the scenario written reads as another instance, so that nothing written fits it")
    return path
