"""Bin packing as a flow: items in bins are paths through the levels to which a bin can be filled.

Valério de Carvalho, Annals of Operations Research 86, 1999. An item of size s is an arc from a level u to u + s; a bin
is a path from 0 to its capacity, the rest of which a loss arc skips. Items enter a bin by decreasing size, so a level
only continues with sizes that are no larger, and equal bins are one flow: nothing tells them apart, and so there is
no symmetry to break. Scheduling tasks without models on equal GPUs within a common deadline is this problem.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ortools.sat.python import cp_model

MOST_ARCS = 100_000
"""A larger network is not worth building."""

Arc = tuple[int, int]
"""From one level of a bin to another; the difference is the size of an item."""


@dataclass(frozen=True, slots=True)
class ArcFlow:
    """A built model: how many bins take each arc.

    Parameters
    ----------
    flow
        f_uv: number of bins in which an item fills the bin from level u to level v.
    """

    model: cp_model.CpModel
    flow: dict[Arc, cp_model.IntVar]
    bins: int


def arcs(sizes: Sequence[int], capacity: int, least_fill: int = 0) -> list[Arc] | None:
    """Return the arcs on which items can lie, or None if there are more than `MOST_ARCS`.

    Parameters
    ----------
    least_fill
        Only bins filled at least so far are of interest: arcs that lead to none are left out.

    >>> arcs([3, 3, 2], 7), arcs([3, 3, 2], 7, 6)
    ([(0, 2), (0, 3), (3, 5), (3, 6)], [(0, 3), (3, 6)])

    Notes
    -----
    Invariant: every packing in which bins are filled at least so far is a set of paths along these arcs.
    Because: items of a bin may be taken by decreasing size, so a level goes on with sizes that are no larger.
    Cost: O(levels x sizes).
    If wrong: unsound if an arc is missing (a packing that exists is refuted); slower if there are too many.
    """
    levels, found = {0}, set[Arc]()
    for size, count in sorted(Counter(sizes).items(), reverse=True):
        reached = set[int]()
        for level in levels:
            chain = range(level, min(level + count * size, capacity) + 1, size)
            found.update(pairwise(chain))
            reached.update(chain)
        levels |= reached
        if len(found) > MOST_ARCS:
            return None
    leading = set[int]()
    for u, v in sorted(found, reverse=True):
        if v >= least_fill or v in leading:
            leading.add(u)
    return sorted(arc for arc in found if arc[1] >= least_fill or arc[1] in leading)


def formulate(sizes: Sequence[int], bins: int, capacity: int) -> ArcFlow | None:
    """Return the model that packs all items into the bins, or None if it would be too large.

    sum_v f_0v <= bins;  for every other level u: sum_v f_uv <= sum_v f_vu;  for every size s: sum f_u,u+s = its items.
    No bin can be emptier than the room that all bins leave together: below that level the flow is conserved exactly.
    """
    least_fill = max(0, capacity - (bins * capacity - sum(sizes)))
    network = arcs(sizes, capacity, least_fill)
    if network is None:
        return None
    model, items = cp_model.CpModel(), Counter(sizes)
    flow = {(u, v): model.new_int_var(0, min(bins, items[v - u]), f"flow[{u},{v}]") for u, v in network}
    into, out_of, of_size = defaultdict[int, list[Arc]](list), defaultdict[int, list[Arc]](list), defaultdict(list)
    for u, v in network:
        into[v].append((u, v))
        out_of[u].append((u, v))
        of_size[v - u].append((u, v))
    for u, leaving in out_of.items():
        entering = sum(flow[arc] for arc in into[u]) if u else bins
        # Below the least fill no bin may end, so all that enters a level goes on; from there some may.
        left = sum(flow[arc] for arc in leaving)
        model.add(left == entering if u < least_fill else left <= entering).with_name(f"conserve[{u}]")
    for size, count in items.items():
        model.add(sum(flow[arc] for arc in of_size[size]) == count).with_name(f"pack[{size}]")
    return ArcFlow(model, flow, bins)


def read_bins(formulation: ArcFlow, solver: cp_model.CpSolver) -> list[list[int]]:
    """Return the sizes in each bin of a solution: the flow taken apart into paths."""
    left = {arc: solver.value(variable) for arc, variable in formulation.flow.items()}
    leaving = defaultdict[int, list[int]](list)
    for (u, v), count in left.items():
        leaving[u] += [v] * count
    packed = []
    for _ in range(formulation.bins):
        level, contents = 0, list[int]()
        while leaving[level]:
            following = leaving[level].pop()
            contents.append(following - level)
            level = following
        packed.append(contents)
    return packed
