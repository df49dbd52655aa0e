"""Workflows as trees: what the cheapest-path kernel walks through.

Every workflow has one end: its only sink, or an added node of no duration after all of them. A spanning tree of its
precedences, rooted at the end, is kept exactly; every other precedence is priced (see `relaxation`). Where a workflow
has one source, all of the tree runs away from it, so that the same tree can be rooted there, too (see `pooled`).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from truenorth.models import NONE, Instance
from truenorth.models.instance import Ints
from truenorth.solvers.bounds.batch_work import BatchSizes
from truenorth.solvers.bounds.critical_path import Earliest, fastest_run_us, jobs_by_workflow

NO_TASK = -1
"""Stands for the position of an added end node."""


class Shapes(NamedTuple):
    """The trees of all workflows in flat arrays; within a workflow every node comes before its parent, the root last.

    Parameters
    ----------
    node_first
        First node of each workflow, and the number of nodes at the end.
    parent
        Per node, counted within the workflow; the root has -1.
    after_parent
        Per node: whether the precedence runs from the parent to the node (otherwise from the node to it).
    option_first
        First option (GPU class and size of batch) of each node, and the number of options at the end.
    run_us, lane
        Per option: run time, and the lane whose prices it pays (-1: none).
    from_us
        Per option: before this instant no batch of its size can start.
    place
        Per option: the row of `Forest.places` that it takes a place of (-1: none).
    held
        Per option with a place: the lane whose prices the task pays itself, for the memory it holds (-1: none).
    extra_first
        First priced precedence of each workflow, and their number at the end.
    extra_source, extra_target
        Per priced precedence: its nodes, counted within the workflow.
    first_child, next_child
        Per node: the first node below it, and the next below the same parent, counted within the workflow (-1: none).
    first_into, next_into, first_from, next_from
        The same of priced precedences: per node the first that leads to (leaves) it, per precedence the next one.
    last_to_end
        Per workflow: the node whose end is the job's, counted within the workflow.
    """

    node_first: Ints
    parent: Ints
    after_parent: Ints
    option_first: Ints
    run_us: Ints
    lane: Ints
    from_us: Ints
    place: Ints
    held: Ints
    extra_first: Ints
    extra_source: Ints
    extra_target: Ints
    first_child: Ints
    next_child: Ints
    first_into: Ints
    next_into: Ints
    first_from: Ints
    next_from: Ints
    last_to_end: Ints


class PriceLane(NamedTuple):
    """Tasks that pay the same prices: on a GPU class, with these models in use, as one of so many in a batch.

    Parameters
    ----------
    share
        Of a GPU's compute that the batch takes, in parts of `WHOLE`: more than that on several GPUs.
    memory_bytes
        What a task holds itself while it runs.
    starts_us
        From these instants on the batch may have 1, 2, 3, ... members; there are as many as it has at most.
    """

    gpu_class: int
    needs: tuple[int, ...]
    share: int
    memory_bytes: int
    starts_us: tuple[int, ...]


class PlaceRow(NamedTuple):
    """Batches of a class on a GPU class that have `fewest` to `most` members and run for one time."""

    batch: int
    gpu_class: int
    fewest: int
    most: int
    run_us: int


@dataclass(frozen=True, slots=True)
class Forest:
    """The trees, their lanes, and per node its position in its workflow (`NO_TASK`: an added end).

    Parameters
    ----------
    places
        Batches whose places have a price.
    starts_us
        When tasks of each batch class can start at the earliest, ascending.
    """

    shapes: Shapes
    lanes: tuple[PriceLane, ...]
    node_task: Ints
    places: tuple[PlaceRow, ...]
    starts_us: tuple[tuple[int, ...], ...]


def forest(instance: Instance, times: Earliest, from_source: bool = False, placed: bool = True) -> Forest:
    """Return the trees of an instance's workflows; by `times` there are, from some instant on, enough for a batch.

    Parameters
    ----------
    from_source
        Root the trees at the only source of each workflow, in place of its end.
    placed
        Whether tasks pay for batches one by one, in place of all alike.
    """
    fastest = fastest_run_us(instance)
    options = _Options(instance, times, placed)
    node_first, option_first, extra_first = [0], [0], [0]
    parents: list[int] = []
    after_parent: list[bool] = []
    extra: list[tuple[int, int]] = []
    links: list[list[int]] = [[] for _ in range(6)]
    node_task: list[int] = []
    last_to_end: list[int] = []
    for index, workflow in enumerate(instance.workflows):
        first = int(instance.template_first[index])
        count = len(workflow.tasks)
        arcs = [(t + offset, t) for t in range(count) for offset, _ in instance.inputs[first + t]]
        sinks = sorted(set(range(count)) - {a for a, _ in arcs})
        end = sinks[0] if len(sinks) == 1 else count
        arcs += [(sink, end) for sink in sinks if end == count]
        slack = _slack(arcs, workflow.topological, fastest[first:], end)
        sources = sorted(set(range(count)) - {b for _, b in arcs})
        tree = _tightest_into(arcs, slack) if len(sources) == 1 else arcs
        order, towards, kept = _rooted_tree(sources[0] if from_source else end, tree, slack)
        position = {node: at for at, node in enumerate(order)}
        last_to_end.append(position[end])
        for node in order:
            node_task.append(node if node < count else NO_TASK)
            parents.append(position[towards[node]] if node in towards else -1)
            after_parent.append(node in towards and (towards[node], node) in kept)
            if node < count:
                options.add_task(first + node)
            else:
                options.add(0)
            option_first.append(len(options.run_us))
        priced = [(position[a], position[b]) for a, b in arcs if (a, b) not in kept]
        for at, of in enumerate((parents[node_first[-1] :], [b for _, b in priced], [a for a, _ in priced])):
            for out, more in zip(links[2 * at : 2 * at + 2], _linked(of, len(order)), strict=True):
                out += more
        extra += priced
        node_first.append(len(node_task))
        extra_first.append(len(extra))
    shapes = Shapes(
        np.array(node_first, np.int64),
        np.array(parents, np.int64),
        np.array(after_parent, np.int64),
        np.array(option_first, np.int64),
        np.array(options.run_us, np.int64),
        np.array(options.lane, np.int64),
        np.array(options.from_us, np.int64),
        np.array(options.place, np.int64),
        np.array(options.held, np.int64),
        np.array(extra_first, np.int64),
        np.array([a for a, _ in extra], np.int64),
        np.array([b for _, b in extra], np.int64),
        *(np.array(link, np.int64) for link in [*links, last_to_end]),
    )
    starts = tuple(map(tuple, options.starts_us))
    return Forest(shapes, tuple(options.lanes), np.array(node_task, np.int64), tuple(options.places), starts)


class _Options:
    """The ways to run each task, one after the other, and the lanes that they pay."""

    def __init__(self, instance: Instance, times: Earliest, placed: bool) -> None:
        self._instance, self._sizes, self._placed = instance, BatchSizes(instance), placed
        of_task = instance.template_batch[instance.task_template]
        classes = range(len(instance.batches))
        self.starts_us: list[list[int]] = [np.sort(times.start_us[of_task == batch]).tolist() for batch in classes]
        self.run_us: list[int] = []
        self.lane: list[int] = []
        self.from_us: list[int] = []
        self.place: list[int] = []
        self.held: list[int] = []
        self.lanes: dict[PriceLane, int] = {}
        self.places: dict[PlaceRow, int] = {}

    def add(self, run_us: int, lane: int = -1, from_us: int = 0, place: int = -1, held: int = -1) -> None:
        """Add a way to run."""
        self.run_us.append(run_us)
        self.lane.append(lane)
        self.from_us.append(from_us)
        self.place.append(place)
        self.held.append(held)

    def add_task(self, template: int) -> None:
        """Add all ways to run a task: on every class of places, in batches of every size."""
        instance, needs = self._instance, tuple(sorted(self._instance.needs[template]))
        share, memory = int(instance.template_share[template]), int(instance.template_memory[template])
        batch = int(instance.template_batch[template])
        arrivals = [] if batch == NONE else self.starts_us[batch]
        # A table of one size has nobody to wait for.
        priced = self._placed and len(arrivals) > 1 and instance.batch_largest[batch].max() > 1
        for kind, ((c, *_), gpus, _) in enumerate(instance.place_kinds):
            for fewest, most, run_us in self._sizes.on(template, kind):
                starts = (0, *arrivals[1:most]) if most > 1 else (0,)
                place = held = -1
                if priced:
                    place = self.places.setdefault(PlaceRow(batch, c, fewest, most, run_us), len(self.places))
                    lane = self._lane(PriceLane(c, needs, share, 0, (0,)))
                    held = self._lane(PriceLane(c, (), 0, memory, (0,))) if memory else -1
                else:
                    lane = self._lane(PriceLane(c, needs, gpus * share, memory, starts))
                self.add(run_us, lane, starts[fewest - 1], place, held)

    def _lane(self, lane: PriceLane) -> int:
        """Return the number of a lane, a new one if it is not known."""
        return self.lanes.setdefault(lane, len(self.lanes))


def _linked(of: list[int], nodes: int) -> tuple[list[int], list[int]]:
    """Return the first thing that belongs to each node, and after each thing the next one of its node; -1: none."""
    first, following = [-1] * nodes, [-1] * len(of)
    for thing in reversed(range(len(of))):
        if of[thing] >= 0:
            following[thing] = first[of[thing]]
            first[of[thing]] = thing
    return first, following


def node_earliest(instance: Instance, trees: Forest, times: Earliest) -> tuple[Ints, Ints]:
    """Return the first node of each job (and their number at the end), and the earliest start of every node."""
    sizes = np.diff(trees.shapes.node_first)[instance.job_workflow]
    first = np.concatenate(([0], np.cumsum(sizes)))
    start = np.empty(first[-1], np.int64)
    last_end = np.maximum.reduceat(times.end_us, instance.job_first_task[:-1])
    for index, jobs in enumerate(jobs_by_workflow(instance)):
        low, high = trees.shapes.node_first[index], trees.shapes.node_first[index + 1]
        for at, task in enumerate(trees.node_task[low:high].tolist()):
            if task == NO_TASK:
                start[first[jobs] + at] = last_end[jobs]
            else:
                start[first[jobs] + at] = times.start_us[instance.job_first_task[jobs] + task]
    return first, start


def _slack(
    arcs: list[tuple[int, int]], topological: tuple[int, ...], fastest: Ints, root: int
) -> dict[tuple[int, int], int]:
    """Return how much later than its input each successor can start anyway, by precedence."""
    start = dict.fromkeys((*topological, root), 0)
    run = {node: int(fastest[node]) for node in topological} | ({} if root in topological else {root: 0})
    targets: dict[int, list[int]] = {}
    for a, b in arcs:
        targets.setdefault(a, []).append(b)
    for node in topological:
        for target in targets.get(node, ()):
            start[target] = max(start[target], start[node] + run[node])
    return {(a, b): start[b] - start[a] - run[a] for a, b in arcs}


def _tightest_into(arcs: list[tuple[int, int]], slack: dict[tuple[int, int], int]) -> list[tuple[int, int]]:
    """Return the tightest precedence into each node: where there is one source, a tree."""
    tightest: dict[int, tuple[int, int]] = {}
    for arc in sorted(arcs, key=lambda arc: (slack[arc], arc)):
        tightest.setdefault(arc[1], arc)
    return list(tightest.values())


def _rooted_tree(
    root: int, arcs: list[tuple[int, int]], slack: dict[tuple[int, int], int]
) -> tuple[list[int], dict[int, int], set[tuple[int, int]]]:
    """Grow the tree from the root along the tightest precedences; return order, parents and kept precedences.

    Prim's algorithm with a heap: a chain of a thousand tasks takes milliseconds.
    """
    beside: dict[int, list[tuple[int, int]]] = {root: []}
    for arc in arcs:
        for node in arc:
            beside.setdefault(node, []).append(arc)
    grown, towards = [root], dict[int, int]()
    inside, kept = {root}, set[tuple[int, int]]()
    crossing = [(slack[arc], arc) for arc in beside[root]]
    heapq.heapify(crossing)
    while len(grown) < len(beside):
        a, b = heapq.heappop(crossing)[1]
        if a in inside and b in inside:  # reached by a tighter one meanwhile
            continue
        known, new = (a, b) if a in inside else (b, a)
        grown.append(new)
        inside.add(new)
        towards[new] = known
        kept.add((a, b))
        for arc in beside[new]:
            heapq.heappush(crossing, (slack[arc], arc))
    return grown[::-1], towards, kept
