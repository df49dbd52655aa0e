"""Engines: how the GPUs of a server are shared out among them, and which numbers of GPUs an engine may have.

An engine of several GPUs is one GPU to everything else: of the kind ``4xH100``, with the memory and the load bandwidth
of all of them. A group says which engines its servers run; where a stream class has modes and a group says nothing, all
engines that could be there are, marked as open, for the one question that chooses among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from truenorth.models.cluster import engine_kind
from truenorth.models.scenario.document import GroupSection, ScenarioDocument
from truenorth.models.scenario.errors import FieldError, Where, quote
from truenorth.models.scenario.stream_section import StreamSection
from truenorth.models.streams import ANY_KIND, of_kind


def degrees_of(document: ScenarioDocument) -> dict[int, tuple[int, ...]]:
    """Return the numbers of GPUs that an engine may have, ascending, by the group of servers that leaves them open.

    Raises
    ------
    FieldError
        If no mode suits a group.
    """
    used = {task.stream for flow in document.workflows.values() for task in flow.tasks.values()}
    streams = [section for name, section in document.streams.items() if name in used]
    if all(section.modes is None for section in streams):
        return {}
    found = {}
    for position, group in enumerate(document.cluster.server_groups):
        if group.engines is None:
            suited = {size for section in streams for size in _suited(document, section, group)}
            if _runs_alone(document, group):
                suited.add(1)
            if not suited:
                where = ("cluster",) if document.cluster.groups is None else ("cluster", "groups", position)
                problem = f"no mode of a stream suits {group.gpus_per_server} {group.gpu.kind} of a server"
                raise FieldError(where, f"{problem}; allowed are modes of at most so many GPUs that hold the weights")
            found[position] = tuple(sorted(suited))
    return found


def _suited(document: ScenarioDocument, section: StreamSection, group: GroupSection) -> Iterator[int]:
    """Yield of how many GPUs of a group engines of a class can be: they hold its weights and some KV."""
    weights = sum(document.models[name].weights for name in section.models if name in document.models)
    for size in {1, *(mode.gpus for mode in section.modes or ())}:
        fits = size <= group.gpus_per_server and weights < size * group.gpu.memory_bytes
        fits &= size == 1 or group.gpu.slots is None
        if fits and of_kind(section.laws, engine_kind(size, group.gpu.kind)) is not None:
            yield size


def _runs_alone(document: ScenarioDocument, group: GroupSection) -> bool:
    """Say whether a task or a batch runs on a single GPU of a group."""
    tasks = [task for flow in document.workflows.values() for task in flow.tasks.values()]
    tables = [task.runtime or {} for task in tasks] + [
        document.batches[task.batch].runtime for task in tasks if task.batch in document.batches
    ]
    return any(of_kind(table, group.gpu.kind) is not None for table in tables)


def engines(group: GroupSection, degrees: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Return the first GPU, and the number of GPUs, of each engine of a server; all that fit where `degrees` are open.

    >>> gpu = {"kind": "H100", "memory": "80 GB", "load_bandwidth": "9 GB/s"}
    >>> group = {"count": 1, "gpus_per_server": 4, "gpu": gpu}
    >>> engines(GroupSection.model_validate(group | {"engines": [1, 2]}))
    [(0, 2), (2, 1)]
    >>> engines(GroupSection.model_validate(group), [1, 2])
    [(0, 1), (1, 1), (2, 1), (3, 1), (0, 2), (2, 2)]
    """
    if degrees:
        held = group.gpus_per_server
        return [(first, size) for size in degrees for first in range(0, held - size + 1, size)]
    return [(sum(group.layout[:at]), size) for at, size in enumerate(group.layout)]


def check_engines(document: ScenarioDocument, degrees: Mapping[int, Sequence[int]]) -> None:
    """Refuse what holds for every kind of GPU, or takes several GPUs, where engines of several are kinds of their own.

    Raises
    ------
    FieldError
        At the first class or task, or at engines that serve nothing.
    """
    groups = document.cluster.server_groups
    for position, group in enumerate(groups):
        where = ("cluster",) if document.cluster.groups is None else ("cluster", "groups", position)
        _refuse_idle_engines(document, group, where)
    widest = max(
        (size, group.gpu.kind) for at, group in enumerate(groups) for size in (*degrees.get(at, ()), *group.layout)
    )
    if widest[0] == 1:
        return
    kind, base = engine_kind(*widest), widest[1]
    advice = f"engines of {widest[0]} GPUs are a kind of their own, {quote(kind)}; name kinds, such as {quote(base)}"
    for name, section in document.streams.items():
        if section.modes is None and ANY_KIND in section.laws:
            raise FieldError(("streams", name), f"holds for every kind of GPU, and {advice}, or give modes")
    for name, batch in document.batches.items():
        if ANY_KIND in batch.runtime:
            raise FieldError(("batches", name, "runtime"), f"holds for every kind of GPU, and {advice}")
    for workflow, flow in document.workflows.items():
        for name, task in flow.tasks.items():
            at_task = ("workflows", workflow, "tasks", name)
            if ANY_KIND in (task.runtime or {}):
                raise FieldError((*at_task, "runtime"), f"holds for every kind of GPU, and {advice}")
            if task.gpus > 1 or task.modes is not None:
                key, taken = ("gpus", str(task.gpus)) if task.modes is None else ("modes", "a choice of")
                problem = f"takes {taken} GPUs beside engines of {widest[0]}"
                raise FieldError((*at_task, key), f"{problem}; allowed are tasks on one GPU or engine there")


def _refuse_idle_engines(document: ScenarioDocument, group: GroupSection, where: Where) -> None:
    """Refuse engines of several GPUs of which no stream class says how they serve."""
    served = {
        size
        for section in document.streams.values()
        for size in range(1, group.gpus_per_server + 1)
        if of_kind(section.laws, engine_kind(size, group.gpu.kind)) is not None
    }
    for size in group.layout:
        if size > 1 and size not in served:
            known = ", ".join(map(str, sorted(served))) or "single GPUs"
            problem = f"has an engine of {size} GPUs, for which no stream has a mode; allowed are {known}"
            raise FieldError((*where, "engines"), problem)
