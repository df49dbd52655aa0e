"""The files of an answer: the plan, the certificate, and for each the scenario it belongs to, at its size."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from truenorth.models import Instance, scenario_hash
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.errors import QuestionError
from truenorth.models.record import encode
from truenorth.models.scenario import Scenario, TimelineHeader, load_scenario, write_atomically, write_timeline
from truenorth.models.scenario.writing import job_sections, write_scenario
from truenorth.planner.answers.servers.record import AssumedWindow, ServersOrigin
from truenorth.planner.answers.servers.sizes import Mix, leave_out_idle
from truenorth.planner.answers.versions import named, provenance

if TYPE_CHECKING:
    from truenorth.planner.answers.servers.answer import ServersAnswer
    from truenorth.planner.answers.servers.scheduled import ScheduleAnswer


_FILES = ("enough.json", "plan.json", "too_few.json", "certificate.json", "answer.json")


def write(answer: ServersAnswer, folder: Path) -> list[Path]:
    """Write what there is of plan, certificate, their scenarios and answer; return the paths.

    The answer comes first, so that nothing that goes wrong after it costs it; what an earlier answer left in the
    folder, and would stand beside this one as if it belonged to it, goes last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Once without paths, and once more when plan and certificate are there.
    written = [_write_answer(answer, folder, [])]
    try:
        written += _write_plan(answer, folder)
        written += _write_certificate(answer, folder)
        _write_answer(answer, folder, written)
    finally:
        for name in {*_FILES} - {path.name for path in written}:
            (folder / name).unlink(missing_ok=True)
    return [*written[1:], written[0]]


def _write_answer(answer: ServersAnswer, folder: Path, written: list[Path]) -> Path:
    """Write the answer with the paths of the plan and the certificate, as far as they are written."""
    at = {path.name: path for path in written}
    found, origin = answer.record(at.get("plan.json"), at.get("certificate.json")), _origin(answer, answer.options)
    path = folder / "answer.json"
    write_atomically(path, json.dumps(encode(found) | encode(origin), indent=2))
    return path


def _write_plan(answer: ServersAnswer, folder: Path) -> list[Path]:
    if answer.planned is None or answer.timeline is None:
        return []
    enough, slo = answer.sizes.at(answer.planned), answer.levels.written
    path = _write_scenario(folder / "enough.json", enough, enough.instance, answer.planned, slo)
    plan = folder / "plan.json"
    origin = _origin(answer, answer.options)
    header = TimelineHeader(status="FEASIBLE", versions=origin.versions, command=origin.command)
    write_timeline(plan, enough.instance, answer.timeline, header)
    return [path, plan]


def _write_certificate(answer: ServersAnswer, folder: Path) -> list[Path]:
    done = answer.refutation
    if done is None or done.goal is None or done.certificate is None:
        return []
    small = replace(answer.sizes.at(done.mix), objective=done.goal.objective)
    path = _write_scenario(folder / "too_few.json", small, done.goal.instance, done.mix, None)
    certificate = folder / "certificate.json"
    write_atomically(certificate, json.dumps(done.certificate))
    return [path, certificate]


def write_schedule(answer: ScheduleAnswer, folder: Path) -> Path:
    """Write an answer by the interval, and how to repeat it; return the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "schedule.json"
    found = encode(answer.record) | encode(_origin(answer.fixed, answer.options))
    write_atomically(path, json.dumps(found, indent=2))
    return path


def _origin(answer: ServersAnswer, options: Sequence[str]) -> ServersOrigin:
    """Return what a report says besides the answer: of what it is, and how to repeat it."""
    scenario = answer.sizes.scenario
    slo = [word for level in answer.levels for word in ("--slo", str(level))]
    command = ["truenorth", "servers", scenario.source.file, *slo]
    if answer.policies:
        command += ["--policies", ",".join(row.policy for row in answer.policies)]
    command += options
    instance = scenario.instance
    length_s = int(instance.job_release_us.max()) / MICROSECONDS_PER_SECOND
    requests = 0 if instance.streams is None else int((instance.streams.output > 0).sum())
    held, overlap = len(instance.initial), instance.overlap_loads
    window = AssumedWindow(*named(scenario), len(instance.jobs), length_s, held, overlap, requests)
    return ServersOrigin(window, shlex.join(command), provenance())


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
    leave_out_idle(data, instance, document.models)
    restrictions = data.get("restrictions") or {}
    for key, entries in (("pin", document.restrictions.pin), ("forbid", document.restrictions.forbid)):
        if entries:
            restrictions[key] = [
                {("model" if e.model else "workflow"): e.model or e.workflow, "on": list(e.on)} for e in entries
            ]
        elif key in restrictions:
            del restrictions[key]
    if restrictions.get("max_replicas"):
        replicas = restrictions["max_replicas"].items()
        restrictions["max_replicas"] = {name: most for name, most in replicas if name in document.models}
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
