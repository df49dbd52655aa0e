"""Upward ranks: the order in which Compass and HEFT place the tasks of a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from itertools import product

from executor.site import Site
from models import NEVER, Workflow
from models.workload import Branch


def rank_order(site: Site, workflow: int, transfers: MeanTransfers) -> list[int]:
    """Return the tasks of a workflow by decreasing rank, equal ranks in task order.

    rank(t) = R(t) + max over successors s of (transfer(t, s) + rank(s)), where R(t) is the mean run time over the
    eligible workers and transfer the mean over the pairs of different workers; exact. Where branches follow, the
    expectation over them takes the place of the maximum.

    Returns
    -------
    list of int
        Positions in the workflow; every task stands before its successors, since run times are positive.
    """
    first, asked = site.template_first[workflow], site.workflows[workflow]
    branch_of = {asked.position[name]: branch for branch in asked.branches for name in branch.tasks}
    rank: dict[int, Fraction] = {}
    for position in reversed(asked.topological):
        certain = Fraction(0)
        on: dict[Branch, Fraction] = {}
        for offset, edge in site.outputs[first + position]:
            tail, branch = transfers.of(edge) + rank[position + offset], branch_of.get(position + offset)
            if branch is None or position in branch_of:  # inside a branch its own tasks are certain
                certain = max(certain, tail)
            else:
                on[branch] = max(on.get(branch, tail), tail)
        more = sum((branch.probability * max(Fraction(0), on[branch] - certain) for branch in on), Fraction(0))
        rank[position] = mean_run(site, site.run_us[first + position]) + certain + more
    return _by_rank(asked, rank)


def _by_rank(workflow: Workflow, rank: dict[int, Fraction]) -> list[int]:
    """Return the tasks by decreasing rank, each behind its predecessors: an expected rank may be below a follower's."""
    sorter = TopologicalSorter(
        {index: [workflow.position[edge.source] for edge in task.inputs] for index, task in enumerate(workflow.tasks)}
    )
    sorter.prepare()
    order: list[int] = []
    ready: list[tuple[Fraction, int]] = []
    while sorter.is_active():
        for position in sorter.get_ready():
            heappush(ready, (-rank[position], position))
        order.append(heappop(ready)[1])
        sorter.done(order[-1])
    return order


def mean_run(site: Site, by_class: Sequence[int]) -> Fraction:
    """Return the mean over the eligible workers of run times given by GPU class."""
    members = Counter(site.gpu_class)
    eligible = [(run_us, members[c]) for c, run_us in enumerate(by_class) if run_us != NEVER]
    return Fraction(sum(run_us * count for run_us, count in eligible), sum(count for _, count in eligible))


class MeanTransfers:
    """Mean transfer times over all ordered pairs of different workers, counted by GPU class and server."""

    def __init__(self, site: Site) -> None:
        self._table = site.transfer_us
        members = Counter(site.gpu_class)
        self._all = {(a, b): members[a] * (members[b] - (a == b)) for a in members for b in members}
        self._near: Counter[tuple[int, int]] = Counter()
        on_server: dict[int, Counter[int]] = {}
        for server, of_class in zip(site.gpu_server, site.gpu_class, strict=True):
            on_server.setdefault(server, Counter())[of_class] += 1
        for here in on_server.values():
            for a, b in product(here, here):
                self._near[a, b] += here[a] * (here[b] - (a == b))

    def of(self, edge: int) -> Fraction:
        """Return the mean for an edge; zero on a single worker."""
        total = 0
        for (source, target), count in self._all.items():
            far, near = self._table[edge][source][target]
            total += far * (count - self._near[source, target]) + near * self._near[source, target]
        return Fraction(total, max(1, sum(self._all.values())))
