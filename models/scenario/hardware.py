"""From the document's cluster, restrictions and initial residencies to those of the core types."""

from __future__ import annotations

import re
from collections.abc import Sequence

from truenorth.models.cluster import GPU, Availability, Cluster, Interval, Link, Network
from truenorth.models.instance import InitialResidency, Restrictions
from truenorth.models.scenario.document import (
    ClusterSection,
    GroupSection,
    NetworkSection,
    PlaceSection,
    ResidencySection,
    ScenarioDocument,
)
from truenorth.models.scenario.errors import FieldError, Where, allowed, blame, quote
from truenorth.models.scenario.quantities import MAX_GPUS

_GROUP = re.compile(r"group\s+(\d{1,9})", re.ASCII)


def build_cluster(section: ClusterSection) -> Cluster:
    """Return the cluster; servers are numbered across groups in file order.

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
            gpus += [
                _gpu(group, server, place, section.away.get(server, ()))
                for server in range(first_server, first_server + group.count)
                for place in range(group.gpus_per_server)
            ]
        first_server += group.count
    return Cluster(tuple(gpus), _network(section.network))


def _group_path(section: ClusterSection, position: int) -> Where:
    """Return where a group stands in the document."""
    return ("cluster",) if section.groups is None else ("cluster", "groups", position)


def _gpu(group: GroupSection, server: int, place: int, away: Sequence[Interval]) -> GPU:
    gpu = group.gpu
    with blame(("cluster", "away", f"s{server}"), "a server that is there at some time"):
        available = Availability.of(group.available).without(away)
    return GPU(
        f"s{server}/g{place}",
        server,
        gpu.kind,
        gpu.memory_bytes,
        gpu.load_bandwidth,
        gpu.slots or (),
        gpu.load_overhead,
        available,
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
