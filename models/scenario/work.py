"""Workflows: from the document's batch classes and workflows to the core types, and to and from networkx graphs.

In a graph nodes are tasks and carry the keys of a task in a scenario file (``models``, ``runtime``, ``output``, ...);
an edge may carry ``bytes`` of its own, in place of what its source puts out, and a ``delay``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from truenorth.models.scenario.document import BatchSection, ScenarioDocument, TaskSection, WorkflowSection
from truenorth.models.scenario.errors import FieldError, InputError, Where, allowed, blame, quote
from truenorth.models.scenario.quantities import KV
from truenorth.models.scenario.requests import (
    Forms,
    RequestForm,
    refuse_unknown_models,
    request_forms,
    stream_class,
)
from truenorth.models.streams import StreamClass, Tokens
from truenorth.models.tables import LARGEST
from truenorth.models.units import QuantityError
from truenorth.models.workload import WHOLE, BatchClass, Branch, Edge, Mode, Task, Workflow, WorkflowCycleError

if TYPE_CHECKING:
    import networkx as nx

    Graph = nx.DiGraph[Any]


_BYTES, _DELAY, _HOLD = "bytes", "delay", "hold"


@dataclass(frozen=True, slots=True)
class _Classes:
    """The classes that tasks may name, and how requests get their tokens."""

    batches: Mapping[str, BatchClass]
    streams: Mapping[str, StreamClass]
    forms: Forms


def build_workflows(document: ScenarioDocument, forms: Forms | None = None) -> dict[str, Workflow]:
    """Return the workflows by name; without `forms` requests of streams may be longer than the cluster can hold.

    Raises
    ------
    FieldError
        For an unknown model, class or predecessor, a model named twice, tokens that no request can have, or a cycle.
    """
    batches = {name: _batch_class(document, name, section) for name, section in document.batches.items()}
    streams = {name: stream_class(name, section) for name, section in document.streams.items()}
    classes = _Classes(batches, streams, request_forms(document) if forms is None else forms)
    return {name: _workflow(document, classes, name, section) for name, section in document.workflows.items()}


def _batch_class(document: ScenarioDocument, name: str, section: BatchSection) -> BatchClass:
    where = ("batches", name)
    refuse_unknown_models(document, section.models, where)
    with blame((*where, "models"), "each model once"):
        return BatchClass(name, section.runtime, section.models, section.share, section.memory)


def _workflow(document: ScenarioDocument, classes: _Classes, name: str, section: WorkflowSection) -> Workflow:
    tasks = tuple(_task(document, classes, name, section, task) for task in section.tasks)
    for index, part in enumerate(section.branches):
        for position, task in enumerate(part.tasks):
            if task not in section.tasks:
                where = ("workflows", name, "branches", index, "tasks", position)
                raise FieldError(where, f"unknown task; {allowed(task, section.tasks)}")
    branches = tuple(Branch(part.probability, part.tasks) for part in section.branches)
    try:
        return Workflow(name, tasks, branches, ideal_us=section.ideal)
    except WorkflowCycleError as error:
        problem = f"{error}; allowed is an order without cycles"
        raise FieldError(("workflows", name, "tasks", error.cycle[0]), problem) from None
    except ValueError as error:
        if section.branches:
            problem = f"{error}; allowed are branches of tasks of their own, whose probabilities add up to 1"
            raise FieldError(("workflows", name, "branches"), problem) from None
        problem = f"{error}; allowed are ties to earlier requests, KV held for one of them, and one first token"
        raise FieldError(("workflows", name, "tasks"), problem) from None


def _task(document: ScenarioDocument, classes: _Classes, workflow: str, section: WorkflowSection, name: str) -> Task:
    task, where = section.tasks[name], ("workflows", workflow, "tasks", name)
    refuse_unknown_models(document, task.models, where)
    if task.batch is not None and task.batch not in classes.batches:
        problem = f"unknown batch class {quote(task.batch)}; {allowed(task.batch, classes.batches)}"
        raise FieldError((*where, "batch"), problem)
    for source in task.after:
        if source not in section.tasks:
            raise FieldError((*where, "after", source), f"unknown task; {allowed(source, section.tasks)}")
    if task.tied_to is not None and task.tied_to not in section.tasks:
        others = [each for each in section.tasks if each != name]
        problem = f"unknown task {quote(task.tied_to)}; {allowed(task.tied_to, others)}"
        raise FieldError((*where, "with"), problem)
    inputs = _inputs(task, section)
    if task.batch is not None:
        return Task.of_class(name, classes.batches[task.batch], inputs, task.input)
    if task.stream is not None:
        return _request(classes, where, task, inputs)
    if task.modes is not None:
        modes = (Mode(mode.gpus, mode.runtime, mode.across, mode.weights == "copy") for mode in task.modes)
        with blame((*where, "models"), "each model once"):
            made = Task.of_modes(name, modes, task.memory, task.models)
        return replace(made, inputs=inputs, input_bytes=task.input)
    with blame((*where, "models"), "each model once"):
        plain = Task(name, task.runtime or {}, task.models, inputs, task.share, task.memory, None, task.input)
        copies = task.weights == "copy"
        return replace(plain, gpus=task.gpus, across=task.across, copies=copies) if task.gpus > 1 else plain


def _request(classes: _Classes, where: Where, task: TaskSection, inputs: tuple[Edge, ...]) -> Task:
    """Return a task that is a request of a stream."""
    workflow, name = str(where[1]), str(where[-1])
    stream = classes.streams[str(task.stream)]
    try:
        tokens = classes.forms[workflow][name].tokens()
    except QuantityError as error:
        raise FieldError((*where, "prompt"), str(error)) from None
    _refuse_blocks(classes.forms[workflow][name], where, task, tokens)
    adapter = None if task.adapter is None else f"{stream.name}/{task.adapter}"
    if adapter is not None and adapter not in stream.adapters:
        known = [each.partition("/")[2] for each in stream.adapters]
        raise FieldError((*where, "adapter"), f"unknown adapter {quote(str(task.adapter))}; {allowed(adapter, known)}")
    with blame(where, "a request of a stream, tied to another and taking in KV of others"):
        return Task.of_stream(
            name, stream, tokens, inputs, task.input, task.tied_to, task.first_token, adapter, task.blocks
        )


def _refuse_blocks(form: RequestForm, where: Where, task: TaskSection, tokens: Tokens | None) -> None:
    """Refuse blocks that the request cannot have; where each job says how long its prompt is that is for them."""
    try:
        form.refuse_blocks(tokens or Tokens(LARGEST, LARGEST, 1), task.blocks)
    except QuantityError as error:
        raise FieldError((*where, "blocks"), str(error)) from None


def _inputs(task: TaskSection, section: WorkflowSection) -> tuple[Edge, ...]:
    return tuple(
        Edge(source, 0, True, edge.delay, edge.hold)
        if edge.bytes == KV
        else Edge(
            source, section.tasks[source].output if edge.bytes is None else edge.bytes, False, edge.delay, edge.hold
        )
        for source, edge in task.after.items()
    )


def workflow_section(graph: Graph) -> dict[str, Any]:
    """Return a graph as a workflow of the data that `scenario_from` takes.

    Raises
    ------
    InputError
        If the graph is undirected or has parallel edges, two nodes bear one name, or an edge carries anything but
        ``bytes`` and ``delay``. What is wrong with a task is for `scenario_from` to say.

    Examples
    --------
    >>> import networkx as nx
    >>> graph = nx.DiGraph()
    >>> graph.add_node("opt", models=["opt"], runtime="560 ms", output="2 KB")
    >>> graph.add_node("nli", models=["nli"], runtime={"T4": "27 ms"})
    >>> graph.add_edge("opt", "nli")
    >>> workflow_section(graph)["tasks"]["nli"]
    {'models': ['nli'], 'runtime': {'T4': '27 ms'}, 'after': {'opt': None}}
    """
    if not graph.is_directed() or graph.is_multigraph():
        raise InputError("graph", None, "workflow", "is no plain directed graph; allowed is a networkx.DiGraph")
    tasks: dict[str, dict[str, Any]] = {}
    for node, attributes in graph.nodes(data=True):
        if str(node) in tasks:
            raise InputError("graph", None, f"tasks.{node}", f"two nodes are named {quote(node)}; allowed is one each")
        tasks[str(node)] = {**attributes, "after": _edges_into(graph, node)}
    return {"tasks": tasks}


def _edges_into(graph: Graph, node: object) -> dict[str, Any]:
    for source, _, attributes in graph.in_edges(node, data=True):
        if others := sorted(attributes.keys() - {_BYTES, _DELAY, _HOLD}, key=str):
            field = f"tasks.{node}.after.{source}"
            problem = f"unknown attribute {quote(others[0])}; allowed are {_BYTES}, {_DELAY} and {_HOLD}"
            raise InputError("graph", None, field, problem)
    return {
        str(source): dict(attributes) if {_DELAY, _HOLD} & attributes.keys() else attributes.get(_BYTES)
        for source, _, attributes in graph.in_edges(node, data=True)
    }


def workflow_graph(workflow: Workflow) -> Graph:
    """Return a workflow as a graph whose section is that workflow again; tasks in the order of the workflow."""
    import networkx as nx

    graph: Graph = nx.DiGraph(name=workflow.name)
    for task in workflow.tasks:
        graph.add_node(task.name, **_attributes(task))
    for task in workflow.tasks:
        for edge in task.inputs:
            more: dict[str, Any] = {_DELAY: f"{edge.delay_us} us"} if edge.delay_us else {}
            more |= {_HOLD: True} if edge.hold else {}
            graph.add_edge(edge.source, task.name, bytes="kv" if edge.kv else f"{edge.size_bytes} B", **more)
    return graph


def _attributes(task: Task) -> dict[str, Any]:
    """Return what a task asks for, with the keys of a scenario file."""
    given = {"input": f"{task.input_bytes} B"} if task.input_bytes else {}
    if task.batch is not None:
        return {"batch": task.batch.name, **given}
    if task.stream is not None:
        return {**_request_attributes(task), **given}
    held = {"memory": f"{task.memory_bytes} B"} if task.memory_bytes else {}
    if task.modes:
        needed = {"models": list(task.models)} if task.models else {}
        return {**needed, "modes": [_mode_attributes(mode) for mode in task.modes], **given, **held}
    asked: dict[str, Any] = {"models": list(task.models), "runtime": _runtime_text(task.runtime_us), **given}
    if task.share != WHOLE:
        asked["share"] = task.share / WHOLE
    if task.gpus > 1:
        asked["gpus"] = task.gpus
    if task.across != 1:
        asked["across"] = float(task.across)
    if task.copies:
        asked["weights"] = "copy"
    return asked | held


def _mode_attributes(mode: Mode) -> dict[str, Any]:
    """Return a way to run a task, with the keys of a scenario file."""
    across = {} if mode.across == 1 else {"across": float(mode.across)}
    copy = {"weights": "copy"} if mode.copies else {}
    return {"gpus": mode.gpus, "runtime": _runtime_text(mode.runtime_us), **across, **copy}


def _runtime_text(runtime_us: Mapping[str, int]) -> str | dict[str, str]:
    runtime = {kind: f"{time_us} us" for kind, time_us in runtime_us.items()}
    return runtime["*"] if runtime.keys() == {"*"} else runtime


def _request_attributes(task: Task) -> dict[str, Any]:
    """Return what a request of a stream asks for."""
    asked: dict[str, Any] = {} if task.stream is None else {"stream": task.stream.name}
    if task.tokens is not None:
        prompt, uncached, output = task.tokens
        asked |= {"prompt": prompt, "uncached": uncached, "output_tokens": output}
    if task.blocks:
        asked["blocks"] = list(task.blocks)
    if task.tied_to is not None:
        asked["with"] = task.tied_to
    if task.stream is not None and task.models != task.stream.models:
        asked["adapter"] = task.models[-1].removeprefix(f"{task.stream.name}/")
    return asked | {"first_token": True} if task.first_token else asked
