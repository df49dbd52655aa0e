"""Who carries out a run on devices: a station and its lanes per planned GPU, dealt out over the physical devices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal, get_args

import numpy as np
import torch

from truenorth.executor.devices.decoding import Read, served_model
from truenorth.executor.devices.lane import Lane, LostError, Order
from truenorth.executor.devices.physical import Physical, physical_devices
from truenorth.executor.devices.runner import Runner
from truenorth.executor.devices.station import Seating, Station, StationWork
from truenorth.executor.devices.weights import HostWeights
from truenorth.executor.errors import DeviceError
from truenorth.models import NEVER, Instance

Sharing = Literal["parallel", "serial"]
"""How several planned GPUs share a physical device: side by side, or one run at a time."""

POLL_S = 0.1
"""How often somebody looks for orders beyond their limit."""

_MOST_OF_MEMORY = 0.9
_TRIED_BYTES = 65_536
"""Of the transfers while warming up."""


class Crew:
    """Stations and lanes.

    Parameters
    ----------
    instance
        Its GPUs, models and tasks.
    runner
        Computes the tasks.
    kind
        ``cpu`` or ``cuda``.
    sharing
        None: every planned GPU has a physical device (a core of the CPU) to itself.
    limit_s
        How much longer than given anything may take.

    Attributes
    ----------
    stations, copy, incoming
        Per planned GPU.
    reports
        Where orders end up.
    seatings
        By template of a request and GPU class: how its stream class is served there.

    Raises
    ------
    DeviceError
        If there are too few devices, too little memory, or the runner cannot serve the models.
    """

    def __init__(self, instance: Instance, runner: Runner, kind: str, sharing: Sharing | None, limit_s: float) -> None:
        self._instance = instance
        self.seatings = seatings_of(instance)
        self._runner = runner
        self.limit_s = limit_s
        self.physical = assign(instance.n_gpus, physical_devices(kind), sharing)
        if kind == "cpu":
            _refuse_too_much(self._arena_bytes(range(instance.n_gpus)) + int(instance.weight_bytes.sum()))
        self._host = HostWeights(instance.models, runner, self.physical[0])
        self.stations = [self._station(gpu) for gpu in range(instance.n_gpus)]
        self.reports: SimpleQueue[Order] = SimpleQueue()
        self._look_s = 0.0
        self._stuck: set[int] = set()
        self._serial = sharing == "serial"
        self._compute: list[list[Lane]] = self._compute_lanes()
        self.copy = self._copy_lanes()
        self.incoming = [
            Lane(f"{gpu.id} incoming transfers", self.reports, physical.answers)
            for gpu, physical in zip(instance.cluster.gpus, self.physical, strict=True)
        ]

    def _station(self, gpu: int) -> Station:
        """Return a station for a GPU, with nothing in its memory."""
        instance = self._instance
        return Station(instance.cluster.gpus[gpu], instance.models, self._host, self._runner, self.physical[gpu])

    def _arena_bytes(self, gpus: Iterable[int]) -> int:
        return sum(self._instance.cluster.gpus[gpu].memory_bytes for gpu in gpus)

    def _compute_lanes(self) -> list[list[Lane]]:
        """Return the first lane of every GPU's runs; the same for all GPUs of a device where runs are serialised."""
        shared: dict[Physical, list[Lane]] = {}
        lanes = []
        for gpu, physical in zip(self._instance.cluster.gpus, self.physical, strict=True):
            if not self._serial:
                lanes.append([Lane(f"{gpu.id} compute engine", self.reports, physical.answers)])
                continue
            if physical not in shared:
                shared[physical] = [Lane(f"{physical.name} compute engine", self.reports, physical.answers)]
            lanes.append(shared[physical])
        return lanes

    def _copy_lanes(self) -> list[Lane]:
        """Return the lane of every GPU's loads; planned GPUs on one CUDA device take turns on its one copy engine."""
        engines = copy_engines(self.physical)
        names = [gpu.id for gpu in self._instance.cluster.gpus]
        made = {
            engine: Lane(f"{names[engine]} copy engine", self.reports, self.physical[engine].answers)
            for engine in dict.fromkeys(engines)
        }
        return [made[engine] for engine in engines]

    def compute_lane(self, gpu: int) -> Lane:
        """Return the lane for a run on a GPU: one that has nothing to do, where shares let several run at a time."""
        lanes = self._compute[gpu]
        if self._serial:
            return lanes[0]
        idle = next((lane for lane in lanes if not lane.under_way), None)
        if idle is None:
            idle = Lane(lanes[0].name, self.reports, self.physical[gpu].answers)
            lanes.append(idle)
        return idle

    @property
    def lanes(self) -> list[Lane]:
        """Every lane once."""
        return list(dict.fromkeys([*chain.from_iterable(self._compute), *self.copy, *self.incoming]))

    def close(self) -> None:
        """End the threads and free the memory."""
        for lane in self.lanes:
            lane.close()
        self.stations.clear()

    def take_reports(self, wait_s: float) -> list[Order]:
        """Return the orders that have ended or are given up, after waiting for at least one for at most so long."""
        ended: list[Order] = []
        if wait_s <= 0 and self.reports.empty() and time.monotonic() < self._look_s:
            return ended  # asked so often that it must cost nothing
        with suppress(Empty):
            if wait_s > 0:
                ended.append(self.reports.get(timeout=wait_s))
            while not self.reports.empty():
                ended.append(self.reports.get_nowait())
        awaited = [order for order in ended if order.lane is not None and order.lane.taken(order)]
        return awaited + self._take_overdue() if time.monotonic() >= self._look_s else awaited

    def _take_overdue(self) -> list[Order]:
        """Return the orders that are given up now, and put fresh lanes in the place of those stuck in them."""
        self._look_s = time.monotonic() + POLL_S
        overdue = [(lane, order) for lane in self.lanes if (order := lane.overdue()) is not None]
        for lane, _ in overdue:
            self._replace(lane)
        return [order for _, order in overdue]

    def _replace(self, lost: Lane) -> None:
        """Put a fresh lane in the place of one that is stuck, so that others' orders behind it go on."""
        fresh = lost.replace()
        lanes_of = zip(self._compute, self.copy, self.incoming, strict=True)
        stuck = {gpu for gpu, (compute, *others) in enumerate(lanes_of) if lost in (*compute, *others)}
        for gpu in stuck:
            self.stations[gpu].forget(lost.thread)
        self._stuck |= stuck
        for lanes in (*self._compute, self.copy, self.incoming):
            lanes[:] = [fresh if lane is lost else lane for lane in lanes]

    def renew(self) -> None:
        """Wait for what an earlier run left under way; set GPUs up anew, and warm them, on which something is stuck.

        What is stuck stays behind with the memory that it uses, and touches nothing that comes after it.

        Raises
        ------
        DeviceError
            If there is no memory for that beside what is stuck.
        """
        while any(lane.under_way for lane in self.lanes):
            self.take_reports(POLL_S)
        for gpu in self._set_up_stuck():
            with suppress(LostError):  # what is stuck again is left to the run proper
                self.prepare([gpu])
        self._set_up_stuck()

    def _set_up_stuck(self) -> Sequence[int]:
        """Put fresh stations in the place of those in which something is stuck; return which."""
        stuck, self._stuck = sorted(self._stuck), set()
        if stuck and not self.physical[0].is_cuda:
            _refuse_too_much(self._arena_bytes(stuck))
        for gpu in stuck:
            self.stations[gpu] = self._station(gpu)
        return stuck

    def prepare(self, gpus: Sequence[int]) -> None:
        """Warm the engines of GPUs up.

        Every task that a GPU can run is run there once, in batches of every listed size, with empty inputs, while
        nothing else happens; what it raises is left to the run proper.

        Raises
        ------
        DeviceError
            If the runner's modules and weights do not agree, or something is stuck.
        """
        trials: list[tuple[Lane, Callable[[], object]]] = [
            (self.compute_lane(gpu), partial(self._try, gpu, workflow, position))
            for gpu in gpus
            for workflow in range(len(self._instance.workflows))
            for position in range(len(self._instance.workflows[workflow].tasks))
        ]
        trials += [
            (self.incoming[gpu], partial(self._try_transfer, gpu, source))
            for gpu in gpus
            for source in dict.fromkeys(self.physical)
        ]
        for trial in trials:
            (order,) = self.carry_out([trial])
            if isinstance(order.error, DeviceError):
                raise order.error

    def _try_transfer(self, gpu: int, source: Physical) -> None:
        """Bring something from a device, so that the first transfer that counts finds its way open."""
        sent = torch.zeros(_TRIED_BYTES, dtype=torch.uint8, device=source.device)
        source.wait()
        self.stations[gpu].receive(sent, _TRIED_BYTES, self._instance.cluster.network.staged)

    def load_initial(self, wanted: Mapping[tuple[int, int], int]) -> None:
        """Bring the initial residencies into memory, those with an address in a plan first.

        Raises
        ------
        DeviceError
            If a load fails.
        """
        instance = self._instance
        for resident in sorted(instance.initial, key=lambda r: (r.gpu, r.model) not in wanted):
            station = self.stations[resident.gpu]
            moves = station.space.take(resident.model, resident.slot, wanted.get((resident.gpu, resident.model)))
            address = station.space.address[resident.model]
            load = partial(station.load_after, moves, resident.model, address, 0)
            for order in self.carry_out([(self.copy[resident.gpu], load)]):
                if order.error is not None:
                    name = instance.models[resident.model].name
                    raise DeviceError(f"{instance.cluster.gpus[resident.gpu].id}: {name}: {order.error}")

    def carry_out(self, works: Iterable[tuple[Lane, Callable[[], object]]]) -> list[Order]:
        """Do things on lanes and wait for all of them, before the clock starts."""
        ended: list[Order] = []
        orders = [(lane, Order(work, self.limit_s, ended.append)) for lane, work in works]
        for lane, order in orders:
            lane.submit(order)
        while len(ended) < len(orders):
            for order in self.take_reports(POLL_S):
                order.done(order)
        return ended

    def _try(self, gpu: int, workflow: int, position: int) -> None:
        """Load what a task needs and run it, in an otherwise empty memory; do nothing if it cannot run there."""
        station, instance = self.stations[gpu], self._instance
        template = int(instance.template_first[workflow]) + position
        run_us = int(instance.run_us[template, instance.gpu_class[gpu]])
        if run_us == NEVER:
            return
        station.load_alone(instance.needs[template])
        seating = self.seatings.get((template, int(instance.gpu_class[gpu])))
        if seating is not None:
            _try_requests(station, seating)
            return
        empty = torch.zeros(0, dtype=torch.uint8, device=station.physical.device)
        task = instance.workflows[workflow].tasks[position]
        inputs = {edge.source: (empty, edge.size_bytes) for edge in task.inputs}
        times = {1: run_us} if task.batch is None else task.batch.times_on(instance.cluster.gpus[gpu].kind)
        for size, time_us in times.items():
            name, needs = instance.workflows[workflow].name, instance.needs[template]
            station.run([StationWork(0, name, task.name, time_us, needs, inputs)] * size)

    def measure_copies(self) -> float:
        """Empty every memory, and return the peak bandwidth of a pinned copy in bytes per second (0 without models).

        Raises
        ------
        DeviceError
            If copying does not work.
        """
        for station in self.stations:
            station.space.address.clear()
        sizes = self._instance.weight_bytes.tolist()
        fitting = [model for model, size in enumerate(sizes) if size <= self.stations[0].space.size_bytes]
        if not fitting:
            return 0.0
        largest = max(fitting, key=sizes.__getitem__)
        order = self.carry_out([(self.copy[0], partial(self.stations[0].copy_peak, largest))])[0]
        if order.error is not None:
            raise DeviceError(f"{self.copy[0].name}: copying does not work: {order.error}")
        return float(order.result)


def _try_requests(station: Station, seating: Seating) -> None:
    """Work off a prompt as long as they come, or a chunk of it; take a step with the most requests, and with one."""
    station.iterate(seating, [Read(0, 0, min(seating.chunk, seating.longest - 1))], ())
    station.iterate(seating, [Read(request, 0, 1) for request in range(seating.seats)], ())
    for requests in (seating.seats, 1, 0):  # in the end all seats are empty
        station.iterate(seating, (), range(requests))


def seatings_of(instance: Instance) -> dict[tuple[int, int], Seating]:
    """Return how requests are served, by their template and the class of a GPU that can serve them.

    Raises
    ------
    DeviceError
        If a class has not one model, or KV is to move between GPUs.
    """
    streams, found = instance.streams, dict[tuple[int, int], Seating]()
    if streams is None:
        return found
    if streams.kv_edge.any():
        raise DeviceError("KV that moves between GPUs (after: {...: kv}) runs on no device yet; allowed is simulate")
    models = {model.name: index for index, model in enumerate(instance.models)}
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
            found.update({(at, gpu_class): seating for at in np.flatnonzero(streams.template == index).tolist()})
    return found


def copy_engines(devices: Sequence[Physical]) -> list[int]:
    """Return, per planned GPU, the first one that loads through the same copy engine: a CUDA device has one.

    >>> two = [Physical(torch.device("cuda", at), "card", object()) for at in (0, 1)]
    >>> copy_engines([*two, two[0]]), copy_engines([Physical(torch.device("cpu"), "core")] * 2)
    ([0, 1, 0], [0, 1])
    """
    return [devices.index(physical) if physical.is_cuda else gpu for gpu, physical in enumerate(devices)]


def assign(n_gpus: int, devices: Sequence[Physical], sharing: Sharing | None) -> list[Physical]:
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
        raise DeviceError(f"the scenario has {n_gpus} GPUs, this machine has {len(devices)} {what}; use {remedy}")
    return [devices[gpu % len(devices)] for gpu in range(n_gpus)]


def _refuse_too_much(needed: int) -> None:
    """Raise if so many bytes exceed the memory of this machine, which would end the process without a word."""
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return
    fields = dict(line.split(":") for line in meminfo.read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    if needed > _MOST_OF_MEMORY * available:
        raise DeviceError(
            f"GPU memories and weights take {needed} bytes of this machine's memory, {available} are available; "
            "use a scenario with smaller memories and models"
        )
