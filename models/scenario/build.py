"""From a scenario document to a scenario: the instance, and every contradiction blamed on its line."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from truenorth.models.errors import chosen
from truenorth.models.identity import scenario_hash
from truenorth.models.instance import Instance
from truenorth.models.objective import Objective
from truenorth.models.scenario.arrivals import build_jobs
from truenorth.models.scenario.changes import change, plain, refuse_new_names
from truenorth.models.scenario.document import ScenarioDocument
from truenorth.models.scenario.errors import FieldError, Source, allowed, blame, quote
from truenorth.models.scenario.hardware import build_cluster, build_initial, build_restrictions
from truenorth.models.scenario.limits import (
    blame_initial,
    blame_workflows,
    check_horizon,
    check_models,
    check_tables,
    check_tasks,
    check_transfers,
    one_of_each,
)
from truenorth.models.scenario.quantities import LONGEST_NAME
from truenorth.models.scenario.reading import read_document
from truenorth.models.scenario.requests import request_forms
from truenorth.models.scenario.section import validate
from truenorth.models.scenario.work import build_workflows
from truenorth.models.scenario.writing import write_scenario
from truenorth.models.slo import ServiceLevels
from truenorth.models.workload import MLModel

_LONGEST_CHANGE = 60
"""Characters of a change in the name of a scenario."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario file, read.

    Parameters
    ----------
    name
        From the file, or the file's own name.
    instance
        Cluster, models, jobs, options and restrictions.
    objective
        What a plan minimises; mean slowdown if the file does not say.
    slo
        The service levels, or None.
    document
        The validated document.
    source
        The file, the folder its paths are relative to, and the lines.
    """

    name: str
    instance: Instance
    objective: Objective
    slo: ServiceLevels | None
    document: ScenarioDocument
    source: Source

    def __post_init__(self) -> None:
        object.__setattr__(self, "objective", chosen(Objective, self.objective, "objective"))

    def __repr__(self) -> str:
        return f"<Scenario {self.name!r} of {self.source.file}: {self.instance!r}, {self.objective}>"

    def data(self) -> dict[str, object]:
        """Return the keys of a file that reads as this scenario, afresh.

        Raises
        ------
        InputError
            If there are none: parts of the scenario have been exchanged since it was read.
        """
        data: dict[str, object] = self.source.data()
        read = validate(ScenarioDocument, data, self.source)
        if (read, read.objective, read.slo) != (self.document, self.objective, self.slo):
            raise self.source.error(
                (), "parts of it were exchanged; allowed is a scenario as load or changed return it"
            )
        return data

    def changed(self, changes: Mapping[str, object]) -> Scenario:
        """Return the scenario after changes, all made at once; its name says which.

        >>> scenario = load_scenario("experiments/scenarios/paper_small.yaml")
        >>> scenario.changed({"cluster.servers": 4, "models.*.weights": "x0.5"}).name
        'paper-small with cluster.servers 4, models.*.weights x0.5'

        Parameters
        ----------
        changes
            By dotted path, as in sweeps: a new value, a factor such as ``"x2"``, or None to remove what stands there.

        Raises
        ------
        InputError
            With the path of a change that cannot be made, or the field of the scenario that is then wrong.
        """
        data, wanted = self.data(), {str(path): plain(value) for path, value in changes.items()}
        source = Source(self.source.file, self.source.folder)
        try:
            refuse_new_names(data, wanted)
            content = change(data, wanted)
        except FieldError as error:
            raise source.error(error.where, error.problem) from None
        if "name" not in wanted:
            content = {"name": None} | content | {"name": _name_of(self, wanted)}
        made = build(validate(ScenarioDocument, content, source), source)
        return replace(made, source=replace(source, file=made.name, content=content))

    @property
    def ideals_us(self) -> dict[str, int]:
        """What slowdowns divide by, by the workflows of which all jobs share it: those of one path, without streams."""
        shared = (w for w in self.instance.catalogue if not w.branches and all(t.stream is None for t in w.tasks))
        return {w.name: w.critical_path_us if w.ideal_us is None else w.ideal_us for w in shared}

    def with_ideals(self, ideals_us: Mapping[str, int]) -> Scenario:
        """Return the scenario with slowdowns that divide by such times by workflow, wherever the file names none."""
        own = self.ideals_us
        changes: dict[str, object] = {
            f"workflows.{name}.ideal": f"{ideal_us} us"
            for name, ideal_us in ideals_us.items()
            if name in own and ideal_us != own[name] and self.document.workflows[name].ideal is None
        }
        return self.changed(changes | {"name": self.name}) if changes else self

    def save(self, path: str | Path) -> None:
        """Write a scenario file, YAML or JSON by its name, that reads as this scenario.

        Raises
        ------
        InputError
            If it cannot be written, or would read as another scenario.
        """
        target, data = Path(path), self.data()
        if self.document.workload.trace is not None:
            trace = (self.source.folder / self.document.workload.trace.file).resolve()
            data = change(data, {"workload.trace.file": os.path.relpath(trace, target.resolve().parent)})
        write_scenario(target, {"name": self.name} | data)
        if scenario_hash(load_scenario(target).instance) != scenario_hash(self.instance):
            raise self.source.error(
                (), f"reads as another scenario from {target}; allowed are values as files have them"
            )


def load_scenario(path: str | Path) -> Scenario:
    """Return the scenario of a YAML or JSON file.

    Raises
    ------
    InputError
        With file and line of what is wrong.
    """
    source = read_document(Path(path))
    return build(validate(ScenarioDocument, source.data(), source), source)


def scenario_from(data: Mapping[str, object], folder: str | Path = ".") -> Scenario:
    """Return the scenario of plain Python data with the keys of a scenario file; quantities are text with units.

    Parameters
    ----------
    folder
        What the path of a trace is relative to.

    Raises
    ------
    InputError
        With the field that is wrong, and no line.
    """
    content: Any = plain(data)
    source = Source("scenario", Path(folder), content=content)
    return build(validate(ScenarioDocument, content, source), source)


def _name_of(scenario: Scenario, changes: Mapping[str, object]) -> str:
    """Return the name of a scenario with what is changed, as far as a name may say it."""
    said = [f"{path} {_value_in_words(value)}"[:_LONGEST_CHANGE] for path, value in changes.items()]
    text = f"{scenario.name}{', ' if ' with ' in scenario.name else ' with '}{', '.join(said)}"
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 3]}..."


def _value_in_words(value: object) -> str:
    return "removed" if value is None else str(value)[:_LONGEST_CHANGE]


def build(document: ScenarioDocument, source: Source) -> Scenario:
    """Return the scenario of a document.

    Raises
    ------
    InputError
        If parts of the document contradict each other; with the line, as far as `source` knows it.
    """
    try:
        instance = _build_instance(document, source.folder)
    except FieldError as error:
        raise source.error(error.where, error.problem) from None
    name = document.name or Path(source.file).stem
    return Scenario(name, instance, document.objective, document.slo, document, source)


def _build_instance(document: ScenarioDocument, folder: Path) -> Instance:
    cluster = build_cluster(document.cluster)
    models = tuple(MLModel(name, section.weights) for name, section in document.models.items())
    forms = request_forms(document, one_of_each(document, cluster))
    workflows = build_workflows(document, forms)
    check_models(document, cluster)
    refuse_unknown_workflows(document.slo, workflows)
    check_transfers(document, cluster, list(workflows.values()))
    restrictions = build_restrictions(document, cluster)
    initial = build_initial(document, cluster)
    check_tables(cluster, restrictions, list(workflows.values()))
    blame_workflows(cluster, models, workflows, restrictions)
    blame_initial(cluster, models, restrictions, initial)
    jobs = build_jobs(document, workflows, forms, folder)
    check_tasks(jobs)
    with blame(("workload",), "a workload that the cluster can run"):
        overlap, catalogue = document.options.overlap_loads, tuple(workflows.values())
        instance = Instance(cluster, models, jobs, overlap, initial, restrictions, catalogue)
    check_horizon(instance)
    return instance


def refuse_unknown_workflows(levels: ServiceLevels | None, workflows: Collection[str]) -> None:
    """Refuse a service level over a workflow that there is not.

    Raises
    ------
    FieldError
        At the level.
    """
    for level in levels or ():
        if level.workflow is not None and not any(level.names(workflow) for workflow in workflows):
            problem = f"unknown workflow {quote(level.workflow)}; {allowed(level.workflow, workflows)}"
            raise FieldError(("slo",), problem)
