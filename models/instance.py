"""An instance: cluster, models and jobs, validated once, with every look-up that solvers and the engine iterate over.

Tasks are numbered 0 to n - 1, job by job in release order, inside a job in the order of its workflow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorth.models import tables
from truenorth.models.cluster import GPU, Cluster
from truenorth.models.errors import UserError
from truenorth.models.places import Places, ways_between
from truenorth.models.prefixes import Prefixes
from truenorth.models.restrictions import (
    InitialResidency,
    InstanceError,
    Restrictions,
    check_initial,
    check_restrictions,
)
from truenorth.models.stream_tables import StreamTables
from truenorth.models.tables import LARGEST, NEVER, NONE, Arcs, Ints
from truenorth.models.workload import WHOLE, BatchClass, Job, MLModel, Task, Workflow, sizes_of

__all__ = [
    "NEVER",
    "NONE",
    "InitialResidency",
    "Instance",
    "InstanceError",
    "Ints",
    "Restrictions",
    "UnsupportedInstanceError",
]


class UnsupportedInstanceError(UserError):
    """A part of the software cannot serve what an instance asks for; the message says which, and what is allowed."""


_LEAST_HELD = 2
"""Tokens of KV of the smallest request: one in, one out."""

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
    catalogue
        Workflows that are known before any job is released, whether or not one asks for them; () if none are. It is
        no part of the window: no plan, bound or hash depends on it.

    Attributes
    ----------
    workflows
        The distinct workflows of the jobs.
    job_workflow, job_release_us, job_critical_us, job_ideal_us
        Per job: index of its workflow, release, P_j, and what its slowdown divides by. Shape [jobs].
    job_ingress
        Per job: the server where its input bytes lie, NONE where it names none. Shape [jobs].
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
    places, place_class
        The sets of GPUs that runs take, the GPUs themselves first, and the class of each. Shape [places].
    place_kinds
        What the places of each class have in common; the first classes are those of GPUs alone.
    run_us
        Run time of a template on a class of places in microseconds, NEVER if it cannot run there; of a request of a
        stream that of the smallest there can be. Shape [templates, classes].
    template_gpus
        Per template: how many GPUs a run takes, with modes at most. Shape [templates].
    load_us
        Load time of a model on a class of places in microseconds, split over the GPUs of one; NEVER if it may not be
        there. Shape [models, classes].
    weight_bytes
        Shape [models].
    needs
        Per template: the models it needs.
    split
        Whether a run of a template at places of a class has its models split over the GPUs (rule G2); else each of
        them holds them whole. Shape [templates, classes].
    batches
        The batch classes that templates name.
    template_batch
        Per template: its batch class, NONE without one. Shape [templates].
    template_share, template_memory
        Per template: the share of a GPU's compute that it takes (a batch: as a whole) in parts of WHOLE, and the
        bytes that it holds while it runs (a batch: per member). Shape [templates].
    batch_us
        Run time of a batch class on a GPU class by size, NEVER for sizes that cannot run there; `run_us` is that
        of size 1. Shape [batches, classes, largest size + 1].
    batch_largest
        Most members of a batch of a class on a GPU class. Shape [batches, classes].
    streams
        Classes, tokens and ties of the requests of streams; None where no task is one.
    one_at_a_time
        Whether every task takes a GPU's whole compute, alone, and holds no memory of its own, on GPUs that stay.
    always_available
        Whether every GPU is there from 0 on, for ever.
    inputs, outputs
        Per template: pairs (offset, edge); task + offset is the predecessor (successor), `edge` a row of `transfer_us`.
    transfer_us
        Transfer time by edge, class of source, class of target, and 1 for the same server. Zero on the
        same GPU is the caller's case: see `transfer_time`. Shape [edges, classes, classes, 2].
    delay_us
        Per edge: what passes outside of the cluster between the end of the source and its output's leaving (rule E5),
        also on the same GPU. Shape [edges].
    input_us
        Per template: how long its input bytes take to any server but the job's ingress. Shape [templates].
    """

    cluster: Cluster
    models: tuple[MLModel, ...]
    jobs: tuple[Job, ...]
    overlap_loads: bool = True
    initial: tuple[InitialResidency, ...] = ()
    restrictions: Restrictions = field(default_factory=Restrictions)
    catalogue: tuple[Workflow, ...] = field(default=(), repr=False, compare=False)

    workflows: tuple[Workflow, ...] = _derived()
    job_workflow: Ints = _derived()
    job_release_us: Ints = _derived()
    job_critical_us: Ints = _derived()
    job_ideal_us: Ints = _derived()
    job_ingress: Ints = _derived()
    job_first_task: Ints = _derived()
    task_job: Ints = _derived()
    task_template: Ints = _derived()
    template_first: Ints = _derived()
    gpu_class: Ints = _derived()
    gpu_server: Ints = _derived()
    class_gpu: tuple[GPU, ...] = _derived()
    places: Places = _derived()
    place_class: Ints = _derived()
    place_kinds: tuple[tables.PlaceClass, ...] = _derived()
    template_gpus: Ints = _derived()
    run_us: Ints = _derived()
    load_us: Ints = _derived()
    weight_bytes: Ints = _derived()
    needs: tuple[tuple[int, ...], ...] = _derived()
    split: NDArray[np.bool_] = _derived()
    batches: tuple[BatchClass, ...] = _derived()
    template_batch: Ints = _derived()
    template_share: Ints = _derived()
    template_memory: Ints = _derived()
    batch_us: Ints = _derived()
    batch_largest: Ints = _derived()
    streams: StreamTables | None = _derived()
    one_at_a_time: bool = _derived()
    always_available: bool = _derived()
    inputs: Arcs = _derived()
    outputs: Arcs = _derived()
    transfer_us: Ints = _derived()
    delay_us: Ints = _derived()
    input_us: Ints = _derived()

    def __post_init__(self) -> None:
        self._check_parts()
        check_restrictions(self.restrictions, self.cluster, self.models)
        check_initial(self.initial, self.cluster, self.models, self.restrictions)
        self._number_tasks()
        self._tabulate()
        self._tabulate_batches()
        self._refuse_loaded_gangs()
        self._tabulate_streams()
        stuck = np.flatnonzero((self.run_us == NEVER).all(axis=1))
        if stuck.size:
            template = int(stuck[0])
            raise InstanceError(f"{self.template_name(template)} can run on no GPU: {self._why_stuck(template)}")
        self._refuse_misfits()

    def __repr__(self) -> str:
        size = f"{len(self.jobs)} jobs, {self.n_tasks} tasks, {len(self.models)} models"
        return f"<Instance of {size} on {self.n_gpus} GPUs>"

    def _check_parts(self) -> None:
        if not self.jobs:
            raise InstanceError("the workload window holds no job")
        if any(a.release_us > b.release_us for a, b in pairwise(self.jobs)):
            raise InstanceError("jobs must be in release order")
        if len({model.name for model in self.models}) < len(self.models):
            raise InstanceError("model names must differ")
        if any(gpu.memory_bytes > LARGEST for gpu in self.cluster.gpus):
            raise InstanceError(f"the memory of a GPU exceeds {LARGEST} bytes")
        servers = {gpu.server for gpu in self.cluster.gpus}
        for index, job in enumerate(self.jobs):
            if job.ingress is not None and job.ingress not in servers:
                raise InstanceError(f"job {index}: its ingress is server {job.ingress}, which the cluster lacks")
            if job.deadline_us is not None and job.deadline_us > LARGEST:
                raise InstanceError(f"job {index}: its deadline exceeds {LARGEST} microseconds")

    def _set(self, name: str, value: object) -> None:
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
        object.__setattr__(self, name, value)

    def _number_tasks(self) -> None:
        workflows, of_job = tables.distinct_workflows(self.jobs)
        sizes = np.array([len(workflow.tasks) for workflow in workflows], np.int64)
        template_first = np.concatenate(([0], np.cumsum(sizes)))
        job_first = np.concatenate(([0], np.cumsum(sizes[of_job])))
        task_job = np.repeat(np.arange(len(self.jobs), dtype=np.int64), sizes[of_job])
        within = np.arange(len(task_job), dtype=np.int64) - job_first[task_job]
        critical = tables.as_ints([workflow.critical_path_us for workflow in workflows], "critical paths")[of_job]
        own = [job for job, given in enumerate(self.jobs) if given.tokens]  # its delays are the workflow's
        critical[own] = tables.as_ints([self.jobs[job].critical_path_us for job in own], "critical paths")
        self._set("workflows", workflows)
        self._set("job_workflow", of_job)
        self._set("job_release_us", tables.as_ints([job.release_us for job in self.jobs], "releases"))
        ideal = tables.as_ints([w.ideal_us or 0 for w in workflows], "ideal times")[of_job]
        named = [job for job, given in enumerate(self.jobs) if given.own_ideal_us is not None]
        ideal[named] = tables.as_ints([self.jobs[job].own_ideal_us or 0 for job in named], "ideal times")
        self._set("job_critical_us", critical)
        self._set("job_ideal_us", np.where(ideal > 0, ideal, critical))
        ingress = [NONE if job.ingress is None else job.ingress for job in self.jobs]
        self._set("job_ingress", np.array(ingress, np.int64))
        self._set("job_first_task", job_first)
        self._set("task_job", task_job)
        self._set("task_template", template_first[of_job[task_job]] + within)
        self._set("template_first", template_first)

    def _tabulate(self) -> None:
        classes = tables.GPUClasses.of(self.cluster, self.restrictions)
        tasks = [task for workflow in self.workflows for task in workflow.tasks]
        places = Places.of(self.cluster, sizes_of(self.workflows))
        place_class, kinds_of_places = tables.place_classes(places, self.cluster, classes)
        load_us = tables.load_times(self.models, classes, kinds_of_places, self.restrictions)
        needs = tables.needed_models(self.workflows, self.models)
        tables.needed_models(self.catalogue, self.models)  # refuses unknown models
        batches, template_batch = tables.batch_classes(self.workflows)
        inputs, outputs, edges = tables.precedence_arcs(self.workflows)
        self._set("gpu_class", classes.of_gpu)
        self._set("gpu_server", np.array([gpu.server for gpu in self.cluster.gpus], np.int64))
        self._set("class_gpu", classes.gpus)
        self._set("places", places)
        self._set("place_class", place_class)
        self._set("place_kinds", kinds_of_places)
        self._set("template_gpus", np.array([task.gpus for task in tasks], np.int64))
        self._set("weight_bytes", tables.as_ints([model.weight_bytes for model in self.models], "weights"))
        self._set("load_us", load_us)
        self._set("needs", needs)
        self._set("split", tables.split_models(self.workflows, kinds_of_places))
        at = (classes, kinds_of_places, self.restrictions)
        self._set("run_us", tables.run_times(self.workflows, needs, self.models, *at))
        self._set("inputs", inputs)
        self._set("outputs", outputs)
        self._set("transfer_us", tables.transfer_times(edges, self.cluster, classes))
        self._set("delay_us", tables.as_ints([edge.delay_us for edge in edges], "delays"))
        self._set("input_us", tables.input_times(self.workflows, self.cluster.network))
        self._set("batches", batches)
        self._set("template_batch", template_batch)
        self._set("batch_us", tables.batch_times(batches, self.models, load_us, classes))

    def _tabulate_batches(self) -> None:
        templates = [task for workflow in self.workflows for task in workflow.tasks]
        self._set("template_share", np.array([task.share for task in templates], np.int64))
        self._set("template_memory", tables.as_ints([task.memory_bytes for task in templates], "memory of tasks"))
        self._set("batch_largest", (self.batch_us != NEVER).sum(axis=2, dtype=np.int64))
        whole = bool((self.template_share == WHOLE).all())
        self._set("always_available", all(gpu.available.always for gpu in self.cluster.gpus))
        alone = whole and not self.batches and not self.template_memory.any()
        served = any(task.stream is not None for task in templates)
        self._set("one_at_a_time", alone and self.always_available and not served)

    def _tabulate_streams(self) -> None:
        if all(task.stream is None for workflow in self.workflows for task in workflow.tasks):
            self._set("streams", None)
            return
        streams = StreamTables.of(self.workflows, self.jobs, self.models, self.class_gpu)
        self._set("streams", streams)
        run_us = self.run_us.copy()
        run_us[streams.template != NONE] = np.where(
            streams.longest[streams.template[streams.template != NONE]] < _LEAST_HELD,
            NEVER,
            run_us[streams.template != NONE],
        )
        alone = run_us.copy()
        for template, offsets in enumerate(streams.together):  # what is tied together runs where all of it can
            run_us[template, (alone[[template + offset for offset in offsets]] == NEVER).any(axis=0)] = NEVER
        self._set("run_us", run_us)
        if streams.prefixes is not None:
            self._shorten_paths(streams, streams.prefixes)

    def _shorten_paths(self, streams: StreamTables, prefixes: Prefixes) -> None:
        """Have P_j count of prompts only what no other request of the window could have left in a cache (rule E4)."""
        critical, ideal = self.job_critical_us.copy(), self.job_ideal_us.copy()
        for job, given in enumerate(self.jobs):
            tasks = range(int(self.job_first_task[job]), int(self.job_first_task[job + 1]))
            if any(prefixes.shared(task) for task in tasks):
                least = {
                    asked.name: prefixes.least(task, streams.tokens(task))
                    for task, asked in zip(tasks, given.workflow.tasks, strict=True)
                    if asked.stream is not None
                }
                critical[job] = given.workflow.path_us(least)
                ideal[job] = critical[job] if given.given_ideal_us is None else ideal[job]
        self._set("job_critical_us", critical)
        self._set("job_ideal_us", ideal)

    def _refuse_misfits(self) -> None:
        """Refuse a request whose KV fits no GPU."""
        if self.streams is None:
            return
        misfits = self.streams.misfits(self.task_template, self.run_us)
        if misfits.size:
            task = int(misfits[0])
            template, tokens = int(self.task_template[task]), self.streams.tokens(task)
            able = self.run_us[template] != NEVER
            most = int(self.streams.longest[self.streams.template[template], able].max())
            name, found = self.template_name(template), f"{tokens.prompt} prompt and {tokens.output} output tokens"
            problem = f"{found} of KV fit no GPU that can run it; the longest that fits has {most} together"
            raise InstanceError(f"job {self.task_job[task]}, {name}: {problem}")

    def _refuse_loaded_gangs(self) -> None:
        """Refuse what runs on several GPUs cannot have yet: models in slots, more where servers come and go."""
        streams = any(task.stream is not None for workflow in self.workflows for task in workflow.tasks)
        if self.gangs and (streams or self.batches):
            raise InstanceError("runs on several GPUs beside streams or batches; allowed are tasks with run times")
        for template in np.flatnonzero(self.template_gpus > 1).tolist():
            name = f"{self.template_name(template)} takes {self.template_gpus[template]} GPUs"
            if self.needs[template] and any(gpu.slots for gpu in self.class_gpu):
                raise InstanceError(f"{name} and needs models, and GPUs have slots; allowed is memory shared by bytes")
        if self.needs_servers_that_stay and not self.always_available:
            problem = "runs on several GPUs where servers come and go (away, available), beside after, input or models"
            raise InstanceError(f"{problem}; allowed are servers that stay, or tasks without these")

    def _why_stuck(self, template: int) -> str:
        kinds = sorted({gpu.kind for gpu in self.class_gpu})
        workflow, position = self.locate(template)
        task = workflow.tasks[position]
        parts = max(mode.parts for mode in task.choices)
        sizes = [tables.part_bytes(self.models[model].weight_bytes, parts) for model in self.needs[template]]
        if all(task.runtime_on(kind) is None for kind in kinds):
            return f"it lists run times for {', '.join(sorted(task.runtime_us))}, the cluster has {', '.join(kinds)}"
        numbers = [mode.gpus for mode in task.choices]
        if task.gpus > 1 and not any(len(place) in numbers for place in self.places.gpus):
            return f"there is no place of {' or '.join(map(str, numbers))} GPUs{self._places_there_are()}"
        eligible = [gpu for gpu in self.class_gpu if task.runtime_on(gpu.kind) is not None]
        if task.stream is not None and all(gpu.slots for gpu in eligible):
            return "it is a request of a stream, and every eligible GPU has slots"
        names = ", ".join(self.models[model].name for model in self.needs[template])
        if not any(gpu.fits(sizes) for gpu in eligible):
            split = f" on each of {parts} GPUs" if parts > 1 else ""
            return f"its models ({names}: {sum(sizes)} bytes{split}) fit no eligible GPU together"
        if task.memory_bytes and all(gpu.slots for gpu in eligible):
            return f"it holds {task.memory_bytes} bytes beside its models, and every eligible GPU has slots"
        if not any(gpu.fits(sizes, task.memory_bytes) for gpu in eligible):
            held = f"its models ({sum(sizes)} bytes) and the {task.memory_bytes} bytes that it holds beside them"
            return f"{held} fit no eligible GPU together"
        return "the restrictions leave none"

    def _places_there_are(self) -> str:
        """Return in words which numbers of GPUs have places; none where places are listed."""
        if not isinstance(self.cluster.places, str):
            return ", as cluster.places lists them"
        held = max(Counter(gpu.server for gpu in self.cluster.gpus).values())
        return f" (a server has {held} at most; beyond it a task takes whole servers of a group)"

    def locate(self, template: int) -> tuple[Workflow, int]:
        """Return the workflow of a template and the task's position in it."""
        workflow = int(np.searchsorted(self.template_first, template, side="right")) - 1
        return self.workflows[workflow], template - int(self.template_first[workflow])

    def require_no_streams(
        self,
        who: str,
        instead: str = "tasks with a runtime or a batch class, and simulate, check or compare for streams",
    ) -> None:
        """Refuse requests of streams on behalf of a part without them; `instead` is what is allowed.

        Raises
        ------
        UnsupportedInstanceError
            Naming the first task that is one; `who` is the part, in words.
        """
        if self.streams is not None:
            name = self.template_name(int(np.flatnonzero(self.streams.template != NONE)[0]))
            problem = f"{who} knows no streams, and {name} is a request of one"
            raise UnsupportedInstanceError(f"{problem}; allowed are {instead}")

    def with_workflows(self, change: Callable[[Workflow], Workflow], **others: Any) -> Instance:
        """Return the instance with every workflow changed, also those of the catalogue; jobs go on sharing theirs.

        Parameters
        ----------
        others
            Further fields to replace; the catalogue may be among them.
        """
        shared = {id(workflow): workflow for workflow in (*(job.workflow for job in self.jobs), *self.catalogue)}
        changed = {key: change(workflow) for key, workflow in shared.items()}
        jobs = tuple(replace(job, workflow=changed[id(job.workflow)]) for job in self.jobs)
        catalogue = tuple(changed[id(workflow)] for workflow in self.catalogue)
        return replace(self, **{"jobs": jobs, "catalogue": catalogue} | others)

    def with_tasks(self, change: Callable[[Task], Task], **others: Any) -> Instance:
        """Return the instance with every task changed; `others` as of `with_workflows`."""
        return self.with_workflows(lambda workflow: workflow.with_tasks(change), **others)

    def require_always_available(self, who: str) -> None:
        """Refuse GPUs that come and go on behalf of a part that does not know them.

        Raises
        ------
        UnsupportedInstanceError
            Naming the first such GPU; `who` is the part, in words.
        """
        if not self.always_available:
            away = next(gpu for gpu in self.cluster.gpus if not gpu.available.always)
            problem = f"{who} knows no servers that come and go, and {away.id} is not always there"
            raise UnsupportedInstanceError(f"{problem}; allowed are groups without `available`")

    def require_reserved_kv(self, who: str) -> None:
        """Refuse KV that grows on behalf of a part that can preempt nobody.

        Raises
        ------
        UnsupportedInstanceError
            Naming the class; `who` is the part, in words.
        """
        if self.streams is not None and self.streams.grows.any():
            name = self.streams.classes[int(np.argmax(self.streams.grows.any(axis=1)))].name
            problem = f"{who} preempts no requests, and KV of stream class {name} grows"
            raise UnsupportedInstanceError(f"{problem}; allowed is kv: reserved")

    @property
    def n_tasks(self) -> int:
        """Number of tasks over all jobs."""
        return len(self.task_job)

    @property
    def n_gpus(self) -> int:
        """Number of GPUs."""
        return len(self.cluster.gpus)

    @property
    def gangs(self) -> bool:
        """Whether some task runs on several GPUs."""
        return bool((self.template_gpus > 1).any())

    @property
    def needs_servers_that_stay(self) -> bool:
        """Whether runs on several GPUs stand beside inputs or models: no such window has servers that come and go."""
        return self.gangs and (any(self.inputs) or bool(self.input_us.any()) or any(self.needs))

    def run_time(self, task: int, place: int) -> int:
        """Return the run time of a task at a place in microseconds, NEVER if it is not eligible there."""
        return int(self.run_us[self.task_template[task], self.place_class[place]])

    def batch_time(self, batch: int, gpu: int, size: int) -> int:
        """Return the run time of a batch of a class on a GPU in microseconds, NEVER if it cannot run there."""
        times = self.batch_us[batch, self.gpu_class[gpu]]
        return int(times[size]) if 0 < size < len(times) else NEVER

    def load_time(self, model: int, place: int) -> int:
        """Return the load time of a model at a place in microseconds, NEVER if it may not be resident there."""
        return int(self.load_us[model, self.place_class[place]])

    def held_bytes(self, model: int, place: int) -> int:
        """Return what each GPU of a place holds of a model that is resident there (rule G2)."""
        return tables.part_bytes(int(self.weight_bytes[model]), len(self.places.gpus[place]))

    def model_places(self, task: int, place: int) -> tuple[int, ...]:
        """Return where a run of a task at a place needs its models resident: right there, or on each of its GPUs."""
        if place < self.n_gpus or self.split[self.task_template[task], self.place_class[place]]:
            return (place,)
        return self.places.gpus[place]

    def transfer_time(self, edge: int, source: int, target: int) -> int:
        """Return the transfer time along an edge between two places in microseconds: zero on the same one (T2, G4)."""
        if source == target:
            return 0
        if max(source, target) >= self.n_gpus:
            gpus = self.places.gpus
            ways = ways_between(gpus[source], gpus[target], self.gpu_class, self.gpu_server)
            return min((int(self.transfer_us[edge, a, b, same_server]) for a, b, same_server in ways), default=0)
        same_server = int(self.gpu_server[source] == self.gpu_server[target])
        return int(self.transfer_us[edge, self.gpu_class[source], self.gpu_class[target], same_server])

    def gap_time(self, edge: int, source: int, target: int) -> int:
        """Return what lies between the end of a task and its input's arrival at the next: delay and transfer (T2)."""
        return int(self.delay_us[edge]) + self.transfer_time(edge, source, target)

    def kv_transfer_time(self, task: int, source: int, target: int) -> int:
        """Return how long the KV of a request's prompt takes between two GPUs: zero on the same one (T2)."""
        if source == target or self.streams is None:
            return 0
        size_bytes = self.kv_sent_bytes(task, source)
        gpus, same_server = self.cluster.gpus, bool(self.gpu_server[source] == self.gpu_server[target])
        return self.cluster.network.transfer_us(size_bytes, gpus[source], gpus[target], same_server)

    def kv_sent_bytes(self, task: int, source: int) -> int:
        """Return the bytes of the KV of a request's prompt that a GPU sends."""
        if self.streams is None:
            return 0
        speed = self.streams.speeds[self.streams.template[self.task_template[task]]][self.gpu_class[source]]
        return 0 if speed is None else int(self.streams.prompt[task]) * speed.kv_bytes

    def earliest_start(self, task: int, place: int) -> int:
        """Return when a task's job is released and its input bytes have reached a place (T1, T2), in microseconds."""
        job = self.task_job[task]
        ingress = self.job_ingress[job]
        there = ingress == NONE or any(ingress == self.gpu_server[gpu] for gpu in self.places.gpus[place])
        return int(self.job_release_us[job]) + (0 if there else int(self.input_us[self.task_template[task]]))

    def earliest_starts(self) -> Ints:
        """Return `earliest_start` of every task on every GPU. Shape [tasks, gpus]."""
        ingress = self.job_ingress[self.task_job][:, None]
        away = (ingress != NONE) & (ingress != self.gpu_server[None, :])
        earliest: Ints = self.job_release_us[self.task_job][:, None] + self.input_us[self.task_template][:, None] * away
        return earliest

    def task_needs(self, task: int) -> tuple[int, ...]:
        """Return the models a task needs."""
        return self.needs[self.task_template[task]]

    def task_inputs(self, task: int) -> Iterator[tuple[int, int]]:
        """Yield the pairs (predecessor, edge) of a task."""
        return ((task + offset, edge) for offset, edge in self.inputs[self.task_template[task]])

    def task_outputs(self, task: int) -> Iterator[tuple[int, int]]:
        """Yield the pairs (successor, edge) of a task."""
        return ((task + offset, edge) for offset, edge in self.outputs[self.task_template[task]])

    def place_name(self, place: int) -> str:
        """Return how a person names a place: the ids of its GPUs."""
        return " ".join(self.cluster.gpus[gpu].id for gpu in self.places.gpus[place])

    def eligible_places(self, task: int) -> list[int]:
        """Return the places at which a task can run, in order."""
        return [int(p) for p in np.flatnonzero(self.run_us[self.task_template[task]][self.place_class] != NEVER)]

    def eligible_gpus(self, task: int) -> list[int]:
        """Return the GPUs that can run a task, in order; of a request those whose memory it fits."""
        template = int(self.task_template[task])
        possible = self.run_us[template] != NEVER
        if self.streams is not None and self.streams.template[template] != NONE:
            possible = possible & self.streams.fitting(task, template)
        return [int(gpu) for gpu in np.flatnonzero(possible[self.gpu_class])]

    def tasks_of(self, job: int) -> range:
        """Return the tasks of a job."""
        return range(int(self.job_first_task[job]), int(self.job_first_task[job + 1]))

    def template_name(self, template: int) -> str:
        """Return ``workflow/task`` of a template."""
        workflow, position = self.locate(template)
        return f"{workflow.name}/{workflow.tasks[position].name}"

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
