"""Random tiny instances that together exercise every rule: what solvers, bounds and oracles are compared on."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

from truenorth.models import (
    GPU,
    WHOLE,
    BatchClass,
    Cluster,
    Edge,
    InitialResidency,
    Instance,
    InstanceError,
    Job,
    Link,
    MLModel,
    Network,
    Restrictions,
    Task,
    Workflow,
)
from truenorth.models.cluster import FOREVER, Availability

MB = 1_000_000


def random_instance(rng: random.Random, max_tasks: int = 5, restricted: bool = False) -> Instance:
    """Return a tiny random instance; `restricted` adds an operator's limits.

    Bytes or slots, one or two kinds, shared servers, several models per task, edge and input bytes, initial residency,
    overlap on or off.
    """
    while True:
        try:
            return _draw(rng, max_tasks, restricted)
        except InstanceError:
            continue  # drew a task that fits nowhere, or an initial residency that does not fit


def random_serving_instance(rng: random.Random, max_tasks: int = 5, restricted: bool = False) -> Instance:
    """Return a random instance in which tasks come in batch classes, take shares and hold memory of their own."""
    while True:
        plain = random_instance(rng, max_tasks, restricted)
        on, initial = plain.cluster, plain.initial
        if not restricted and rng.random() < 0.6:  # where GPUs are scarce, batches and shares matter
            on, initial = Cluster(on.gpus[:1], on.network), tuple(r for r in initial if r.gpu == 0)
        names = [model.name for model in plain.models]
        classes = [_random_class(rng, f"c{index}", names) for index in range(rng.choice((1, 1, 2)))]
        served = {
            id(workflow): Workflow(workflow.name, tuple(_random_service(rng, task, classes) for task in workflow.tasks))
            for workflow in plain.workflows
        }
        by_index = [served[id(workflow)] for workflow in plain.workflows]
        jobs = tuple(
            replace(job, workflow=by_index[index])
            for job, index in zip(plain.jobs, plain.job_workflow.tolist(), strict=True)
        )
        try:
            return replace(plain, cluster=on, initial=initial, jobs=jobs)
        except InstanceError:
            continue  # drew demands that fit nowhere


def with_delays(rng: random.Random, instance: Instance, most_us: int = 12) -> Instance:
    """Return an instance in which time passes on some edges, in some jobs another one (rule E5)."""

    def some() -> int:
        return rng.choice((0, 0, 1, rng.randint(1, most_us), most_us))

    def delayed(task: Task) -> Task:
        return replace(task, inputs=tuple(replace(edge, delay_us=some()) for edge in task.inputs))

    def own(job: Job) -> Job:
        followers = [task.name for task in job.workflow.tasks if task.inputs and rng.random() < 0.5]
        return replace(job, delays_us={name: some() for name in followers}) if followers else job

    made = instance.with_workflows(lambda workflow: workflow.with_tasks(delayed))
    return replace(made, jobs=tuple(map(own, made.jobs)))


def delay_between(instance: Instance, before: int, task: int) -> int:
    """Return what passes between a task and one that comes after it, by what its job and its workflow say."""
    job = instance.jobs[instance.task_job[task]]
    name, source = instance.task_name(task), instance.task_name(before)
    edge = next(edge for edge in job.workflow.tasks[job.workflow.position[name]].inputs if edge.source == source)
    own: int = (job.delays_us or {}).get(name, edge.delay_us)
    return own


def with_absences(rng: random.Random, instance: Instance) -> Instance:
    """Return an instance whose GPUs come and go at random, some of them for good; in a server outputs take no time.

    Of what is resident at first only what lies on a GPU that is there stays.
    """
    absences = [_random_availability(rng) for _ in instance.cluster.gpus]
    gpus = tuple(replace(gpu, available=there) for gpu, there in zip(instance.cluster.gpus, absences, strict=True))
    initial = tuple(r for r in instance.initial if gpus[r.gpu].available.at(0))
    return replace(instance, cluster=Cluster(gpus, Network(instance.cluster.network.between, Link())), initial=initial)


def _random_availability(rng: random.Random) -> Availability:
    instants = sorted(rng.sample(range(31), rng.choice((1, 2, 3, 4, 5))))
    if rng.random() < 0.5:
        instants[0] = 0
    if len(instants) % 2:
        instants.append(FOREVER)
    return Availability.of(zip(instants[::2], instants[1::2], strict=True))


def _random_class(rng: random.Random, name: str, models: list[str]) -> BatchClass:
    def table() -> dict[int, int]:
        times = [rng.randint(1, 5)]
        for _ in range(3):
            times.append(times[-1] + rng.choice((0, 0, 0, 1, 2)))
        return {size: times[size - 1] for size in rng.choice(((1, 2), (1, 3), (1, 2, 3), (1, 2, 4)))}

    runtime = rng.choice(({"*": table()}, {"A": table(), "B": table()}))
    needs = tuple(rng.sample(models, min(len(models), rng.choice((0, 1, 1, 1, 2)))))
    return BatchClass(name, runtime, needs, _random_share(rng), rng.choice((0, 0, 1, 2)))


def _random_share(rng: random.Random) -> int:
    return rng.choice((WHOLE, WHOLE, WHOLE // 2, WHOLE // 4, 3_333, 6_000))


def _random_service(rng: random.Random, task: Task, classes: list[BatchClass]) -> Task:
    if rng.random() < 0.7:
        return Task.of_class(task.name, rng.choice(classes), task.inputs, task.input_bytes)
    return replace(task, share=_random_share(rng), memory_bytes=rng.choice((0, 0, 1, 2)))


def _draw(rng: random.Random, max_tasks: int, restricted: bool) -> Instance:
    on = _random_cluster(rng)
    names = [f"m{index}" for index in range(rng.randint(1, 3))]
    sizes = {name: rng.randint(1, 7) for name in names}
    workflows = [_random_workflow(rng, f"w{index}", names, max_tasks) for index in range(rng.randint(1, 2))]
    own = random.Random(repr(workflows))
    servers: list[int | None] = [None]
    if own.random() < 1 / 3:  # jobs name their ingress and bring bytes along
        workflows = [_fed(own, workflow) for workflow in workflows]
        servers += sorted({gpu.server for gpu in on.gpus})
    jobs: list[Job] = []
    budget = max_tasks
    for release in sorted(rng.choice((0, 0, rng.randint(0, 12))) for _ in range(3)):
        workflow = rng.choice(workflows)
        budget -= len(workflow.tasks)
        if jobs and budget < 0:
            break
        deadline = rng.choice((None, rng.randint(1, 20)))
        weight = Fraction(rng.choice(("1", "2", "0.5")))
        jobs.append(Job(workflow, release, weight, deadline, own.choice(servers)))
    initial = _random_initial(rng, on, len(names))
    limits = _random_restrictions(rng, names, workflows, len(on.gpus)) if restricted else Restrictions()
    listed = tuple(MLModel(name, size) for name, size in sizes.items())
    return Instance(on, listed, tuple(jobs), rng.random() < 0.7, initial, limits, tuple(workflows))


def _fed(rng: random.Random, workflow: Workflow) -> Workflow:
    """Return a workflow whose first tasks get bytes."""
    tasks = (task if task.inputs else replace(task, input_bytes=rng.randint(0, 4)) for task in workflow.tasks)
    return Workflow(workflow.name, tuple(tasks))


def _random_cluster(rng: random.Random) -> Cluster:
    count, shared = rng.randint(1, 3), rng.random() < 0.3
    equal = rng.random() < 0.5
    gpus = []
    for index in range(count):
        source = random.Random(rng.random() if not equal else count)
        slots = tuple(source.randint(2, 7) for _ in range(source.randint(1, 2))) if source.random() < 0.4 else ()
        gpus.append(
            GPU(
                f"s0/g{index}" if shared else f"s{index}/g0",
                0 if shared else index,
                source.choice("AB"),
                sum(slots) or source.randint(4, 12),
                Fraction(source.choice((MB, 2 * MB, MB // 2))),
                slots,
                source.choice((0, 0, 1)),
            )
        )
    link, inner = (Link(rng.randint(0, 2), rng.choice((None, Fraction(MB)))) for _ in range(2))
    return Cluster(tuple(gpus), Network(link, inner, rng.random() < 0.3))


def _random_workflow(rng: random.Random, name: str, models: list[str], max_tasks: int) -> Workflow:
    tasks: list[Task] = []
    for index in range(rng.randint(1, min(3, max_tasks))):
        needs = rng.sample(models, min(len(models), rng.choice((0, 1, 1, 1, 2))))
        runtime = rng.choice(({"*": rng.randint(1, 6)}, {"A": rng.randint(1, 6), "B": rng.randint(1, 6)}))
        inputs = tuple(Edge(before.name, rng.randint(0, 3)) for before in tasks if rng.random() < 0.6)
        tasks.append(Task(f"t{index}", runtime, tuple(needs), inputs))
    return Workflow(name, tuple(tasks))


def _random_initial(rng: random.Random, on: Cluster, n_models: int) -> tuple[InitialResidency, ...]:
    if rng.random() < 0.6:
        return ()
    index = rng.randrange(len(on.gpus))
    slot = 0 if on.gpus[index].slots else None
    return (InitialResidency(index, rng.randrange(n_models), slot),)


def _random_restrictions(rng: random.Random, models: list[str], workflows: list[Workflow], n_gpus: int) -> Restrictions:
    def some() -> frozenset[int]:
        return frozenset(rng.sample(range(n_gpus), rng.randint(1, n_gpus)))

    return Restrictions(
        {rng.choice(models): some()} if rng.random() < 0.4 else {},
        {rng.choice(workflows).name: some()} if rng.random() < 0.4 else {},
        {rng.choice(models): rng.randint(1, 2)} if rng.random() < 0.4 else {},
        rng.random() < 0.3,
    )
