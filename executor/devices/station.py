"""One planned GPU on a physical device: its arena, its engines, and the code bound to what lies there.

Everything here waits until it is done; who wants two things at a time calls from two threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor, nn

from executor.devices.addresses import AddressSpace, Move
from executor.devices.physical import Mark, Physical, Span
from executor.devices.weights import Binding, HostWeights
from executor.runners.runner import Runner, RunnerCall
from models import GPU, MLModel


@dataclass(frozen=True, slots=True)
class StationWork:
    """A task as a station gets it.

    Parameters
    ----------
    job, workflow, task, run_us
        As in `executor.runners.runner.Call`.
    models
        Indices of the models that it needs.
    inputs
        By the predecessor's name: its output on this device, and the bytes of the edge.
    """

    job: int
    workflow: str
    task: str
    run_us: int
    models: Sequence[int]
    inputs: Mapping[str, tuple[Tensor, int]]


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
        self._compute, self._copy, self._incoming = physical.stream(), physical.stream(), physical.stream()
        self._bindings: dict[int, Binding] = {}
        self._views: dict[tuple[int, int], dict[str, nn.Parameter | Tensor]] = {}
        self._in_use = [Lock() for _ in models]
        self._loaded: dict[int, Mark] = {}
        self._last_use: dict[int, Mark] = {}
        self._evicted: deque[Mark] = deque()

    def load(self, model: int, address: int, asked_ns: int = 0) -> Span:
        """Copy a model's weights to an address and point its module there; a run that uses it is waited for.

        Parameters
        ----------
        asked_ns
            When the load was ordered.

        Raises
        ------
        DeviceError
            If the runner's module and weights do not agree.
        """
        with self._in_use[model]:
            self._bind(model, address)
            source = self._host.flat[model]
            target = self._arena[address : address + len(source)]
            after = [self._last_use.get(model)]
            while self._evicted:
                after.append(self._evicted.popleft())
            copy = self._copy.carry_out(lambda: target.copy_(source, non_blocking=True), after, asked_ns)
            _, span, self._loaded[model] = copy
            return span

    def load_after(self, moves: Sequence[Move], model: int, address: int, asked_ns: int) -> Span:
        """Load a model after those that make way for it, which are copied from the host again."""
        spans = [self.load(move.model, move.address, asked_ns) for move in moves]
        last = self.load(model, address, asked_ns)
        return Span(spans[0].start_ns if spans else last.start_ns, last.end_ns)

    def copy_peak(self, model: int, repeats: int = 5) -> float:
        """Return the best bandwidth of bare copies of a model's weights to an empty arena, in bytes per second."""
        source = self._host.flat[model]
        target = self._arena[: len(source)]
        spans = [self._copy.carry_out(lambda: target.copy_(source, non_blocking=True))[1] for _ in range(repeats)]
        return len(source) / min(span.duration_us for span in spans) * 1_000_000

    def evict(self, model: int) -> None:
        """Give a model's room away; the next load waits for its last use."""
        self.space.free(model)
        self._evicted.append(self._last_use.pop(model, None))

    def run(self, work: StationWork, asked_ns: int = 0) -> tuple[Tensor, Span]:
        """Run a task whose models are here, and return its output and when the device was busy with it.

        Parameters
        ----------
        asked_ns
            When the run was ordered.

        Raises
        ------
        TypeError
            If the runner returns anything but a tensor on its device.
        """
        with self._using(work.models), torch.inference_mode():
            after = [self._loaded.get(model) for model in work.models]
            output, span, mark = self._compute.carry_out(
                lambda: self._own(self._runner.run(self._call(work))), after, asked_ns
            )
            for model in work.models:
                self._last_use[model] = mark
        return output, span

    def receive(self, output: Tensor, size_bytes: int, staged: bool) -> tuple[Tensor, Span]:
        """Bring an edge's bytes of another station's output here.

        Parameters
        ----------
        staged
            Whether they go through host memory.
        """

        def travel() -> Tensor:
            sent = payload(output, size_bytes)
            if staged:
                sent = sent.to("cpu", copy=True)
            return sent.to(self.physical.device, copy=True)

        received, span, _ = self._incoming.carry_out(travel)
        return received, span

    def _call(self, work: StationWork) -> RunnerCall:
        return RunnerCall(
            work.job,
            work.workflow,
            work.task,
            {self._models[model].name: self._bindings[model].module for model in work.models},
            {name: payload(output, size) for name, (output, size) in work.inputs.items()},
            self.physical.device,
            work.run_us,
        )

    def _own(self, output: object) -> Tensor:
        """Return an output that stays what it is when the weights that it may be a view of are gone."""
        if not isinstance(output, Tensor) or output.device != self.physical.device:
            found = f"a tensor on {output.device}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
            raise TypeError(f"the runner returned {found}; allowed is a tensor on {self.physical.device}")
        shared = output.untyped_storage().data_ptr() == self._arena.untyped_storage().data_ptr()
        return output.clone() if shared else output

    @contextmanager
    def _using(self, models: Sequence[int]) -> Iterator[None]:
        """Keep models where they are while a run uses them."""
        locks = [self._in_use[model] for model in sorted(models)]
        for lock in locks:
            lock.acquire()
        try:
            yield
        finally:
            for lock in locks:
                lock.release()

    def _bind(self, model: int, address: int) -> None:
        """Point a model's module at an address; the views of every address are made once."""
        places = self._host.views(model, self._arena[address:]) if (model, address) not in self._views else None
        if model not in self._bindings:
            names = self._host.names(model)
            self._bindings[model] = Binding(self._models[model], self._runner.module(self._models[model]), names)
        if places is not None:
            self._views[model, address] = self._bindings[model].weights(places)
        self._bindings[model].point_at(self._views[model, address])


def payload(output: Tensor, size_bytes: int) -> Tensor:
    """Return the bytes of an output that travel along an edge: cut, or padded with zeros, to the edge's size.

    >>> payload(torch.tensor([1, 2], dtype=torch.uint8), 3)
    tensor([1, 2, 0], dtype=torch.uint8)
    """
    flat = output.detach().contiguous().view(-1).view(torch.uint8)
    if len(flat) >= size_bytes:
        return flat[:size_bytes]
    return torch.cat([flat, flat.new_zeros(size_bytes - len(flat))])
