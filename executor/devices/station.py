"""One planned GPU on a physical device: its arena, its engines, and the code bound to what lies there.

What is begun returns at once on CUDA, and the card keeps it behind what it must follow: a run behind the loads of its
models, a load behind the runs that read what lies there. Everything else waits until it is done; who wants several
things at a time calls from several threads, and names lanes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from threading import Condition, Lock, get_ident
from typing import TypeVar

import torch
from torch import Tensor, nn

from truenorth.executor.devices.addresses import AddressSpace, Move
from truenorth.executor.devices.cuda import CardEvent
from truenorth.executor.devices.decoding import Answer, Read, SeatedDecoder, SentKV
from truenorth.executor.devices.physical import Physical, activation_bytes
from truenorth.executor.devices.runner import Runner, RunnerCall, TeamRunner
from truenorth.executor.devices.streams import Pending, Span, Stream
from truenorth.executor.devices.team import Team
from truenorth.executor.devices.weights import ENTIRE, Binding, HostWeights, Part
from truenorth.executor.errors import DeviceError
from truenorth.models import GPU, MLModel

T = TypeVar("T")

_STAGED_BYTES = 1 << 20
"""Of host memory for transfers, at least."""
_MOST_PIECES = 64
"""In so many pieces a model may move within a GPU's memory."""


@dataclass(frozen=True, slots=True)
class StationWork:
    """A task as a station gets it.

    Parameters
    ----------
    job, workflow, task, run_us
        As in `executor.devices.runner.RunnerCall`.
    models
        Indices of the models that it needs.
    inputs
        By the predecessor's name: its output on this device, and the bytes of the edge.
    team, split
        As in `RunnerCall`.
    """

    job: int
    workflow: str
    task: str
    run_us: int
    models: Sequence[int]
    inputs: dict[str, tuple[Tensor, int]]
    team: Team | None = None
    split: bool = False


@dataclass(frozen=True, slots=True)
class Seating:
    """What a station keeps for the requests of a stream class.

    Parameters
    ----------
    stream
        Name of the class.
    model
        Index of its model.
    seats
        Most requests at once.
    longest
        Most tokens of a request, prompt and answer.
    chunk
        Most prompt tokens of an iteration.
    sent_bytes
        What a token of KV takes on its way to another GPU; None: no KV is sent from here.
    """

    stream: str
    model: int
    seats: int
    longest: int
    chunk: int
    sent_bytes: int | None = None


class _Use:
    """Who launches what uses a model's weights: runs on any number of threads, or one load, when those are over.

    On cores a launch lasts as long as what it launches.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._change = Condition(self._lock)
        self._threads: set[int] = set()
        self._loading = False

    def begin_run(self, thread: int) -> None:
        with self._lock:  # the lock itself: entering a condition takes several times as long
            while self._loading:
                self._change.wait()
            self._threads.add(thread)

    def end_run(self, thread: int) -> None:
        with self._lock:
            self._threads.discard(thread)
            if self._loading:
                self._change.notify_all()

    @contextmanager
    def replace(self) -> Iterator[None]:
        with self._change:
            self._loading = True  # from now on no run begins, so that the load's turn comes
            self._change.wait_for(lambda: not self._threads)
        try:
            yield
        finally:
            with self._change:
                self._loading = False
                self._change.notify_all()


class Station:
    """A planned GPU that loads and runs.

    Parameters
    ----------
    gpu
        Its memory is allocated here, once.
    models
        Of the instance.
    host
        Their weights.
    runner
        Their code.
    physical
        Where all of this takes place.

    Attributes
    ----------
    id
        Of the GPU.
    space
        Which addresses are taken.

    Raises
    ------
    DeviceError
        If the physical device has not so much memory.
    """

    def __init__(
        self, gpu: GPU, models: Sequence[MLModel], host: HostWeights, runner: Runner, physical: Physical
    ) -> None:
        self.id = gpu.id
        self.space = AddressSpace(gpu, [model.weight_bytes for model in models])
        self.physical = physical
        self._models, self._host, self._runner = models, host, runner
        self._arena = physical.memory(self.space.size_bytes)
        self._copy, self._incoming = physical.stream(), physical.stream()
        self._lanes: defaultdict[int, Stream] = defaultdict(physical.stream)
        self._staging: Tensor | None = None
        # On the card: the last load of a model, and the last run of a lane that read it, with the bytes that it read.
        self._loaded: dict[int, CardEvent | None] = {}
        self._read: dict[tuple[int, int], tuple[int, int, CardEvent]] = {}
        self._bindings: dict[int, Binding] = {}
        self._made: dict[tuple[int, Part], Binding] = {}
        self._address: dict[int, int] = {}
        self._part: dict[int, Part] = {}
        self._views: dict[tuple[int, Part, int], dict[str, nn.Parameter | Tensor]] = {}
        self._using = [_Use() for _ in models]
        self._decoders: dict[str, SeatedDecoder] = {}

    def load(self, model: int, address: int, asked_ns: int = 0, part: Part = ENTIRE) -> Span:
        """Copy a model's weights to an address and point its module there; runs that use it are waited for.

        Parameters
        ----------
        asked_ns
            When the load was ordered.
        part
            Of the weights; this GPU has nothing else of the model then.

        Raises
        ------
        DeviceError
            If the runner's module and weights do not agree.
        """
        return self.begin_load(model, address, asked_ns, part).wait()

    def begin_load(self, model: int, address: int, asked_ns: int = 0, part: Part = ENTIRE) -> Pending[object]:
        """Begin what `load` does."""
        source = self._host.part(model, part)
        target = self._arena[address : address + len(source)]
        return self._place(model, part, address, lambda: target.copy_(source, non_blocking=True), asked_ns, "load")

    def _place(
        self, model: int, part: Part, address: int, copy: Callable[[], object], asked_ns: int, verb: str
    ) -> Pending[object]:
        """Bring a model to an address by a copy, behind all runs that read there, or read the model."""
        end = address + len(self._host.part(model, part))
        with self._using[model].replace():
            self._bind(model, part, address)
            # Those of other models may not have been waited for: nobody wants what they put out any more.
            reads = list(self._read.items())
            after = [event for (_, of), (low, high, event) in reads if of == model or (low < end and address < high)]
            label = f"{verb} {self._models[model].name}"
            pending = self._copy.enqueue(copy, after=after, not_before_ns=asked_ns, label=label)
            self._loaded[model] = pending.end
        return pending

    def load_alone(self, models: Sequence[int], part: Part = ENTIRE) -> list[Span]:
        """Load models one behind the other from the lowest address on, whatever lay there; return when each."""
        addresses = accumulate((self.space.rounded(model, part) for model in models), initial=0)
        return [self.load(model, address, 0, part) for model, address in zip(models, addresses, strict=False)]

    def load_after(
        self,
        moves: Sequence[Move],
        model: int,
        address: int,
        asked_ns: int,
        anew: bool = False,
        part: Part = ENTIRE,
    ) -> tuple[Span, int]:
        """Load a model after those that make way for it; return when, and for how many microseconds others moved.

        Parameters
        ----------
        anew
            Whether those that make way are copied from the host, since an earlier try may have spoilt them.
        """
        spans = [
            self.load(move.model, move.address, asked_ns, self._part[move.model])
            if anew
            else self._move(move, asked_ns)
            for move in moves
        ]
        last = self.load(model, address, asked_ns, part)
        start_ns = spans[0].start_ns if spans else last.start_ns
        return Span(start_ns, last.end_ns), round(sum(span.duration_us for span in spans))

    def _move(self, move: Move, asked_ns: int) -> Span:
        """Copy a model within the memory, downwards, in pieces that do not overlap; many small ones: from the host."""
        part = self._part[move.model]
        size, distance = len(self._host.part(move.model, part)), move.before - move.address
        if size > _MOST_PIECES * distance:
            return self.load(move.model, move.address, asked_ns, part)

        def slide() -> None:
            for first in range(0, size, distance):
                length = min(distance, size - first)
                source = self._arena[move.before + first : move.before + first + length]
                self._arena[move.address + first : move.address + first + length].copy_(source, non_blocking=True)

        return self._place(move.model, part, move.address, slide, asked_ns, "move").wait()

    def copy_part(self, model: int, size_bytes: int) -> Span:
        """Copy a part of a model's weights to where the model lies, or to the lowest addresses."""
        address = self._address.get(model, 0)
        target, source = (
            whole[at : at + size_bytes] for whole, at in ((self._arena, address), (self._host.flat[model], 0))
        )
        return self._copy.carry_out(lambda: target.copy_(source, non_blocking=True), label="copy a part")[1]

    def copy_peak(self, model: int, repeats: int = 5) -> float:
        """Return the best bandwidth of bare copies of a model's weights to an empty arena, in bytes per second."""
        source = self._host.flat[model]
        target = self._arena[: len(source)]
        spans = [self._copy.carry_out(lambda: target.copy_(source, non_blocking=True))[1] for _ in range(repeats)]
        return len(source) / min(span.duration_us for span in spans) * 1_000_000

    def run(self, works: Sequence[StationWork], asked_ns: int = 0, lane: int = 0) -> tuple[list[Tensor], Span]:
        """Run tasks as one batch, whose models are here; return their outputs and when the device was busy with it.

        Several batches may run at a time, each called from a thread of its own and on a lane of its own.

        Parameters
        ----------
        works
            One task, or several of a batch class.
        asked_ns
            When the run was ordered.
        lane
            Runs of one lane follow each other.

        Raises
        ------
        TypeError
            If the runner returns anything but a tensor on its device per task.
        """
        pending = self.begin_run(works, asked_ns, lane)
        return pending.result, pending.wait()

    def weigh(self, works: Sequence[StationWork]) -> tuple[list[Tensor], int]:
        """Run tasks as one batch while nothing else happens; return their outputs and the bytes that each takes.

        That is its part of the most that torch's memory holds at a time beside the weights, outputs included.
        """
        outputs: list[Tensor] = []
        taken = activation_bytes(self.physical, lambda: outputs.extend(self.run(works)[0]))
        return outputs, -(-taken // len(works))

    def begin_run(self, works: Sequence[StationWork], asked_ns: int = 0, lane: int = 0) -> Pending[list[Tensor]]:
        """Begin what `run` does; inputs may be what the run before it on the lane is to put out."""
        label = f"job {works[0].job} {works[0].workflow}/{works[0].task}"
        return self._begin(works[0].models, partial(self._compute, works), asked_ns, lane, label)

    def iterate(
        self,
        seating: Seating,
        reads: Sequence[Read],
        writes: Sequence[int],
        answers: Sequence[Answer] = (),
        sent: Sequence[SentKV] = (),
        asked_ns: int = 0,
        lane: int = 0,
    ) -> tuple[list[Tensor], Span]:
        """Take an iteration of requests whose model is here, as `SeatedDecoder.iterate` does; the rest as for `run`.

        Raises
        ------
        DeviceError
            If the model is no decoder for such requests, their KV has no room beside the arena, or more of it would
            have to be sent than is given.
        """
        decoder = self.decoder(seating)
        work = partial(decoder.iterate, reads, writes, answers, sent)
        pending = self._begin((seating.model,), work, asked_ns, lane, f"iteration of {seating.stream}")
        return pending.result, pending.wait()

    def decoder(self, seating: Seating) -> SeatedDecoder:
        """Return the decoder of a stream class whose model is here, with seats of its own; it is set up once."""
        if seating.stream not in self._decoders:
            name, module = self._models[seating.model].name, self._bindings[seating.model].module
            made = SeatedDecoder(name, module, seating.seats, seating.longest, self.physical)
            if seating.sent_bytes is not None and made.kv_bytes > seating.sent_bytes:
                raise DeviceError(
                    f"stream {seating.stream}: a token of {name} holds {made.kv_bytes} B of KV, which is sent, and "
                    f"kv_per_token is {seating.sent_bytes} B; allowed is {made.kv_bytes} B or more"
                )
            self._decoders[seating.stream] = made
        return self._decoders[seating.stream]

    def _begin(self, models: Sequence[int], work: Callable[[], T], asked_ns: int, lane: int, label: str) -> Pending[T]:
        """Compute with models behind their loads, which stay where they are until that has ended."""
        # No managers of contexts here: entering and leaving them takes longer than all the rest.
        using, thread = [self._using[model] for model in sorted(models)], get_ident()
        for use in using:
            use.begin_run(thread)
        try:
            after = [self._loaded.get(model) for model in models]
            pending = self._lanes[lane].enqueue(work, after=after, not_before_ns=asked_ns, label=label)
            if pending.end is not None:
                for model in models:
                    low = self._address[model]
                    size = len(self._host.part(model, self._part[model]))
                    self._read[lane, model] = low, low + size, pending.end
            return pending
        finally:
            for use in using:
                use.end_run(thread)

    @torch.inference_mode()
    def _compute(self, works: Sequence[StationWork]) -> list[Tensor]:
        calls = [self._call(work) for work in works]
        outputs = [self._runner.run(calls[0])] if len(calls) == 1 else self._runner.run_batch(calls)
        if len(outputs) != len(calls):
            raise TypeError(f"the runner returned {len(outputs)} outputs for a batch of {len(calls)}")
        return [self._own(output) for output in outputs]

    def receive(self, output: Tensor, size_bytes: int, staged: bool) -> tuple[Tensor, Span]:
        """Bring an edge's bytes of another station's output here.

        Parameters
        ----------
        staged
            Whether they go through host memory.
        """
        # One buffer for all: it is emptied, on the same stream, before it is filled again.
        by_way = self._stage(size_bytes) if staged else None

        def travel() -> Tensor:
            sent = payload(output, size_bytes)
            if by_way is not None:
                sent = by_way.copy_(sent, non_blocking=sent.device == self.physical.device)
            return torch.empty_like(sent, device=self.physical.device).copy_(sent, non_blocking=True)

        return self._incoming.carry_out(travel, label="receive")

    def _stage(self, size_bytes: int) -> Tensor:
        """Return host memory that transfers go through."""
        if self._staging is None or len(self._staging) < size_bytes:
            self._staging = self.physical.host_memory(max(size_bytes, _STAGED_BYTES))
        return self._staging[:size_bytes]

    def _call(self, work: StationWork) -> RunnerCall:
        return RunnerCall(
            work.job,
            work.workflow,
            work.task,
            {self._models[model].name: self._bindings[model].module for model in work.models},
            {name: payload(output, size) for name, (output, size) in work.inputs.items()},
            self.physical.device,
            work.run_us,
            work.team,
            work.split,
        )

    def _own(self, output: object) -> Tensor:
        """Return an output that stays what it is when the weights that it may be a view of are gone."""
        if not isinstance(output, Tensor) or output.device != self.physical.device:
            found = f"a tensor on {output.device}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
            raise TypeError(f"the runner returned {found}; allowed is a tensor on {self.physical.device}")
        shared = output.untyped_storage().data_ptr() == self._arena.untyped_storage().data_ptr()
        return output.clone() if shared else output

    def _bind(self, model: int, part: Part, address: int) -> None:
        """Point a model's module, or that of a part, at an address; the views of every address are made once."""
        known = (model, part, address) in self._views
        places = None if known else self._host.views(model, self._arena[address:], part)
        if (model, part) not in self._made:
            names = self._host.names(model, part)
            self._made[model, part] = Binding(self._models[model], self._module(model, part), names)
        bound = self._bindings[model] = self._made[model, part]
        if places is not None:
            self._views[model, part, address] = bound.weights(places)
        bound.point_at(self._views[model, part, address])
        self._address[model], self._part[model] = address, part

    def _module(self, model: int, part: Part) -> nn.Module:
        runner, of = self._runner, self._models[model]
        if part == ENTIRE:
            return runner.module(of)
        assert isinstance(runner, TeamRunner)  # noqa: S101  # who makes it has seen to that
        return runner.part(of, part.of)


def payload(output: Tensor, size_bytes: int) -> Tensor:
    """Return the bytes of an output that travel along an edge: cut, or padded with zeros, to the edge's size.

    >>> payload(torch.tensor([1, 2], dtype=torch.uint8), 3)
    tensor([1, 2, 0], dtype=torch.uint8)
    """
    flat = output.detach().contiguous().view(-1).view(torch.uint8)
    if len(flat) >= size_bytes:
        return flat[:size_bytes]
    return torch.cat([flat, flat.new_zeros(size_bytes - len(flat))])
