"""Instances in which part of the answer is given: tasks that stay on their GPUs, models that need no loading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from truenorth.models.cluster import GPU
from truenorth.models.instance import Instance, Ints
from truenorth.models.workload import Job, Task, Workflow

Times = TypeVar("Times")


def with_placement(instance: Instance, gpu: Ints) -> Instance:
    """Return the instance in which every task can run on one GPU only.

    Tasks, jobs and GPUs keep their numbers, times and critical paths, so a timeline of one instance that places the
    tasks so is one of the other. Costs memory in proportion to edges x GPUs^2, as every GPU becomes its own class.

    Parameters
    ----------
    gpu
        Per task; tasks of a batch class on different GPUs are then of different ones. Shape [tasks].
    """
    gpus = tuple(replace(device, kind=f"on {device.id}") for device in instance.cluster.gpus)
    known: dict[tuple[int, bytes], Workflow] = {}
    jobs = []
    for index, job in enumerate(instance.jobs):
        tasks = instance.tasks_of(index)
        places = gpu[tasks.start : tasks.stop]
        key = (int(instance.job_workflow[index]), places.tobytes())
        if key not in known:
            known[key] = _placed(instance, job, tasks, places.tolist())
        jobs.append(replace(job, workflow=known[key]))
    return replace(instance, cluster=replace(instance.cluster, gpus=gpus), jobs=tuple(jobs))


def _placed(instance: Instance, job: Job, numbers: range, places: Sequence[int]) -> Workflow:
    """Return a job's workflow whose tasks run in one place; the times of other kinds stay, for critical paths."""

    def place(task: Task, number: int, where: int) -> Task:
        """Return a task that runs on one GPU alone."""
        gpu = instance.cluster.gpus[where]
        if task.batch is not None:
            tables = _move_times(task.batch.runtime_us, task.batch.times_on(gpu.kind), gpu)
            batch = replace(task.batch, name=f"{task.batch.name} on {gpu.id}", runtime_us=tables)
            return Task.of_class(task.name, batch, task.inputs, task.input_bytes)
        return replace(task, runtime_us=_move_times(task.runtime_us, instance.run_time(number, where), gpu))

    workflow = job.workflow
    return Workflow(workflow.name, tuple(map(place, workflow.tasks, numbers, places)), ideal_us=workflow.ideal_us)


def _move_times(times: Mapping[str, Times], here: Times, gpu: GPU) -> dict[str, Times]:
    """Return run times by kind in which one GPU is a kind of its own, and no kind of before exists."""
    return {f"of {kind}": time for kind, time in times.items()} | {f"on {gpu.id}": here}


def without_models(instance: Instance) -> Instance:
    """Return the instance in which no task needs a model: no plan of the given one is better than its best."""
    return instance.with_tasks(_without_models, initial=())


def _without_models(task: Task) -> Task:
    if task.batch is not None:
        return Task.of_class(task.name, replace(task.batch, models=()), task.inputs, task.input_bytes)
    return replace(task, models=())
