"""Workflows as networkx graphs: a user's DAG becomes the workflow section of a scenario, and a workflow a graph.

Nodes are tasks and carry the keys of a task in a scenario file (``models``, ``runtime``, ``output``, ...); an edge may
carry ``bytes`` of its own, in place of what its source puts out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from models.scenario.errors import InputError, quote
from models.workload import WHOLE, Task, Workflow

if TYPE_CHECKING:
    import networkx as nx

    Graph = nx.DiGraph[Any]

_BYTES = "bytes"


def workflow_section(graph: Graph) -> dict[str, Any]:
    """Return a graph as a workflow of the data that `scenario_from` takes.

    Raises
    ------
    InputError
        If the graph is undirected or has parallel edges, two nodes bear one name, or an edge carries anything but
        ``bytes``. What is wrong with a task is for `scenario_from` to say.

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
        tasks[str(node)] = {**attributes, "after": _inputs(graph, node)}
    return {"tasks": tasks}


def _inputs(graph: Graph, node: object) -> dict[str, Any]:
    for source, _, attributes in graph.in_edges(node, data=True):
        if others := sorted(attributes.keys() - {_BYTES}, key=str):
            field = f"tasks.{node}.after.{source}"
            raise InputError("graph", None, field, f"unknown attribute {quote(others[0])}; allowed is {_BYTES}")
    return {str(source): attributes.get(_BYTES) for source, _, attributes in graph.in_edges(node, data=True)}


def workflow_graph(workflow: Workflow) -> Graph:
    """Return a workflow as a graph whose section is that workflow again; tasks in the order of the workflow."""
    import networkx as nx

    graph: Graph = nx.DiGraph(name=workflow.name)
    for task in workflow.tasks:
        graph.add_node(task.name, **_attributes(task))
    for task in workflow.tasks:
        for edge in task.inputs:
            graph.add_edge(edge.source, task.name, bytes=f"{edge.size_bytes} B")
    return graph


def _attributes(task: Task) -> dict[str, Any]:
    """Return what a task asks for, with the keys of a scenario file."""
    given = {"input": f"{task.input_bytes} B"} if task.input_bytes else {}
    if task.batch is not None:
        return {"batch": task.batch.name, **given}
    runtime = {kind: f"{runtime_us} us" for kind, runtime_us in task.runtime_us.items()}
    asked: dict[str, Any] = {
        "models": list(task.models),
        "runtime": runtime["*"] if runtime.keys() == {"*"} else runtime,
        **given,
    }
    if task.share != WHOLE:
        asked["share"] = task.share / WHOLE
    if task.memory_bytes:
        asked["memory"] = f"{task.memory_bytes} B"
    return asked
