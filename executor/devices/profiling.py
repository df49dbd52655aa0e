"""What tasks, loads and transfers take on a device: every workflow, round after round, one thing at a time.

A round loads and runs what a real run loads and runs, in turn, so that caches are as cold as they will be then. A task
that takes a share runs beside as many copies of itself as fit, one of a batch class also in every listed size. Of a
stream class a typical prompt is worked off chunk by chunk, and a step is taken at every listed concurrency.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from threading import Barrier, Event
from typing import TypeVar

import torch
from torch import Tensor, nn

from truenorth.executor.devices.decoding import Read
from truenorth.executor.devices.lane import one_thread_each
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.runner import Runner, RunnerCall
from truenorth.executor.devices.station import Seating, Station, StationWork
from truenorth.executor.devices.streams import Span
from truenorth.executor.devices.weights import HostWeights, aligned, packed_bytes
from truenorth.executor.errors import DeviceError, StoppedError
from truenorth.executor.samples import FittedLine, Spread, fit_line
from truenorth.models import GPU, WHOLE, BatchClass, MLModel, Task, Workflow

WARMUP_ROUNDS = 2
MOST_BESIDE = 64
"""Most runs that are measured side by side, however small a share they take."""
_SHORTEST_US = 0.001
Key = tuple[str, str]
"""A workflow's name and a task's."""

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class TypicalRequest:
    """What is measured of a stream class.

    Parameters
    ----------
    stream, model
        Names of the class and of its only model.
    chunk
        Most prompt tokens of an iteration.
    prompt
        Prompt tokens of a request.
    context
        Tokens that lie in a request's KV at a step.
    concurrency
        Requests per step: as many as are listed.
    """

    stream: str
    model: str
    chunk: int
    prompt: int
    context: int
    concurrency: Sequence[int]


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """What was measured of a stream class: its typical prompt, steps by concurrency, and bytes of KV per token."""

    asked: TypicalRequest
    prompt: Spread
    steps: Mapping[int, Spread]
    kv_bytes: int

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens per second."""
        return 1_000_000 * self.asked.prompt / self.prompt.median_us


@dataclass(frozen=True, slots=True)
class Measurements:
    """What was measured on a device.

    Parameters
    ----------
    device
        Its name.
    weight_bytes
        Of each model, as packed in memory.
    runs
        By workflow and task, one of a batch class alone.
    batches
        By batch class and size.
    loads
        By model.
    transfers
        By bytes.
    load, transfer
        Overhead and bandwidth of loads, and of transfers between GPUs; None where there was none.
    copy_peak
        Best bandwidth of bare copies of the largest model from pinned host memory, in bytes per second; None without
        models.
    streams
        By stream class.
    rounds
        How many there were.
    """

    device: str
    weight_bytes: Mapping[str, int]
    runs: Mapping[Key, Spread]
    batches: Mapping[str, Mapping[int, Spread]]
    loads: Mapping[str, Spread]
    transfers: Mapping[int, Spread]
    load: FittedLine | None
    transfer: FittedLine | None
    copy_peak: float | None
    streams: Mapping[str, StreamTimes] = field(default_factory=dict)
    rounds: int = 0


@dataclass(slots=True)
class _BenchSamples:
    runs: dict[Key, list[float]] = field(default_factory=dict)
    batches: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    loads: dict[str, list[float]] = field(default_factory=dict)
    transfers: dict[int, list[float]] = field(default_factory=dict)
    steps: dict[tuple[str, int], list[float]] = field(default_factory=dict)  # 0: the prompt


class _Sized:
    """A runner whose weights were drawn or read once, to see how many bytes they take."""

    def __init__(self, runner: Runner, models: Sequence[MLModel]) -> None:
        self._runner = runner
        self._weights = {model.name: runner.weights(model) for model in models}
        self.models = [MLModel(name, packed_bytes(weights)) for name, weights in self._weights.items()]

    def weights(self, model: MLModel) -> Mapping[str, Tensor]:
        return self._weights.pop(model.name)

    def module(self, model: MLModel) -> nn.Module:
        return self._runner.module(model)

    def run(self, call: RunnerCall) -> Tensor:
        return self._runner.run(call)

    def run_batch(self, calls: Sequence[RunnerCall]) -> Sequence[Tensor]:
        return self._runner.run_batch(calls)


class _Bench:
    """One planned GPU as large as the largest task's models, and where transfers to it come from."""

    def __init__(
        self,
        models: Sequence[MLModel],
        workflows: Sequence[Workflow],
        requests: Sequence[TypicalRequest],
        runner: Runner,
        kind: str,
        place: int = 0,
    ) -> None:
        devices = physical_devices(kind)
        self.physical, self._away = devices[place % len(devices)], devices[place - 1]
        sized = _Sized(runner, models)
        self.models = sized.models
        self._place = {model.name: index for index, model in enumerate(self.models)}
        tasks = [task for workflow in workflows for task in workflow.tasks]
        together = [*(task.models for task in tasks), *((request.model,) for request in requests)]
        room = max([1, *(sum(map(self._size, names)) for names in together)])
        gpu = GPU("s0/g0", 0, kind, room, Fraction(1))
        host = HostWeights(self.models, sized, self.physical)
        self.station = Station(gpu, self.models, host, runner, self.physical)
        self.samples = _BenchSamples()
        self._workflows, self._requests = workflows, requests

    def _size(self, model: str) -> int:
        return aligned(self.models[self._place[model]].weight_bytes)

    def round(self, number: int, stop: Callable[[], bool] = lambda: False) -> None:
        """Measure every workflow and every stream class once, or until told to stop."""
        for workflow in self._workflows:
            if not stop():
                self._go_through(workflow, number)
        for request in self._requests:
            if not stop():
                self._serve(request)

    def _go_through(self, workflow: Workflow, number: int) -> None:
        """Load for, feed and run every task of a workflow once."""
        outputs: dict[str, Tensor] = {}
        for index in workflow.topological:
            task = workflow.tasks[index]
            self._load(task.models)
            inputs = {
                edge.source: (self._receive(outputs[edge.source], edge.size_bytes), edge.size_bytes)
                for edge in task.inputs
            }
            outputs[task.name] = self._run(workflow, task, number, inputs)

    def _run(self, workflow: Workflow, task: Task, number: int, inputs: dict[str, tuple[Tensor, int]]) -> Tensor:
        """Run a task in batches of every size of its class, and return its output alone."""
        needed = [self._place[name] for name in task.models]
        times = {1: task.fastest_us} if task.batch is None else _fastest(task.batch)
        for size in sorted(times, reverse=True):  # alone comes last
            members = [
                StationWork(number * size + k, workflow.name, task.name, times[size], needed, inputs)
                for k in range(size)
            ]
            ran = self._run_beside(members, min(MOST_BESIDE, WHOLE // task.share))
            for _, span in ran:
                if task.batch is not None:
                    _note(self.samples.batches, (task.batch.name, size), span)
                if size == 1:
                    _note(self.samples.runs, (workflow.name, task.name), span)
        return ran[0][0][0]

    def _run_beside(self, members: Sequence[StationWork], copies: int) -> list[tuple[list[Tensor], Span]]:
        """Run so many copies of a batch, starting together, each on a thread of its own."""
        if copies == 1:
            return [self.station.run(members)]
        together = Barrier(copies)

        def run_copy(_: int) -> tuple[list[Tensor], Span]:
            torch.set_num_threads(1)
            together.wait()
            return self.station.run(members)

        with ThreadPoolExecutor(copies) as threads:
            return list(threads.map(run_copy, range(copies)))

    def _serve(self, request: TypicalRequest) -> None:
        """Work off a typical prompt chunk by chunk, then take a step at every concurrency, all at about one context."""
        self._load((request.model,))
        seating, iterate = self._seating(request), self.station.iterate
        chunks = [
            Read(0, begin, min(request.chunk, request.prompt - begin))
            for begin in range(0, request.prompt, request.chunk)
        ]
        _note(self.samples.steps, (request.stream, 0), *(iterate(seating, [chunk], ())[1] for chunk in chunks))
        seated = [Read(other, request.context - 1, 1) for other in range(seating.seats)]
        iterate(seating, seated, ())
        for k in sorted(request.concurrency, reverse=True):  # whoever is left out gives up the seat
            _note(self.samples.steps, (request.stream, k), iterate(seating, (), range(k))[1])

    def _seating(self, request: TypicalRequest) -> Seating:
        """Return the seats of a class, each long enough for its prompt, and for its context and the steps behind it."""
        longest = max(request.prompt, request.context + len(request.concurrency)) + 1
        seats = max(request.concurrency)
        return Seating(request.stream, self._place[request.model], seats, longest, request.chunk)

    def _load(self, names: Sequence[str]) -> None:
        spans = self.station.load_alone([self._place[name] for name in names])
        for name, span in zip(names, spans, strict=True):
            _note(self.samples.loads, name, span)

    def _receive(self, output: Tensor, size_bytes: int) -> Tensor:
        if self._away.device != self.physical.device:
            output = output.to(self._away.device)
            torch.cuda.synchronize(self._away.device)
        received, span = self.station.receive(output, size_bytes, staged=False)
        if size_bytes:
            _note(self.samples.transfers, size_bytes, span)
        return received

    def measurements(self, rounds: int) -> Measurements:
        """Return what so many rounds have shown."""
        loads = {name: Spread.of(times) for name, times in self.samples.loads.items()}
        transfers = {size: Spread.of(times) for size, times in self.samples.transfers.items()}
        batches: dict[str, dict[int, Spread]] = {}
        for (name, size), times in sorted(self.samples.batches.items()):
            batches.setdefault(name, {})[size] = Spread.of(times)
        sizes = {model.name: model.weight_bytes for model in self.models}
        largest = max(loads, key=sizes.__getitem__, default=None)
        return Measurements(
            self.physical.name,
            sizes,
            {key: Spread.of(times) for key, times in self.samples.runs.items()},
            batches,
            loads,
            transfers,
            _line([(sizes[name], spread.median_us) for name, spread in loads.items()]),
            _line([(size, spread.median_us) for size, spread in transfers.items()]),
            None if largest is None else self.station.copy_peak(self._place[largest]),
            {request.stream: self._times_of(request) for request in self._requests},
            rounds,
        )

    def _times_of(self, request: TypicalRequest) -> StreamTimes:
        prompt, *steps = (Spread.of(self.samples.steps[request.stream, k]) for k in (0, *request.concurrency))
        kv_bytes = self.station.decoder(self._seating(request)).kv_bytes
        return StreamTimes(request, prompt, dict(zip(request.concurrency, steps, strict=True)), kv_bytes)


def measure(
    models: Sequence[MLModel],
    workflows: Sequence[Workflow],
    runner: Runner,
    kind: str,
    *,
    requests: Sequence[TypicalRequest] = (),
    rounds: int = 10,
    beside: int = 0,
    watch: Callable[[int], None] = lambda done: None,
    stop: Callable[[], bool] = lambda: False,
) -> Measurements:
    """Measure every task, load and transfer of some workflows on a device, with one thread of computation.

    Parameters
    ----------
    models
        Those that the tasks need; their bytes are measured too, except for a runner that takes them as given.
    kind
        ``cpu`` or ``cuda``: the first such device, and transfers from the last one to it.
    requests
        One of every stream class, which is served besides.
    rounds
        How often everything is measured, after two rounds of warm-up.
    beside
        How many more GPUs do the same meanwhile, on the devices that follow: what they share takes its toll.
    watch
        Told how many rounds are done.
    stop
        Asked after every round whether to end early, with what has been measured.

    Raises
    ------
    DeviceError
        If the device or the runner cannot be used.
    StoppedError
        If it was told to end before anything had been measured.
    """
    if rounds < 1:
        raise DeviceError(f"{rounds} rounds measure nothing; allowed is 1 or more")
    with one_thread_each():
        bench = _Bench(models, workflows, requests, runner, kind)
        others = [_Bench(models, workflows, requests, runner, kind, place) for place in range(1, beside + 1)]
        with _busy(others):
            for number in range(WARMUP_ROUNDS + rounds):
                if number == WARMUP_ROUNDS:
                    bench.samples = _BenchSamples()
                bench.round(number)
                watch(number + 1)
                if stop():
                    break
        measured = number + 1 - WARMUP_ROUNDS
        if measured < 1:
            raise StoppedError("no round had ended")
        return bench.measurements(measured)


@contextmanager
def _busy(benches: Sequence[_Bench]) -> Iterator[None]:
    """Let benches go round after round for as long as the block runs; what one raises is raised at its end."""
    stop = Event()

    def go_round(bench: _Bench) -> None:
        """Measure everything, round after round, until told to stop."""
        torch.set_num_threads(1)
        for number in count():
            if stop.is_set():
                return
            bench.round(number, stop.is_set)

    with ThreadPoolExecutor(max(1, len(benches))) as threads:
        rounds = [threads.submit(go_round, bench) for bench in benches]
        try:
            yield
        finally:
            stop.set()
        for each in rounds:
            each.result()


def _note(samples: dict[K, list[float]], key: K, *spans: Span) -> None:
    """Keep how long something took, in one span or several."""
    # A clock that did not move between two readings would make a relative error infinite.
    samples.setdefault(key, []).append(max(sum(span.duration_us for span in spans), _SHORTEST_US))


def _fastest(batch: BatchClass) -> dict[int, int]:
    """Return the shortest run time that is given for each listed size, whatever the kind of GPU."""
    times: dict[int, int] = {}
    for table in batch.runtime_us.values():
        for size, time_us in table.items():
            times[size] = min(time_us, times.get(size, time_us))
    return times


def _line(samples: Sequence[tuple[int, float]]) -> FittedLine | None:
    return fit_line(samples) if samples else None
