"""An instance: cluster, models and jobs, validated once, with every look-up that solvers and the engine iterate over.

Tasks are numbered 0 to n - 1, job by job in release order, inside a job in the order of its workflow.
Times, sizes and costs that many tasks share are kept once per *template* (a task of a workflow) and
once per *GPU class* (GPUs that no rule tells apart), so that memory grows with the jobs by a few integers each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from models.cluster import GPU, Cluster
from models.workload import Job, MLModel, Workflow

NEVER = -1
"""Stands in the tables for "cannot run here" and "cannot be loaded here"."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class InitialResidency:
    """A model that is ready on a GPU at time 0 (rule R6); `slot` is None where memory is shared by bytes."""

    gpu: int
    model: int
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Restrictions:
    """What an operator rules out beyond the physics.

    Parameters
    ----------
    model_gpus
        GPUs on which a model, by name, may be resident; a model that is not named may be anywhere.
    workflow_gpus
        GPUs on which the tasks of a workflow, by name, may run.
    max_replicas
        Most GPUs that may hold a model, by name, at the same instant.
    no_swaps
        Whether every residency, once loaded, stays for ever.
    """

    model_gpus: Mapping[str, frozenset[int]] = field(default_factory=dict)
    workflow_gpus: Mapping[str, frozenset[int]] = field(default_factory=dict)
    max_replicas: Mapping[str, int] = field(default_factory=dict)
    no_swaps: bool = False


class InstanceError(ValueError):
    """The parts of an instance contradict each other; the message names the one at fault."""


_derived = partial(field, init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Instance:
    """A workload window on a cluster.

    Parameters
    ----------
    cluster, models
        Where tasks run and what they need.
    jobs
        In release order.
    overlap_loads
        Whether a GPU computes while it loads (rule R5).
    initial
        Models that are ready at time 0.
    restrictions
        Limits that an operator adds.

    Attributes
    ----------
    workflows
        The distinct workflows of the jobs.
    job_workflow, job_release_us, job_critical_us
        Per job: index of its workflow, release, P_j. Shape [jobs].
    job_first_task
        First task of each job, and the number of tasks at the end. Shape [jobs + 1].
    task_job, task_template
        Per task: its job and its template. Shape [tasks].
    template_first
        First template of each workflow, and the number of templates at the end. Shape [workflows + 1].
    gpu_class, gpu_server
        Per GPU: its class and its server. Shape [gpus].
    class_gpu
        A GPU of each class, to ask about the class.
    run_us
        Run time of a template on a GPU class in microseconds, NEVER if it cannot run there. Shape [templates, classes].
    load_us
        Load time of a model on a GPU class in microseconds, NEVER if it may not be there. Shape [models, classes].
    weight_bytes
        Shape [models].
    needs
        Per template: the models it needs.
    inputs, outputs
        Per template: pairs (offset, edge); task + offset is the predecessor (successor), `edge` a row of `transfer_us`.
    transfer_us
        Transfer time by edge, class of source, class of target, and 1 for the same server. Zero on the
        same GPU is the caller's case: see `transfer_time`. Shape [edges, classes, classes, 2].
    """

    cluster: Cluster
    models: tuple[MLModel, ...]
    jobs: tuple[Job, ...]
    overlap_loads: bool = True
    initial: tuple[InitialResidency, ...] = ()
    restrictions: Restrictions = field(default_factory=Restrictions)

    workflows: tuple[Workflow, ...] = _derived()
    job_workflow: Ints = _derived()
    job_release_us: Ints = _derived()
    job_critical_us: Ints = _derived()
    job_first_task: Ints = _derived()
    task_job: Ints = _derived()
    task_template: Ints = _derived()
    template_first: Ints = _derived()
    gpu_class: Ints = _derived()
    gpu_server: Ints = _derived()
    class_gpu: tuple[GPU, ...] = _derived()
    run_us: Ints = _derived()
    load_us: Ints = _derived()
    weight_bytes: Ints = _derived()
    needs: tuple[tuple[int, ...], ...] = _derived()
    inputs: tuple[tuple[tuple[int, int], ...], ...] = _derived()
    outputs: tuple[tuple[tuple[int, int], ...], ...] = _derived()
    transfer_us: Ints = _derived()

    def __post_init__(self) -> None:
        if not self.jobs:
            raise InstanceError("the workload window holds no job")
        if any(a.release_us > b.release_us for a, b in zip(self.jobs, self.jobs[1:], strict=False)):
            raise InstanceError("jobs must be in release order")
        if len({model.name for model in self.models}) < len(self.models):
            raise InstanceError("model names must differ")
        self._number_tasks()
        self._class_gpus()
        self._tabulate_work()
        self._tabulate_edges()
        self._check_work()
        _check_initial(self)

    def _set(self, name: str, value: object) -> None:
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
        object.__setattr__(self, name, value)

    def _number_tasks(self) -> None:
        index: dict[int, int] = {}
        workflows: list[Workflow] = []
        job_workflow = []
        for job in self.jobs:
            if id(job.workflow) not in index:
                index[id(job.workflow)] = len(workflows)
                workflows.append(job.workflow)
            job_workflow.append(index[id(job.workflow)])
        sizes = np.array([len(workflow.tasks) for workflow in workflows], np.int64)
        template_first = np.concatenate(([0], np.cumsum(sizes)))
        of_job = np.array(job_workflow, np.int64)
        job_first = np.concatenate(([0], np.cumsum(sizes[of_job])))
        task_job = np.repeat(np.arange(len(self.jobs), dtype=np.int64), sizes[of_job])
        self._set("workflows", tuple(workflows))
        self._set("job_workflow", of_job)
        self._set("job_release_us", np.array([job.release_us for job in self.jobs], np.int64))
        self._set("job_critical_us", np.array([w.critical_path_us for w in workflows], np.int64)[of_job])
        self._set("job_first_task", job_first)
        self._set("task_job", task_job)
        within = np.arange(len(task_job), dtype=np.int64) - job_first[task_job]
        self._set("task_template", template_first[of_job[task_job]] + within)
        self._set("template_first", template_first)

    def _class_gpus(self) -> None:
        classes: dict[object, int] = {}
        gpu_class, members = [], []
        limits = (self.restrictions.model_gpus, self.restrictions.workflow_gpus)
        for index, gpu in enumerate(self.cluster.gpus):
            allowed = tuple(frozenset(name for name, gpus in limit.items() if index in gpus) for limit in limits)
            key = (gpu.kind, gpu.memory_bytes, gpu.slots, gpu.load_bandwidth, gpu.load_overhead_us, allowed)
            if key not in classes:
                classes[key] = len(classes)
                members.append(gpu)
            gpu_class.append(classes[key])
        self._set("gpu_class", np.array(gpu_class, np.int64))
        self._set("gpu_server", np.array([gpu.server for gpu in self.cluster.gpus], np.int64))
        self._set("class_gpu", tuple(members))

    def _tabulate_work(self) -> None:
        position = {model.name: index for index, model in enumerate(self.models)}
        first_of_class = [int(np.argmax(self.gpu_class == c)) for c in range(len(self.class_gpu))]

        def allowed(limit: Mapping[str, frozenset[int]], name: str, gpu: int) -> bool:
            return name not in limit or gpu in limit[name]

        load_us = [
            [
                gpu.load_us(model.weight_bytes)
                if gpu.fits([model.weight_bytes]) and allowed(self.restrictions.model_gpus, model.name, index)
                else NEVER
                for gpu, index in zip(self.class_gpu, first_of_class, strict=True)
            ]
            for model in self.models
        ]
        self._set("load_us", np.array(load_us, np.int64).reshape(len(self.models), len(self.class_gpu)))
        self._set("weight_bytes", np.array([model.weight_bytes for model in self.models], np.int64))
        needs, run_us = [], []
        for workflow, task in ((w, t) for w in self.workflows for t in w.tasks):
            unknown = [name for name in task.models if name not in position]
            if unknown:
                raise InstanceError(f"workflow {workflow.name}: task {task.name} needs unknown model {unknown[0]}")
            needed = tuple(position[name] for name in task.models)
            needs.append(needed)
            sizes = [self.models[model].weight_bytes for model in needed]
            row = []
            for c, (gpu, index) in enumerate(zip(self.class_gpu, first_of_class, strict=True)):
                possible = (
                    allowed(self.restrictions.workflow_gpus, workflow.name, index)
                    and all(self.load_us[model, c] != NEVER for model in needed)
                    and gpu.fits(sizes)
                )
                runtime = task.runtime_on(gpu.kind) if possible else None
                row.append(NEVER if runtime is None else runtime)
            run_us.append(row)
        self._set("needs", tuple(needs))
        self._set("run_us", np.array(run_us, np.int64))

    def _tabulate_edges(self) -> None:
        inputs: list[tuple[tuple[int, int], ...]] = []
        outputs: list[list[tuple[int, int]]] = [[] for _ in self.needs]
        transfer_us: list[list[list[list[int]]]] = []
        network = self.cluster.network
        for workflow, first in zip(self.workflows, self.template_first, strict=False):
            for index, task in enumerate(workflow.tasks):
                row = []
                for arc in task.inputs:
                    offset = workflow.position[arc.source] - index
                    row.append((offset, len(transfer_us)))
                    outputs[first + index + offset].append((-offset, len(transfer_us)))
                    transfer_us.append(
                        [
                            [
                                [network.transfer_us(arc.size_bytes, a, b, same) for same in (False, True)]
                                for b in self.class_gpu
                            ]
                            for a in self.class_gpu
                        ]
                    )
                inputs.append(tuple(row))
        self._set("inputs", tuple(inputs))
        self._set("outputs", tuple(tuple(row) for row in outputs))
        shape = (len(transfer_us), len(self.class_gpu), len(self.class_gpu), 2)
        self._set("transfer_us", np.array(transfer_us, np.int64).reshape(shape))

    def _check_work(self) -> None:
        stuck = np.flatnonzero((self.run_us == NEVER).all(axis=1))
        if stuck.size:
            raise InstanceError(
                f"{self.template_name(int(stuck[0]))} can run on no GPU: {self._why_stuck(int(stuck[0]))}"
            )

    def _why_stuck(self, template: int) -> str:
        sizes = [self.models[model].weight_bytes for model in self.needs[template]]
        kinds = sorted({gpu.kind for gpu in self.class_gpu})
        workflow = int(np.searchsorted(self.template_first, template, side="right")) - 1
        task = self.workflows[workflow].tasks[template - int(self.template_first[workflow])]
        if all(task.runtime_on(kind) is None for kind in kinds):
            return f"it lists run times for {', '.join(sorted(task.runtime_us))}, the cluster has {', '.join(kinds)}"
        if not any(gpu.fits(sizes) for gpu in self.class_gpu if task.runtime_on(gpu.kind) is not None):
            names = ", ".join(self.models[model].name for model in self.needs[template])
            return f"its models ({names}: {sum(sizes)} bytes) fit no eligible GPU together"
        return "the restrictions leave none"

    @property
    def n_tasks(self) -> int:
        """Number of tasks over all jobs."""
        return len(self.task_job)

    @property
    def n_gpus(self) -> int:
        """Number of GPUs."""
        return len(self.cluster.gpus)

    def run_time(self, task: int, gpu: int) -> int:
        """Return the run time of a task on a GPU in microseconds, NEVER if it is not eligible there."""
        return int(self.run_us[self.task_template[task], self.gpu_class[gpu]])

    def load_time(self, model: int, gpu: int) -> int:
        """Return the load time of a model on a GPU in microseconds, NEVER if it may not be resident there."""
        return int(self.load_us[model, self.gpu_class[gpu]])

    def transfer_time(self, edge: int, source: int, target: int) -> int:
        """Return the transfer time along an edge between two GPUs in microseconds: zero on the same one (T2)."""
        if source == target:
            return 0
        same_server = int(self.gpu_server[source] == self.gpu_server[target])
        return int(self.transfer_us[edge, self.gpu_class[source], self.gpu_class[target], same_server])

    def task_needs(self, task: int) -> tuple[int, ...]:
        """Return the models a task needs."""
        return self.needs[self.task_template[task]]

    def task_inputs(self, task: int) -> Iterator[tuple[int, int]]:
        """Yield the pairs (predecessor, edge) of a task."""
        return ((task + offset, edge) for offset, edge in self.inputs[self.task_template[task]])

    def task_outputs(self, task: int) -> Iterator[tuple[int, int]]:
        """Yield the pairs (successor, edge) of a task."""
        return ((task + offset, edge) for offset, edge in self.outputs[self.task_template[task]])

    def eligible_gpus(self, task: int) -> list[int]:
        """Return the GPUs that can run a task, in order."""
        possible = self.run_us[self.task_template[task]] != NEVER
        return [int(gpu) for gpu in np.flatnonzero(possible[self.gpu_class])]

    def tasks_of(self, job: int) -> range:
        """Return the tasks of a job."""
        return range(int(self.job_first_task[job]), int(self.job_first_task[job + 1]))

    def template_name(self, template: int) -> str:
        """Return ``workflow/task`` of a template."""
        workflow = int(np.searchsorted(self.template_first, template, side="right")) - 1
        name = self.workflows[workflow].tasks[template - int(self.template_first[workflow])].name
        return f"{self.workflows[workflow].name}/{name}"

    def task_name(self, task: int) -> str:
        """Return the name of a task in its workflow."""
        job = int(self.task_job[task])
        return self.jobs[job].workflow.tasks[task - int(self.job_first_task[job])].name

    def edges(self) -> tuple[Ints, Ints, Ints]:
        """Return source task, target task and edge of every precedence; three arrays of one length."""
        offsets = np.array([offset for row in self.inputs for offset, _ in row], np.int64)
        target, edge = self._expand([len(row) for row in self.inputs])
        return target + offsets[edge], target, edge

    def model_uses(self) -> tuple[Ints, Ints]:
        """Return task and model of every need; two arrays of one length."""
        models = np.array([model for row in self.needs for model in row], np.int64)
        task, entry = self._expand([len(row) for row in self.needs])
        return task, models[entry]

    def _expand(self, row_lengths: list[int]) -> tuple[Ints, Ints]:
        """Repeat every task once per entry of its template's row; return the task and the entry's number."""
        lengths = np.array(row_lengths, np.int64)
        start = np.concatenate(([0], np.cumsum(lengths)))[:-1]
        per_task = lengths[self.task_template]
        task = np.repeat(np.arange(self.n_tasks, dtype=np.int64), per_task)
        first = np.repeat(np.cumsum(per_task) - per_task, per_task)
        return task, start[self.task_template[task]] + np.arange(len(task), dtype=np.int64) - first


def _check_initial(instance: Instance) -> None:
    """Refuse initial residencies that overfill a GPU, share a slot, or stand where they may not."""
    for gpu_index, gpu in enumerate(instance.cluster.gpus):
        here = [resident for resident in instance.initial if resident.gpu == gpu_index]
        for resident in here:
            name = instance.models[resident.model].name
            if instance.load_time(resident.model, gpu_index) == NEVER:
                raise InstanceError(f"initial residency: model {name} may not be on {gpu.id}")
            if (resident.slot is None) == bool(gpu.slots):
                raise InstanceError(f"initial residency: {name} on {gpu.id} needs a slot exactly if the GPU has slots")
            if resident.slot is not None and not (
                0 <= resident.slot < len(gpu.slots)
                and instance.models[resident.model].weight_bytes <= gpu.slots[resident.slot]
            ):
                raise InstanceError(f"initial residency: {name} does not fit slot {resident.slot} of {gpu.id}")
        slots = [resident.slot for resident in here if resident.slot is not None]
        if len({resident.model for resident in here}) < len(here) or len(set(slots)) < len(slots):
            raise InstanceError(f"initial residency: a model or a slot is named twice on {gpu.id}")
        if not gpu.slots and not gpu.fits(instance.models[resident.model].weight_bytes for resident in here):
            raise InstanceError(f"initial residency: the models on {gpu.id} exceed its {gpu.memory_bytes} bytes")
