"""From a scenario document to a scenario: the instance, and every contradiction blamed on its line.

Cluster, restrictions and initial residencies become those of the core types here; workflows and jobs have files of
their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truenorth.models.cluster import GPU, Availability, Cluster, Interval, Link, Network, engine_kind
from truenorth.models.errors import chosen, no_attribute
from truenorth.models.identity import scenario_hash
from truenorth.models.instance import InitialResidency, Instance, Restrictions
from truenorth.models.objective import Objective
from truenorth.models.scenario.arrivals import build_jobs
from truenorth.models.scenario.changes import change, plain, refuse_new_names
from truenorth.models.scenario.document import (
    ClusterSection,
    GroupSection,
    NetworkSection,
    PlaceSection,
    ResidencySection,
    ScenarioDocument,
)
from truenorth.models.scenario.doubts import tell_doubts
from truenorth.models.scenario.engines import check_engines, degrees_of, engines
from truenorth.models.scenario.errors import FieldError, InputError, Source, Where, allowed, blame, quote
from truenorth.models.scenario.limits import (
    blame_initial,
    blame_workflows,
    check_delays,
    check_horizon,
    check_models,
    check_places,
    check_tables,
    check_tasks,
    check_transfers,
    one_of_each,
)
from truenorth.models.scenario.quantities import LONGEST_NAME, MAX_GPUS
from truenorth.models.scenario.reading import read_document
from truenorth.models.scenario.requests import request_forms
from truenorth.models.scenario.section import validate
from truenorth.models.scenario.work import build_workflows
from truenorth.models.scenario.writing import write_scenario
from truenorth.models.slo import ServiceLevels
from truenorth.models.workload import Job, MLModel, Workflow

_GROUP = re.compile(r"group\s+(\d{1,9})", re.ASCII)


def build_cluster(section: ClusterSection, degrees: Mapping[int, Sequence[int]] | None = None) -> Cluster:
    """Return the cluster; servers are numbered across groups in file order.

    Parameters
    ----------
    degrees
        By the groups that leave it open, how many GPUs an engine may have: all such engines are there.

    Raises
    ------
    FieldError
        If there are too many GPUs, or the core types refuse one.
    """
    groups = section.server_groups
    if sum(group.count * group.gpus_per_server for group in groups) > MAX_GPUS:
        form = "groups" if section.groups is not None else "servers"
        raise FieldError(("cluster", form), f"gives too many GPUs; allowed are {MAX_GPUS}")
    unknown = next((server for server in section.away if server >= section.n_servers), None)
    if unknown is not None:
        raise FieldError(("cluster", "away"), f"s{unknown} is no server; allowed are s0 to s{section.n_servers - 1}")
    gpus: list[GPU] = []
    first_server = 0
    for position, group in enumerate(groups):
        with blame((*_group_path(section, position), "gpu"), "a GPU with positive figures"):
            sizes = (degrees or {}).get(position, ())
            gpus += [
                replace(_gpu(group, server, *engine, section.away.get(server, ())), group=position, open=len(sizes) > 1)
                for server in range(first_server, first_server + group.count)
                for engine in engines(group, sizes)
            ]
        first_server += group.count
    return Cluster(tuple(gpus), _network(section.network), _place_rule(section, gpus))


def _place_rule(section: ClusterSection, gpus: Sequence[GPU]) -> str | tuple[tuple[int, ...], ...]:
    """Return which GPUs a run on several takes, with GPUs by number."""
    if isinstance(section.places, str):
        return section.places
    number = {gpu.id: index for index, gpu in enumerate(gpus)}
    for position, place in enumerate(section.places):
        where: Where = ("cluster", "places", position)
        unknown = next((name for name in place if name not in number), None)
        if unknown is not None:
            raise FieldError(where, f"unknown GPU {quote(unknown)}; {allowed(unknown, number)}")
        if len({gpus[number[name]].kind for name in place}) > 1 or len(set(place)) < len(place):
            raise FieldError(where, "is no set of GPUs of one kind; allowed are GPUs of one kind, each once")
    return tuple(tuple(sorted(number[name] for name in place)) for place in section.places)


def _group_path(section: ClusterSection, position: int) -> Where:
    """Return where a group stands in the document."""
    return ("cluster",) if section.groups is None else ("cluster", "groups", position)


def _gpu(group: GroupSection, server: int, place: int, size: int, away: Sequence[Interval]) -> GPU:
    """Return a GPU, or an engine of so many from this one on: their memory together, each loads its part."""
    gpu = group.gpu
    with blame(("cluster", "away", f"s{server}"), "a server that is there at some time"):
        available = Availability.of(group.available).without(away)
    return GPU(
        f"s{server}/g{place}" if size == 1 else f"s{server}/g{place}-{place + size - 1}",
        server,
        engine_kind(size, gpu.kind),
        gpu.memory_bytes * size,
        gpu.load_bandwidth * size,
        gpu.slots or (),
        gpu.load_overhead,
        available,
        group.drain,
        gpus=size,
    )


def _network(section: NetworkSection | None) -> Network:
    """Return the network; without a section there is one GPU and nothing to transfer."""
    if section is None:
        return Network(Link(), Link())
    between = Link(section.latency, section.bandwidth)
    inside = section.within_server
    if inside is None:
        return Network(between, between, section.staged)
    within = Link(
        between.latency_us if inside.latency is None else inside.latency,
        between.bandwidth if inside.bandwidth is None else inside.bandwidth,
    )
    return Network(between, within, section.staged)


def build_restrictions(document: ScenarioDocument, cluster: Cluster) -> Restrictions:
    """Return the restrictions with every place resolved into GPUs.

    Raises
    ------
    FieldError
        For an unknown place, model or workflow, a second pin of the same subject, or if no GPU is left for one.
    """
    section = document.restrictions
    places = _places(document, cluster)
    everywhere = frozenset(range(len(cluster.gpus)))
    limits: dict[str, dict[str, frozenset[int]]] = {"model": {}, "workflow": {}}
    for form, entries in (("pin", section.pin), ("forbid", section.forbid)):
        for position, entry in enumerate(entries):
            where: Where = ("restrictions", form, position)
            sort, name = _subject(document, entry, where)
            there = _resolve(entry, places, (*where, "on"))
            if form == "pin" and name in limits[sort]:
                raise FieldError((*where, sort), f"{sort} {quote(name)} is pinned twice; allowed is one list of places")
            before = limits[sort].get(name, everywhere)
            limits[sort][name] = there if form == "pin" else before - there
            if not limits[sort][name]:
                raise FieldError((*where, "on"), f"leaves no GPU for {sort} {quote(name)}; allowed is to leave one")
    for name in section.max_replicas:
        if name not in document.models:
            raise FieldError(("restrictions", "max_replicas", name), f"unknown model; {allowed(name, document.models)}")
    return Restrictions(limits["model"], limits["workflow"], dict(section.max_replicas), section.no_swaps)


def _subject(document: ScenarioDocument, entry: PlaceSection, where: Where) -> tuple[str, str]:
    sort, name = ("model", entry.model) if entry.model is not None else ("workflow", str(entry.workflow))
    known = list(document.models) if sort == "model" else list(document.workflows)
    if name not in known:
        raise FieldError((*where, sort), f"unknown {sort} {quote(name)}; {allowed(name, known)}")
    return sort, name


def _places(document: ScenarioDocument, cluster: Cluster) -> dict[str, frozenset[int]]:
    """Return the GPUs of every place that can be named; groups count from 1."""
    members: dict[str, set[int]] = {}
    group_of_server = [
        position for position, group in enumerate(document.cluster.server_groups, 1) for _ in range(group.count)
    ]
    for index, gpu in enumerate(cluster.gpus):
        for name in (gpu.id, f"s{gpu.server}", f"group {group_of_server[gpu.server]}"):
            members.setdefault(name, set()).add(index)
    return {name: frozenset(gpus) for name, gpus in members.items()}


def _resolve(entry: PlaceSection, places: dict[str, frozenset[int]], where: Where) -> frozenset[int]:
    found: frozenset[int] = frozenset()
    for position, text in enumerate(entry.on):
        group = _GROUP.fullmatch(text)
        name = f"group {int(group[1])}" if group else text
        if name not in places:
            problem = f"unknown place {quote(text)}; {allowed(text, places)} (groups count from 1)"
            raise FieldError((*where, position), problem)
        found |= places[name]
    return found


def build_initial(document: ScenarioDocument, cluster: Cluster) -> tuple[InitialResidency, ...]:
    """Return the initial residencies; where a slot is left out, the smallest free one that fits.

    Raises
    ------
    FieldError
        For an unknown GPU or model, or if no slot is free.
    """
    gpus = {gpu.id: index for index, gpu in enumerate(cluster.gpus)}
    models = {name: index for index, name in enumerate(document.models)}
    entries = document.options.initial_residency
    for position, entry in enumerate(entries):
        for key, name, known in (("gpu", entry.gpu, gpus), ("model", entry.model, models)):
            if name not in known:
                where = ("options", "initial_residency", position, key)
                raise FieldError(where, f"unknown {key} {quote(name)}; {allowed(name, known)}")
    taken = {(entry.gpu, entry.slot) for entry in entries}
    initial = []
    for position, entry in enumerate(entries):
        slot = entry.slot
        slots = cluster.gpus[gpus[entry.gpu]].slots
        if slots and slot is None:
            slot = _free_slot(document, slots, taken, position, entry)
            taken.add((entry.gpu, slot))
        initial.append(InitialResidency(gpus[entry.gpu], models[entry.model], slot))
    return tuple(initial)


def _free_slot(
    document: ScenarioDocument,
    slots: tuple[int, ...],
    taken: set[tuple[str, int | None]],
    position: int,
    entry: ResidencySection,
) -> int:
    weight = document.models[entry.model].weights
    free = [(size, slot) for slot, size in enumerate(slots) if size >= weight and (entry.gpu, slot) not in taken]
    if not free:
        where = ("options", "initial_residency", position)
        raise FieldError(where, f"no free slot of {entry.gpu} holds {weight} bytes; allowed is a model that fits one")
    return min(free)[1]


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
        size = f"{len(self.jobs)} jobs, {self.instance.n_tasks} tasks, {len(self.models)} models"
        return f"<Scenario {self.name!r}: {size}, {self.instance.n_gpus} GPUs, {self.objective}>"

    if not TYPE_CHECKING:  # which is to see what is missing

        def __getattr__(self, name: str) -> Any:
            # Only what is missing comes here; notebooks and copies ask for much that begins so, and are to go on.
            raise AttributeError(name) if name.startswith("_") else no_attribute(self, name)

    @staticmethod
    def load(scenario: Scenario | str | Path | Mapping[str, object]) -> Scenario:
        """Return the scenario of a YAML or JSON file, or of plain data with the keys of one.

        Raises
        ------
        InputError
            With file, line and field of what is wrong.
        """
        if isinstance(scenario, Scenario):
            return scenario
        return scenario_from(scenario) if isinstance(scenario, Mapping) else load_scenario(scenario)

    @property
    def cluster(self) -> Cluster:
        """The GPUs, and the network between them."""
        return self.instance.cluster

    @property
    def models(self) -> tuple[MLModel, ...]:
        """The models, in the order of the file."""
        return self.instance.models

    @property
    def workflows(self) -> tuple[Workflow, ...]:
        """The workflows, in the order of the file."""
        return self.instance.catalogue

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs, in the order of their release."""
        return self.instance.jobs

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

        Parameters
        ----------
        changes
            By dotted path, as in sweeps: a new value, a factor such as ``"x2"``, or None to remove what stands there.

        Raises
        ------
        InputError
            With the path of a change that cannot be made, or the field of the scenario that is then wrong.

        Examples
        --------
        >>> scenario = Scenario.load("experiments/scenarios/paper_small.yaml")
        >>> scenario.changed({"cluster.servers": 4, "models.*.weights": "x0.5"}).name
        'paper-small with cluster.servers 4, models.*.weights x0.5'
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
    data = source.data()
    if isinstance(data, Mapping) and "scenario_hash" in data:
        what = "certificate" if "method" in data else "plan or timeline"
        raise InputError(source.file, 1, "document", f"is a {what}, not a scenario; write the SCENARIO file first")
    return _build_and_tell(validate(ScenarioDocument, data, source), source)


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
    return _build_and_tell(validate(ScenarioDocument, content, source), source)


def _build_and_tell(document: ScenarioDocument, source: Source) -> Scenario:
    scenario = build(document, source)
    tell_doubts(document, scenario.instance, source.file)
    return scenario


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
    degrees = degrees_of(document)
    check_engines(document, degrees)
    cluster = build_cluster(document.cluster, degrees)
    models = tuple(MLModel(name, section.weights) for name, section in document.models.items())
    forms = request_forms(document, one_of_each(cluster))
    workflows = build_workflows(document, forms)
    check_models(document, cluster)
    refuse_unknown_workflows(document.slo, workflows)
    check_transfers(document, cluster, list(workflows.values()))
    restrictions = build_restrictions(document, cluster)
    initial = build_initial(document, cluster)
    check_places(cluster, list(workflows.values()))
    check_tables(cluster, restrictions, list(workflows.values()))
    blame_workflows(cluster, models, workflows, restrictions)
    blame_initial(cluster, models, restrictions, initial)
    jobs = build_jobs(document, workflows, forms, folder)
    check_tasks(jobs)
    check_delays(cluster, restrictions, jobs)
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
