"""Who carries out a run on devices: a process per device with the planned GPUs on it, and the lanes of each.

The processes hold memory, streams and the code of runners; here is only what was ordered of them and which addresses
are taken. One that is killed, is stuck, or whose device answers no call any more is ended, and another takes its place.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Literal, get_args

import numpy as np

from truenorth.executor.devices.addresses import AddressSpace, Move
from truenorth.executor.devices.decoding import served_model
from truenorth.executor.devices.gpu_process import FORGET, READY, WITHDRAW
from truenorth.executor.devices.lane import LARGEST_MESSAGE, REPORT, Do, Ended, Lane, Order, join, let_be, pack
from truenorth.executor.devices.moved_kv import kv_moves, require_continued_answers
from truenorth.executor.devices.physical import Physical
from truenorth.executor.devices.processes import Contact, Equipment, ProcessSource, ProcessStart, Template
from truenorth.executor.devices.runner import MakeRunner
from truenorth.executor.devices.shelf import Ref, Shelf
from truenorth.executor.devices.station import Seating
from truenorth.executor.devices.streams import Span
from truenorth.executor.devices.weights import ENTIRE, Part
from truenorth.executor.errors import DeviceError
from truenorth.models import GPU, NEVER, Instance
from truenorth.models.holds import Holds

Sharing = Literal["parallel", "serial"]
"""How several planned GPUs share a physical device: side by side, or one run at a time."""

POLL_S = 0.1
"""How often somebody looks for orders beyond their limit."""

_START_S = 120.0
"""How much longer than anything else a process may take to set its device up."""


@dataclass(slots=True)
class DeviceProcess:
    """The process of a device, as the head sees it.

    Parameters
    ----------
    index
        Which of the crew's it is; also that of its piece of the shelf.
    physical, gpus
        The device, and the planned GPUs on it.

    Attributes
    ----------
    lanes
        What it serves.
    number
        Of all that there have been for it; 0 while there is none.
    is_ready
        Whether it has set its device up.
    """

    index: int
    physical: Physical
    gpus: Sequence[int]
    lanes: list[Lane] = field(default_factory=list)
    number: int = 0
    is_ready: bool = False
    began_s: float = 0.0
    contact: Contact | None = None

    def tell(self, *numbers: int) -> None:
        """Tell it something beside all orders; one that is gone need not know."""
        if self.number and self.contact is not None:
            with suppress(OSError):
                self.contact.send(pack(numbers))

    def hand_over(self, lane: Lane) -> None:
        """Have it serve a lane."""
        if self.number and self.contact is not None:
            lane.open(self.contact.open_lane(lane.name))

    def running(self, shelf: Shelf) -> list[Order]:
        """Return the runs that it is at: the last ones begun, even if it has yet to tell how those before ended."""
        begun = [self.begun(lane, shelf) for lane in self.lanes if lane.computes]
        return [order for order in begun if order is not None]

    def on_device(self, shelf: Shelf) -> list[Order]:
        """Return the runs that its device is at, which may be behind those begun last."""
        return [lane.first for lane in self.lanes if lane.computes and lane.first and self.begun(lane, shelf)]

    def begun(self, lane: Lane, shelf: Shelf) -> Order | None:
        """Return what a lane has begun last, unless its end has been told."""
        return lane.under_way.get(shelf.begun(self.index, self.lanes.index(lane)))

    def overdue(self, shelf: Shelf) -> Order | None:
        """Return an order that is beyond its limit; a run that others may wait for comes before these."""
        if not self.is_ready:
            return None
        for lane in self.lanes:
            # A card may be at the first of those begun; a core is at the last, which may keep it from telling.
            begun = lane.first if self.physical.is_cuda else self.begun(lane, shelf)
            order = lane.overdue(begun)
            if order is None:
                continue
            others = [each for each in self.lanes if each is not lane and each.computes and each.first]
            if (lane.computes and begun) or all(each.since_ns > lane.since_ns for each in others):
                return order
        return None


@dataclass(frozen=True, slots=True)
class Ending:
    """A process that has ended, or had to be.

    Parameters
    ----------
    process
        It; its lanes hold what is still to be done.
    why
        In words.
    blamed
        The runs that it was at, whose reports are these; none if it was at none.
    is_stuck
        Whether it had to be ended since something took too long.
    """

    process: DeviceProcess
    why: str
    blamed: Sequence[Order]
    is_stuck: bool = False


class Crew:
    """Processes and lanes.

    Parameters
    ----------
    instance
        Its models and tasks.
    make
        Makes the runner that computes the tasks.
    physical
        The device of every planned GPU.
    gpus
        The planned GPUs.
    limit_s
        How much longer than given anything may take.
    serial
        Whether GPUs of one device take turns.
    source
        Makes what the processes come from.

    Attributes
    ----------
    spaces
        Per planned GPU: which addresses are taken.
    copy, incoming
        Lanes per planned GPU.
    processes
        Per device.
    endings
        Processes that have ended and that nobody has taken care of.
    seatings
        By template of a request and GPU class: how its stream class is served there.
    held_bytes
        By template of a task that was weighed: most that it took beside the weights.
    teams
        By place of several GPUs: the processes of its last run, and the number by which they have met.
    shelf, is_here
        Where outputs lie, and whether they are read there as soon as they are put out.

    Raises
    ------
    DeviceError
        If there is too little memory, or the runner cannot serve the models.
    """

    def __init__(
        self,
        instance: Instance,
        make: MakeRunner,
        physical: Sequence[Physical],
        gpus: Sequence[GPU],
        limit_s: float,
        serial: bool = False,
        source: Callable[[Equipment], ProcessSource] = Template,
    ) -> None:
        self._instance, self.physical, self.limit_s, self._serial = instance, physical, limit_s, serial
        self.seatings = seatings_of(instance)
        self.spaces = [AddressSpace(gpu, [model.weight_bytes for model in instance.models]) for gpu in gpus]
        self.processes = [
            DeviceProcess(index, device, [gpu for gpu, its in enumerate(physical) if its == device])
            for index, device in enumerate(dict.fromkeys(physical))
        ]
        self.process = [next(each for each in self.processes if gpu in each.gpus) for gpu in range(len(gpus))]
        self.endings: list[Ending] = []
        self.held_bytes: dict[int, int] = {}
        self.teams: dict[int, tuple[list[int], int]] = {}
        self._meetings = count(1)
        self._cold: set[int] = set()
        self._look_s = 0.0
        self._orders: dict[int, Order] = {}
        self._names = [gpu.id for gpu in gpus]
        devices = [(each.physical, {gpu: gpus[gpu] for gpu in each.gpus}) for each in self.processes]
        self._source = source(Equipment(instance, make, self.seatings, devices))
        self.shelf, self.is_here = self._source.shelf, self._source.is_here
        self.compare_clocks = self._source.compare_clocks
        self._reports, self._far_reports = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._compute = self._compute_lanes()
        self.copy = self._copy_lanes()
        self.incoming = [self._lane(gpu, f"{name} incoming transfers") for gpu, name in enumerate(self._names)]
        try:
            for process in self.processes:
                self.start(process)
            while not all(process.is_ready for process in self.processes):
                self.take_reports(POLL_S)
                self._raise_ending()
        except BaseException:
            self.close()
            raise

    def _lane(self, gpu: int, name: str, computes: bool = False) -> Lane:
        lane = Lane(name, self._orders, computes)
        self.process[gpu].lanes.append(lane)
        return lane

    def _compute_lanes(self) -> list[list[Lane]]:
        """Return the first lane of every GPU's runs; the same for all GPUs of a device where runs are serialised."""
        if not self._serial:
            return [[self._lane(gpu, f"{name} compute engine", True)] for gpu, name in enumerate(self._names)]
        shared = {
            each.index: [self._lane(each.gpus[0], f"{each.physical.name} compute engine", True)]
            for each in self.processes
        }
        return [shared[process.index] for process in self.process]

    def _copy_lanes(self) -> list[Lane]:
        """Return the lane of every GPU's loads; planned GPUs on one CUDA device take turns on its one copy engine."""
        engines = copy_engines(self.physical)
        made = {engine: self._lane(engine, f"{self._names[engine]} copy engine") for engine in dict.fromkeys(engines)}
        return [made[engine] for engine in engines]

    def compute_lane(self, gpu: int) -> Lane:
        """Return the lane for a run on a GPU: one that has nothing to do, where shares let several run at a time.

        Behind a run that has been withdrawn it waits: that may have begun, and is not to end the process beside this.
        """
        lanes = self._compute[gpu]
        if self._serial:
            return lanes[0]
        idle = next((lane for lane in lanes if not lane.is_wanted), None)
        if idle is None:
            idle = self._lane(gpu, lanes[0].name, True)
            lanes.append(idle)
            self.process[gpu].hand_over(idle)
        return idle

    def start(self, process: DeviceProcess) -> None:
        """Start the process of a device, with what is resident on its GPUs, and tell it all that was ordered of it."""
        told = [order for lane in process.lanes for order in lane.under_way.values()]
        loading = {(order.gpu, order.args[0]) for order in told if order.do == Do.LOAD}
        residents = {
            gpu: {
                model: (at, self.spaces[gpu].part[model])
                for model, at in self.spaces[gpu].address.items()
                if (gpu, model) not in loading
            }
            for gpu in process.gpus
        }
        if process.contact is not None:
            process.contact.close()
        process.contact = self._source.fork(ProcessStart(process.index, residents), self._far_reports)
        process.number = process.contact.number
        process.is_ready, process.began_s = False, time.monotonic()
        for lane in process.lanes:
            for order in lane.under_way.values():
                if not order.is_wanted:
                    process.tell(WITHDRAW, order.number)
            process.hand_over(lane)
            lane.send_all()

    def free(self, ref: Ref) -> None:
        """Give the memory of an output back."""
        self.shelf.free(ref)
        process = self.processes[ref.piece]
        if process.physical.is_cuda:
            process.tell(FORGET, ref.offset)

    def close(self) -> None:
        """End the processes, and free the memory."""
        self._source.close()
        for process in self.processes:
            for lane in process.lanes:
                lane.close()
            if process.contact is not None:
                process.contact.close()
        self._reports.close()
        self._far_reports.close()

    # -- what is reported -------------------------------------------------------------------------------------------

    def take_reports(self, wait_s: float) -> list[Order]:
        """Return the orders that have ended, after waiting for at least one, or an ending, for at most so long.

        Raises
        ------
        DeviceError
            If all processes are gone.
        """
        told = self._source.fileno()
        if wait_s > 0 and told in select.select([self._reports.fileno(), told], [], [], wait_s)[0]:
            self._look_s = 0.0
        ended = self._read_reports()
        if time.monotonic() >= self._look_s:
            self._look_s = time.monotonic() + POLL_S
            gone = self._source.ended()
            ended += self._read_reports()  # what they have told before they ended
            for process in self.processes:
                self._look_after(process, dict(gone))
        return ended

    def _read_reports(self) -> list[Order]:
        ended: list[Order] = []
        while True:
            try:
                report = self._reports.recv(LARGEST_MESSAGE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return ended
            told_by, number, how, began_ns, ended_ns, *span = REPORT.unpack_from(report)
            if number == READY:
                refused = "" if how == Ended.WELL else report[REPORT.size :].decode()
                self._take_ready(self.processes[began_ns], told_by, refused)
                continue
            order = self._orders.get(number)
            # What one process has told in the end is done once more by the next: its memory is not that one's.
            if order is None or order.lane is None or told_by != self.process[order.gpu].number:
                continue
            order.lane.take(order)
            order.take(how, began_ns, ended_ns, Span(*span), report[REPORT.size :])
            if how == Ended.WITH_DEVICE:
                process = self.process[order.gpu]
                self._end(process, order.error or "", [order] if order.do.is_run else process.on_device(self.shelf))
                if order.do.is_run:
                    continue
            ended.append(order)

    def _take_ready(self, process: DeviceProcess, number: int, refused: str) -> None:
        if process.number != number:
            return  # it was ended meanwhile
        if refused:
            self._end(process, refused, ())
            return
        process.is_ready, now_ns = True, time.perf_counter_ns()
        for lane in process.lanes:
            lane.since_ns = now_ns

    def _look_after(self, process: DeviceProcess, gone: Mapping[int, str]) -> None:
        """Take note of a process that has ended, and end one that is stuck."""
        if not process.number:
            return
        if process.number in gone:
            running = process.running(self.shelf) if process.is_ready else ()
            self._end(process, gone[process.number], running)
            return
        stuck = process.overdue(self.shelf)
        if stuck is not None and stuck.lane is not None:
            why = f"{stuck.lane.name} was stuck for more than {stuck.limit_s:.3g} s"
            self._end(process, why, [stuck] if stuck.do.is_run else (), is_stuck=True)
        elif not process.is_ready and time.monotonic() - process.began_s > _START_S + self.limit_s:
            self._end(process, f"{process.physical.name} was not set up in {_START_S + self.limit_s:g} s", ())

    def _end(self, process: DeviceProcess, why: str, blamed: Sequence[Order], is_stuck: bool = False) -> None:
        """End a process, and fail the runs that are to blame, and those that it has with others, which are lost."""
        if not process.number:
            return
        self._source.kill(process.number)
        process.number = 0
        self._cold.update(process.gpus)
        told = [order for lane in process.lanes for order in lane.under_way.values()]
        blamed = [*blamed, *(order for order in told if order.do.is_together and order not in blamed)]
        for order in blamed:
            began_ns = order.lane.since_ns if order.lane is not None else 0
            order.fail(why, began_ns, time.perf_counter_ns())
        self.endings.append(Ending(process, why, blamed, is_stuck))

    def _raise_ending(self) -> None:
        """Raise for a process that has ended, where nothing goes on without it."""
        for ending in self.endings:
            raise DeviceError(ending.why)

    # -- before the clock starts ------------------------------------------------------------------------------------

    def renew(self) -> None:
        """Wait for what an earlier run left under way, and warm those up that were started again.

        Raises
        ------
        DeviceError
            If a process cannot be started.
        """
        while any(lane.under_way for process in self.processes if process.number for lane in process.lanes):
            self.take_reports(POLL_S)
        self.endings.clear()
        for space in self.spaces:
            space.address.clear()
        for process in self.processes:
            if not process.number:
                for lane in process.lanes:
                    for order in list(lane.under_way.values()):
                        lane.take(order)
                self.start(process)
        cold, self._cold = sorted(self._cold), set()
        self.prepare(cold)

    def prepare(self, gpus: Sequence[int], weighs: bool = False) -> None:
        """Warm the engines of GPUs up.

        Every task that a GPU can run is run there once, in batches of every listed size, with empty inputs, while
        nothing else happens; what it raises, or ends, is left to the run proper. On CUDA each is weighed besides, on
        the first GPU that can run it.

        Parameters
        ----------
        weighs
            Whether that is what it is for, on cores, too; those that have been weighed are left out.

        Raises
        ------
        DeviceError
            If the runner's modules and weights do not agree, or something is stuck.
        """
        instance = self._instance
        for gpu in gpus:
            on_cuda = self.physical[gpu].is_cuda
            for template in np.flatnonzero(instance.run_us[:, instance.gpu_class[gpu]] != NEVER).tolist():
                is_known = template in self.held_bytes
                if weighs and is_known:
                    continue
                args = template, (weighs or on_cuda) and not is_known
                order = self._try(self.compute_lane(gpu), Do.TRY, gpu, args)
                if order.results:
                    (self.held_bytes[template],) = order.results
            self._try(self.incoming[gpu], Do.TRY_TRANSFER, gpu, ())
        if instance.gangs:
            self._prepare_together(gpus, weighs)

    def _try(self, lane: Lane, do: Do, gpu: int, args: Sequence[int]) -> Order:
        order = self.carry_out(lane, do, gpu, args)
        if order.how == Ended.REFUSED:
            raise DeviceError(order.error or "")
        return order

    def _prepare_together(self, gpus: Sequence[int], weighs: bool) -> None:
        """Do what `prepare` does at places of several GPUs, so many that each of some GPUs has run every task."""
        instance = self._instance
        for template, run_us in enumerate(instance.run_us):
            tried: set[tuple[int, int]] = set()
            for place in range(instance.n_gpus, len(instance.places.gpus)):
                members = instance.places.gpus[place]
                fresh = {(gpu, len(members)) for gpu in members if gpu in gpus} - tried
                is_known = template in self.held_bytes
                if run_us[instance.place_class[place]] == NEVER or not fresh or (weighs and is_known):
                    continue
                tried |= fresh
                self.try_together(template, place, (weighs or self.physical[members[0]].is_cuda) and not is_known)

    def try_together(self, template: int, place: int, is_weighed: bool = False) -> Order:
        """Have every GPU of a place load what a task needs, and run it with the others; return how that went.

        Raises
        ------
        DeviceError
            If the runner's modules and weights do not agree, or something is stuck.
        """
        args, over = (template, is_weighed, place, self.meet(place)), list[Order]()
        gpus = self._instance.places.gpus[place]
        orders = [Order(Do.TRY_TOGETHER, gpu, args, self.limit_s, let_be) for gpu in gpus]
        join(orders, over.append)
        for order in orders:
            self.compute_lane(order.gpu).submit(order)
        tried = self._wait_for(over)
        if tried.error is not None:
            self.part(place)
        if tried.how == Ended.REFUSED:
            raise DeviceError(tried.error or "")
        found = [result for order in orders for result in order.results]
        if found:
            self.held_bytes[template] = max(found)
        return tried

    def part(self, place: int) -> None:
        """Have the processes of a place meet anew for its next run, since one of them has left."""
        self.teams.pop(place, None)

    def meet(self, place: int) -> int:
        """Return the number by which the processes of a place are to meet for a run, or have met."""
        processes = [self.process[gpu].number for gpu in self._instance.places.gpus[place]]
        known, number = self.teams.get(place, ([], 0))
        if known != processes:
            number = next(self._meetings)
            self.teams[place] = processes, number
        return number

    def load_initial(self, wanted: Mapping[tuple[int, int], int]) -> None:
        """Bring the initial residencies into memory, those with an address in a plan first.

        Raises
        ------
        DeviceError
            If a load fails.
        """
        instance = self._instance
        for resident in sorted(instance.initial, key=lambda r: (r.gpu, r.model) not in wanted):
            space, model = self.spaces[resident.gpu], resident.model
            moves = space.take(model, resident.slot, wanted.get((resident.gpu, model)))
            args = load_arguments(model, space.address[model], moves)
            order = self.carry_out(self.copy[resident.gpu], Do.LOAD, resident.gpu, args)
            if order.error is not None:
                raise DeviceError(f"{self._names[resident.gpu]}: {instance.models[model].name}: {order.error}")

    def carry_out(self, lane: Lane, do: Do, gpu: int, args: Sequence[int]) -> Order:
        """Do something and wait for it, before the clock starts; what ends a process is started again.

        Raises
        ------
        DeviceError
            If it is stuck, or ends a process that is not at a run.
        """
        over: list[Order] = []
        lane.submit(Order(do, gpu, args, self.limit_s, over.append))
        return self._wait_for(over)

    def _wait_for(self, over: Sequence[Order]) -> Order:
        """Return what is over first, of orders that say so there."""
        while not over:
            for order in self.take_reports(POLL_S):
                order.done(order)
            for ending in self.endings:
                if not ending.blamed or ending.is_stuck:
                    raise DeviceError(ending.why)
                self.start(ending.process)
                for order in ending.blamed:
                    order.done(order)
            self.endings.clear()
        return over[0]

    def measure_copies(self) -> float:
        """Empty every memory, and return the peak bandwidth of a pinned copy in bytes per second (0 without models).

        Raises
        ------
        DeviceError
            If copying does not work.
        """
        for space in self.spaces:
            space.address.clear()
        sizes = self._instance.weight_bytes.tolist()
        fitting = [model for model, size in enumerate(sizes) if size <= self.spaces[0].size_bytes]
        if not fitting:
            return 0.0
        order = self.carry_out(self.copy[0], Do.MEASURE_COPIES, 0, (max(fitting, key=sizes.__getitem__),))
        if order.error is not None:
            raise DeviceError(f"{self.copy[0].name}: copying does not work: {order.error}")
        return float(order.results[0])


def load_arguments(
    model: int, address: int, moves: Sequence[Move], anew: bool = False, part: Part = ENTIRE
) -> list[int]:
    """Return the numbers that tell a process to load a model, or a part of it, after those that make way for it."""
    others = (number for move in moves for number in (move.model, move.address, move.before))
    return [model, address, anew, *part, *others]


def seatings_of(instance: Instance) -> dict[tuple[int, int], Seating]:
    """Return how requests are served, by their template and the class of a GPU that can serve them.

    Raises
    ------
    DeviceError
        If a class has not one model, or KV moves in a way that devices do not know, or is to be held.
    """
    streams, found = instance.streams, dict[tuple[int, int], Seating]()
    if streams is None:
        return found
    if isinstance(streams.prefixes, Holds):
        raise DeviceError("KV that is held between requests (hold: true) runs on no device yet; allowed is simulate")
    models = {model.name: index for index, model in enumerate(instance.models)}
    require_continued_answers(instance)
    sending = {int(instance.task_template[source]) for source, _ in kv_moves(instance)}
    of_task = streams.template[instance.task_template]
    for index, stream in enumerate(streams.classes):
        model = models[served_model(stream)]
        held = streams.held[of_task == index]
        for gpu_class, speed in enumerate(streams.speeds[index]):
            fitting = held[held <= streams.longest[index, gpu_class]]
            if speed is None or not len(fitting):
                continue
            seats = min(speed.seats, len(fitting))
            seating = Seating(stream.name, model, seats, int(fitting.max()), speed.chunk)
            for at in np.flatnonzero(streams.template == index).tolist():
                sent_bytes = speed.kv_bytes if at in sending else None
                found[at, gpu_class] = replace(seating, sent_bytes=sent_bytes)
    return found


def copy_engines(devices: Sequence[Physical]) -> list[int]:
    """Return, per planned GPU, the first one that loads through the same copy engine: a CUDA device has one.

    >>> import torch
    >>> two = [Physical(torch.device("cuda", at), "card", object()) for at in (0, 1)]
    >>> copy_engines([*two, two[0]]), copy_engines([Physical(torch.device("cpu"), "core")] * 2)
    ([0, 1, 0], [0, 1])
    """
    return [devices.index(physical) if physical.is_cuda else gpu for gpu, physical in enumerate(devices)]


def assign(
    n_gpus: int, devices: Sequence[Physical], sharing: Sharing | None, where: str = "this machine"
) -> list[Physical]:
    """Return the physical device of each planned GPU.

    Raises
    ------
    DeviceError
        If there is no such sharing, or there are too few of them for it.
    """
    if sharing is not None and sharing not in get_args(Sharing):
        raise DeviceError(f"sharing {sharing!r} is unknown; allowed are {', '.join(get_args(Sharing))}")
    what = "CUDA devices" if devices[0].is_cuda else "cores of the CPU"
    if sharing == "serial" and not devices[0].is_cuda:
        return [devices[0]] * n_gpus
    too_few = n_gpus > len(devices) and (sharing is None or not devices[0].is_cuda)
    if too_few:
        remedy = "--virtual serial" if not devices[0].is_cuda else "--virtual parallel or --virtual serial"
        raise DeviceError(f"the scenario has {n_gpus} GPUs, {where} has {len(devices)} {what}; use {remedy}")
    return [devices[gpu % len(devices)] for gpu in range(n_gpus)]
