"""Room: which GPUs are free, and where a run on one or several of them goes.

Inside a server best fit: the server with the fewest free GPUs that has room, the lowest of equal ones, and there the
first place. Beyond a server the first place that is free. One search costs the number of servers, in compiled code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from truenorth.executor.site import Site

NO_PLACE = -1
_FULL = 1 << 30


class _Layout:
    """Where the places of each class lie.

    Attributes
    ----------
    servers
        The GPUs of each server.
    server_of, bit_of
        Per GPU: its server, by position, and its bit in what is free there.
    inside
        By class of places inside servers: per server its places, each with the bits that it takes.
    spanning
        By class of places of several servers: the places.
    crossing
        Per GPU: the places of several servers that it belongs to, as pairs (class, position).
    """

    def __init__(
        self, places: Sequence[tuple[int, ...]], place_class: Sequence[int], gpu_server: Sequence[int]
    ) -> None:
        numbers = sorted(set(gpu_server))
        position = {number: index for index, number in enumerate(numbers)}
        self.server_of = [position[server] for server in gpu_server]
        self.servers: list[list[int]] = [[] for _ in numbers]
        self.bit_of = []
        for gpu, server in enumerate(self.server_of):
            self.bit_of.append(1 << len(self.servers[server]))
            self.servers[server].append(gpu)
        self.inside: dict[int, list[list[tuple[int, int]]]] = {}
        self.spanning: dict[int, list[int]] = {}
        self.crossing: list[list[tuple[int, int]]] = [[] for _ in gpu_server]
        for place, gpus in enumerate(places):
            kind = place_class[place]
            if self.server_of[gpus[0]] == self.server_of[gpus[-1]]:
                rows = self.inside.setdefault(kind, [[] for _ in numbers])
                rows[self.server_of[gpus[0]]].append((place, sum(self.bit_of[gpu] for gpu in gpus)))
            else:
                here = self.spanning.setdefault(kind, [])
                for gpu in gpus:
                    self.crossing[gpu].append((kind, len(here)))
                here.append(place)
        self.first: dict[tuple[int, int, int], int] = {}

    def first_place(self, kind: int, server: int, free: int) -> int:
        """Return the first place of a class in a server of which these GPUs are free, NO_PLACE without one."""
        key = kind, server, free
        found = self.first.get(key)
        if found is None:
            rows = self.inside[kind][server]
            found = next((place for place, taken in rows if taken & free == taken), NO_PLACE)
            self.first[key] = found
        return found


class Room:
    """The GPUs of a site that are free: at first all that are there."""

    def __init__(self, site: Site) -> None:
        self._places, self._goes_us = site.places, site.goes_us
        self._layout = layout = _Layout(site.places, site.place_class, site.gpu_server)
        self._free = [sum(layout.bit_of[gpu] for gpu in gpus) for gpus in layout.servers]
        # By class inside servers: free GPUs of each server with room for one, _FULL of the others.
        self._fits = {kind: np.full(len(layout.servers), _FULL, np.int64) for kind in layout.inside}
        # By class of several servers: how many GPUs of each place are taken.
        self._taken = {kind: np.zeros(len(places), np.int64) for kind, places in layout.spanning.items()}
        for server in range(len(layout.servers)):
            self._see(server)
        for gpu in range(site.n_gpus):
            if site.is_away(gpu):
                self.take(gpu)

    def find(self, kinds: Iterable[int]) -> int:
        """Return where a run goes that may take places of these classes, the first class with room; else NO_PLACE."""
        for kind in kinds:
            row: NDArray[np.int64] | None = self._fits.get(kind)
            if row is not None:
                server = int(row.argmin())
                if row[server] != _FULL:
                    return self._layout.first_place(kind, server, self._free[server])
            elif kind in self._taken:
                position = int(self._taken[kind].argmin())
                if not self._taken[kind][position]:
                    return self._layout.spanning[kind][position]
        return NO_PLACE

    def find_until(self, kind: int, end_us: int) -> int:
        """Return where a run goes that may take places of a class and lasts until then, before a GPU goes."""
        row = self._fits.get(kind)
        if row is not None:
            for server in np.argsort(row, kind="stable").tolist():
                if row[server] == _FULL:
                    break
                place = self._layout.first_place(kind, server, self._staying(server, end_us))
                if place != NO_PLACE:
                    return place
        elif kind in self._taken:
            for position in np.flatnonzero(self._taken[kind] == 0).tolist():
                place = self._layout.spanning[kind][position]
                if all(self._goes_us[gpu] >= end_us for gpu in self._places[place]):
                    return place
        return NO_PLACE

    def _staying(self, server: int, end_us: int) -> int:
        """Return the GPUs of a server that are free and stay until then."""
        layout = self._layout
        stay = sum(layout.bit_of[gpu] for gpu in layout.servers[server] if self._goes_us[gpu] >= end_us)
        return self._free[server] & stay

    def any_free(self) -> bool:
        """Say whether some GPU is free."""
        return any(self._free)

    def is_free(self, place: int) -> bool:
        """Say whether all GPUs of a place are free."""
        layout = self._layout
        return all(self._free[layout.server_of[gpu]] & layout.bit_of[gpu] for gpu in self._places[place])

    def take(self, place: int) -> None:
        """Have the GPUs of a place, which are free, no more."""
        self._change(place, 1)

    def give(self, place: int) -> None:
        """Have the GPUs of a place, which are taken, free again."""
        self._change(place, -1)

    def _change(self, place: int, taken: int) -> None:
        layout, servers = self._layout, set[int]()
        for gpu in self._places[place]:
            server = layout.server_of[gpu]
            self._free[server] ^= layout.bit_of[gpu]
            servers.add(server)
            for kind, position in layout.crossing[gpu]:
                self._taken[kind][position] += taken
        for server in servers:
            self._see(server)

    def _see(self, server: int) -> None:
        """Note which classes of places a server has room for."""
        free, first_place = self._free[server], self._layout.first_place
        count = free.bit_count()
        for kind, row in self._fits.items():
            row[server] = _FULL if first_place(kind, server, free) == NO_PLACE else count
