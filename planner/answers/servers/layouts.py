"""Pools: servers whose engines are still to be chosen. Each way to share out the GPUs of one is a group of its own.

So a fleet is a mix of such groups at one price, and what is asked of a mix of several sorts of server is asked of it:
servers are bought, and fail, with all their engines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from truenorth.models.scenario import InputError, Scenario
from truenorth.models.scenario.engines import degrees_of

Layout = tuple[int, ...]
"""GPUs of each engine of a server, the largest first."""


def layouts(gpus: int, degrees: Sequence[int]) -> list[Layout]:
    """Return the ways to share out the GPUs of a server to which no engine can be added, larger engines first.

    >>> layouts(4, [1, 2, 4])
    [(4,), (2, 2), (2, 1, 1), (1, 1, 1, 1)]
    >>> layouts(8, [3, 2])
    [(3, 3, 2), (3, 2, 2), (2, 2, 2, 2)]
    """

    def shared(left: int, largest: int) -> Iterator[Layout]:
        sizes = [size for size in sorted(degrees, reverse=True) if size <= min(left, largest)]
        for size in sizes:
            yield from ((size, *rest) for rest in shared(left - size, size))
        if left < min(degrees):
            yield ()

    return list(shared(gpus, gpus))


@dataclass(frozen=True, slots=True)
class Pool:
    """Servers of one sort, at one price: a group of a scenario, or several of one pool that differ in their engines.

    Parameters
    ----------
    position
        The group of the scenario as it was written, from 0.
    layouts
        Engines of a server, by the group that stands for it.
    count
        Servers in the scenario.
    open
        Whether the engines are to be chosen.
    """

    position: int
    layouts: tuple[Layout, ...]
    count: int
    open: bool

    def fleets(self, most: int, packed_alike: bool, limit: int) -> list[tuple[int, ...]]:
        """Return how many servers of each layout there may be, up to `most` together; more than a limit are cut off.

        Where it is the same how engines are packed into servers, one packing stands for all with the same engines.

        >>> Pool(0, ((2,), (1, 1)), 2, True).fleets(2, packed_alike=True, limit=100)
        [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]
        """
        unit = [tuple(int(each == at) for each in range(len(self.layouts))) for at in range(len(self.layouts))]
        newest = [tuple(0 for _ in self.layouts)]
        found = list(newest)
        for _ in range(most):
            if len(found) > limit:
                break
            # A fleet is one of a server less, and a server: so no set of engines is left out.
            grown = [tuple(a + b for a, b in zip(fleet, one, strict=True)) for fleet in newest for one in unit]
            newest = list(
                {self._engines(fleet) if packed_alike else fleet: fleet for fleet in reversed(grown)}.values()
            )
            newest.reverse()
            found += newest
        return found

    def _engines(self, fleet: Sequence[int]) -> tuple[int, ...]:
        """Return how many engines of each number of GPUs a fleet has."""
        sizes = sorted({size for layout in self.layouts for size in layout})
        return tuple(
            sum(count * layout.count(size) for count, layout in zip(fleet, self.layouts, strict=True)) for size in sizes
        )


def with_layouts(scenario: Scenario) -> tuple[Scenario, tuple[Pool, ...]]:
    """Return a scenario with a group for each layout of a server whose engines are to be chosen, and the pools.

    Its instance stays as it is: the GPUs of every engine that there could be.

    Raises
    ------
    InputError
        If it says of single servers or GPUs what other engines would number anew, or no job has a request.
    """
    document, cluster = scenario.document, scenario.document.cluster
    degrees, groups, pools = degrees_of(document), [], list[Pool]()
    for position, group in enumerate(cluster.server_groups):
        open_sizes = degrees.get(position)
        made = (group.layout,) if open_sizes is None else tuple(layouts(group.gpus_per_server, open_sizes))
        pools.append(Pool(position, made, group.count, open_sizes is not None))
        groups += [group.model_copy(update={"engines": layout}) if open_sizes else group for layout in made]
    if not degrees:
        return scenario, tuple(pools)
    _refuse_places(scenario)
    update = {"groups": tuple(groups), "servers": None, "gpus_per_server": None, "gpu": None}
    changed = document.model_copy(update={"cluster": cluster.model_copy(update=update)})
    return replace(scenario, document=changed), tuple(pools)


def _refuse_places(scenario: Scenario) -> None:
    document = scenario.document
    named = {
        "restrictions": bool(document.restrictions.pin or document.restrictions.forbid),
        "options": bool(document.options.initial_residency),
        "workload": any(job.ingress is not None for job in scenario.jobs),
    }
    for section, names in named.items():
        if names:
            problem = "names servers or GPUs, which other engines would number anew; leave them out, or write engines"
            raise InputError(scenario.source.file, None, section, problem)
    if scenario.instance.streams is None:
        problem = "no job has a request of a stream with modes; write engines beside gpus_per_server"
        raise InputError(scenario.source.file, None, "workload", problem)
