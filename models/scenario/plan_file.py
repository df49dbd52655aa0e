"""Plan and timeline files: one JSON format for every timeline, tied to its scenario by a hash.

What is read is checked against the instance, every name and number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainValidator, create_model

from truenorth.models.identity import scenario_hash
from truenorth.models.instance import NONE, Instance
from truenorth.models.scenario.errors import FieldError, InputError, Source, Where, allowed, quote
from truenorth.models.scenario.files import read_text, write_atomically
from truenorth.models.scenario.quantities import MAX_BATCH, MAX_TOKENS
from truenorth.models.scenario.reading import NUMBERS, JSONText
from truenorth.models.scenario.section import Section, kind_of, problem, validate
from truenorth.models.timeline import UNPLACED, CutRun, Leave, Placement, Residency, ServedRequests, Timeline

SCHEMA_VERSION = 1
Scalar = str | int | float | bool | None
_Instant = Annotated[int, Field(ge=-(10**18), le=10**18)]
_Finite = Annotated[float, Field(allow_inf_nan=False, strict=True)]


@dataclass(frozen=True, slots=True)
class TimelineHeader:
    """What a timeline file says of its timeline; None and empty where there is nothing to say.

    Parameters
    ----------
    status
        As in `solvers.result.Status`; None for what was not searched for.
    objective, value
        Name of the objective and its value in its reported unit (seconds, jobs, or a ratio).
    lower_bound, bound_method, gap
        Proved lower bound in the same unit, where it comes from, and (value - bound) / value.
    policy
        The online policy that made the timeline.
    solver, seed, runtime_s, options, versions
        How it was found: name, seed, wall-clock seconds, settings, versions and commit of the software.
    command
        The command that made it; None where it was a call from Python.
    incumbents
        The trail: seconds since the start, best value and best bound, each in its reported unit.
    """

    status: str | None = None
    objective: str | None = None
    value: _Finite | None = None
    lower_bound: _Finite | None = None
    bound_method: str | None = None
    gap: _Finite | None = None
    policy: str | None = None
    solver: str | None = None
    seed: Annotated[int, Field(strict=True)] | None = None
    runtime_s: _Finite | None = None
    options: Mapping[str, Scalar] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str | None = None
    incumbents: Annotated[Sequence[tuple[_Finite, _Finite | None, _Finite | None]], AfterValidator(tuple)] = ()


def timeline_document(instance: Instance, timeline: Timeline, header: TimelineHeader) -> dict[str, Any]:
    """Return a timeline as plain data: the header's fields, then tasks (those that are placed) and residencies."""
    described = {name: value for name, value in asdict(header).items() if name not in ("objective", "value")}
    objective = None if header.objective is None else {"name": header.objective, "value": header.value}
    limited = {} if timeline.served is None else timeline.served.limits
    limits = {instance.cluster.gpus[gpu].id: limit for gpu, limit in limited.items()}
    places = _place_names(instance)
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": scenario_hash(instance),
        "status": described.pop("status"),
        "objective": objective,
        **described,
        "realised": timeline.realised,
        **({"limits": limits} if limits else {}),
        "tasks": list(_tasks(instance, timeline)),
        "residencies": [_residency(instance, places, residency) for residency in timeline.residencies],
    }


def write_timeline(path: str | Path, instance: Instance, timeline: Timeline, header: TimelineHeader) -> None:
    """Write a timeline to a JSON file, one task and one residency per line, whole or not at all.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    write_atomically(path, "".join(_render(timeline_document(instance, timeline, header))))


def _tasks(instance: Instance, timeline: Timeline) -> Iterator[dict[str, Any]]:
    gpus, places = [gpu.id for gpu in instance.cluster.gpus], _place_names(instance)
    first_task = instance.job_first_task.tolist()
    names = [[task.name for task in workflow.tasks] for workflow in instance.workflows]
    workflow_of = instance.job_workflow.tolist()
    served, attempts = timeline.served is not None, _attempts(timeline, gpus)
    preempted = _preempted(timeline, gpus)
    rows = (instance.task_job, timeline.place, timeline.start_us, timeline.end_us)
    for task, (job, gpu, start, end) in enumerate(zip(*(row.tolist() for row in rows), strict=True)):
        if gpu != UNPLACED:
            name = names[workflow_of[job]][task - first_task[job]]
            entry = {"job": job, "task": name, "gpu": places[gpu], "start_us": start, "end_us": end}
            of_request = {**_request(instance, timeline, task), **attempts.get(task, {})} if served else {}
            yield entry | of_request | preempted.get(task, {})


def _attempts(timeline: Timeline, gpus: Sequence[str]) -> dict[int, dict[str, list[dict[str, str | int]]]]:
    """Return, by task, what a file says of runs that were cut, in order of start."""
    found: dict[int, dict[str, list[dict[str, str | int]]]] = {}
    for run in sorted(timeline.cuts, key=lambda run: run.start_us):
        entry: dict[str, str | int] = {"gpu": gpus[run.gpu], "start_us": run.start_us, "cut_us": run.cut_us}
        if run.order is not None:
            entry["order"] = run.order
        found.setdefault(run.task, {"attempts": []})["attempts"].append(entry)
    return found


def _preempted(timeline: Timeline, gpus: Sequence[str]) -> dict[int, dict[str, list[dict[str, str | int]]]]:
    """Return, by task, what a file says of when a request was preempted, where that is no rule's word."""
    found: dict[int, dict[str, list[dict[str, str | int]]]] = {}
    for each in sorted(timeline.preempted, key=lambda each: each.order):
        entry: dict[str, str | int] = {"gpu": gpus[each.gpu], "from_us": each.from_us, "order": each.order}
        if each.to_us is not None and each.again is not None:
            entry |= {"to_us": each.to_us, "again": each.again}
        found.setdefault(each.task, {"preempted": []})["preempted"].append(entry)
    return found


def _request(instance: Instance, timeline: Timeline, task: int) -> dict[str, str | int]:
    """Return what a file says of a request of a stream besides; nothing of any other task."""
    streams, served = instance.streams, timeline.served
    if streams is None or served is None or served.first_us[task] == NONE:
        return {}
    entry: dict[str, str | int] = {"first_us": int(served.first_us[task])}
    if served.not_before_us[task]:
        entry["not_before_us"] = int(served.not_before_us[task])
    if served.output[task] != streams.output[task]:  # of what happened
        entry["output_tokens"] = int(served.output[task])
    if served.order is not None:
        entry["order"] = int(served.order[task])
    if served.cached is not None:
        entry["cached_tokens"] = int(served.cached[task])
    return entry


def _place_names(instance: Instance) -> list[str | list[str]]:
    """Return how a file names each place: a GPU, or a list of them."""
    gpus = [gpu.id for gpu in instance.cluster.gpus]
    return [*gpus, *([gpus[gpu] for gpu in place] for place in instance.places.gpus[len(gpus) :])]


def _residency(instance: Instance, places: Sequence[str | list[str]], residency: Residency) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "gpu": places[residency.gpu],
        "model": instance.models[residency.model].name,
        "slot": residency.slot,
        "load_start_us": residency.load_start_us,
        "ready_us": residency.ready_us,
        "end_us": residency.end_us,
    }
    return entry | {"initial": True} if residency.initial else entry


def _render(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the JSON text, one line per key, task and residency."""
    separator = "{\n"
    for key, value in document.items():
        yield f"{separator}{json.dumps(key)}: "
        if key in ("tasks", "residencies"):
            entries = ",\n  ".join(json.dumps(entry, allow_nan=False) for entry in value)
            yield f"[\n  {entries}\n]" if value else "[]"
        else:
            yield json.dumps(value, allow_nan=False)
        separator = ",\n"
    yield "\n}\n"


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan or timeline file, read: what it says of its timeline, and the timeline."""

    header: TimelineHeader
    timeline: Timeline


class _AttemptEntry(Section):
    model_config = ConfigDict(strict=True)

    gpu: str
    start_us: _Instant
    cut_us: _Instant
    order: Annotated[int, Field(ge=0, le=10**9)] | None = None


class _PreemptedEntry(Section):
    model_config = ConfigDict(strict=True)

    gpu: str
    from_us: _Instant
    order: Annotated[int, Field(ge=0, le=10**9)]
    to_us: _Instant | None = None
    again: Annotated[int, Field(ge=0, le=10**9)] | None = None


def _gpus(value: object) -> object:
    """Read where a task runs, or a model is: a GPU, or several."""
    if isinstance(value, str) or (isinstance(value, list) and value and all(isinstance(gpu, str) for gpu in value)):
        return value
    raise problem(f"{kind_of(value)} stands here; allowed is a GPU, or a list of them")


class _TaskEntry(Section):
    model_config = ConfigDict(strict=True)

    job: int
    task: str
    gpu: Annotated[str | list[str], PlainValidator(_gpus)]
    start_us: _Instant
    end_us: _Instant
    first_us: _Instant | None = None
    not_before_us: Annotated[int, Field(ge=0, le=10**18)] | None = None
    output_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    order: Annotated[int, Field(ge=0, le=10**9)] | None = None
    cached_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] | None = None
    attempts: list[_AttemptEntry] | None = None
    preempted: list[_PreemptedEntry] | None = None


class _ResidencyEntry(Section):
    model_config = ConfigDict(strict=True)

    gpu: Annotated[str | list[str], PlainValidator(_gpus)]
    model: str
    slot: Annotated[int, Field(ge=0, le=10**6)] | None = None
    load_start_us: _Instant
    ready_us: _Instant
    end_us: _Instant | None = None
    initial: bool = False


class _ObjectiveEntry(Section):
    name: str
    value: _Finite | None = None


def _named(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


class _Identity(Section):
    model_config = ConfigDict(strict=True, extra="ignore")

    schema_version: int
    scenario_hash: str


class _Entries(Section):
    """A whole file; keys that it does not know say something of the timeline that is of no use here."""

    model_config = ConfigDict(extra="ignore")

    objective: Annotated[_ObjectiveEntry | None, BeforeValidator(_named)] = None
    realised: Annotated[bool, Field(strict=True)] = False
    limits: dict[str, Annotated[int, Field(ge=1, le=MAX_BATCH, strict=True)]] = Field(default_factory=dict)
    tasks: list[_TaskEntry]
    residencies: list[_ResidencyEntry]


_DESCRIBED = tuple(entry for entry in fields(TimelineHeader) if entry.name not in ("objective", "value"))
_HINTS = get_type_hints(TimelineHeader, include_extras=True)
_AS_HEADER: dict[str, Any] = {
    entry.name: (_HINTS[entry.name], Field(default_factory=dict) if entry.default is MISSING else entry.default)
    for entry in _DESCRIBED
}
_WholeFile = create_model("_WholeFile", __base__=_Entries, **_AS_HEADER)
"""With the fields of the header, as they stand there."""


def read_timeline(path: str | Path, instance: Instance) -> PlanFile:
    """Return the plan or timeline of a file; a task that it leaves out stays unplaced, which the checker reports.

    Raises
    ------
    InputError
        With file and line, if the file is no timeline, is one of another scenario, or names what the
        instance does not have.
    """
    path = Path(path)
    text = JSONText(read_text(path), str(path))
    data = text.data(NUMBERS)
    try:
        return _interpret(data, instance, Source(str(path), path.parent))
    except InputError:
        # Lines cost time, so only a file that is wrong is read a second time, with them.
        return _interpret(data, instance, Source(str(path), path.parent, text.nodes()))


def _interpret(data: object, instance: Instance, source: Source) -> PlanFile:
    identity = validate(_Identity, data, source)
    try:
        _check_identity(identity, instance)
        file = validate(_WholeFile, data, source)
        placements = list(_placements(file.tasks, instance, file.realised))
        header = _header(file)
        cut = list(_cut_runs(file.tasks, placements, instance, header.status))
        preempted = list(_leaves(file.tasks, placements, instance))
        residencies = list(_residencies(file.residencies, instance))
        limits = dict(_known_limits(file.limits, instance))
    except FieldError as error:
        raise source.error(error.where, error.problem) from None
    served = ServedRequests.of(instance, placements, limits, cut, preempted)
    timeline = Timeline.build(instance.n_tasks, placements, residencies, file.realised, served)
    return PlanFile(header, timeline)


def _check_identity(identity: _Identity, instance: Instance) -> None:
    """Refuse another format, and the plan of another scenario."""
    if identity.schema_version != SCHEMA_VERSION:
        raise FieldError(("schema_version",), f"{identity.schema_version} is unknown; allowed is {SCHEMA_VERSION}")
    wanted = scenario_hash(instance)
    if identity.scenario_hash != wanted:
        raise FieldError(
            ("scenario_hash",),
            f"is of another scenario, {quote(identity.scenario_hash[:12])}, not {quote(wanted[:12])}; "
            "allowed is a plan of this scenario: name the file that it was made for, or plan again",
        )


def _placements(entries: Sequence[_TaskEntry], instance: Instance, realised: bool) -> Iterator[Placement]:
    """Yield the placements; refuse unknown jobs, tasks and GPUs, and a task that is placed twice."""
    gpus = {gpu.id: index for index, gpu in enumerate(instance.cluster.gpus)}
    first_task, workflow_of = instance.job_first_task.tolist(), instance.job_workflow.tolist()
    placed: dict[int, int] = {}
    for position, entry in enumerate(entries):
        if not 0 <= entry.job < len(workflow_of):
            problem = f"unknown job {entry.job}; allowed are 0 to {len(workflow_of) - 1}"
            raise FieldError(("tasks", position, "job"), problem)
        tasks = instance.workflows[workflow_of[entry.job]].position
        if entry.task not in tasks:
            problem = f"unknown task {quote(entry.task)} of job {entry.job}; {allowed(entry.task, tasks)}"
            raise FieldError(("tasks", position, "task"), problem)
        task = first_task[entry.job] + tasks[entry.task]
        if task in placed:
            problem = f"task {quote(entry.task)} of job {entry.job} stands already in tasks[{placed[task]}]"
            raise FieldError(("tasks", position, "task"), f"{problem}; allowed is once")
        placed[task] = position
        gpu = _place(entry.gpu, instance, gpus, ("tasks", position, "gpu"))
        if instance.streams is None or instance.streams.template[instance.task_template[task]] == NONE:
            _refuse_tokens(entry, position)
        elif entry.first_us is None:
            problem = "is missing for a request of a stream; allowed is the time of its first token"
            raise FieldError(("tasks", position, "first_us"), problem)
        elif entry.output_tokens is not None and not realised:
            problem = f"is {entry.output_tokens} in a plan; allowed is to leave out what the scenario says"
            raise FieldError(("tasks", position, "output_tokens"), problem)
        elif (entry.cached_tokens is None) != (instance.streams.prefixes is None):
            problem = "is missing where nodes cache prefixes; allowed is how many prompt tokens were cached"
            if instance.streams.prefixes is None:
                problem = "stands where no node caches prefixes; allowed is to leave it out"
            raise FieldError(("tasks", position, "cached_tokens"), problem)
        of_request = (entry.first_us, entry.not_before_us or 0, entry.output_tokens, entry.order, entry.cached_tokens)
        yield Placement(task, gpu, entry.start_us, entry.end_us, *of_request)


def _cut_runs(
    entries: Sequence[_TaskEntry], placements: Sequence[Placement], instance: Instance, status: str | None
) -> Iterator[CutRun]:
    """Yield the runs of requests that were cut; refuse them in a plan, which has a status."""
    gpus = {gpu.id: index for index, gpu in enumerate(instance.cluster.gpus)}
    for position, (entry, placement) in enumerate(zip(entries, placements, strict=True)):
        if entry.attempts and status is not None:
            problem = "stands in a plan, in which no request may be cut; allowed is one run that ends in time"
            raise FieldError(("tasks", position, "attempts"), problem)
        for number, run in enumerate(entry.attempts or ()):
            gpu = _known("GPU", run.gpu, gpus, ("tasks", position, "attempts", number, "gpu"))
            yield CutRun(placement.task, gpu, run.start_us, run.cut_us, run.order)


def _leaves(entries: Sequence[_TaskEntry], placements: Sequence[Placement], instance: Instance) -> Iterator[Leave]:
    """Yield when requests were preempted, as far as the file says; refuse a return without its place in the order."""
    gpus = {gpu.id: index for index, gpu in enumerate(instance.cluster.gpus)}
    for position, (entry, placement) in enumerate(zip(entries, placements, strict=True)):
        for number, each in enumerate(entry.preempted or ()):
            where = ("tasks", position, "preempted", number)
            if (each.to_us is None) != (each.again is None):
                raise FieldError(where, "has one of to_us and again; allowed are both, or neither")
            gpu = _known("GPU", each.gpu, gpus, (*where, "gpu"))
            yield Leave(placement.task, gpu, each.from_us, each.to_us, each.order, each.again)


def _refuse_tokens(entry: _TaskEntry, position: int) -> None:
    """Refuse what only requests have of a task that is none."""
    for key in ("first_us", "not_before_us", "output_tokens", "order", "cached_tokens", "attempts", "preempted"):
        if getattr(entry, key) is not None:
            problem = f"stands at {quote(entry.task)}, which is no request of a stream; allowed is to leave it out"
            raise FieldError(("tasks", position, key), problem)


def _known_limits(limits: Mapping[str, int], instance: Instance) -> Iterator[tuple[int, int]]:
    """Yield the limits on requests by GPU; refuse unknown GPUs, and limits where there are no streams."""
    gpus = {gpu.id: index for index, gpu in enumerate(instance.cluster.gpus)}
    for name, limit in limits.items():
        if instance.streams is None:
            raise FieldError(("limits", name), "the scenario has no streams; allowed is to leave it out")
        yield _known("GPU", name, gpus, ("limits", name)), limit


def _residencies(entries: Sequence[_ResidencyEntry], instance: Instance) -> Iterator[Residency]:
    """Yield the residencies; refuse unknown models and GPUs."""
    gpus = {gpu.id: index for index, gpu in enumerate(instance.cluster.gpus)}
    models = {model.name: index for index, model in enumerate(instance.models)}
    for position, entry in enumerate(entries):
        gpu = _place(entry.gpu, instance, gpus, ("residencies", position, "gpu"))
        model = _known("model", entry.model, models, ("residencies", position, "model"))
        yield Residency(model, gpu, entry.load_start_us, entry.ready_us, entry.end_us, entry.slot, entry.initial)


def _place(named: str | list[str], instance: Instance, gpus: Mapping[str, int], where: Where) -> int:
    """Return the place that a file names by one GPU or several."""
    if isinstance(named, str):
        return _known("GPU", named, gpus, where)
    place = tuple(sorted(_known("GPU", name, gpus, where) for name in named))
    if place not in instance.places.number:
        problem = f"{', '.join(named)} are no place of this scenario; allowed are the GPUs of one"
        raise FieldError(where, problem)
    return instance.places.number[place]


def _known(sort: str, name: str, known: Mapping[str, int], where: Where) -> int:
    index = known.get(name)
    if index is None:
        raise FieldError(where, f"unknown {sort} {quote(name)}; {allowed(name, known)}")
    return index


def _header(file: _Entries) -> TimelineHeader:
    described = {entry.name: getattr(file, entry.name) for entry in _DESCRIBED}
    if file.objective is not None:
        described |= {"objective": file.objective.name, "value": file.objective.value}
    return TimelineHeader(**described)
