"""What every task puts out when its models are loaded alone, one task after the other: the reference for a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from executor.devices.lane import one_thread_each
from executor.devices.physical import physical_devices
from executor.devices.station import Station, Work
from executor.devices.weights import HostWeights
from executor.runners.runner import Runner
from models import Instance


def different_outputs(instance: Instance, runner: Runner, kind: str, outputs: Mapping[int, Tensor]) -> list[int]:
    """Return the tasks whose outputs in a run are not, bit for bit, those when their models are loaded alone.

    Parameters
    ----------
    kind
        ``cpu`` or ``cuda``.
    outputs
        By task; tasks that are not in it, because they failed, are not compared.

    Raises
    ------
    DeviceError
        If the device or the runner cannot serve the instance.
    """
    with one_thread_each():
        references = outputs_alone(instance, runner, kind)
        return [task for task, alone in references if not _same(alone, outputs.get(task, alone))]


def outputs_alone(instance: Instance, runner: Runner, kind: str) -> Iterator[tuple[int, Tensor]]:
    """Yield every task with its output, on one device, with nothing in its memory but the models that the task needs.

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
    for job in range(len(instance.jobs)):
        yield from _job_alone(instance, station, job)


def _job_alone(instance: Instance, station: Station, job: int) -> Iterator[tuple[int, Tensor]]:
    workflow, first = instance.jobs[job].workflow, instance.tasks_of(job).start
    outputs: dict[str, Tensor] = {}
    for position in workflow.topological:
        task, needs = workflow.tasks[position], instance.task_needs(first + position)
        ends = accumulate(station.space.rounded(model) for model in needs)
        for model, end in zip(needs, ends, strict=True):
            station.load(model, end - station.space.rounded(model))
        inputs = {edge.source: (outputs[edge.source], edge.size_bytes) for edge in task.inputs}
        work = Work(job, workflow.name, task.name, task.fastest_us, needs, inputs)
        outputs[task.name], _ = station.run(work)
        yield first + position, outputs[task.name]


def _same(one: Tensor, other: Tensor) -> bool:
    """Say whether two tensors have the same bits (so that not-a-number equals itself)."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    bits = [tensor.contiguous().view(-1).view(torch.uint8).cpu() for tensor in (one, other)]
    return torch.equal(*bits)
