"""An actor of Ray on a node: it has a device's process forked there, and passes on what that and the head say.

The process is the one that a head on this machine would have. Between it and the actor are the same sockets as ever,
between actor and head are calls; what the process reports, the head iterates over. An output for another node is lifted
from the shelf here and laid on the shelf there, through Ray's object store.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorth.executor.devices.gpu_process import READY, Residents, in_words
from truenorth.executor.devices.lane import LARGEST_MESSAGE, ORDER, REPORT, Channel, Do, Ended, pack, unpack
from truenorth.executor.devices.nodes import in_a_line
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.processes import Contact, Equipment, ProcessStart, Template
from truenorth.executor.devices.shelf import Ref
from truenorth.executor.errors import DeviceError

_LOST_BYTES = 1 << 38
"""So far behind those of the actor before, which was lost, begin the outputs of the next one."""


@dataclass(frozen=True, slots=True)
class OutpostReport:
    """What an outpost tells.

    Parameters
    ----------
    reports
        By whom, and as they came.
    begun
        What its lanes have begun.
    ended
        Processes that have ended, and how.
    outputs
        What the head is to read.
    """

    reports: Sequence[tuple[int, bytes]]
    begun: bytes
    ended: Sequence[tuple[int, str]]
    outputs: Sequence[tuple[Ref, NDArray[np.uint8]]]


class Outpost:
    """What the actor does; one of several outposts with one crew.

    Parameters
    ----------
    equipment
        As the head has it, with all devices.
    index
        Of the crew's process that is to run here.
    before
        How many outposts for it were lost.
    """

    def __init__(self, equipment: Equipment, index: int, before: int) -> None:
        self._index = index
        self._near, self._far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._state = threading.Lock()
        self._numbers: dict[int, int] = {}
        self._lanes: list[Channel] = []
        self._contact: Contact | None = None
        self._fetching = ThreadPoolExecutor(1)
        self._fetched: dict[int, tuple[int, Ref]] = {}
        self._wanted: dict[int, Ref] = {}
        self._refused = ""
        self._template: Template | None = None
        try:
            self._template = _template(equipment, index)
            self._template.shelf.begin_at(index, before * _LOST_BYTES)
        except (DeviceError, ImportError) as error:
            self._refused = f"{equipment.devices[index][0].name}: {in_words(error)}"

    # -- calls that are carried out in their order -------------------------------------------------------------------

    def fork(self, number: int, residents: Residents | None) -> None:
        """Start the process, which the head calls by a number of its own."""
        self._lanes.clear()
        with self._state:
            if self._template is None:
                self._numbers[0] = number
                self._far.send(pack((0, READY, Ended.REFUSED, self._index, 0, 0, 0)) + self._refused.encode())
                return
            if self._contact is not None:
                self._contact.close()
            self._contact = self._template.fork(ProcessStart(self._index, residents), self._far)
            self._numbers[self._contact.number] = number

    def open_lane(self, name: str) -> None:
        """Have the process serve one more lane."""
        if self._contact is not None:
            self._lanes.append(self._contact.open_lane(name))

    def tell(self, lane: int | None, message: bytes, lifted: Sequence[Any] = ()) -> None:
        """Pass something on to a lane, or beside all lanes; with an order to receive comes what is to be received."""
        if self._contact is None:
            return
        if lane is None:
            self._pass_on(self._contact, message)
        elif lifted:
            self._fetching.submit(self._fetch, self._lanes[lane], message, self._contact.number, lifted)
        else:
            number, do, _, _, *args = unpack(message)
            if do == Do.PUBLISH and len(args) == len(Ref._fields):
                self._wanted[number] = Ref(*args)
            self._pass_on(self._lanes[lane], message)

    def kill(self, number: int) -> None:
        """End the process, if it is still that one."""
        if self._contact is not None and self._template is not None and self._numbers[self._contact.number] == number:
            with self._state:
                self._template.kill(self._contact.number)

    def free(self, ref: Ref) -> None:
        """Give the memory of an output back."""
        if self._template is not None:
            self._template.shelf.free(ref)

    # -- calls that wait for no other --------------------------------------------------------------------------------

    def lift(self, piece: int, offset: int) -> NDArray[np.uint8]:
        """Return an output, which thereby gets into the object store."""
        assert self._template is not None  # noqa: S101
        return self._template.shelf.lift(piece, offset)

    def clock(self) -> int:
        """Return this machine's clock."""
        return time.perf_counter_ns()

    def reports(self) -> Iterator[OutpostReport]:
        """Yield what there is to tell, for as long as the head asks."""
        sources: list[socket.socket | Template] = [self._near, *([] if self._template is None else [self._template])]
        while True:
            select.select(sources, [], [])
            with self._state:
                ended = () if self._template is None else self._template.ended()
                reports = [(self._numbers[unpack(each[:8])[0]], each) for each in self._read()]
                gone = [(self._numbers[number], how) for number, how in ended]
            told = [(number, self._settle(report)) for number, report in reports]
            outputs = [(ref, self.lift(*ref[:2])) for _, report in told if (ref := self._wanted_of(report))]
            begun = b"" if self._template is None else self._template.shelf.all_begun(self._index)
            yield OutpostReport(told, begun, gone, outputs)

    # -- within ------------------------------------------------------------------------------------------------------

    def _read(self) -> Iterator[bytes]:
        with suppress(BlockingIOError):
            while True:
                yield self._near.recv(LARGEST_MESSAGE, socket.MSG_DONTWAIT)

    def _pass_on(self, lane: Channel, message: bytes) -> None:
        with suppress(OSError):  # the process has ended, of which the head learns
            lane.send(message)

    def _fetch(self, lane: Channel, message: bytes, told_by: int, lifted: Sequence[Any]) -> None:
        """Get what is to be received, and let it be received from here."""
        import ray

        assert self._template is not None  # noqa: S101
        began_ns = time.perf_counter_ns()
        number, *_ = ORDER.unpack_from(message)
        try:
            ref = self._template.shelf.lay(ray.get(lifted[0]))
        except ray.exceptions.RayError as error:  # whoever had it is gone
            report = pack((told_by, number, Ended.REFUSED, began_ns, time.perf_counter_ns(), 0, 0))
            self._far.send(report + in_a_line(error).encode())
            return
        self._fetched[number] = began_ns, ref
        # Behind the head of a transfer stand piece and place: here they are others.
        place = pack(ref[:2])
        self._pass_on(lane, message[: ORDER.size] + place + message[ORDER.size + len(place) :])

    def _settle(self, report: bytes) -> bytes:
        """Return a report with which a transfer that went through the store begins when it was fetched from there."""
        told_by, number, how, began_ns, ended_ns, *span = REPORT.unpack_from(report)
        if number not in self._fetched:
            return report
        began_ns, ref = self._fetched.pop(number)
        self.free(ref)
        if how == Ended.WELL:
            span[0] = began_ns
        return REPORT.pack(told_by, number, how, began_ns, ended_ns, *span) + report[REPORT.size :]

    def _wanted_of(self, report: bytes) -> Ref | None:
        """Return the output that the head is to read with a report."""
        _, number, how, *_ = REPORT.unpack_from(report)
        ref = self._wanted.pop(number, None)
        return ref if how == Ended.WELL else None


def _template(equipment: Equipment, index: int) -> Template:
    """Return what the process is forked from; of all devices there is one here."""
    physical, gpus = equipment.devices[index]
    own = replace(physical_devices("cuda" if physical.is_cuda else "cpu")[0], name=physical.name)
    devices = [(own, gpus if at == index else {}) for at in range(len(equipment.devices))]
    return Template(replace(equipment, devices=devices))
