"""DAGs: scientific workflows that ran (WfCommons), and everyday plans with an order among their steps (AsyncHow).

WfCommons is one JSON file per workflow, in WfFormat 1.5. Schema: github.com/wfcommons/WfFormat, wfcommons-schema.json
of version 1.5 (commit 14e69620); 1.6 only adds to it. From workflow.specification come tasks (id, name, parents,
children, inputFiles, outputFiles) and files (id, sizeInBytes), from workflow.execution the tasks' runtimeInSeconds and
command.program.

AsyncHow: github.com/fangru-lin/graph-llm-asynchow-plan, data/async_benchmark.pkl and its siblings (commit 66f9bcff);
DAGs without models. They are pickles, which are never read here; what is read are JSON lines made of them: per plan id,
title, n, durations_s (per step [low, high] in seconds), edges (pairs of steps, START and END included) and answer_s
(the shortest completion with unlimited parallelism, [low, high]).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeGuard, TypeVar

from pydantic import AfterValidator, BeforeValidator
from pydantic.alias_generators import to_camel

from truenorth.executor.policies.options import one_of, option
from truenorth.models.scenario.errors import FieldError, InputError, Where, quote
from truenorth.models.scenario.files import MAX_FILE_BYTES
from truenorth.models.scenario.quantities import MAX_SIZE_BYTES
from truenorth.models.scenario.reading import JSONText
from truenorth.models.scenario.section import Record, problem, refuse_empty
from truenorth.models.workload import ANY_KIND, Edge, Task, Workflow
from truenorth.planner.inputs.importers.csv_files import CHUNK_ROWS, open_text
from truenorth.planner.inputs.importers.json_files import (
    Bytes,
    LogName,
    LongSeconds,
    Seconds,
    json_lines,
    name_at,
    read_entries,
)
from truenorth.planner.inputs.importers.rows import LONGEST_NAME, Tally
from truenorth.planner.inputs.importers.tables import DagJobs, DAGOptions, build_workflow

_VERSIONS = ("1.5", "1.6")
_SPECIFICATION = ("workflow", "specification")
_EXECUTION = ("workflow", "execution")


class _Entry(Record, alias_generator=to_camel):
    pass


class _File(_Entry):
    id: LogName
    size_in_bytes: Bytes


class _Specified(_Entry):
    id: LogName
    name: Any = None
    parents: list[LogName]
    children: list[LogName]
    input_files: Sequence[LogName] = ()
    output_files: Sequence[LogName] = ()


class _Command(_Entry):
    program: Any = None


class _Executed(_Entry):
    id: LogName
    runtime_in_seconds: Seconds
    command: _Command = _Command()


class _Specification(_Entry):
    tasks: Annotated[list[_Specified], refuse_empty("task")]
    files: Sequence[_File] = ()


class _Execution(_Entry):
    tasks: Annotated[list[_Executed], refuse_empty("task")]


class _Parts(_Entry):
    specification: _Specification
    execution: _Execution


def _known(version: object) -> object:
    if version not in _VERSIONS:
        migrated = "1.5 or 1.6, to which WfFormat's own tool migrates older instances"
        raise problem(f"is {quote(version)}; allowed is {migrated}")
    return version


class _Instance(_Entry):
    schema_version: Annotated[Any, AfterValidator(_known)]
    workflow: _Parts


_Named = TypeVar("_Named", _File, _Specified, _Executed)


@dataclass(frozen=True, slots=True)
class WfCommons(DAGOptions):
    """Reads instances."""

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[DagJobs]:
        """Yield the workflows of the files."""
        before, adjusted = 0, _Adjusted()
        for path in files:

            def make(value: object, name: str = _name(path)) -> Workflow:
                """Return the workflow of a file."""
                return _Tasks(_Instance.model_validate(value)).workflow(name, adjusted)

            for workflow in read_entries([_text(path)], make, tally, "file: is no JSON"):
                yield self.jobs([workflow], before)
                before += 1
        tally.notes += adjusted.notes()


@dataclass(slots=True)
class _Adjusted:
    """Tasks that could not be taken as they stand."""

    instant: int = 0
    scripts: int = 0

    def notes(self) -> list[str]:
        """Return what a person should know of them."""
        notes = []
        if self.instant:
            notes.append(f"tasks that ran for less than 1 us and count as 1 us: {self.instant:,}")
        if self.scripts:
            notes.append(
                f"tasks whose model is their own name, as the program is a script or missing: {self.scripts:,}"
            )
        return notes


class _Tasks:
    """The tasks of an instance by id, each with the way to it, and who writes which file of what size."""

    def __init__(self, instance: _Instance) -> None:
        given, ran = instance.workflow.specification, instance.workflow.execution
        self._specified = _by_id(given.tasks, (*_SPECIFICATION, "tasks"))
        self._executed = _by_id(ran.tasks, (*_EXECUTION, "tasks"))
        self._sizes = {
            name: file.size_in_bytes for name, (_, file) in _by_id(given.files, (*_SPECIFICATION, "files")).items()
        }
        for name, (where, _) in self._executed.items():
            if name not in self._specified:
                raise FieldError((*where, "id"), f"{quote(name)} is not specified; allowed are ids of specified tasks")
        self._parents = {
            name: self._relatives((*where, "parents"), task.parents) for name, (where, task) in self._specified.items()
        }
        self._check_children()
        self._writer = self._written()

    def workflow(self, name: str, adjusted: _Adjusted) -> Workflow:
        """Return the workflow, and count the tasks that had to be adjusted."""
        tasks = [self._task(task, adjusted) for task in self._specified]
        return build_workflow(name, tasks, {task: where for task, (where, _) in self._specified.items()})

    def _task(self, name: str, adjusted: _Adjusted) -> Task:
        where, specified = self._specified[name]
        if name not in self._executed:
            raise FieldError(where, f"task {quote(name)} was not executed; allowed are instances that ran to their end")
        _, executed = self._executed[name]
        adjusted.instant += not executed.runtime_in_seconds
        model = executed.command.program
        if not _is_word(model):
            adjusted.scripts += 1
            model = name_at(specified.name, (*where, "name"))
        return Task(name, {ANY_KIND: max(1, executed.runtime_in_seconds)}, (model,), self._inputs(name))

    def _inputs(self, name: str) -> tuple[Edge, ...]:
        """Return an edge per parent with the bytes of the files that it writes and this task reads."""
        where, task = self._specified[name]
        carried = dict.fromkeys(self._parents[name], 0)
        for position, file in enumerate(task.input_files):
            writer = self._writer.get(file)
            if writer in carried:
                place = (*where, "inputFiles", position)
                if file not in self._sizes:
                    raise FieldError(place, f"{quote(file)} is not among the files; allowed are files with a size")
                carried[writer] += self._sizes[file]
                if carried[writer] > MAX_SIZE_BYTES:
                    raise FieldError(place, f"makes more than {MAX_SIZE_BYTES:g} bytes from one task; allowed are less")
        return tuple(Edge(parent, size) for parent, size in carried.items())

    def _relatives(self, where: Where, named: Sequence[str]) -> dict[str, Where]:
        """Return the parents or children of a task, each with the way to where it is named."""
        found: dict[str, Where] = {}
        for position, other in enumerate(named):
            if other not in self._specified:
                raise FieldError((*where, position), f"{quote(other)} is no task; allowed are ids of specified tasks")
            if other in found:
                raise FieldError((*where, position), f"{quote(other)} is named twice; allowed is once")
            found[other] = (*where, position)
        return found

    def _check_children(self) -> None:
        """Refuse a parent that does not name its child, or a child that does not name its parent."""
        children = {
            name: self._relatives((*where, "children"), task.children)
            for name, (where, task) in self._specified.items()
        }
        for one, other, meant in ((self._parents, children, "child"), (children, self._parents, "parent")):
            for name, relatives in one.items():
                for relative, place in relatives.items():
                    if name not in other[relative]:
                        fault = f"{quote(relative)} does not name {quote(name)} as its {meant}"
                        raise FieldError(place, f"{fault}; allowed are parents and children that agree")

    def _written(self) -> Mapping[str, str]:
        """Return the task that writes each file."""
        writer: dict[str, str] = {}
        for name, (where, task) in self._specified.items():
            for position, file in enumerate(task.output_files):
                if writer.setdefault(file, name) != name:
                    fault = f"{quote(file)} is also written by {quote(writer[file])}; allowed is one task per file"
                    raise FieldError((*where, "outputFiles", position), fault)
        return writer


def _by_id(entries: Sequence[_Named], where: Where) -> dict[str, tuple[Where, _Named]]:
    """Return the entries of a list by their ids, each with the way to it."""
    found: dict[str, tuple[Where, _Named]] = {}
    for position, entry in enumerate(entries):
        if entry.id in found:
            raise FieldError((*where, position, "id"), f"{quote(entry.id)} occurs twice; allowed is once")
        found[entry.id] = ((*where, position), entry)
    return found


def _is_word(value: object) -> TypeGuard[str]:
    """Say whether a program is a name rather than a script or nothing."""
    return isinstance(value, str) and value.isprintable() and " " not in value and 0 < len(value) <= LONGEST_NAME


def _text(path: Path) -> JSONText:
    with open_text(path) as file:
        text = file.read(MAX_FILE_BYTES + 1)
    if len(text) > MAX_FILE_BYTES:
        raise InputError(str(path), 1, "file", f"is too large; allowed are {MAX_FILE_BYTES} characters")
    return JSONText(text, str(path))


def _name(path: Path) -> str:
    """Return what the workflow of a file is called."""
    return name_at(path.name.removesuffix(".gz").removesuffix(".json"), ("file name",))


_ENDS = ("low", "high")
_START, _END = "START", "END"


def _two(meaning: str) -> BeforeValidator:
    def refuse_others(value: object) -> object:
        """Refuse a list of other than two entries."""
        if isinstance(value, list) and len(value) != 2:
            raise problem(f"has {len(value)} entries; allowed are two, {meaning}")
        return value

    return BeforeValidator(refuse_others)


def _range(least_us: int) -> AfterValidator:
    def refuse_others(span: list[int]) -> list[int]:
        """Refuse a range that begins too early or ends before it begins."""
        if not least_us <= span[0] <= span[1]:
            allowed = f"low <= high, with low at least {least_us} us"
            raise problem(f"is no range of times; allowed is {allowed}")
        return span

    return AfterValidator(refuse_others)


_Span = Annotated[list[Seconds], _two("[low, high]"), _range(1)]


class _Plan(Record):
    id: LogName
    durations_s: Annotated[dict[LogName, _Span], refuse_empty("step")]
    edges: list[Annotated[list[LogName], _two("the step before and the step after")]]
    answer_s: Annotated[list[LongSeconds], _two("[low, high]"), _range(0)]


@dataclass(frozen=True, slots=True)
class AsyncHow(DAGOptions):
    """Reads plans in JSON lines.

    Parameters
    ----------
    duration
        Which end of a step's range counts: ``low`` or ``high``. Nearly every range is a single value.
    """

    duration: str = option("low", one_of(*_ENDS))

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[DagJobs]:
        """Yield the plans of the files."""
        before = 0
        others: list[str] = []
        plans = self._plans(files, tally, others)
        while chunk := list(islice(plans, CHUNK_ROWS)):
            yield self.jobs(chunk, before)
            before += len(chunk)
        if others:
            named = ", ".join(others[:5]) + (", ..." if len(others) > 5 else "")
            tally.notes.append(f"plans whose published answer is not their longest path: {len(others):,} ({named})")

    def _plans(self, files: Sequence[Path], tally: Tally, others: list[str]) -> Iterator[Workflow]:
        """Yield the plans as workflows; the ids of those with another answer than their longest path go to `others`."""
        seen: set[str] = set()
        for path in files:
            with open_text(path) as file:
                lines = json_lines(file, str(path))
                for workflow, answer_us in read_entries(lines, lambda value: self._plan(value, seen), tally):
                    if workflow.critical_path_us != answer_us:
                        others.append(workflow.name)
                    yield workflow

    def _plan(self, value: object, seen: set[str]) -> tuple[Workflow, int]:
        """Return a plan and its published answer; `seen` are the ids of those before it."""
        plan = _Plan.model_validate(value)
        if plan.id in seen:
            raise FieldError(("id",), f"{quote(plan.id)} stands in an earlier plan; allowed is a new id")
        seen.add(plan.id)
        where: dict[str, Where] = {step: ("durations_s", step) for step in plan.durations_s}
        for bound in (_START, _END):
            if bound in where:
                raise FieldError(where[bound], "is a bound of the plan; allowed are other names of steps")
        before, end = _before(plan), _ENDS.index(self.duration)
        tasks = [
            Task(step, {ANY_KIND: span[end]}, inputs=tuple(Edge(one, 0) for one in before[step]))
            for step, span in plan.durations_s.items()
        ]
        return build_workflow(plan.id, tasks, where), plan.answer_s[end]


def _before(plan: _Plan) -> dict[str, dict[str, None]]:
    """Return the steps that come directly before each step."""
    steps = plan.durations_s
    before: dict[str, dict[str, None]] = {step: {} for step in steps}
    for position, (first, second) in enumerate(plan.edges):
        for place, (step, bound) in enumerate(((first, _START), (second, _END))):
            if step != bound and step not in steps:
                problem_text = f"{quote(step)} is no step; allowed are steps with a duration"
                raise FieldError(("edges", position, place), problem_text)
        if first == _START or second == _END:
            continue
        if first in before[second]:
            problem_text = f"{quote(first)} before {quote(second)} stands twice; allowed is once"
            raise FieldError(("edges", position), problem_text)
        before[second][first] = None
    return before
