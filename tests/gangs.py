"""Windows with runs on several GPUs for tests: made by hand, random ones, and an oracle that tries all."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np

from tests.instances import MB, gpu, instance, network
from tests.random_instances import delay_between
from truenorth.models import Cluster, Edge, Instance, Job, Link, Mode, Objective, Task, Workflow
from truenorth.models.cluster import ALWAYS, FOREVER, Availability
from truenorth.models.instance import InstanceError
from truenorth.models.objective import charges


def servers(
    count: int, held: int, rule: str | tuple[tuple[int, ...], ...] = "aligned", kinds: str | None = None
) -> Cluster:
    """Return servers of as many GPUs each; `kinds` has a letter for each server."""
    gpus = [
        gpu(server * held + place, server, id=f"s{server}/g{place}", kind=(kinds or "A" * count)[server])
        for server in range(count)
        for place in range(held)
    ]
    return Cluster(tuple(gpus), network(), rule)


def job(gpus: int, runtime_us: int | Mapping[str, int], release_us: int = 0, across: Fraction | int = 1) -> Job:
    """Return a job of one run."""
    runtimes = {"*": runtime_us} if isinstance(runtime_us, int) else dict(runtime_us)
    run = Task("run", runtimes, gpus=gpus, across=Fraction(across))
    return Job(Workflow(f"{gpus} GPUs for {runtimes}", (run,)), release_us)


def moldable(
    runtimes_us: Mapping[int, int | Mapping[str, int]], release_us: int = 0, across: Fraction | int = 1
) -> Job:
    """Return a job of one run that chooses how many GPUs it takes; run times by number of GPUs."""
    modes = [
        Mode(
            gpus,
            {"*": runtime_us} if isinstance(runtime_us, int) else dict(runtime_us),
            Fraction(1 if gpus == 1 else across),
        )
        for gpus, runtime_us in runtimes_us.items()
    ]
    return Job(Workflow(f"modes {runtimes_us} {across}", (Task.of_modes("run", modes),)), release_us)


def window(*jobs: Job, on: Cluster) -> Instance:
    """Return a window of jobs, in order of release."""
    return instance(sorted(jobs, key=lambda each: each.release_us), on=on)


def draw(rng: random.Random) -> Instance:
    """Return a random window of up to five jobs on up to three servers."""
    count = rng.choice((1, 2, 2, 3))
    held = rng.choice((2, 3, 4)) if count < 3 else 2
    kinds = "".join(rng.choice("AAB") for _ in range(count))
    cluster = servers(count, held, rng.choice(("aligned", "any", "any")), kinds)
    sizes = [size for size in (1, 2, 3, 4, 2 * held) if size <= held or (size % held == 0 and kinds == "A" * count)]
    sizes = [size for size in sizes if size <= count * held]
    jobs = []
    for _ in range(rng.randint(2, 5)):
        size, runtimes = rng.choice(sizes), {"A": rng.randint(1, 6), "B": rng.randint(1, 6)}
        across = rng.choice((Fraction(1), Fraction(3, 2))) if size > 1 else Fraction(1)
        made = job(size, runtimes, rng.choice((0, 0, 1, 2, 4)), across)
        jobs.append(Job(made.workflow, made.release_us, Fraction(rng.randint(1, 3)), rng.randint(1, 9)))
    return window(*jobs, on=cluster)


def draw_moldable(rng: random.Random) -> Instance:
    """Return a random window of up to four jobs, most of which choose how many GPUs they take."""
    count = rng.choice((1, 2, 2))
    held = rng.choice((2, 3, 4))
    kinds = "".join(rng.choice("AAB") for _ in range(count))
    cluster = servers(count, held, rng.choice(("aligned", "any", "any")), kinds)
    sizes = [*range(1, held + 1), *([2 * held] if kinds == "AA" else [])]
    jobs = []
    for _ in range(rng.randint(2, 4)):
        chosen = rng.sample(sizes, rng.randint(1, min(3, len(sizes))))
        times = {size: {"A": rng.randint(1, 8), "B": rng.randint(1, 8)} for size in chosen}
        if rng.random() < 0.3:  # a mode may be for one kind alone
            times[rng.choice(chosen)].pop("B")
        across = rng.choice((Fraction(1), Fraction(3, 2)))
        made = moldable(times, rng.choice((0, 0, 1, 2, 4)), across)
        jobs.append(Job(made.workflow, made.release_us, Fraction(rng.randint(1, 3)), rng.randint(1, 9)))
    try:
        return window(*jobs, on=cluster)
    except InstanceError:  # a job that nothing can run
        return draw_moldable(rng)


def draw_network(rng: random.Random, cluster: Cluster) -> Cluster:
    """Return the cluster with a random network: free, dear, dearer or cheaper inside a server, staged or not."""
    within = rng.choice((None, None, Link(0, None), Link(rng.randint(0, 3), Fraction(2 * MB))))
    made = network(rng.randint(0, 2), rng.choice((None, MB, MB)), within, rng.random() < 0.2)
    return replace(cluster, network=made)


def draw_workflows(rng: random.Random, most: int = 5, moldable: bool = False) -> Instance:
    """Return a random window of up to five tasks that wait for each other, some of them on several GPUs."""
    count, held = rng.choice(((1, 2), (1, 3), (1, 4), (2, 2), (2, 2), (2, 3)))
    kinds = "".join(rng.choice("AAB") for _ in range(count))
    cluster = draw_network(rng, servers(count, held, rng.choice(("aligned", "any")), kinds))
    sizes = [*range(1, held + 1), *([2 * held] if kinds == "AA" else [])]
    jobs, left = list[Job](), rng.randint(2, most)
    while left > 0:
        tasks = [_draw_step(rng, index, sizes, moldable) for index in range(min(left, rng.choice((1, 2, 2, 3))))]
        left -= len(tasks)
        ingress = rng.choice((None, *range(count)))
        workflow = Workflow(f"w{len(jobs)}", tuple(tasks))
        delays = {"t1": rng.randint(0, 3)} if len(tasks) > 1 and tasks[1].inputs and rng.random() < 0.2 else None
        due_us, weight = rng.randint(1, 12), Fraction(rng.randint(1, 3))
        jobs.append(Job(workflow, rng.choice((0, 0, 1, 2, 4)), weight, due_us, ingress, delays_us=delays))
    try:
        made = window(*jobs, on=cluster)
    except InstanceError:  # a job that nothing can run
        return draw_workflows(rng, most, moldable)
    return made if made.gangs and any(made.inputs) else draw_workflows(rng, most, moldable)


def _draw_step(rng: random.Random, index: int, sizes: list[int], moldable: bool) -> Task:
    """Return a task that may wait for those before it."""
    edges = tuple(
        Edge(f"t{before}", rng.choice((0, 1, rng.randint(2, 5))), delay_us=rng.choice((0, 0, 0, 2)))
        for before in range(index)
        if rng.random() < 0.7
    )
    chosen = rng.sample(sizes, rng.randint(1, min(2, len(sizes)))) if moldable else [rng.choice(sizes)]
    across = rng.choice((Fraction(1), Fraction(3, 2)))
    modes = [
        Mode(size, {"A": rng.randint(1, 6), "B": rng.randint(1, 6)}, Fraction(1 if size == 1 else across))
        for size in chosen
    ]
    given = 0 if edges else rng.choice((0, 0, rng.randint(1, 4)))
    return replace(Task.of_modes(f"t{index}", modes), inputs=edges, input_bytes=given)


def travel_us(instance: Instance, size_bytes: int, source: int, target: int) -> int:
    """Return how long an output takes between two places: nothing if they share a GPU, else the least of any pair."""
    cluster, (here, there) = instance.cluster, (instance.places.gpus[place] for place in (source, target))
    if set(here) & set(there):
        return 0
    pairs = ((cluster.gpus[a], cluster.gpus[b]) for a in here for b in there)
    return min(cluster.network.transfer_us(size_bytes, a, b, a.server == b.server) for a, b in pairs)


_ByTask = Mapping[int, int] | Sequence[int]


def ready_us(instance: Instance, task: int, place: int, place_of: _ByTask, end_us: _ByTask) -> int:
    """Return when a task's job is released and its inputs have reached a place, given where what precedes it ran."""
    job = instance.jobs[int(instance.task_job[task])]
    given = job.workflow.tasks[task - int(instance.job_first_task[instance.task_job[task]])]
    there = {instance.cluster.gpus[index].server for index in instance.places.gpus[place]}
    travels = given.input_bytes and job.ingress is not None and job.ingress not in there
    latest = job.release_us + (instance.cluster.network.input_us(given.input_bytes) if travels else 0)
    first = int(instance.job_first_task[instance.task_job[task]])
    for edge in given.inputs:
        before = first + job.workflow.position[edge.source]
        sent_us = end_us[before] + delay_between(instance, before, task)
        latest = max(latest, sent_us + travel_us(instance, edge.size_bytes, place_of[before], place))
    return latest


def draw_away(rng: random.Random, choosing: bool = False, apart: bool = False) -> Instance:
    """Return a random window with some run on several GPUs, whose servers come and go, some for good.

    Parameters
    ----------
    choosing
        Whether tasks choose how many GPUs they take.
    apart
        Whether GPUs may come and go by themselves.
    """
    made = (draw_moldable if choosing else draw)(rng)
    if not made.gangs:
        return draw_away(rng, choosing, apart)
    by_server = {server: _random_availability(rng) for server in sorted(set(made.gpu_server.tolist()))}
    gpus = tuple(
        replace(gpu, available=_random_availability(rng) if apart and rng.random() < 0.3 else by_server[gpu.server])
        for gpu in made.cluster.gpus
    )
    return replace(made, cluster=replace(made.cluster, gpus=gpus))


def _random_availability(rng: random.Random) -> Availability:
    if rng.random() < 0.3:
        return ALWAYS
    instants = sorted(rng.sample(range(1, 16), rng.choice((1, 2, 3, 3, 4, 5))))
    if rng.random() < 0.7:
        instants.insert(0, 0)
    if len(instants) % 2:
        instants.append(FOREVER)
    return Availability.of(zip(instants[::2], instants[1::2], strict=True))


def held_to(job: Job, mode: Mode) -> Job:
    """Return a job whose task has no choice; its slowdown divides as before."""
    task = Task.of_modes("run", [mode])
    workflow = Workflow(f"{job.workflow.name} {mode.gpus}", (task,), ideal_us=job.workflow.critical_path_us)
    return replace(job, workflow=workflow)


def rigid(instance: Instance) -> Iterator[Instance]:
    """Yield the window with every task held to one of its modes, for each choice."""
    for modes in product(*(job.workflow.tasks[0].choices for job in instance.jobs)):
        held = tuple(held_to(job, mode) for job, mode in zip(instance.jobs, modes, strict=True))
        try:
            yield replace(instance, jobs=held)
        except InstanceError:  # no place for some mode
            continue


def moldable_optimum(instance: Instance, objective: Objective) -> Fraction:
    """Return the least value of any plan: the least over every choice of modes."""
    return min(optimum(each, objective) for each in rigid(instance))


def moldable_least(instance: Instance, objective: Objective) -> Fraction | None:
    """Return the same, None if there is no plan."""
    found = (least(each, objective) for each in rigid(instance))
    return min((value for value in found if value is not None), default=None)


def optimum(instance: Instance, objective: Objective) -> Fraction:
    """Return the least value of any plan; there is one."""
    found = least(instance, objective)
    assert found is not None
    return found


def _end_at(instance: Instance, task: int, place: int, ready: int) -> int:
    """Return the first end of a run at a place where it is ready from then on; FOREVER if GPUs go before."""
    gpus, run_us = instance.places.gpus[place], instance.run_time(task, place)
    there = [instance.cluster.gpus[gpu].available for gpu in gpus]
    comes = sorted({begin for available in there for begin, _ in available.intervals if begin > ready})
    for start in (ready, *comes):
        if all(available.holds(start, start + run_us) for available in there):
            return start + run_us
    return FOREVER


def _ends(
    instance: Instance, task: int, place_of: Mapping[int, int], end_us: list[int], free_us: list[int]
) -> Iterator[tuple[int, int]]:
    """Yield the places where a task can run behind what is known of others, each with its first end there."""
    for place in instance.eligible_places(task):
        free = (free_us[index] for index in instance.places.gpus[place])
        end = _end_at(instance, task, place, max(ready_us(instance, task, place, place_of, end_us), *free))
        if end < FOREVER:
            yield place, end


def least(instance: Instance, objective: Objective) -> Fraction | None:
    """Return the least value of any plan, None without one: every order, every place, each run as early as it can be.

    Some optimal plan begins its runs in the order of their starts, each at its release, when its last input arrives or
    when GPUs of it fall free or come. What precedes a run starts before it. A run lies inside an interval of every GPU
    of its place.
    """
    tasks, charged = range(instance.n_tasks), charges(objective, instance)
    release_us = instance.job_release_us[instance.task_job].tolist()
    before = [{source for source, _ in instance.task_inputs(task)} for task in tasks]
    free_us = [0] * instance.n_gpus
    place_of: dict[int, int] = {}
    best: list[Fraction] = []

    def value() -> Fraction:
        return charged.value(np.maximum.reduceat(np.array(end_us, np.int64), instance.job_first_task[:-1]))

    def extend(left: frozenset[int]) -> None:
        for task in left:
            end_us[task] = alone[task]
        lowest = value()
        if best and lowest >= best[0]:
            return
        if not left:
            best[:] = [lowest]
        for task in sorted(task for task in left if left.isdisjoint(before[task])):
            for place, end in _ends(instance, task, place_of, end_us, free_us):
                gpus = instance.places.gpus[place]
                were_free = [free_us[index] for index in gpus]
                end_us[task], place_of[task] = end, place
                for index in gpus:
                    free_us[index] = end
                extend(left - {task})
                for index, free in zip(gpus, were_free, strict=True):
                    free_us[index] = free
                for other in left:
                    end_us[other] = alone[other]

    alone = [
        min(_end_at(instance, task, place, release_us[task]) for place in instance.eligible_places(task))
        for task in tasks
    ]
    if FOREVER in alone:
        return None
    end_us = alone.copy()
    extend(frozenset(tasks))
    return best[0] if best else None
