"""Processes of devices on the nodes of a Ray cluster, as the head sees them: the same orders, reports and ends.

Clocks of nodes are not this one's. Whatever goes there or comes from there bears times of the clock there, by what the
latest comparison has shown.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import torch

from truenorth.executor.devices.gpu_process import READY
from truenorth.executor.devices.lane import ORDER, REPORT, Channel, Do
from truenorth.executor.devices.nodes import Nodes, RayNode, in_a_line
from truenorth.executor.devices.outpost import Outpost, OutpostReport
from truenorth.executor.devices.physical import Physical
from truenorth.executor.devices.processes import Contact, Equipment, ProcessStart
from truenorth.executor.devices.records import Clock
from truenorth.executor.devices.shelf import Ref, Shelf, make_piece
from truenorth.models import GPU

_ROUND_TRIPS = 20
_GROUPS = {"reports": 1, "beside": 1}
"""Calls of an outpost that wait for none of the others."""


def devices_of(nodes: Nodes, gpus: Sequence[GPU]) -> list[Physical]:
    """Return a device of the cluster for each planned GPU, as far as there are any."""
    what, device = ("core", "cpu") if nodes.kind == "cpu" else ("GPU", "cuda")
    return [Physical(torch.device(device), f"{what} {at} of node {node.name}") for node, at in nodes.seat(gpus)]


class _Place:
    """Where the process of a device is, and the outpost that is there now."""

    def __init__(self, index: int, node: RayNode) -> None:
        self.index, self.node = index, node
        self.ahead_ns = 0
        self.number = self.lost = 0
        self.actor: Any = None
        self.is_manned = False


class RaySource:
    """Has processes forked by outposts on nodes.

    Parameters
    ----------
    nodes
        All of the cluster.
    gpus
        The planned GPUs, for whose devices `devices_of` was asked.
    equipment
        What all processes have.
    """

    is_here = False

    def __init__(self, nodes: Nodes, gpus: Sequence[GPU], equipment: Equipment) -> None:
        self._nodes, self._equipment, self._ray = nodes, equipment, nodes.ray
        self.shelf: Shelf = _Mirror(self, [make_piece() for _ in range(len(equipment.devices) + 1)])
        self._ended: deque[tuple[int, str]] = deque()
        self._wake, self._woken = socket.socketpair()
        self._numbers = count(1)
        self._is_closed = False
        self._actor = self._ray.remote(concurrency_groups=_GROUPS)(Outpost)
        seats = nodes.seat(gpus)
        self.places = [_Place(index, seats[index][0]) for index in range(len(equipment.devices))]

    def fileno(self) -> int:
        """Return what is ready to be read when a process has ended."""
        return self._woken.fileno()

    def fork(self, start: ProcessStart, reports: socket.socket) -> Contact:
        """Start the process of a device, which reports to a socket."""
        place = self.places[start.index]
        number = next(self._numbers)
        place.number = number
        if not place.is_manned:
            options = self._nodes.options(place.node)
            place.actor = self._actor.options(**options).remote(self._equipment, place.index, place.lost)
            place.is_manned = True
            threading.Thread(target=self._listen, args=(place, reports), name=place.node.name, daemon=True).start()
        place.actor.fork.remote(number, start.residents)
        return _FarLink(self, place, number)

    def kill(self, number: int) -> None:
        """End a process, whatever it does."""
        for place in self.places:
            if place.number == number:
                place.actor.kill.remote(number)

    def ended(self) -> Sequence[tuple[int, str]]:
        """Return which processes have ended, and how."""
        with suppress(BlockingIOError):
            self._woken.recv(1024, socket.MSG_DONTWAIT)
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def compare_clocks(self) -> Sequence[Clock]:
        """Compare the clock of every node with this one's."""
        found: dict[str, Clock] = {}
        for place in self.places:
            with suppress(self._ray.exceptions.RayError):  # whoever is lost needs none
                found.setdefault(place.node.name, self._compare(place))
            if place.node.name in found:
                place.ahead_ns = round(found[place.node.name].ahead_us * 1000)
        return list(found.values())

    def _compare(self, place: _Place) -> Clock:
        trips: list[tuple[int, int]] = []
        clock = place.actor.clock.options(concurrency_group="beside")
        for _ in range(_ROUND_TRIPS):
            before = time.perf_counter_ns()
            there = self._ray.get(clock.remote())
            after = time.perf_counter_ns()
            trips.append((after - before, there - (before + after) // 2))
        took_ns, ahead_ns = min(trips)
        return Clock(place.node.name, ahead_ns / 1000, took_ns / 2000)

    def close(self) -> None:
        """End them all."""
        self._is_closed = True
        for place in self.places:
            if place.is_manned:
                self._ray.kill(place.actor)
        self.shelf.close()

    def tell(self, place: _Place, lane: int | None, message: bytes) -> None:
        """Tell what is at a place something: one of its lanes an order, or something beside all orders."""
        if lane is None:
            place.actor.tell.remote(None, message)
            return
        order, do, gpu, asked_ns = ORDER.unpack_from(message)
        told = ORDER.pack(order, do, gpu, asked_ns + place.ahead_ns) + message[ORDER.size :]
        if do != Do.RECEIVE:
            place.actor.tell.remote(lane, told)
            return
        piece, offset = struct.unpack_from("2q", message, ORDER.size)
        source = self.places[piece].actor
        # In a list it is no argument that Ray waits for: the outpost does, beside all other orders.
        place.actor.tell.remote(lane, told, [source.lift.options(concurrency_group="beside").remote(piece, offset)])

    def _listen(self, place: _Place, reports: socket.socket) -> None:
        """Take in what an outpost tells until it is lost."""
        telling = place.actor.reports.options(concurrency_group="reports", num_returns="streaming")
        try:
            for told in telling.remote():
                self._take(place, self._ray.get(told), reports)
        except self._ray.exceptions.RayError as error:
            if self._is_closed:
                return
            self._ray.kill(place.actor)
            place.is_manned, place.lost = False, place.lost + 1
            self.shelf.note_all_begun(place.index, b"")  # what it was at is not to blame
            self._end(place.number, f"node {place.node.name} or its outpost was lost: {in_a_line(error)}")
        except (OSError, ValueError):  # everything has been closed
            return

    def _take(self, place: _Place, told: OutpostReport, reports: socket.socket) -> None:
        for ref, lifted in told.outputs:
            self.shelf.lay(lifted, ref)
        self.shelf.note_all_begun(place.index, told.begun)
        for number, report in told.reports:
            _, order, how, *times = REPORT.unpack_from(report)
            if order != READY:
                times = [stamp and stamp - place.ahead_ns for stamp in times]
            reports.send(REPORT.pack(number, order, how, *times) + report[REPORT.size :])
        for ended in told.ended:
            self._end(*ended)

    def _end(self, number: int, how: str) -> None:
        self._ended.append((number, how))
        self._wake.send(b".")


class _FarLink:
    """What goes to a process on a node: to one of its lanes, or beside them all."""

    def __init__(self, source: RaySource, place: _Place, number: int, lane: int | None = None) -> None:
        self.number, self._source, self._place, self._lane = number, source, place, lane
        self._lanes = count()

    def send(self, message: bytes, /) -> None:
        if self._place.number == self.number:
            self._source.tell(self._place, self._lane, message)

    def open_lane(self, name: str) -> Channel:
        self._place.actor.open_lane.remote(name)
        return _FarLink(self._source, self._place, self.number, next(self._lanes))

    def close(self) -> None:
        """Do nothing: the process ends with its outpost."""


class _Mirror(Shelf):
    """The head's shelf: what it has asked for lies where it lies on the node."""

    def __init__(self, source: RaySource, pieces: list[int]) -> None:
        super().__init__(pieces)
        self._source = source

    def free(self, ref: Ref) -> None:
        super().free(ref)
        self._source.places[ref.piece].actor.free.remote(ref)
