"""Workflows as networkx graphs: there and back, and what is refused."""

from __future__ import annotations

import random
from typing import Any

import networkx as nx
import pytest

import truenorth as tn
from truenorth.models import Edge, Task, Workflow
from truenorth.models.scenario import InputError, Scenario, scenario_from, workflow_graph, workflow_section


def scenario_with(graph: nx.DiGraph[Any]) -> Scenario:
    """Return a scenario of one job of a graph, on a GPU of kind A with both models."""
    return scenario_from(
        {
            "cluster": {
                "servers": 1,
                "gpu": {"kind": "A", "memory": "10 GB", "load_bandwidth": "1 GB/s"},
                "network": {"bandwidth": "1 GB/s", "latency": "1 us"},
            },
            "models": {"m": {"weights": "1 GB"}, "n": {"weights": "2 GB"}},
            "workflows": {"w": workflow_section(graph)},
            "workload": {"jobs": [{"release": "0 s", "workflow": "w"}]},
        }
    )


def diamond() -> nx.DiGraph[Any]:
    """Return a (models m, 3 ms, puts out 5 KB) -> b, c -> d; the edge from a to c carries 7 B of its own."""
    graph: nx.DiGraph[Any] = nx.DiGraph()
    graph.add_node("a", models=["m"], runtime="3 ms", output="5 KB")
    graph.add_node("b", models=["m", "n"], runtime={"A": "1 ms", "B": "2 ms"})
    graph.add_node("c", runtime="4 ms")
    graph.add_node("d", runtime="1 us")
    graph.add_edges_from([("a", "b"), ("a", "c", {"bytes": "7 B"}), ("b", "d"), ("c", "d")])
    return graph


def test_a_graph_becomes_the_workflow_it_draws() -> None:
    workflow = scenario_with(diamond()).instance.workflows[0]
    assert workflow.tasks == (
        Task("a", {"*": 3000}, ("m",)),
        Task("b", {"A": 1000, "B": 2000}, ("m", "n"), (Edge("a", 5000),)),
        Task("c", {"*": 4000}, (), (Edge("a", 7),)),
        Task("d", {"*": 1}, (), (Edge("b", 0), Edge("c", 0))),
    )
    assert workflow.critical_path_us == 7001


@pytest.mark.parametrize("seed", range(20))
def test_a_workflow_comes_back_from_its_graph(seed: int) -> None:
    rng = random.Random(seed)
    tasks = [
        Task(
            f"t{i}",
            rng.choice([{"*": rng.randint(1, 9)}, {"A": rng.randint(1, 9), "B": 2}]),
            tuple(rng.sample(["m", "n"], rng.randint(0, 2))),
            tuple(Edge(f"t{j}", rng.randint(0, 99)) for j in range(i) if rng.random() < 0.4),
        )
        for i in range(rng.randint(1, 7))
    ]
    workflow = Workflow("w", tuple(tasks))
    graph = workflow_graph(workflow)
    assert nx.is_directed_acyclic_graph(graph)
    assert scenario_with(graph).instance.workflows[0] == workflow


def test_a_cycle_is_blamed_on_a_task_with_the_way_round() -> None:
    graph = diamond()
    graph.add_edge("d", "a")
    with pytest.raises(InputError, match=r"workflows\.w\.tasks\.\w: workflow w: tasks form a cycle: (\w -> ){3,}\w;"):
        scenario_with(graph)


def test_what_is_no_plain_digraph_is_refused() -> None:
    no_digraphs: list[Any] = [nx.Graph([("a", "b")]), nx.MultiDiGraph([("a", "b"), ("a", "b")])]
    for wrong in no_digraphs:
        with pytest.raises(InputError, match=r"is no plain directed graph; allowed is a networkx\.DiGraph"):
            workflow_section(wrong)
    with pytest.raises(InputError, match=r"tasks\.1: two nodes are named '1'"):
        workflow_section(nx.DiGraph([(1, "1")]))
    with pytest.raises(
        InputError, match=r"tasks\.b\.after\.a: unknown attribute 'weight'; allowed are bytes, delay and hold"
    ):
        workflow_section(nx.DiGraph([("a", "b", {"weight": 3})]))
    graph = diamond()
    graph.nodes["c"]["model"] = "m"
    with pytest.raises(InputError, match=r"workflows\.w\.tasks\.c\.model: unknown key, did you mean 'models'"):
        scenario_with(graph)


def test_the_drawing_places_predecessors_to_the_left_and_says_what_tasks_need() -> None:
    name = "$x^2_$"  # data, not mathematics
    end, begin = Task("end", {"*": 4000}, ("n",), (Edge("begin", 0),)), Task("begin", {"A": 1000, "B": 2500})
    workflow = Workflow(name, (end, begin))
    axes = tn.draw_workflow(workflow).axes[0]
    words = {text.get_text(): text.get_position()[0] for text in axes.texts}
    assert words["begin\n1 to 2.5 ms"] < words["end\nn\n4 ms"]
    assert axes.get_title(loc="left") == name
