"""Upward ranks: the order in which Compass and HEFT place the tasks of a job."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from executor.site import Site
from models import NEVER


def rank_order(site: Site, workflow: int) -> list[int]:
    """Return the tasks of a workflow by decreasing rank, equal ranks in task order.

    rank(t) = R(t) + max over successors s of (transfer(t, s) + rank(s)), where R(t) is the mean run time over the
    eligible workers and transfer the mean over the pairs of different workers; exact.

    Returns
    -------
    list of int
        Positions in the workflow; every task stands before its successors, since run times are positive.
    """
    first = site.template_first[workflow]
    rank: dict[int, Fraction] = {}
    mean_transfer = _MeanTransfer(site)
    for position in reversed(site.workflows[workflow].topological):
        tail = max(
            (mean_transfer(edge) + rank[position + offset] for offset, edge in site.outputs[first + position]),
            default=Fraction(0),
        )
        rank[position] = mean_run(site, first + position) + tail
    return sorted(rank, key=lambda position: (-rank[position], position))


def mean_run(site: Site, template: int) -> Fraction:
    """Return the mean run time over the eligible workers."""
    members = Counter(site.gpu_class)
    eligible = [(run_us, members[c]) for c, run_us in enumerate(site.run_us[template]) if run_us != NEVER]
    return Fraction(sum(run_us * count for run_us, count in eligible), sum(count for _, count in eligible))


class _MeanTransfer:
    """Mean transfer times over all ordered pairs of different workers, counted by GPU class and server."""

    def __init__(self, site: Site) -> None:
        self._site = site
        members = Counter(site.gpu_class)
        places = Counter(zip(site.gpu_server, site.gpu_class, strict=True))
        self._near: Counter[tuple[int, int]] = Counter()
        for (server, source), count in places.items():
            for (other, target), others in places.items():
                if server == other:
                    self._near[source, target] += count * (others - (source == target))
        self._all = {(a, b): members[a] * (members[b] - (a == b)) for a in members for b in members}

    def __call__(self, edge: int) -> Fraction:
        """Return the mean for an edge; zero on a single worker."""
        table, total = self._site.transfer_us[edge], 0
        for (source, target), count in self._all.items():
            far, near = table[source][target]
            total += far * (count - self._near[source, target]) + near * self._near[source, target]
        return Fraction(total, max(1, sum(self._all.values())))
