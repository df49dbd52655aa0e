"""A workflow as a picture: tasks from left to right, with what they need and how long they run."""

from __future__ import annotations

import networkx as nx
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from truenorth.models.branches import likelihoods
from truenorth.models.scenario.work import workflow_graph
from truenorth.models.workload import Workflow
from truenorth.planner.show.canvas import COLOURS

_COLUMN_INCHES, _ROW_INCHES = 2.4, 1.1


def draw_workflow(workflow: Workflow) -> Figure:
    """Return a drawing of a workflow: a box per task, an arrow per edge, predecessors to the left.

    Of branches, each has a colour, and its tasks say how likely they are.
    """
    graph = workflow_graph(workflow)
    layers = nx.topological_generations(graph)
    columns = [sorted(layer, key=workflow.position.__getitem__) for layer in layers]
    for column, names in enumerate(columns):
        for name in names:
            graph.nodes[name]["column"] = column
    size = (_COLUMN_INCHES * len(columns), _ROW_INCHES * max(map(len, columns)) + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    box = {"boxstyle": "round,pad=0.5", "facecolor": "white"}
    colours = {name: COLOURS[1 + i % 10] for i, branch in enumerate(workflow.branches) for name in branch.tasks}
    likely = dict(zip(workflow.position, likelihoods(workflow), strict=True))
    place = nx.multipartite_layout(graph, subset_key="column", scale=1.0)
    for name, (x, y) in place.items():
        # A name is data: dollar signs in it are no mathematics.
        label = _label(workflow, name) + (f"\n{float(likely[name]):.3g} of jobs" if likely[name] < 1 else "")
        own = {**box, "edgecolor": colours.get(name, COLOURS[0])}
        axes.text(x, y, label, ha="center", va="center", fontsize=9, bbox=own, parse_math=False)
    nx.draw_networkx_edges(graph, place, ax=axes, node_size=4000, edge_color="#667788")
    axes.set_title(workflow.name, loc="left", fontsize=11, parse_math=False)
    axes.margins(0.25)
    axes.set_axis_off()
    return figure


def _label(workflow: Workflow, name: str) -> str:
    task = workflow.tasks[workflow.position[name]]
    times = sorted({runtime_us / 1000 for runtime_us in task.runtime_us.values()})
    span = f"{times[0]:g} ms" if len(times) == 1 else f"{times[0]:g} to {times[-1]:g} ms"
    needs = "" if task.models in ((), (name,)) else f"\n{' + '.join(task.models)}"
    return f"{name}{needs}\n{span}"
