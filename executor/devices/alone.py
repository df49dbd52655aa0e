"""What every task puts out when its models are loaded alone, one task after the other: the reference for a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue

import torch
from torch import Tensor

from truenorth.executor.devices.crew import seatings_of
from truenorth.executor.devices.decoding import Answer, Read
from truenorth.executor.devices.lane import Lane, Order, one_thread_each
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.runner import Runner
from truenorth.executor.devices.station import Station, StationWork
from truenorth.executor.devices.weights import HostWeights
from truenorth.models import Instance, Tokens

_US_PER_S = 1_000_000


ABSOLUTE, RELATIVE = 1e-3, 1e-6
"""How far a number that a batch put out may be from that of its task alone, and this much of its size besides: sums of
stacked inputs are rounded otherwise."""


def different_outputs(
    instance: Instance,
    runner: Runner,
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
    alone = dict(outputs_alone(instance, runner, kind, outputs.keys(), limit_s, given))

    def agrees(task: int) -> bool:
        return (_close if task in given else have_same_bits)(alone[task], outputs[task])

    return [task for task in sorted(outputs) if task not in alone or not agrees(task)]


def outputs_alone(
    instance: Instance,
    runner: Runner,
    kind: str,
    tasks: Collection[int],
    limit_s: float,
    given: Mapping[int, Tensor] | None = None,
) -> Iterator[tuple[int, Tensor]]:
    """Yield tasks with their outputs, on one device, with nothing in its memory but the models that a task needs.

    Parameters
    ----------
    tasks
        Those wanted; with a task, its predecessors.
    limit_s
        As for `different_outputs`; nothing more is yielded after a job that takes longer.
    given
        Outputs that successors get in place of those computed here, by task.

    Raises
    ------
    DeviceError
        If the device or the runner cannot serve the instance.
    """
    physical = physical_devices(kind)[0]
    host = HostWeights(instance.models, runner, physical)
    most = max(sum(int(instance.weight_bytes[model]) for model in models) for models in instance.needs)
    gpu = replace(instance.cluster.gpus[0], memory_bytes=max(most, 1), slots=())
    station = Station(gpu, instance.models, host, runner, physical)
    reports: SimpleQueue[Order] = SimpleQueue()
    with one_thread_each():
        lane = Lane("reference", reports)
        try:
            for job in range(len(instance.jobs)):
                wanted = [task for task in instance.tasks_of(job) if task in tasks]
                limit = limit_s + sum(task.fastest_us for task in instance.jobs[job].workflow.tasks) / _US_PER_S
                lane.submit(Order(partial(_job_alone, instance, station, job, wanted, given or {}), limit, _no_one))
                yield from (reports.get(timeout=limit).result or {}).items()
        except Empty:
            return
        finally:
            lane.close()


def _no_one(order: Order) -> None:
    """Tell nobody."""


def _job_alone(
    instance: Instance, station: Station, job: int, wanted: Collection[int], given: Mapping[int, Tensor]
) -> dict[int, Tensor]:
    workflow, first = instance.jobs[job].workflow, instance.tasks_of(job).start
    outputs: dict[int, Tensor] = {}
    for position in workflow.topological:
        task, number = workflow.tasks[position], first + position
        if number not in wanted:
            continue
        needs = instance.task_needs(number)
        station.load_alone(needs)
        if instance.streams is not None and task.stream is not None:
            outputs[number] = _answer_alone(instance, instance.streams.tokens(number), station, number)
            continue
        sources = {edge.source: first + workflow.position[edge.source] for edge in task.inputs}
        inputs = {
            edge.source: (given.get(sources[edge.source], outputs[sources[edge.source]]), edge.size_bytes)
            for edge in task.inputs
        }
        work = StationWork(job, workflow.name, task.name, task.fastest_us, needs, inputs)
        (outputs[number],), _ = station.run([work])
    return outputs


def _answer_alone(instance: Instance, tokens: Tokens, station: Station, task: int) -> Tensor:
    """Return the tokens that a request gets which nobody is beside."""
    template = int(instance.task_template[task])
    seating = max((of for (at, _), of in seatings_of(instance).items() if at == template), key=lambda of: of.longest)
    seating = replace(seating, seats=1)
    prompt, uncached, output = tokens
    iterations: list[tuple[list[Read], list[int]]] = [
        ([Read(task, begin, min(seating.chunk, prompt - begin))], [])
        for begin in range(prompt - uncached, prompt, seating.chunk)
    ]
    iterations += [([], [task])] * (output - 1)
    for reads, writes in iterations:
        (answer,), _ = station.iterate(seating, reads, writes, [Answer(task, prompt, output)])
    return answer


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
