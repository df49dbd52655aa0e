"""What tasks, loads and transfers take on a device: every workflow, round after round, one thing at a time.

A round loads and runs what a real run loads and runs, in turn, so that caches are as cold as they will be then. A task
that takes a share runs beside as many copies of itself as fit, one of a batch class also in every listed size. Of a
stream class a typical prompt is worked off chunk by chunk, and a step is taken at every listed concurrency. Where all
models, or all edges, have one size, another is copied, too: one size tells no overhead from bandwidth.

A task that only runs on several GPUs is run by processes of theirs; here parts of its models are copied.

A round's samples are plain data, so that they can be kept as it ends, and a profile goes on behind them.

How late things start shows only in runs as they will be, with an engine, a policy and processes: these are made, too,
and run times are somewhat longer there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain, count
from threading import Barrier, Event
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from truenorth.executor.devices.crew import Crew
from truenorth.executor.devices.cuda import STREAMS
from truenorth.executor.devices.decoding import Read
from truenorth.executor.devices.nodes import Nodes
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.run import LiveSettings, live_crew, run_on
from truenorth.executor.devices.runner import MakeRunner, Runner, RunnerCall
from truenorth.executor.devices.station import Seating, Station, StationWork
from truenorth.executor.devices.streams import Span
from truenorth.executor.devices.weights import HostWeights, aligned, packed_bytes
from truenorth.executor.errors import DeviceError, StoppedError
from truenorth.executor.policies.baselines import Jit
from truenorth.executor.policies.compass import Compass
from truenorth.executor.samples import FittedLine, Spread, fit_line
from truenorth.models import GPU, NEVER, WHOLE, BatchClass, Instance, Job, MLModel, Task, Workflow
from truenorth.models.cluster import ALWAYS
from truenorth.models.instance import InstanceError
from truenorth.models.tables import part_bytes

WARMUP_ROUNDS = 2
_CACHED_BYTES = 1 << 26
"""More than what the caches of a core hold."""
MOST_BESIDE = STREAMS - 2
"""Most runs that are measured side by side: a card has no more streams beside those of copies."""
_SHORTEST_US = 0.001
_FAR = 16
"""So many times as large, or as small, is the other size of what comes in one."""
_LARGE_BYTES = 1_000_000
_SWITCH_S = 0.0005
"""How long a thread may keep Python's lock while another wants it."""
_IDLE_US, _LIVE_US = 20_000, 10_000_000
"""How long GPUs idle before a job of a live run, and for how long jobs are released."""
Key = tuple[str, str]
"""A workflow's name and a task's."""
K = TypeVar("K")

RoundSamples = dict[tuple[str | int, ...], list[float]]
"""Microseconds by what took them: ``("run", workflow, task)``, ``("batch", class, size)``, ``("load", model)``,
``("part", bytes)`` of a model, ``("transfer", bytes)``, ``("step", class, concurrency)`` with 0 for the prompt,
``("short", class, concurrency)`` at contexts of a token, ``("mixed", class, prompt tokens)`` beside other requests'
steps, with 0 for these alone, ``("together", workflow, task, GPUs)`` of a run on several."""


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
    apart
        Whether it is measured, too, what contexts and prompts add to a step.
    """

    stream: str
    model: str
    chunk: int
    prompt: int
    context: int
    concurrency: Sequence[int]
    apart: bool = False

    @property
    def first_chunk(self) -> int:
        """Prompt tokens of the first iteration of a prompt."""
        return min(self.chunk, self.prompt)


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """What was measured of a stream class: its typical prompt, steps by concurrency, and bytes of KV per token.

    Parameters
    ----------
    short
        Steps by concurrency at contexts that are all shorter by the typical one less a token; empty if not asked for.
    mixed
        An iteration with the first chunk of a prompt beside others' steps, and these alone; None if not asked for.
    """

    asked: TypicalRequest
    prompt: Spread
    steps: Mapping[int, Spread]
    kv_bytes: int
    short: Mapping[int, Spread] = field(default_factory=dict)
    mixed: tuple[Spread, Spread] | None = None

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens per second."""
        return 1_000_000 * self.asked.prompt / self.prompt.median_us

    @property
    def context_us(self) -> float:
        """What a token of context of a request adds to a step: the least squares of all concurrencies, at least 0."""
        longer = self.asked.context - 1
        added = sum(k * (self.steps[k].median_us - spread.median_us) for k, spread in self.short.items())
        return max(0.0, added / (longer * sum(k * k for k in self.short))) if self.short and longer else 0.0

    @property
    def mixed_us(self) -> float:
        """What an iteration lasts longer than a step and its prompt tokens, at least 0."""
        if self.mixed is None:
            return 0.0
        both, steps = self.mixed
        prompt_us = self.prompt.median_us * self.asked.first_chunk / self.asked.prompt
        return max(0.0, both.median_us - steps.median_us - prompt_us)

    @property
    def plain_steps(self) -> dict[int, Spread]:
        """Steps by concurrency without what contexts add to them."""
        added_us = {k: self.context_us * k * self.asked.context for k in self.steps}
        return {
            k: Spread.of([max(_SHORTEST_US, us - added_us[k]) for us in spread.samples_us])
            for k, spread in self.steps.items()
        }


@dataclass(frozen=True, slots=True)
class LiveTimes:
    """What live runs have shown.

    Parameters
    ----------
    runs
        By workflow and task.
    dispatch
        From the instant that allowed a start to the start: of runs on a GPU that idled (`idle`), of runs that were
        queued there behind another (`queued`), and of loads (`load`); and what others took to make way for a load
        (`moves`), where nobody has planned the addresses.
    """

    runs: Mapping[Key, Spread] = field(default_factory=dict)
    dispatch: Mapping[str, Spread] = field(default_factory=dict)


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
    memory_bytes
        By workflow and task: most that it takes beside the weights; of a batch class its part of the largest batch.
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
    live
        What live runs have shown.
    together
        By workflow, task and number of GPUs, of tasks that may choose it; `runs` has those of tasks that may not.
    """

    device: str
    weight_bytes: Mapping[str, int]
    runs: Mapping[Key, Spread]
    memory_bytes: Mapping[Key, int]
    batches: Mapping[str, Mapping[int, Spread]]
    loads: Mapping[str, Spread]
    transfers: Mapping[int, Spread]
    load: FittedLine | None
    transfer: FittedLine | None
    copy_peak: float | None
    streams: Mapping[str, StreamTimes] = field(default_factory=dict)
    rounds: int = 0
    live: LiveTimes = field(default_factory=LiveTimes)
    together: Mapping[tuple[str, str, int], Spread] = field(default_factory=dict)


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
        self._apart = {
            (workflow.name, task.name): parts
            for workflow in workflows
            for task in workflow.tasks
            if (parts := _parts_on_each(task)) is not None
        }
        self._rigid = {(of.name, task.name) for of in workflows for task in of.tasks if not task.modes}
        workflows = [workflow.with_tasks(_on_one) for workflow in workflows]
        tasks = [task for workflow in workflows for task in workflow.tasks]
        named = [(of.name, task) for of in workflows for task in of.tasks]
        alone = [task.models for workflow, task in named if (workflow, task.name) not in self._apart]
        rooms = [sum(map(self._size, names)) for names in (*alone, *((request.model,) for request in requests))]
        for workflow, task in named:
            parts = self._apart.get((workflow, task.name))
            rooms += [part_bytes(self._size(name), parts) for name in task.models] if parts else []
        room = max([1, *rooms])
        gpu = GPU("s0/g0", 0, kind, room, Fraction(1))
        self._host = HostWeights(self.models, sized, self.physical.host_memory)
        self.station = Station(gpu, self.models, self._host, runner, self.physical)
        self._elsewhere = torch.zeros(0 if self.physical.is_cuda else _CACHED_BYTES, dtype=torch.uint8)
        self.samples: RoundSamples = {}
        self.memory_bytes: dict[Key, int] = {}
        self._weighs = False
        edges = {edge.size_bytes for task in tasks for edge in task.inputs} - {0}
        self._other_edge = _other_size(edges)
        self._other_part = _other_size({model.weight_bytes for model in self.models}, least=True)
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
            parts = self._apart.get((workflow.name, task.name))
            if parts is None:
                self._load(task.models)
            inputs = {
                edge.source: (self._receive(outputs[edge.source], edge.size_bytes), edge.size_bytes)
                for edge in task.inputs
            }
            if parts is None:
                outputs[task.name] = self._run(workflow, task, number, inputs)
            else:
                self._copy_parts(task.models, parts)
                outputs[task.name] = self.physical.memory(1)

    def _run(self, workflow: Workflow, task: Task, number: int, inputs: dict[str, tuple[Tensor, int]]) -> Tensor:
        """Run a task in batches of every size of its class, and return its output alone."""
        needed = [self._place[name] for name in task.models]
        times = {1: task.fastest_us} if task.batch is None else _fastest(task.batch)
        for size in sorted(times, reverse=True):  # alone comes last
            members = [
                StationWork(number * size + k, workflow.name, task.name, times[size], needed, inputs)
                for k in range(size)
            ]
            if self._weighs:
                outputs, self.memory_bytes[workflow.name, task.name] = self.station.weigh(members)
                return outputs[0]
            self._cool(needed)
            ran = self._run_beside(members, min(MOST_BESIDE, WHOLE // task.share))
            for _, span in ran:
                if task.batch is not None:
                    self._note("batch", task.batch.name, size, spans=[span])
                if size == 1:
                    self._note("run", workflow.name, task.name, spans=[span])
        return ran[0][0][0]

    def _cool(self, needed: Collection[int]) -> None:
        """Let other models pass through the caches of a core, which a load has just filled with those that are needed.

        In service others have run or were loaded since, and weights come from memory, which takes four times as long.
        Those of a card are larger than its caches.
        """
        left = self._elsewhere
        for model, weights in enumerate(self._host.flat):
            if model not in needed:
                part = weights[: len(left)]
                left[: len(part)].copy_(part)
                left = left[len(part) :]

    def _run_beside(self, members: Sequence[StationWork], copies: int) -> list[tuple[list[Tensor], Span]]:
        """Run so many copies of a batch, starting together, each on a thread of its own."""
        if copies == 1:
            return [self.station.run(members)]
        together = Barrier(copies)

        def run_copy(lane: int) -> tuple[list[Tensor], Span]:
            torch.set_num_threads(1)
            together.wait()
            return self.station.run(members, lane=lane)

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
        self._note("step", request.stream, 0, spans=[iterate(seating, [chunk], ())[1] for chunk in chunks])
        for sort, context in (
            (("step", request.context), ("short", 1)) if request.apart else (("step", request.context),)
        ):
            iterate(seating, [Read(other, context - 1, 1) for other in range(seating.seats)], ())
            for k in sorted(request.concurrency, reverse=True):  # whoever is left out gives up the seat
                self._note(sort, request.stream, k, spans=[iterate(seating, (), range(k))[1]])
        if request.apart and seating.seats > 1:
            others = range(1, seating.seats)
            iterate(seating, [Read(other, 0, 1) for other in others], ())
            for chunk in ([], [Read(0, 0, request.first_chunk)]):
                tokens = request.first_chunk if chunk else 0
                self._note("mixed", request.stream, tokens, spans=[iterate(seating, chunk, others)[1]])

    def _seating(self, request: TypicalRequest) -> Seating:
        """Return the seats of a class, each long enough for its prompt, and for its context and the steps behind it."""
        longest = max(request.prompt, request.context + len(request.concurrency)) + 1
        seats = max(request.concurrency)
        return Seating(request.stream, self._place[request.model], seats, longest, request.chunk)

    def _load(self, names: Sequence[str]) -> None:
        spans = self.station.load_alone([self._place[name] for name in names])
        for name, span in zip(names, spans, strict=True):
            self._note("load", name, spans=[span])
        if names and self._other_part:
            self._note(
                "part", self._other_part, spans=[self.station.copy_part(self._place[names[0]], self._other_part)]
            )

    def _copy_parts(self, names: Sequence[str], parts: int) -> None:
        for model in (self._place[name] for name in names):
            size = part_bytes(self.models[model].weight_bytes, parts)
            self._note("part", size, spans=[self.station.copy_part(model, size)])

    def _receive(self, output: Tensor, size_bytes: int) -> Tensor:
        if self._away.device != self.physical.device:
            output = output.to(self._away.device)
            self._away.wait()
        if size_bytes and self._other_edge:
            self._note("transfer", self._other_edge, spans=[self.station.receive(output, self._other_edge, False)[1]])
        received, span = self.station.receive(output, size_bytes, staged=False)
        if size_bytes:
            self._note("transfer", size_bytes, spans=[span])
        return received

    def _note(self, *key: str | int, spans: Sequence[Span]) -> None:
        """Keep how long something took, in one span or several."""
        # A clock that did not move between two readings would make a relative error infinite.
        took_us = max(sum(span.duration_us for span in spans), _SHORTEST_US)
        self.samples.setdefault(key, []).append(took_us)

    def take_round(self, number: int) -> RoundSamples:
        """Measure everything once; return the samples."""
        self.samples = {}
        self.round(number)
        return self.samples

    def weigh(self) -> None:
        """Measure what every task takes beside the weights, in a round whose times do not count."""
        self._weighs = True
        for workflow in self._workflows:
            self._go_through(workflow, 0)
        self._weighs = False

    def measurements(self, rounds: Sequence[RoundSamples]) -> Measurements:
        """Return what rounds have shown."""
        found: dict[tuple[str | int, ...], list[float]] = {}
        for key, times in chain.from_iterable(each.items() for each in rounds):
            found.setdefault(key, []).extend(times)

        def spreads(sort: str) -> dict[Any, Spread]:
            """Return all of a sort by the rest of the key, which is one thing or two."""
            of = {key[1:]: Spread.of(times) for key, times in found.items() if key[0] == sort}
            return {key[0] if len(key) == 1 else key: spread for key, spread in of.items()}

        batches: dict[str, dict[int, Spread]] = {}
        for (name, size), spread in sorted(spreads("batch").items()):
            batches.setdefault(name, {})[size] = spread
        loads, transfers, parts = (spreads(sort) for sort in ("load", "transfer", "part"))
        sizes = {model.name: model.weight_bytes for model in self.models}
        copies = [(sizes[name], spread.median_us) for name, spread in loads.items()]
        runs, together = spreads("run"), spreads("together")
        # Of a task that has no choice the number of GPUs need not be told.
        runs |= {key[:2]: together.pop(key) for key in list(together) if key[:2] in self._rigid}
        largest = max(loads, key=sizes.__getitem__, default=None)
        return Measurements(
            self.physical.name,
            sizes,
            runs,
            self.memory_bytes,
            batches,
            loads,
            transfers,
            _line(copies + [(size, spread.median_us) for size, spread in parts.items()]),
            _line([(size, spread.median_us) for size, spread in transfers.items()]),
            None if largest is None else self.station.copy_peak(self._place[largest]),
            {request.stream: self._times_of(request, spreads) for request in self._requests},
            len(rounds),
            together=together,
        )

    def _times_of(self, request: TypicalRequest, spreads: Callable[[str], Mapping[Any, Spread]]) -> StreamTimes:
        steps, short, mixed = (
            {number: spread for (stream, number), spread in spreads(sort).items() if stream == request.stream}
            for sort in ("step", "short", "mixed")
        )
        kv_bytes = self.station.decoder(self._seating(request)).kv_bytes
        beside = (mixed[request.first_chunk], mixed[0]) if mixed else None
        return StreamTimes(request, steps[0], {k: steps[k] for k in request.concurrency}, kv_bytes, short, beside)


def measure(
    models: Sequence[MLModel],
    workflows: Sequence[Workflow],
    runner: Runner,
    kind: str,
    *,
    requests: Sequence[TypicalRequest] = (),
    together: Callable[[], RoundSamples] = dict,
    rounds: int = 10,
    beside: int = 0,
    known: Sequence[RoundSamples] = (),
    keep: Callable[[int, RoundSamples], None] = lambda number, samples: None,
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
    together
        Runs what takes several GPUs once, and returns the samples of that.
    rounds
        How often everything is measured, after two rounds of warm-up.
    beside
        How many more GPUs do the same meanwhile, on the devices that follow: what they share takes its toll.
    known
        Rounds that were measured before, and count.
    keep
        Given every round as it ends, with its number from 1 on.
    watch
        Told how many rounds are done, those of the warm-up included.
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
    measured = list(known[:rounds])
    with one_thread_each():
        bench = _Bench(models, workflows, requests, runner, kind)
        others = [_Bench(models, workflows, requests, runner, kind, place) for place in range(1, beside + 1)]
        with _busy(others):
            for number in range(WARMUP_ROUNDS):
                if not stop():
                    bench.round(number)
                    watch(number + 1)
        if not stop():
            bench.weigh()
        with _busy(others):
            while len(measured) < rounds and not stop():
                measured.append(bench.take_round(WARMUP_ROUNDS + len(measured)) | together())
                keep(len(measured), measured[-1])
                watch(WARMUP_ROUNDS + len(measured))
        if not measured:
            raise StoppedError("no round had ended")
        return bench.measurements(measured)


def round_together(crew: Crew, instance: Instance) -> RoundSamples:
    """Run every task once on each number of GPUs that it may take, above one, at the first such place in a server.

    Raises
    ------
    DeviceError
        If a run fails.
    """
    found: RoundSamples = {}
    gpus, servers = instance.places.gpus, instance.gpu_server
    for template, run_us in enumerate(instance.run_us):
        workflow, position = instance.locate(template)
        for place in range(instance.n_gpus, len(gpus)):
            key = ("together", workflow.name, workflow.tasks[position].name, len(gpus[place]))
            if key in found or run_us[instance.place_class[place]] == NEVER or len({*servers[list(gpus[place])]}) > 1:
                continue
            tried = crew.try_together(template, place)
            if tried.error is not None:
                raise DeviceError(f"{workflow.name}/{workflow.tasks[position].name}: {tried.error}")
            found[key] = [max(tried.span.duration_us, _SHORTEST_US)]
    return found


def measure_live(
    instance: Instance,
    make: MakeRunner,
    settings: LiveSettings,
    *,
    rounds: int = 10,
    beside: int = 0,
    nodes: Nodes | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> LiveTimes:
    """Measure live runs of an instance's workflows, job by job after GPUs have idled.

    One policy knows which run comes next on a GPU, and has it queued there; of the other every run is ordered when the
    GPU idles. Workflows with branches, batches or streams take no part.

    Parameters
    ----------
    instance
        With measured times.
    rounds
        How often every workflow is run, as far as there is time.
    beside
        How many more GPUs have a job meanwhile, as far as there are any.

    Raises
    ------
    DeviceError
        If devices or runner cannot be used.
    StoppedError
        If it was told to end.
    """
    apart = _one_by_one(instance, rounds, 1 + beside)
    late, runs = {sort: list[int]() for sort in ("idle", "queued", "load", "moves")}, dict[Key, list[int]]()
    if apart is None:
        return LiveTimes()
    with live_crew(apart, make, settings, nodes) as crew:
        for policy in (Jit, Compass):
            records = run_on(crew, apart, policy, settings, stop=stop).records
            for run in records.runs:
                if run.error is None:
                    late["queued" if run.ahead else "idle"].append(run.dispatch_us)
                    runs.setdefault(_key_of(apart, run.subject), []).append(run.took_us)
            for load in records.loads:
                late["load"].append(load.dispatch_us)
                late["moves"].append(load.moves_us)
    return LiveTimes(_spreads(runs), _spreads(late))


def _key_of(instance: Instance, task: int) -> Key:
    job = int(instance.task_job[task])
    workflow = instance.jobs[job].workflow
    return workflow.name, workflow.tasks[task - instance.tasks_of(job).start].name


def _spreads(times: Mapping[K, Sequence[int]]) -> dict[K, Spread]:
    # Whole microseconds, of which samples are above 0.
    return {key: Spread.of(max(1, us) for us in each) for key, each in times.items() if each}


def _one_by_one(instance: Instance, rounds: int, count: int) -> Instance | None:
    """Return an instance whose jobs meet GPUs that have idled, the largest ones; None if no workflow can take part."""
    gpus = sorted(instance.cluster.gpus, key=lambda gpu: gpu.memory_bytes)[-count:]
    cluster = replace(instance.cluster, gpus=tuple(replace(gpu, available=ALWAYS) for gpu in gpus))
    alone: list[Instance] = []
    for workflow in instance.workflows:
        plain = all(task.batch is None and task.stream is None and task.gpus == 1 for task in workflow.tasks)
        if not workflow.branches and plain:
            with suppress(InstanceError):  # a task that these GPUs cannot run
                alone.append(Instance(cluster, instance.models, (Job(workflow, 0),)))
    jobs, release_us = list[Job](), 0
    for place in range(rounds * len(alone)):
        of = alone[place % len(alone)]
        # With several GPUs the next job comes when this one is half-way through, or a third.
        release_us += (_IDLE_US + _serial_us(of)) // len(gpus)
        if jobs and release_us > _LIVE_US:
            break
        jobs.append(Job(of.workflows[0], release_us))
    return Instance(cluster, instance.models, tuple(jobs), instance.overlap_loads) if jobs else None


def _serial_us(instance: Instance) -> int:
    """Return how long the tasks of all workflows take one after the other, with a load of each of their models."""
    loads_us: list[int] = instance.load_us.min(axis=1).tolist()
    return int(instance.run_us.min(axis=1).sum()) + sum(loads_us[model] for of in instance.needs for model in of)


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


def _on_one(task: Task) -> Task:
    """Return a task that may choose one GPU as one that has to."""
    alone = next((mode for mode in task.modes if mode.gpus == 1), None)
    return task if alone is None else replace(task, runtime_us=alone.runtime_us, gpus=1, modes=(), copies=False)


def _parts_on_each(task: Task) -> int | None:
    """Return into how many parts models are split that a task has which only runs on several GPUs; None for others."""
    fewest = min(task.choices, key=lambda mode: mode.gpus)
    return fewest.parts if fewest.gpus > 1 else None


def _other_size(sizes: Collection[int], least: bool = False) -> int:
    """Return a size far from the only one there is; 0 where there are several, or none.

    >>> _other_size({2_000}), _other_size({5_000_000}), _other_size({2_000}, least=True), _other_size({1, 2})
    (32000, 312500, 125, 0)
    """
    if len(sizes) != 1:
        return 0
    (size,) = sizes
    return max(1, size // _FAR) if least or size > _LARGE_BYTES else size * _FAR


def _fastest(batch: BatchClass) -> dict[int, int]:
    """Return the shortest run time that is given for each listed size, whatever the kind of GPU."""
    times: dict[int, int] = {}
    for table in batch.runtime_us.values():
        for size, time_us in table.items():
            times[size] = min(time_us, times.get(size, time_us))
    return times


def _line(samples: Sequence[tuple[int, float]]) -> FittedLine | None:
    return fit_line(samples) if samples else None


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Give every thread one of computation, and Python's lock soon after it asks."""
    threads, interval = torch.get_num_threads(), sys.getswitchinterval()
    torch.set_num_threads(1)
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        sys.setswitchinterval(interval)
