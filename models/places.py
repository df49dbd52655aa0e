"""Places: the sets of GPUs that a run takes as one.

Every GPU is a place by itself, so that place i is GPU i; places of several GPUs follow, by size, for each number of
GPUs that some task asks for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, groupby, pairwise
from math import comb
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from truenorth.models.cluster import Cluster
from truenorth.models.restrictions import InstanceError

Ints: TypeAlias = NDArray[np.int64]

MAX_PLACES = 10_000
"""Most places of several GPUs that are listed one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The places of a cluster for some numbers of GPUs.

    Parameters
    ----------
    gpus
        The GPUs of each place, ascending; first every GPU alone.

    Attributes
    ----------
    number
        The place of each set of GPUs.
    """

    gpus: tuple[tuple[int, ...], ...]
    number: Mapping[tuple[int, ...], int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "number", {gpus: place for place, gpus in enumerate(self.gpus)})

    @classmethod
    def of(cls, cluster: Cluster, sizes: Iterable[int]) -> Places:
        """Return the places for runs on these numbers of GPUs.

        Raises
        ------
        InstanceError
            If there are more than MAX_PLACES, or a listed one is no set of GPUs of one kind.
        """
        singles = tuple((gpu,) for gpu in range(len(cluster.gpus)))
        wanted = sorted(set(sizes) - {1})
        if not wanted:
            return cls(singles)
        if not isinstance(cluster.places, str):
            return cls((*singles, *_listed(cluster, wanted)))
        count = sum(_count(cluster, size) for size in wanted)
        if count > MAX_PLACES:
            problem = f"runs on {', '.join(map(str, wanted))} GPUs have {count} places"
            raise InstanceError(f"{problem}; allowed are {MAX_PLACES}: take aligned places, or list them")
        return cls((*singles, *(place for size in wanted for place in _places(cluster, size))))

    def members(self, places: Ints) -> tuple[Ints, Ints]:
        """Return each of some places, by its number in the array, with every GPU of it: two arrays of one length."""
        size = np.array([len(gpus) for gpus in self.gpus], np.int64)
        first = np.cumsum(size) - size
        gpu = np.array([gpu for gpus in self.gpus for gpu in gpus], np.int64)
        each = np.repeat(np.arange(len(places), dtype=np.int64), size[places])
        within = np.arange(len(each), dtype=np.int64) - np.repeat(np.cumsum(size[places]) - size[places], size[places])
        return each, gpu[first[places[each]] + within]

    def settle(self, start_us: Ints, end_us: Ints, among: Sequence[tuple[Sequence[int], int]]) -> Ints:
        """Return the place of each run: of the GPUs that it is given, the lowest that are free, as many as it takes.

        Parameters
        ----------
        start_us, end_us
            When each runs. Shape [runs].
        among
            Per run: the GPUs that it is given, and how many of them it takes; at its start so many of them are free.

        Notes
        -----
        Invariant: no GPU is taken twice at a time if, at every instant, runs that share their GPUs take no more than
            there are.
        Because: runs are settled by their starts, and what is free at a start stays so for runs that start no earlier
            (interval graphs are perfect).
        """
        place, free_us = np.zeros(len(start_us), np.int64), dict[int, int]()
        for run in np.lexsort((end_us, start_us)).tolist():
            start, (given, count) = int(start_us[run]), among[run]
            taken = tuple(gpu for gpu in given if free_us.get(gpu, 0) <= start)[:count]
            free_us.update(dict.fromkeys(taken, int(end_us[run])))
            place[run] = self.number[taken]
        return place


def ways_between(
    source: Collection[int], target: Collection[int], gpu_class: Sequence[int] | Ints, gpu_server: Sequence[int] | Ints
) -> set[tuple[int, int, int]]:
    """Return the ways between two sets of GPUs: the class of one here and of one there, and 1 if in one server.

    None if the sets share a GPU: then nothing travels (rule G4).
    """
    if not set(source).isdisjoint(target):
        return set()
    here, there = ({(int(gpu_class[gpu]), int(gpu_server[gpu])) for gpu in gpus} for gpus in (source, target))
    return {(a, b, int(one == other)) for a, one in here for b, other in there}


def _servers(cluster: Cluster) -> Iterator[list[list[int]]]:
    """Yield the GPUs of each server, by runs of servers of one group with as many GPUs each."""
    servers = [list(gpus) for _, gpus in groupby(range(len(cluster.gpus)), lambda gpu: cluster.gpus[gpu].server)]
    for _, alike in groupby(servers, lambda gpus: (cluster.gpus[gpus[0]].group, cluster.gpus[gpus[0]].kind, len(gpus))):
        yield list(alike)


def _count(cluster: Cluster, size: int) -> int:
    """Return how many places of a size there are."""
    count = 0
    for servers in _servers(cluster):
        held = len(servers[0])
        if size <= held:
            count += len(servers) * (comb(held, size) if cluster.places == "any" else held // size)
        elif size % held == 0:
            count += len(servers) // (size // held)
    return count


def _places(cluster: Cluster, size: int) -> Iterator[tuple[int, ...]]:
    """Yield the places of a size: in one server any GPUs or aligned ones, beyond it aligned groups of whole servers."""
    for servers in _servers(cluster):
        held = len(servers[0])
        if size <= held:
            for gpus in servers:
                if cluster.places == "any":
                    yield from combinations(gpus, size)
                else:
                    yield from (tuple(gpus[first : first + size]) for first in range(0, held - size + 1, size))
        elif size % held == 0:
            step = size // held
            for first in range(0, len(servers) - step + 1, step):
                yield tuple(gpu for gpus in servers[first : first + step] for gpu in gpus)


def _listed(cluster: Cluster, sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the places that the cluster lists, those of the sizes wanted, by size."""
    listed = [place for place in cluster.places if not isinstance(place, str)]
    for place in listed:
        kinds = {cluster.gpus[gpu].kind for gpu in place}
        if len(kinds) > 1 or any(before >= after for before, after in pairwise(place)):
            raise InstanceError(f"a place is a set of GPUs of one kind; found {', '.join(sorted(kinds))}")
    return [place for size in sizes for place in dict.fromkeys(listed) if len(place) == size]
