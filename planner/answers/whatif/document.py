"""The sweep document: a grid of changes to a scenario and the verb of its cells; windows that replicate a scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from truenorth.models.errors import QuestionError
from truenorth.models.scenario import Scenario, build, load_scenario
from truenorth.models.scenario.document import ScenarioDocument
from truenorth.models.scenario.errors import Source
from truenorth.models.scenario.quantities import MAX_JOBS, Name, whole
from truenorth.models.scenario.reading import read_document
from truenorth.models.scenario.section import Section, refuse_empty, validate

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
