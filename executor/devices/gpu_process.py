"""What the process of a device does: it holds the device with its planned GPUs, and carries out what it is told.

Of the threads of a lane one carries orders out that another has read and prepared meanwhile, and goes on with the next
one before a third has told how it ended. What a runner raises fails its order and nothing else; whatever ends the
process is for the head to see.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count, islice
from queue import SimpleQueue

import torch
from torch import Tensor

from truenorth.executor.devices.addresses import Move
from truenorth.executor.devices.decoding import TOKEN_BYTES, Answer, Read, SentKV
from truenorth.executor.devices.lane import LARGEST_MESSAGE, Do, Ended, pack, unpack
from truenorth.executor.devices.moved_kv import kv_moves, most_sent_bytes
from truenorth.executor.devices.physical import Physical
from truenorth.executor.devices.reference import run_job_alone
from truenorth.executor.devices.runner import Runner
from truenorth.executor.devices.shelf import Ref, Shelf
from truenorth.executor.devices.station import Seating, Station, StationWork
from truenorth.executor.devices.streams import Span
from truenorth.executor.devices.team import Team, Teams
from truenorth.executor.devices.weights import ENTIRE, HostWeights, Part
from truenorth.executor.errors import DeviceError
from truenorth.models import GPU, Instance

COMING = -1
"""The piece of an output that the run before on the same lane has only just put out."""
READY = 0
"""What a process reports as the end of, once it is set up."""
WITHDRAW, FORGET = range(2)
"""What the head may tell beside orders and lanes: orders to let be, and outputs that nobody needs any more."""
_SWITCH_S = 0.0005
"""How long a thread may keep Python's lock while another wants it: a load must not wait behind a runner."""
_LATEST = 3
"""Runs of a lane whose outputs are there for those behind them, before the head knows of them."""
_TRIED_BYTES = 65_536
"""Of the transfers while warming up, at least."""
_Results = tuple[Span, Sequence[int]]
"""When the device was busy with an order, and what came of it in numbers."""
_Finish = Callable[[], _Results]
Residents = Mapping[int, Mapping[int, tuple[int, Part]]]
"""By planned GPU and model: where it lies in the memory, and which part of it."""
_NEVER = Span(0, 0)
_NOTHING = torch.empty(0, dtype=torch.uint8)


class GpuProcess:
    """A device with its planned GPUs.

    Parameters
    ----------
    instance, seatings, host, runner, shelf
        What all processes of a crew have.
    physical
        The device.
    gpus
        The planned GPUs on it, by number.
    reports
        Where ends are told.
    teams
        Where processes of several GPUs meet that run a task together.
    """

    def __init__(
        self,
        instance: Instance,
        seatings: Mapping[tuple[int, int], Seating],
        host: HostWeights,
        runner: Runner,
        shelf: Shelf,
        physical: Physical,
        gpus: Mapping[int, GPU],
        reports: socket.socket,
        teams: Teams,
    ) -> None:
        self._instance, self._seatings, self._host, self._runner = instance, seatings, host, runner
        self._shelf, self._physical, self._gpus, self._reports = shelf, physical, gpus, reports
        self._teams = teams
        self._stations: dict[int, Station] = {}
        self._number = os.getpid()
        self._withdrawn: set[int] = set()
        self._job: list[int] = instance.task_job.tolist()
        self._template: list[int] = instance.task_template.tolist()
        self._first: list[int] = instance.job_first_task.tolist()
        # Where the head cannot read them outputs stay on the device, by their offset.
        self._on_device: dict[int, Tensor] = {}
        self._put = threading.Lock()

    def serve(self, index: int, residents: Residents, control: socket.socket) -> None:
        """Set the device up, and serve lanes for as long as the head is there.

        Parameters
        ----------
        index
            Of this process, for its report.
        residents
            What is loaded first.
        """
        torch.set_num_threads(1)
        sys.setswitchinterval(_SWITCH_S)
        try:
            for gpu, planned in self._gpus.items():
                station = Station(planned, self._instance.models, self._host, self._runner, self._physical)
                self._stations[gpu] = station
                for model, (address, part) in residents.get(gpu, {}).items():
                    station.load(model, address, part=part)
            self._report(READY, Ended.WELL, index, 0, 0, 0)
        except BaseException as error:  # the head decides what follows
            self._report(READY, Ended.REFUSED, index, 0, 0, 0, said=in_words(error))
        lanes = count()
        while True:
            message, fds, _, _ = socket.recv_fds(control, LARGEST_MESSAGE, 1)
            if not message:
                os._exit(0)
            if fds:
                lane = _ServedLane(self, next(lanes), socket.socket(fileno=fds[0]), self._physical.is_cuda)
                lane.start(message.decode())
                continue
            what, *rest = unpack(message)
            if what == WITHDRAW:
                self._withdrawn.update(rest)
            elif what == FORGET:
                for offset in rest:
                    self._on_device.pop(offset, None)

    def _report(self, *numbers: int, said: str = "") -> None:
        """Tell the head, and from which process: it may have another by now."""
        self._reports.send(pack((self._number, *numbers)) + said.encode()[: LARGEST_MESSAGE // 2])

    def prepare(self, lane: _ServedLane, message: bytes) -> Callable[[], Callable[[], None]]:
        """Return what carries an order out, which then returns what waits for its end and reports it."""
        number, do, gpu, asked_ns, *args = unpack(message)
        if do != Do.RUN:
            carry_out = partial(self._carry_out[Do(do)], self, lane, gpu, asked_ns, args)
            return partial(self._begin, lane.number, number, carry_out)
        try:
            return partial(self._begin, lane.number, number, self._prepare_run(lane, gpu, asked_ns, args))
        except DeviceError as error:  # an input is not there any more
            return partial(partial, self._report_error, number, time.perf_counter_ns(), error)

    def _begin(self, lane: int, number: int, carry_out: Callable[[], _Finish]) -> Callable[[], None]:
        began_ns = time.perf_counter_ns()
        self._shelf.note_begun(lane, number)
        try:
            finish = _let_be if number in self._withdrawn else carry_out()
        except BaseException as error:  # whatever a runner raises fails its task, not the process
            return partial(self._report_error, number, began_ns, error)
        return partial(self._finish, number, began_ns, finish)

    def _finish(self, number: int, began_ns: int, finish: Callable[[], _Results]) -> None:
        try:
            span, results = finish()
        except BaseException as error:  # a device tells late what has failed there
            self._report_error(number, began_ns, error)
            return
        times = began_ns, time.perf_counter_ns(), span.start_ns, span.end_ns
        self._report(number, Ended.WELL, *times, *results)

    def _report_error(self, number: int, began_ns: int, error: BaseException) -> None:
        how = Ended.REFUSED if isinstance(error, DeviceError) else Ended.RAISED
        if isinstance(error, torch.AcceleratorError) and not self._physical.answers():
            how = Ended.WITH_DEVICE
        self._report(number, how, began_ns, time.perf_counter_ns(), 0, 0, said=in_words(error))

    # -- what may be ordered ----------------------------------------------------------------------------------------

    def _prepare_run(self, lane: _ServedLane, gpu: int, asked_ns: int, args: Sequence[int]) -> Callable[[], _Finish]:
        run_us, size, *rest = args
        tasks, places = rest[:size], iter(rest[size:])
        coming: list[tuple[int, StationWork, str, int]] = []
        works = [self._work(task, run_us, places, coming) for task in tasks]

        def run() -> _Finish:
            """Begin the run, on what the one before it has put out."""
            fresh = lane.fresh[gpu]
            for source, work, name, size_bytes in coming:
                output = next((made[source] for made in fresh if source in made), None)
                if output is None:
                    raise DeviceError("what it needs was not put out")
                work.inputs[name] = output, size_bytes
            pending = self._stations[gpu].begin_run(works, asked_ns, lane.number)
            fresh.append(dict(zip(tasks, pending.result, strict=True)))
            return lambda: (pending.wait(), self._put_out(pending.result))

        return run

    def _run_together(self, lane: _ServedLane, gpu: int, asked_ns: int, args: Sequence[int]) -> _Finish:
        """Begin a run with other GPUs of a place, which begin it, too."""
        run_us, place, task, number, *places = args
        with self._leaving(place):
            team = self._join(gpu, place, number)
            work = self._work(task, run_us, iter(places), [])
            split = bool(self._instance.split[self._template[task], self._instance.place_class[place]])
            pending = self._stations[gpu].begin_run([replace(work, team=team, split=split)], asked_ns, lane.number)

        def finish() -> _Results:
            """Wait for it, and put out what the others put out, too."""
            with self._leaving(place):
                return pending.wait(), self._put_out(pending.result)

        return finish

    def _join(self, gpu: int, place: int, number: int) -> Team:
        gpus = self._instance.places.gpus[place]
        return self._teams.join(place, number, gpus.index(gpu), len(gpus), self._physical)

    @contextmanager
    def _leaving(self, place: int) -> Iterator[None]:
        """Leave the team of a place if anything fails meanwhile: others must not wait for what does not come."""
        try:
            yield
        except BaseException:
            self._teams.leave(place)
            raise

    def _work(
        self, task: int, run_us: int, places: Iterator[int], coming: list[tuple[int, StationWork, str, int]]
    ) -> StationWork:
        """Return a task with its inputs, of which each lies at the next place; note those that are still to come."""
        instance, template, job = self._instance, self._template[task], self._job[task]
        workflow = instance.jobs[job].workflow
        described = workflow.tasks[task - self._first[job]]
        work = StationWork(job, workflow.name, described.name, run_us, instance.needs[template], {})
        for (offset, _), edge in zip(instance.inputs[template], described.inputs, strict=True):
            piece, at = next(places), next(places)
            work.inputs[edge.source] = _NOTHING, edge.size_bytes
            if piece == COMING:
                coming.append((task + offset, work, edge.source, edge.size_bytes))
            else:
                work.inputs[edge.source] = self._output(piece, at), edge.size_bytes
        return work

    def _iterate(self, lane: _ServedLane, gpu: int, asked_ns: int, args: Sequence[int]) -> _Finish:
        template, reading, writing, ending, joining, *rest = args
        numbers = iter(rest)
        reads = [Read(*row) for row in _rows(numbers, reading, 3)]
        writes = [*islice(numbers, writing)]
        ends, arrived = _rows(numbers, ending, 4), _rows(numbers, joining, 4)
        answers = [Answer(request, begin, tokens, bool(with_kv)) for request, begin, tokens, with_kv in ends]
        sent = [SentKV(request, tokens, self._output(piece, at)) for request, tokens, piece, at in arrived]
        seating, station = self._seating(template, gpu), self._stations[gpu]
        outputs, span = station.iterate(seating, reads, writes, answers, sent, asked_ns, lane.number)
        return lambda: (span, self._put_out(outputs))

    def _load(self, lane: _ServedLane, gpu: int, asked_ns: int, args: Sequence[int]) -> _Finish:
        model, address, anew, rank, of, *rest = args
        moves = [Move(*rest[at : at + 3]) for at in range(0, len(rest), 3)]
        span, moves_us = self._stations[gpu].load_after(moves, model, address, asked_ns, bool(anew), Part(rank, of))
        return lambda: (span, (moves_us,))

    def _receive(self, lane: _ServedLane, gpu: int, asked_ns: int, args: Sequence[int]) -> _Finish:
        piece, at, size_bytes, staged = args
        received, span = self._stations[gpu].receive(self._shelf.bytes_at(piece, at), size_bytes, bool(staged))
        return lambda: (span, self._put_out([received]))

    def _publish(self, lane: _ServedLane, gpu: int, asked_ns: int, args: Sequence[int]) -> _Finish:
        """Have an output that is on the device where everybody can read it."""
        piece, offset, *_ = args
        output = self._output(piece, offset)
        if self._physical.is_cuda:
            self._shelf.write(offset, output)
        return _let_be

    def _try(self, lane: _ServedLane, gpu: int, asked_ns: int, args: Sequence[int]) -> _Finish:
        """Load what a task needs and run it, in batches of every listed size, in an otherwise empty memory.

        Where it is to be weighed, what it takes beside the weights comes of that: its part of the largest batch.
        """
        instance, station, (template, is_weighed) = self._instance, self._stations[gpu], args
        run_us = int(instance.run_us[template, instance.gpu_class[gpu]])
        station.load_alone(instance.needs[template])
        if (template, int(instance.gpu_class[gpu])) in self._seatings:
            _try_requests(station, self._seating(template, gpu), moves_kv=bool(kv_moves(instance)))
            return _let_be
        workflow, position = instance.locate(template)
        batch, work = workflow.tasks[position].batch, self._tried(template, run_us)
        times = {1: run_us} if batch is None else batch.times_on(instance.cluster.gpus[gpu].kind)
        for size, time_us in sorted(times.items()):
            works = [replace(work, run_us=time_us)] * size
            station.run(works)
        # Behind a run that has set everything up that stays.
        results = (station.weigh(works)[1],) if is_weighed else ()
        return lambda: (_NEVER, results)

    def _try_together(self, lane: _ServedLane, gpu: int, asked_ns: int, args: Sequence[int]) -> _Finish:
        """Do what `_try` does with the other GPUs of a place."""
        template, is_weighed, place, number = args
        instance, station, kind = self._instance, self._stations[gpu], int(self._instance.place_class[args[2]])
        with self._leaving(place):
            team, split = self._join(gpu, place, number), bool(instance.split[template, kind])
            station.load_alone(instance.needs[template], Part(team.rank, team.size) if split else ENTIRE)
            work = self._tried(template, int(instance.run_us[template, kind]))
            works = [replace(work, team=team, split=split)]
            _, span = station.run(works)
            results = (station.weigh(works)[1],) if is_weighed else ()
        return lambda: (span, results)

    def _tried(self, template: int, run_us: int) -> StationWork:
        """Return a task with empty inputs."""
        workflow, position = self._instance.locate(template)
        task = workflow.tasks[position]
        inputs = {edge.source: (self._physical.memory(edge.size_bytes), edge.size_bytes) for edge in task.inputs}
        return StationWork(0, workflow.name, task.name, run_us, self._instance.needs[template], inputs)

    def _try_transfer(self, lane: _ServedLane, gpu: int, asked_ns: int, args: Sequence[int]) -> _Finish:
        """Bring something here, so that the first transfer that counts finds its way open, and wide enough for KV."""
        size_bytes = max(_TRIED_BYTES, TOKEN_BYTES + most_sent_bytes(self._instance))
        sent = torch.zeros(size_bytes, dtype=torch.uint8)
        self._stations[gpu].receive(sent, size_bytes, self._instance.cluster.network.staged)
        return _let_be

    def _measure_copies(self, lane: _ServedLane, gpu: int, asked_ns: int, args: Sequence[int]) -> _Finish:
        peak = round(self._stations[gpu].copy_peak(args[0]))
        return lambda: (_NEVER, (peak,))

    def _run_alone(self, lane: _ServedLane, gpu: int, asked_ns: int, args: Sequence[int]) -> _Finish:
        job, size, *rest = args
        given = {rest[at]: self._shelf.bytes_at(*rest[at + 1 : at + 3]) for at in range(size, len(rest), 3)}
        outputs = run_job_alone(self._instance, self._seatings, self._stations[gpu], job, rest[:size], given)
        refs = [self._shelf.put(outputs[task]) for task in rest[:size]]
        return lambda: (_NEVER, [number for ref in refs for number in ref[1:]])

    _carry_out = {  # noqa: RUF012
        Do.ITERATE: _iterate,
        Do.LOAD: _load,
        Do.RECEIVE: _receive,
        Do.PUBLISH: _publish,
        Do.TRY: _try,
        Do.TRY_TRANSFER: _try_transfer,
        Do.MEASURE_COPIES: _measure_copies,
        Do.RUN_ALONE: _run_alone,
        Do.RUN_TOGETHER: _run_together,
        Do.TRY_TOGETHER: _try_together,
    }

    def _seating(self, template: int, gpu: int) -> Seating:
        return self._seatings[template, int(self._instance.gpu_class[gpu])]

    def _output(self, piece: int, at: int) -> Tensor:
        """Return an output of this process, or what has reached it, on the device."""
        if not self._physical.is_cuda:
            return self._shelf.bytes_at(piece, at)
        if at not in self._on_device:
            raise DeviceError("its input was lost with the process that had it on its device")
        return self._on_device[at]

    def _put_out(self, outputs: Sequence[Tensor]) -> list[int]:
        """Keep outputs; return where each lies and how many bytes it takes."""
        found: list[int] = []
        for output in outputs:
            ref = self._keep(output)
            found += ref.offset, ref.size_bytes
        return found

    def _keep(self, output: Tensor) -> Ref:
        with self._put:  # lanes put out beside one another
            ref = self._shelf.reserve(output)
        if self._physical.is_cuda:
            self._on_device[ref.offset] = output
        else:
            self._shelf.write(ref.offset, output)
        return ref


class _ServedLane:
    """A lane as its process sees it.

    Attributes
    ----------
    number
        By which stations tell lanes apart.
    fresh
        What the latest runs on each planned GPU have put out here, by task: between a run and the one that needs it
        others may have come to nothing.
    """

    def __init__(self, process: GpuProcess, number: int, orders: socket.socket, waits: bool) -> None:
        self._process, self.number, self._orders, self._waits = process, number, orders, waits
        self.fresh: defaultdict[int, deque[Mapping[int, Tensor]]] = defaultdict(lambda: deque(maxlen=_LATEST))
        self._reading, self._state = threading.Lock(), threading.Lock()
        self._prepared: deque[Callable[[], Callable[[], None]]] = deque()
        self._reports: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._is_busy, self._untold = False, 0

    def start(self, name: str) -> None:
        """Serve it from now on."""
        for serve in (self._serve, self._serve, self._tell):
            threading.Thread(target=serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        """Read orders; carry them out unless the other thread is at that, which then goes on with them."""
        torch.set_num_threads(1)
        while True:
            with self._reading:
                message = self._orders.recv(LARGEST_MESSAGE)
                if not message:
                    return
                prepared = self._process.prepare(self, message)
                with self._state:
                    self._prepared.append(prepared)
                    if self._is_busy:
                        continue
                    self._is_busy = True
            self._carry_out()

    def _carry_out(self) -> None:
        """Carry out what is prepared; the end of what nothing follows is told at once."""
        goes_on = True
        while goes_on:
            report = self._prepared.popleft()()
            with self._state:
                goes_on = self._is_busy = bool(self._prepared)
                later = goes_on or self._untold or self._waits
                self._untold += bool(later)
            if later:
                self._reports.put(report)
            else:
                report()

    def _tell(self) -> None:
        """Tell how orders have ended, in their order, where waiting for that would hold others up."""
        while True:
            self._reports.get()()
            with self._state:
                self._untold -= 1


def _rows(numbers: Iterator[int], rows: int, width: int) -> list[list[int]]:
    """Take so many rows of numbers.

    >>> _rows(iter(range(9)), 2, 3)
    [[0, 1, 2], [3, 4, 5]]
    """
    return [[*islice(numbers, width)] for _ in range(rows)]


def _let_be() -> _Results:
    """Return what comes of nothing."""
    return _NEVER, ()


def _try_requests(station: Station, seating: Seating, moves_kv: bool) -> None:
    """Work off a prompt as long as they come, or a chunk of it; take a step with the most requests, and with one.

    Where KV moves it is put out, and taken in, too.
    """
    if moves_kv:
        (_, kv), _ = station.iterate(seating, [Read(0, 0, 1)], (), [Answer(0, 1, 1, with_kv=True)])
        station.iterate(seating, (), [0], (), [SentKV(0, 1, kv)])
    station.iterate(seating, [Read(0, 0, min(seating.chunk, seating.longest - 1))], ())
    station.iterate(seating, [Read(request, 0, 1) for request in range(seating.seats)], ())
    for requests in (seating.seats, 1, 0):  # in the end all seats are empty
        station.iterate(seating, (), range(requests))


def in_words(error: BaseException) -> str:
    """Return an error as one line."""
    said = str(error).partition("\n")[0].strip()
    return said if isinstance(error, DeviceError) else f"{type(error).__name__}: {said}".rstrip(": ")
