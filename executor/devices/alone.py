"""What every task puts out when its models are loaded alone, one task after the other: the reference for a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor

from truenorth.executor.devices.crew import POLL_S, Crew
from truenorth.executor.devices.lane import Do, Order
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.runner import MakeRunner
from truenorth.executor.devices.shelf import Ref
from truenorth.executor.errors import DeviceError
from truenorth.models import Instance

_US_PER_S = 1_000_000


ABSOLUTE, RELATIVE = 1e-3, 1e-6
"""How far a number that a batch put out may be from that of its task alone, and this much of its size besides: sums of
stacked inputs are rounded otherwise."""


def different_outputs(
    instance: Instance,
    make: MakeRunner,
    kind: str,
    outputs: Mapping[int, Tensor],
    limit_s: float,
    batched: Collection[int] = (),
) -> list[int]:
    """Return the tasks whose outputs in a run are not those when they run alone, their models loaded for them.

    Outputs are compared bit for bit, those of batches as numbers; what follows a batch is run again on what the batch
    put out.

    Parameters
    ----------
    make
        Makes the runner.
    kind
        ``cpu`` or ``cuda``.
    outputs
        By task; tasks that are not in it, because they failed, are not compared.
    batched
        Tasks that ran together with others.
    limit_s
        How much longer than given the tasks of a job may take; a job that takes longer, or fails, counts as different.

    Raises
    ------
    DeviceError
        If the device or the runner cannot serve the instance.
    """
    given = {task: outputs[task] for task in batched if task in outputs}
    alone = dict(outputs_alone(instance, make, kind, outputs.keys(), limit_s, given))

    def agrees(task: int) -> bool:
        return (_close if task in given else have_same_bits)(alone[task], outputs[task])

    return [task for task in sorted(outputs) if task not in alone or not agrees(task)]


def outputs_alone(
    instance: Instance,
    make: MakeRunner,
    kind: str,
    tasks: Collection[int],
    limit_s: float,
    given: Mapping[int, Tensor] | None = None,
) -> Iterator[tuple[int, Tensor]]:
    """Yield tasks with their outputs, on one device, with nothing in its memory but the models that a task needs.

    Parameters
    ----------
    tasks
        Those wanted.
    limit_s
        As for `different_outputs`; of a job that takes longer nothing is yielded.
    given
        Outputs that successors get in place of those computed here, by task.

    Raises
    ------
    DeviceError
        If the device or the runner cannot serve the instance.
    """
    most = max(sum(int(instance.weight_bytes[model]) for model in models) for models in instance.needs)
    gpu = replace(instance.cluster.gpus[0], memory_bytes=max(most, 1), slots=())
    crew = Crew(instance, make, physical_devices(kind)[:1], [gpu], limit_s)
    try:
        for job in range(len(instance.jobs)):
            wanted = [task for task in instance.tasks_of(job) if task in tasks]
            refs = {task: crew.shelf.put(output) for task, output in (given or {}).items() if task in wanted}
            args = (job, len(wanted), *wanted, *chain.from_iterable((task, *ref[:2]) for task, ref in refs.items()))
            limit = limit_s + sum(task.fastest_us for task in instance.jobs[job].workflow.tasks) / _US_PER_S
            for task, ref in zip(wanted, _carry_out(crew, args, limit), strict=False):
                yield task, crew.shelf.read(ref).clone()
                crew.shelf.free(ref)
    finally:
        crew.close()


def _carry_out(crew: Crew, args: tuple[int, ...], limit_s: float) -> list[Ref]:
    """Have a job run alone; return where the outputs lie, none if it failed."""
    over: list[Order] = []
    lane = crew.compute_lane(0)
    lane.submit(Order(Do.RUN_ALONE, 0, args, limit_s, over.append))
    while not over:
        over += crew.take_reports(POLL_S)
        for ending in crew.endings:
            if not ending.blamed:
                raise DeviceError(ending.why)
            over += ending.blamed
            crew.start(ending.process)
        crew.endings.clear()
    results = over[0].results
    return [Ref(0, *results[at : at + 2]) for at in range(0, len(results), 2)]


def have_same_bits(one: Tensor, other: Tensor) -> bool:
    """Say whether two tensors have the same bits (so that not-a-number equals itself)."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    bits = [tensor.contiguous().view(-1).view(torch.uint8).cpu() for tensor in (one, other)]
    return torch.equal(*bits)


def _close(one: Tensor, other: Tensor) -> bool:
    """Say whether two tensors hold the same numbers up to rounding."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return have_same_bits(one, other)
    return torch.allclose(other, one, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)
