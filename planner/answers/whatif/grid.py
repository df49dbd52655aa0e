"""From a sweep document to its cells: axes over the scenario and over settings, and windows that replicate a scenario.

What is wrong is blamed on its line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod
from pathlib import Path
from typing import Annotated, Any

from truenorth.executor import POLICIES
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import InputError, Scenario, build, load_scenario
from truenorth.models.scenario.changes import PathError, change, places, refusal, refuse_new_names
from truenorth.models.scenario.document import ScenarioDocument
from truenorth.models.scenario.errors import FieldError, Source, Where, allowed, quote
from truenorth.models.scenario.quantities import MAX_JOBS, Name, whole
from truenorth.models.scenario.reading import read_document
from truenorth.models.scenario.section import Section, refuse_empty, validate
from truenorth.planner.answers.policies.parse import RECEDING
from truenorth.planner.answers.whatif.cell import CellCall
from truenorth.planner.answers.whatif.verbs import VERBS, Verb, check
from truenorth.planner.questions.question import Question

KINDS_OF_BASE = "the path of a scenario file, or a mapping with the keys of one"


class SweepDocument(Section):
    """A sweep file: the scenario's path or its keys, a verb, what the verb is told, and the axes by name.

    With `replications` every cell is answered in so many windows, which is one more axis.
    """

    name: Name | None = None
    scenario: Any
    verb: Name = "simulate"
    settings: dict[Name, Any] = {}  # noqa: RUF012
    grid: Annotated[dict[Name, Any], refuse_empty("axis")]
    replications: Annotated[int, whole(2, MAX_JOBS)] | None = None


def read_sweep(path: Path) -> tuple[SweepDocument, Scenario, Source]:
    """Return what a sweep file says, the scenario it starts from, and its lines.

    Raises
    ------
    InputError
        With file and line of what is wrong, in the sweep file or in the scenario file.
    """
    source = read_document(path)
    document = validate(SweepDocument, source.data(), source)
    if isinstance(document.scenario, str):
        return document, load_scenario(path.parent / document.scenario), source
    sections = source.root.content if source.root else None
    if not isinstance(document.scenario, Mapping) or not isinstance(sections, dict):
        raise source.error(("scenario",), f"is neither; allowed is {KINDS_OF_BASE}")
    inline = Source(str(path), path.parent, sections["scenario"][1])
    return document, build(validate(ScenarioDocument, document.scenario, inline), inline), source


@dataclass(frozen=True, slots=True)
class WorkloadValues:
    """The values of one key of a workload, the first as it stands in the scenario.

    Parameters
    ----------
    section, key
        Of the workload, what differs.
    values
        Seeds, or pairs of begin and end in microseconds.
    what
        The same in words.
    """

    section: str
    key: str
    values: tuple[int, ...] | tuple[tuple[int, int], ...]
    what: str

    @property
    def axis(self) -> dict[str, Sequence[object]]:
        """The same as the axis of a sweep: values by path in the scenario, windows as text with units."""
        values = [v if isinstance(v, int) else [f"{time_us} us" for time_us in v] for v in self.values]
        return {f"workload.{self.section}.{self.key}": values}


def windows_of(scenario: Scenario, count: int) -> WorkloadValues:
    """Return so many windows.

    Raises
    ------
    QuestionError
        If the workload is a list of jobs, or a trace without a window.
    """
    workload = scenario.document.workload
    if workload.poisson is not None:
        first = workload.poisson.seed
        return WorkloadValues("poisson", "seed", tuple(range(first, first + count)), "arrival seeds")
    if workload.trace is None or workload.trace.window is None:
        raise QuestionError("need poisson arrivals, or a trace with a window that others follow", "replications")
    begin, end = workload.trace.window
    steps = [index * (end - begin) for index in range(count)]
    return WorkloadValues("trace", "window", tuple((begin + s, end + s) for s in steps), "windows of the trace")


MAX_CELLS = 100_000
POLICY_OPTION = "policy."
"""What the name of an axis over an option of the policy begins with."""


_PATHS_OF_RUN_TIMES = ("workflows", "batches", "streams")
"""What the paths begin with on which ideal times depend."""


@dataclass(frozen=True, slots=True)
class Point:
    """A value of an axis: how it is written, and what it changes.

    Parameters
    ----------
    label
        As it stands in the grid.
    changes
        New values by dotted path or by setting.
    where
        Its place in the sweep document.
    """

    label: object
    changes: Mapping[str, object]
    where: Where

    def blame(self, name: str, problem: str, source: Source) -> InputError:
        """Return the error of one of the changes."""
        is_value = isinstance(self.where[-1], int)
        return source.error(self.where if is_value else (*self.where, name), problem)


@dataclass(frozen=True, slots=True)
class Axis:
    """A name and its points."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """A combination of one point of every axis, given by their positions, and what it asks."""

    at: tuple[int, ...]
    call: CellCall


@dataclass(frozen=True, slots=True)
class Grid:
    """The axes of a sweep and all their combinations; the last axis moves fastest, maybe that of the replications."""

    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    replicated: bool = False


def read_grid(document: SweepDocument, base: Scenario, source: Source) -> Grid:
    """Return the cells of a sweep.

    Every value is tried alone on the base scenario, and every combination of settings; what only a combination of
    changes makes impossible shows when its cell runs.

    Raises
    ------
    InputError
        With the line of the axis, value or setting that is wrong.
    """
    axes = read_axes(document, source)
    if document.replications is not None:
        windows = windows_of(base, document.replications).axis
        axes += tuple(_axis_of(path, values) for path, values in windows.items())
    count = prod(len(axis.points) for axis in axes)
    if count > MAX_CELLS:
        raise source.error(("grid",), f"gives {count} cells; allowed are {MAX_CELLS}")
    reader = _GridReader(document, base, source, _reference(base, axes))
    reader.refuse_overlaps(axes)
    for axis in axes:
        for point in axis.points:
            reader.check_scenario(point)
    reader.check_settings(axes)
    positions = product(*(range(len(axis.points)) for axis in axes))
    cells = tuple(Cell(at, reader.call(_points(axes, at))) for at in positions)
    return Grid(axes, cells, document.replications is not None)


def grid_over(base: Scenario, path: str, values: Sequence[object], question: Question) -> Grid:
    """Return the cells that ask the same question with other values at one path.

    Raises
    ------
    InputError
        If the question cannot be asked.
    """
    try:
        check(question, base)
    except FieldError as error:
        raise Source("what-if", Path()).error(("settings", *error.where), error.problem) from None
    data, folder = base.data(), str(base.source.folder)
    calls = [CellCall(change(data, {path: value}), folder, question) for value in values]
    return Grid((_axis_of(path, values),), tuple(Cell((at,), call) for at, call in enumerate(calls)))


def _reference(base: Scenario, axes: Sequence[Axis]) -> Mapping[str, int]:
    """Return what slowdowns of all cells divide by if a change may touch it: the ideal times of the base scenario.

    By its own ideal times a cell with faster models looks worse: its latencies shrink less than what they are set
    beside.
    """
    changed = (name for axis in axes for point in axis.points for name in point.changes)
    touched = any(name.startswith(_PATHS_OF_RUN_TIMES) for name in changed)
    return base.ideals_us if touched else {}


def _axis_of(path: str, values: Sequence[object]) -> Axis:
    return Axis(path, tuple(Point(value, {path: value}, ("grid", path, at)) for at, value in enumerate(values)))


def verb_of(document: SweepDocument, source: Source) -> Verb:
    """Return the verb of a sweep.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if document.verb not in VERBS:
        raise source.error(("verb",), f"unknown verb {quote(document.verb)}; {allowed(document.verb, VERBS)}")
    return VERBS[document.verb]


def read_axes(document: SweepDocument, source: Source) -> tuple[Axis, ...]:
    """Return the axes in the order of the document.

    A list makes an axis over the path or setting that it is named after. A mapping makes cases: its keys are their
    names, its values mappings from paths or settings to values; the axis may then have any name.

    Raises
    ------
    InputError
        If an axis is neither, or a name is neither a path nor a setting.
    """
    verb = verb_of(document, source)
    axes = []
    for name, value in document.grid.items():
        where: Where = ("grid", name)
        if isinstance(value, Mapping) and value:
            points = [
                Point(label, _changes(case, (*where, label), source), (*where, label)) for label, case in value.items()
            ]
        elif isinstance(value, (list, tuple, range)) and len(value):
            points = [Point(one, {name: one}, (*where, position)) for position, one in enumerate(value)]
        else:
            problem = "is no axis; allowed is a list of values, or a mapping from names of cases to their changes"
            raise source.error(where, problem)
        for point in points:
            for changed in point.changes:
                _refuse_unknown(changed, point, verb.settings, source)
        axes.append(Axis(name, tuple(points)))
    return tuple(axes)


def _changes(case: object, where: Where, source: Source) -> Mapping[str, object]:
    if case is not None and not isinstance(case, Mapping):
        raise source.error(where, "is no case; allowed is a mapping from paths or settings to values")
    return case or {}


def _refuse_unknown(name: str, point: Point, kind: type[Section], source: Source) -> None:
    head = name.partition(".")[0].partition("[")[0]
    if not is_setting(name, kind) and head not in ScenarioDocument.model_fields:
        known = [*kind.model_fields, *ScenarioDocument.model_fields]
        raise point.blame(name, f"{quote(name)} is no path and no setting of the verb; {allowed(head, known)}", source)


def is_setting(name: str, kind: type[Section]) -> bool:
    """Say whether the name of a change belongs to the verb rather than to the scenario."""
    return name in kind.model_fields or (name.startswith(POLICY_OPTION) and "policy" in kind.model_fields)


def told(settings: Mapping[str, object], changes: Mapping[str, object], kind: type[Section]) -> dict[str, object]:
    """Return settings after changes; ``policy.lookahead`` and the like add an option to the policy."""
    merged = {**settings, **{name: value for name, value in changes.items() if name in kind.model_fields}}
    for name, value in changes.items():
        if name not in merged and is_setting(name, kind) and isinstance(merged.get("policy"), str):
            merged["policy"] = with_option(str(merged["policy"]), name.removeprefix(POLICY_OPTION), value)
    return merged


def with_option(policy: str, option: str, value: object) -> str:
    """Return a policy with one more option.

    >>> with_option("compass", "lookahead", 2), with_option("mine:Policy:x=1", "y", 2)
    ('compass:lookahead=2', 'mine:Policy:x=1,y=2')
    """
    name, _, rest = policy.partition(":")
    has_options = bool(rest) if name in POLICIES or name == RECEDING else ":" in rest
    return f"{policy}{',' if has_options else ':'}{option}={value}"


def _points(axes: Sequence[Axis], at: Sequence[int]) -> list[Point]:
    return [axis.points[position] for axis, position in zip(axes, at, strict=True)]


class _GridReader:
    """Applies changes to the base scenario and to the settings."""

    def __init__(self, document: SweepDocument, base: Scenario, source: Source, ideals_us: Mapping[str, int]) -> None:
        self._document, self._base, self._source, self._ideals_us = document, base, source, ideals_us
        self._verb, self._data = verb_of(document, source), base.data()
        self._kind = self._verb.settings

    def call(self, points: Sequence[Point]) -> CellCall:
        """Return what the cell of these points asks."""
        changes = {name: value for point in points for name, value in self._scenario_changes(point).items()}
        return CellCall(
            change(self._data, changes),
            str(self._base.source.folder),
            self._verb.ask(self._settings(points), self._source),
            self._ideals_us,
        )

    def refuse_overlaps(self, axes: Sequence[Axis]) -> None:
        """Refuse two axes that change the same place, or a place inside one that the other replaces."""
        for one, other in combinations(axes, 2):
            pairs = product(self._touch(one), self._touch(other))
            both = next(((a, b) for a, b in pairs if a[: len(b)] == b or b[: len(a)] == a), None)
            if both is not None:
                name = ".".join(str(part) for part in max(both, key=len))
                problem = f"changes {name}, as axis {quote(one.name)} does; allowed is one axis for each value"
                raise self._source.error(("grid", other.name), problem)

    def _touch(self, axis: Axis) -> list[Where]:
        touched: dict[Where, None] = {}
        for point in axis.points:
            for name in point.changes:
                found = [(name,)] if is_setting(name, self._kind) else self._places(name, point)
                touched |= dict.fromkeys(found)
        return list(touched)

    def _places(self, name: str, point: Point) -> list[Where]:
        try:
            return places(self._data, name)
        except PathError as error:
            raise point.blame(name, str(error), self._source) from None

    def _scenario_changes(self, point: Point) -> Mapping[str, object]:
        return {name: value for name, value in point.changes.items() if not is_setting(name, self._kind)}

    def check_scenario(self, point: Point) -> None:
        """Refuse changes that make no scenario document, and new names, which nothing would refer to."""
        changes = self._scenario_changes(point)
        try:
            problem = refusal(change(self._data, changes)) if changes else None
            if problem is not None:
                raise point.blame(list(changes)[-1], problem, self._source)
            refuse_new_names(self._data, changes)
        except FieldError as error:
            raise point.blame(str(error.where[0]), error.problem, self._source) from None

    def _settings(self, points: Iterable[Point]) -> dict[str, object]:
        changes = {name: value for point in points for name, value in point.changes.items()}
        return told(self._document.settings, changes, self._kind)

    def check_settings(self, axes: Sequence[Axis]) -> None:
        """Refuse settings that are wrong in some combination; each combination is tried once."""
        relevant = [axis.points if self._tells(axis) else axis.points[:1] for axis in axes]
        for points in product(*relevant):
            try:
                check(self._verb.ask(self._settings(points), self._source), self._base)
            except InputError as error:
                raise self._blame(points, error.field, error.problem) from None
            except FieldError as error:
                raise self._blame(points, str(error.where[0]), error.problem) from None

    def _tells(self, axis: Axis) -> bool:
        return any(is_setting(name, self._kind) for point in axis.points for name in point.changes)

    def _blame(self, points: Sequence[Point], field: str, problem: str) -> InputError:
        """Return the error of a setting, on the line of the last point that tells it, or of the settings."""
        head = field.partition("[")[0].partition(".")[0]
        for point in reversed(points):
            for name in point.changes:
                if is_setting(name, self._kind) and name.partition(".")[0] == head:
                    return point.blame(name, problem, self._source)
        return self._source.error(("settings", head) if head in self._document.settings else ("settings",), problem)
