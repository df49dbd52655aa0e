"""What a scenario may not be: too large for 64 bits or for memory, or in contradiction with itself.

Where the core types refuse an instance, their rules stay where they are: the parts are tried one by one, and the first
that alone breaks a rule is blamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from truenorth.models.cluster import GPU, Cluster
from truenorth.models.instance import NONE, Instance
from truenorth.models.places import Places
from truenorth.models.restrictions import InitialResidency, InstanceError, Restrictions, check_initial
from truenorth.models.scenario.document import ScenarioDocument
from truenorth.models.scenario.errors import FieldError, blame
from truenorth.models.scenario.quantities import MAX_TIME_US
from truenorth.models.stream_tables import StreamTables
from truenorth.models.streams import PICOSECONDS, Tokens
from truenorth.models.tables import GPUClasses, part_bytes
from truenorth.models.workload import Job, MLModel, Task, Workflow, sizes_of

MAX_TASKS = 20_000_000
MAX_TRANSFERS = 2_000_000
MAX_BATCH_TIMES = 10_000_000
MAX_HORIZON_US = 10**18
"""Every task, load and transfer one after the other must end before this."""


def check_models(document: ScenarioDocument, cluster: Cluster) -> None:
    """Refuse a model that fits no GPU, or that takes too long to load.

    Raises
    ------
    FieldError
        At the model's weights.
    """
    gpus = one_of_each(cluster)
    largest = max(max(gpu.slots, default=gpu.memory_bytes) for gpu in gpus)
    most_parts = _most_parts(document)
    for name, section in document.models.items():
        where, parts = ("models", name, "weights"), most_parts.get(name, 1)
        sizes = (section.weights, part_bytes(section.weights, parts))
        fitting = [(gpu, size) for gpu in gpus for size in sizes if gpu.fits([size])]
        if not fitting:
            place = "slot" if any(gpu.slots for gpu in gpus) else "GPU"
            split = f", split over {parts} GPUs {sizes[1]}," if parts > 1 else ""
            problem = f"{section.weights} bytes{split} are larger than every {place}"
            raise FieldError(where, f"{problem}; allowed are at most {largest} bytes{' on each' if split else ''}")
        slowest, size = max(fitting, key=lambda pair: pair[0].load_us(pair[1]))
        load_us = slowest.load_us(size)
        if load_us > MAX_TIME_US:
            problem = f"take {load_us} us to load on {slowest.id}; allowed are at most {MAX_TIME_US} us"
            raise FieldError(where, problem)


def _most_parts(document: ScenarioDocument) -> dict[str, int]:
    """Return, by model, the most GPUs over which a task splits it; nothing of models that are nowhere split."""
    most: dict[str, int] = {}
    for workflow in document.workflows.values():
        for task in workflow.tasks.values():
            split = [mode.gpus for mode in task.modes or (task,) if mode.weights == "split"]
            for name in task.models:
                most[name] = max(most.get(name, 1), *split, 1)
    return most


def check_transfers(document: ScenarioDocument, cluster: Cluster, workflows: Sequence[Workflow]) -> None:
    """Refuse input bytes, or an edge between the GPUs that load slowest, whose transfer takes too long.

    Raises
    ------
    FieldError
        At the task that receives the most bytes.
    """
    if len(cluster.gpus) == 1:
        return
    gpus = one_of_each(cluster)
    slowest = min(gpus, key=lambda gpu: gpu.load_bandwidth)
    inputs = [(task.input_bytes, w.name, task.name) for w in workflows for task in w.tasks]
    size, workflow, task = max(inputs, key=lambda given: given[0])
    _refuse_travel(size, cluster.network.input_us(size), workflow, task, "input")
    kv_bytes = max(gpu.memory_bytes for gpu in gpus)  # more than a GPU holds is not moved
    edges = [
        (kv_bytes if edge.kv else edge.size_bytes, w.name, task.name)
        for w in workflows
        for task in w.tasks
        for edge in task.inputs
    ]
    if edges:
        size, workflow, task = max(edges, key=lambda edge: edge[0])
        took = max(cluster.network.transfer_us(size, slowest, slowest, same) for same in (False, True))
        _refuse_travel(size, took, workflow, task, "after")


def _refuse_travel(size: int, took_us: int, workflow: str, task: str, key: str) -> None:
    if took_us > MAX_TIME_US:
        problem = f"{size} bytes take {took_us} us to arrive; allowed are at most {MAX_TIME_US} us"
        raise FieldError(("workflows", workflow, "tasks", task, key), problem)


def check_places(cluster: Cluster, workflows: Sequence[Workflow]) -> None:
    """Refuse more places for runs on several GPUs than can be listed.

    Raises
    ------
    FieldError
        At the cluster's places.
    """
    try:
        Places.of(cluster, sizes_of(workflows))
    except InstanceError as error:
        raise FieldError(("cluster", "places"), str(error)) from None


def check_tables(cluster: Cluster, restrictions: Restrictions, workflows: Sequence[Workflow]) -> None:
    """Refuse more sorts of GPUs, or more and larger batches, than the tables can hold.

    Raises
    ------
    FieldError
        At the cluster, or at the batch classes.
    """
    sorts = len(GPUClasses.of(cluster, restrictions).gpus)
    edges = sum(len(task.inputs) for workflow in workflows for task in workflow.tasks)
    transfers = max(1, edges) * sorts**2
    if transfers > MAX_TRANSFERS:
        problem = f"{edges} edges between {sorts} sorts of GPUs make {transfers} transfers"
        raise FieldError(("cluster",), f"{problem}; allowed are {MAX_TRANSFERS}")
    served = (task.stream for workflow in workflows for task in workflow.tasks if task.stream is not None)
    for stream in {stream.name: stream for stream in served}.values():
        slowest_us = max(speed.prefill_us(speed.chunk) for speed in stream.speeds.values())
        if slowest_us > MAX_TIME_US:
            problem = f"a whole chunk takes {slowest_us} us; allowed are at most {MAX_TIME_US} us"
            raise FieldError(("streams", stream.name, "prefill"), problem)
    classes = {task.batch.name: task.batch for workflow in workflows for task in workflow.tasks if task.batch}
    sizes = max((max(times) for batch in classes.values() for times in batch.runtime_us.values()), default=0)
    if len(classes) * sorts * sizes > MAX_BATCH_TIMES:
        problem = f"{len(classes)} classes of up to {sizes} tasks on {sorts} sorts of GPUs make too many run times"
        raise FieldError(("batches",), f"{problem}; allowed are {MAX_BATCH_TIMES}")


def check_delays(cluster: Cluster, restrictions: Restrictions, jobs: Sequence[Job]) -> None:
    """Refuse jobs with more different delays than the tables of transfers can hold.

    Raises
    ------
    FieldError
        At the workload.
    """
    if all(job.delays_us is None for job in jobs):
        return
    sorts = len(GPUClasses.of(cluster, restrictions).gpus)
    apart = {(id(job.workflow), frozenset((job.delays_us or {}).items())): job.workflow for job in jobs}
    edges = sum(len(task.inputs) for workflow in apart.values() for task in workflow.tasks)
    if edges * sorts**2 > MAX_TRANSFERS:
        problem = f"{len(apart)} workflows with delays of their own have {edges} edges; allowed are"
        remedy = "round the delays, or take a shorter window"
        raise FieldError(("workload",), f"{problem} {MAX_TRANSFERS // sorts**2}; {remedy}")


def check_tasks(jobs: Sequence[Job]) -> None:
    """Refuse more tasks than tables can hold.

    Raises
    ------
    FieldError
        At the workload.
    """
    count = sum(len(job.workflow.tasks) for job in jobs)
    if count > MAX_TASKS:
        raise FieldError(("workload",), f"gives {count} tasks; allowed are {MAX_TASKS}")


def check_horizon(instance: Instance) -> None:
    """Refuse times whose sum could leave 64 bits.

    Raises
    ------
    FieldError
        At the workload.
    """
    per_template = instance.run_us.max(axis=1).astype(np.float64)
    for template, batch in enumerate(instance.template_batch.tolist()):
        if batch != NONE:  # at worst every task runs as long as the largest batch of its class
            per_template[template] = float(instance.batch_us[batch].max())
    for template, needs in enumerate(instance.needs):
        per_template[template] += sum(float(instance.load_us[model].max()) for model in needs)
        per_template[template] += sum(float(instance.transfer_us[edge].max()) for _, edge in instance.inputs[template])
        per_template[template] += sum(float(instance.delay_us[edge]) for _, edge in instance.inputs[template])
        per_template[template] += float(instance.input_us[template])
    if instance.streams is not None:
        per_template += _served_us(instance, instance.streams)
    comes = max(gpu.available.intervals[-1][0] for gpu in instance.cluster.gpus)
    total = max(float(instance.job_release_us[-1]), float(comes)) + float(per_template[instance.task_template].sum())
    if total > MAX_HORIZON_US:
        problem = f"all tasks one after the other end at {total:.3g} us; allowed is {MAX_HORIZON_US:.0e} us"
        raise FieldError(("workload",), problem)


def _served_us(instance: Instance, streams: StreamTables) -> NDArray[np.float64]:
    """Return how long the requests of each template take at most, on average, if all join at the worst of times."""
    longest = np.zeros(len(instance.needs))
    for template, stream in enumerate(streams.template.tolist()):
        if stream != NONE:
            requests = np.flatnonzero(instance.task_template == template)
            iterations = (streams.uncached[requests] + streams.output[requests]).astype(np.float64)
            # Contexts of as many requests as there are seats, each as long as the longest.
            most = int(streams.held[requests].max())
            slowest = max(
                speed.slowest_us + speed.seats * most * speed.context_ps / PICOSECONDS
                for speed in streams.speeds[stream]
                if speed is not None
            )
            longest[template] = float(iterations.mean()) * float(slowest)
    return longest


def one_of_each(cluster: Cluster) -> list[GPU]:
    """Return a GPU of each group of servers, and an engine of each size."""
    found: dict[tuple[int, int], GPU] = {}
    for gpu in cluster.gpus:
        found.setdefault((gpu.group, gpu.gpus), gpu)
    return list(found.values())


def blame_workflows(
    cluster: Cluster, models: Sequence[MLModel], workflows: Mapping[str, Workflow], restrictions: Restrictions
) -> None:
    """Refuse a task that no GPU can run, also in a workflow that no job uses.

    Raises
    ------
    FieldError
        At the first such task.
    """
    unconnected = {name: list(map(_alone, workflow.tasks)) for name, workflow in workflows.items()}
    together = [Workflow(name, tuple(tasks)) for name, tasks in unconnected.items()]
    try:
        _check_jobs(cluster, models, together, restrictions)
    except InstanceError:
        for name, tasks in unconnected.items():
            for task in tasks:
                with blame(("workflows", name, "tasks", task.name), "a task that some GPU can run"):
                    _check_jobs(cluster, models, [Workflow(name, (task,))], restrictions)


def blame_initial(
    cluster: Cluster, models: Sequence[MLModel], restrictions: Restrictions, initial: Sequence[InitialResidency]
) -> None:
    """Refuse initial residencies that contradict the cluster, the restrictions or each other.

    Raises
    ------
    FieldError
        At the first entry that does not go with those before it.
    """
    try:
        check_initial(initial, cluster, models, restrictions)
    except InstanceError:
        for position in range(len(initial)):
            where = ("options", "initial_residency", position)
            with blame(where, "a set of models that can be there together"):
                check_initial(initial[: position + 1], cluster, models, restrictions)


def _alone(task: Task) -> Task:
    """Return a task that depends on no other; a request as the smallest there can be."""
    return replace(task, inputs=()) if task.stream is None else Task.of_stream(task.name, task.stream, Tokens(1, 1, 1))


def _check_jobs(
    cluster: Cluster, models: Sequence[MLModel], workflows: Iterable[Workflow], restrictions: Restrictions
) -> None:
    """Refuse one job of each workflow if there is no instance with them."""
    jobs = tuple(Job(workflow, 0) for workflow in workflows)
    Instance(cluster, tuple(models), jobs, restrictions=restrictions)
