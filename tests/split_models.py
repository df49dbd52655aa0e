"""Models of runs on several GPUs for tests: random windows, the rules a second time, and an oracle that tries all.

None of it reads run or load times from the instance's tables, nor shares code with the checker.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import chain, combinations
from typing import NamedTuple

from tests.gangs import draw_network, ready_us, servers
from tests.instances import instance
from tests.random_instances import delay_between
from truenorth.models import Cluster, Edge, Instance, Job, Mode, Objective, Residency, Task, Timeline, Workflow
from truenorth.models.instance import InstanceError
from truenorth.models.restrictions import Restrictions


def window(*jobs: Job, models: dict[str, int], held: int = 2, rule: str = "aligned", memory: int = 10) -> Instance:
    """Return a window on one server of GPUs that load a byte per microsecond."""
    return on_servers(servers(1, held, rule), jobs, models, memory)


def on_servers(cluster: Cluster, jobs: Iterable[Job], models: dict[str, int], memory: int) -> Instance:
    """Return a window on GPUs of so much memory that load a byte per microsecond."""
    on = replace(cluster, gpus=tuple(replace(gpu, memory_bytes=memory) for gpu in cluster.gpus))
    return instance(sorted(jobs, key=lambda job: job.release_us), models, on)


def job(gpus: int, runtime_us: int, *models: str, release_us: int = 0, copies: bool = False, memory: int = 0) -> Job:
    """Return a job of one run that needs models."""
    run = Task("run", {"*": runtime_us}, models, memory_bytes=memory, gpus=gpus, copies=copies)
    return Job(Workflow(f"{gpus} GPUs {runtime_us} {models} {copies} {memory}", (run,)), release_us)


def draw(rng: random.Random, most_jobs: int = 3) -> Instance:
    """Return a random window of two or three jobs, some of which need models, on two or three GPUs."""
    held, rule = rng.choice(((2, "aligned"), (2, "aligned"), (3, "any")))
    models = {name: rng.randint(1, 6) for name in "ab"[: rng.randint(1, 2)]}
    jobs = []
    for number in range(rng.randint(2, most_jobs if held < 3 else 2)):
        sizes = rng.sample(range(1, held + 1), rng.choice((1, 1, 2)))
        modes = [Mode(size, {"*": rng.randint(1, 4)}, copies=size > 1 and rng.random() < 0.3) for size in sizes]
        needed = tuple(rng.sample(sorted(models), rng.choice((0, 1, 1, min(2, len(models))))))
        run = Task.of_modes("run", modes, rng.choice((0, 0, 1)), needed)
        weight, deadline = Fraction(rng.randint(1, 3)), rng.randint(1, 12)
        jobs.append(Job(Workflow(f"w{number}", (run,)), rng.choice((0, 0, 2, 4)), weight, deadline))
    try:
        return window(*jobs, models=models, held=held, rule=rule, memory=rng.randint(4, 8))
    except InstanceError:  # a run that has room nowhere
        return draw(rng, most_jobs)


def limited(rng: random.Random, made: Instance) -> Instance:
    """Return a window with limits on replicas, in which models may stay for ever."""
    most = {model.name: rng.randint(1, 2) for model in made.models if rng.random() < 0.6}
    return replace(made, restrictions=Restrictions(max_replicas=most, no_swaps=rng.random() < 0.5))


def draw_workflows(rng: random.Random, most: int = 3) -> Instance:
    """Return a random window of two to `most` tasks that wait for each other, need models and take several GPUs."""
    count, held = rng.choice(((1, 2), (1, 2), (1, 3), (2, 1), (2, 2)))
    cluster = draw_network(rng, servers(count, held, rng.choice(("aligned", "any"))))
    sizes = [*range(1, held + 1), *([2 * held] if count == 2 else [])]
    models = {name: rng.randint(1, 6) for name in "ab"}
    jobs, left = list[Job](), rng.randint(2, most if count * held == 2 else max(2, most - 1))
    while left > 0:
        steps = [_draw_step(rng, index, sizes, models) for index in range(min(left, rng.choice((1, 2, 2, 3))))]
        left -= len(steps)
        weight, due_us, ingress = Fraction(rng.randint(1, 3)), rng.randint(1, 12), rng.choice((None, *range(count)))
        workflow = Workflow(f"w{len(jobs)}", tuple(steps))
        jobs.append(Job(workflow, rng.choice((0, 0, 2, 4)), weight, due_us, ingress))
    try:
        made = on_servers(cluster, jobs, models, rng.randint(4, 8))
    except InstanceError:  # a run that has room nowhere
        return draw_workflows(rng, most)
    return made if made.gangs and any(made.inputs) and any(made.needs) else draw_workflows(rng, most)


def _draw_step(rng: random.Random, index: int, sizes: list[int], models: dict[str, int]) -> Task:
    """Return a task that may wait for those before it, and may need models."""
    edges = tuple(
        Edge(f"t{before}", rng.choice((0, 1, rng.randint(2, 5))), delay_us=rng.choice((0, 0, 0, 2)))
        for before in range(index)
        if rng.random() < 0.8
    )
    chosen = rng.sample(sizes, rng.choice((1, 1, min(2, len(sizes)))))
    modes = [Mode(size, {"*": rng.randint(1, 5)}, copies=size > 1 and rng.random() < 0.3) for size in chosen]
    needed = tuple(rng.sample(sorted(models), rng.choice((0, 1, 1, 2))))
    given = 0 if edges else rng.choice((0, 0, rng.randint(1, 4)))
    made = Task.of_modes(f"t{index}", modes, rng.choice((0, 0, 1)), needed)
    return replace(made, inputs=edges, input_bytes=given)


NO_PLAN = 10**7
"""More than any plan of these windows is worth."""

_Pair = tuple[int, int]
"""A model and a place."""


class _Stay(NamedTuple):
    """A model at a place: whole on one GPU, or a part on each of several."""

    model: int
    place: int
    ready_us: int
    used: bool = False


class _State(NamedTuple):
    """What has been decided by an instant."""

    left: frozenset[int]
    runs: frozenset[tuple[int, int, int]]  # end, place, task
    stays: frozenset[_Stay]
    begun: frozenset[tuple[int, int, int]] = frozenset()  # end, place, task; of jobs that have tasks left


class _World:
    """An instance by its tasks, GPUs and places alone."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.places = instance.places.gpus
        self.tasks = [task for job in instance.jobs for task in job.workflow.tasks]
        self.job_of = [number for number, job in enumerate(instance.jobs) for _ in job.workflow.tasks]
        self.names = [model.name for model in instance.models]

    def part(self, model: int, place: int) -> int:
        """Return what each GPU of a place holds of a model."""
        return math.ceil(Fraction(self.instance.models[model].weight_bytes, len(self.places[place])))

    def load_us(self, model: int, place: int) -> int:
        """Return how long the slowest GPU takes."""
        part = self.part(model, place)
        gpus = (self.instance.cluster.gpus[gpu] for gpu in self.places[place])
        return max(math.ceil(part / gpu.load_bandwidth * 1_000_000) + gpu.load_overhead_us for gpu in gpus)

    def mode(self, task: int, place: int) -> Mode | None:
        """Return the mode of a task at a place."""
        size = len(self.places[place])
        return next((mode for mode in self.tasks[task].choices if mode.gpus == size), None)

    def run_us(self, mode: Mode, place: int) -> int:
        """Return how long a mode runs at a place; no mode here is slower across servers."""
        kind = self.instance.cluster.gpus[self.places[place][0]].kind
        return mode.runtime_us.get(kind, mode.runtime_us.get("*", 0))

    def wanted(self, task: int, place: int) -> list[tuple[int, int]]:
        """Return the models that a run needs, each with where."""
        mode = self.mode(task, place)
        split = mode is not None and not mode.copies
        here = [place] if split else list(self.places[place])
        return [(self.names.index(name), where) for name in self.tasks[task].models for where in here]

    def touch(self, one: int, other: int) -> bool:
        """Say whether two places share a GPU."""
        return not set(self.places[one]).isdisjoint(self.places[other])


def broken_rules(instance: Instance, timeline: Timeline) -> set[str]:
    """Return the rules that a timeline of placed tasks breaks: a look at every GPU in every microsecond."""
    world, broken = _World(instance), set[str]()
    last = int(timeline.end_us.max()) + max([1, *(r.ready_us + 1 for r in timeline.residencies)])
    for stay in timeline.residencies:
        took = stay.ready_us - stay.load_start_us
        if stay.load_start_us < 0 or took != world.load_us(stay.model, stay.gpu) or _end(stay) < stay.ready_us:
            broken.add("R1")
    for task, run in enumerate(timeline.placements):
        mode = world.mode(task, run.gpu)
        took = run.end_us - run.start_us
        release_us = instance.jobs[world.job_of[task]].release_us
        if mode is None or took != world.run_us(mode, run.gpu) or run.start_us < release_us:
            broken.add("T1")
        there_us = ready_us(instance, task, run.gpu, timeline.place.tolist(), timeline.end_us.tolist())
        if run.start_us < max(there_us, release_us):
            broken.add("T2" if run.start_us >= release_us else "T1")
        for model, where in world.wanted(task, run.gpu):
            here = [stay for stay in timeline.residencies if (stay.model, stay.gpu) == (model, where)]
            for instant in range(run.start_us, run.end_us):
                if not any(stay.ready_us <= instant < _end(stay) for stay in here):
                    broken.add("R3")
    for instant in range(last):
        for gpu in range(instance.n_gpus):
            broken |= _broken_at(world, timeline, instant, gpu)
    return broken


def _broken_at(world: _World, timeline: Timeline, instant: int, gpu: int) -> set[str]:
    stays = [
        stay
        for stay in timeline.residencies
        if gpu in world.places[stay.gpu] and stay.load_start_us <= instant < _end(stay)
    ]
    runs = [run for run in timeline.placements if gpu in world.places[run.gpu] and run.start_us <= instant < run.end_us]
    held = sum(world.part(stay.model, stay.gpu) for stay in stays)
    held += sum(world.tasks[run.task].memory_bytes for run in runs)
    found = {
        "R1": sum(instant < stay.ready_us for stay in stays) > 1,
        "R2": held > world.instance.cluster.gpus[gpu].memory_bytes,
        "R4": len({stay.model for stay in stays}) < len(stays),
        "T3": len(runs) > 1,
    }
    return {rule for rule, is_broken in found.items() if is_broken}


def _end(stay: Residency) -> int:
    return 1 << 60 if stay.end_us is None else stay.end_us


def _costs(instance: Instance, objective: Objective) -> tuple[Callable[[int, int], Fraction], bool]:
    """Return what a job costs by its end, and whether costs add up: the definitions of section 3."""
    jobs, total = instance.jobs, sum(job.weight for job in instance.jobs)
    ideal = [_ideal_us(instance, number) for number in range(len(jobs))]

    def cost(job: int, end_us: int) -> Fraction:
        given, flow = jobs[job], Fraction(end_us - jobs[job].release_us)
        late = max(Fraction(0), flow - given.deadline_us) if given.deadline_us is not None else Fraction(0)
        return {
            Objective.MEAN_LATENCY: flow / len(jobs),
            Objective.MEAN_SLOWDOWN: flow / ideal[job] / len(jobs),
            Objective.WEIGHTED_LATENCY: given.weight * flow / total,
            Objective.MAKESPAN: Fraction(end_us),
            Objective.WEIGHTED_TARDINESS: given.weight * late,
            Objective.LATE_JOBS: given.weight * (late > 0),
            Objective.MAX_SLOWDOWN: flow / ideal[job],
        }[objective]

    return cost, objective not in (Objective.MAKESPAN, Objective.MAX_SLOWDOWN)


def _ideal_us(instance: Instance, job: int) -> int:
    """Return the longest chain of a job, each task in its fastest mode; tasks stand behind what they wait for."""
    workflow, first = instance.jobs[job].workflow, int(instance.job_first_task[job])
    ends = dict[str, int]()
    for number, task in enumerate(workflow.tasks, first):
        before = (
            ends[edge.source] + delay_between(instance, first + workflow.position[edge.source], number)
            for edge in task.inputs
        )
        ends[task.name] = max(before, default=0) + min(min(mode.runtime_us.values()) for mode in task.choices)
    return max(ends.values())


def optimum(instance: Instance, objective: Objective) -> Fraction:
    """Return the least value of any plan: whenever something is over any runs, loads and evictions, or none of them.

    More than NO_PLAN where an operator's limits allow none. Whatever begins at another instant could begin earlier. A
    model leaves only where something begins that needs its room, or the model itself in another form, or one replica
    less of it; it is loaded only for a run that is left and only where that can be.
    """
    search = _Search(instance, objective)
    return search.least(_State(frozenset(search.able), frozenset(), frozenset()), 0)


class _Search:
    """All that can be done from a state on."""

    def __init__(self, instance: Instance, objective: Objective) -> None:
        self.world = world = _World(instance)
        self.cost, self.adds = _costs(instance, objective)
        self.releases = [instance.jobs[job].release_us for job in world.job_of]
        self.memory = [gpu.memory_bytes for gpu in instance.cluster.gpus]
        self.able = {
            task: [place for place in range(len(world.places)) if world.mode(task, place)]
            for task in range(len(world.tasks))
        }
        self.of_use = [
            {pair for place in places for pair in world.wanted(task, place)} for task, places in self.able.items()
        ]
        self._known: dict[tuple[_State, int], Fraction] = {}

    def least(self, state: _State, now: int) -> Fraction:
        """Return the least cost of what is left."""
        if not state.left:
            return Fraction(0)
        if (state, now) in self._known:
            return self._known[state, now]
        found = [self.least(after, now) for after in self.loads(state, now)]
        for after, charged in self.runs(state, now):
            rest = self.least(after, now)
            found.append(charged + rest if self.adds else max(charged, rest))
        coming = [run[0] for run in state.runs] + [stay.ready_us for stay in state.stays] + self.releases
        coming += [
            ready_us for task in state.left for place in self.able[task] if (ready_us := self.ready(state, task, place))
        ]
        later = min((instant for instant in coming if instant > now), default=None)
        if later is not None:
            runs = frozenset(run for run in state.runs if run[0] > later)
            stays = frozenset(stay if stay.ready_us > later else stay._replace(ready_us=0) for stay in state.stays)
            found.append(self.least(_State(state.left, runs, stays, state.begun), later))
        self._known[state, now] = min(found, default=Fraction(10**9))
        return self._known[state, now]

    def runs(self, state: _State, now: int) -> Iterator[tuple[_State, Fraction]]:
        """Yield the states after some run has begun, with what its end costs."""
        for task in state.left:
            for place in self.able[task] if self.releases[task] <= now else ():
                there_us = self.ready(state, task, place)
                if there_us is None or there_us > now:
                    continue
                wanted, mode = set(self.world.wanted(task, place)), self.world.mode(task, place)
                ready = {(stay.model, stay.place) for stay in state.stays if stay.ready_us <= now}
                taken = any(self.world.touch(place, there) for _, there, _ in state.runs)
                if mode is None or taken or not wanted <= ready:
                    continue
                end, held = now + self.world.run_us(mode, place), self.world.tasks[task].memory_bytes
                for after in self.without(state, place, held, wanted):
                    stays = {s._replace(used=s.used or (s.model, s.place) in wanted) for s in after.stays}
                    run, left = (end, place, task), state.left - {task}
                    begun, charged = self.note(state.begun | {run}, left, task)
                    yield _State(left, state.runs | {run}, frozenset(stays), begun), charged

    def note(
        self, begun: frozenset[tuple[int, int, int]], left: frozenset[int], task: int
    ) -> tuple[frozenset[tuple[int, int, int]], Fraction]:
        """Return which tasks to remember, and what the job of the last one costs if none of its tasks is left."""
        job_of = self.world.job_of
        if any(job_of[other] == job_of[task] for other in left):
            return begun, Fraction(0)
        own = {run for run in begun if job_of[run[2]] == job_of[task]}
        return begun - own, self.cost(job_of[task], max(end for end, _, _ in own))

    def ready(self, state: _State, task: int, place: int) -> int | None:
        """Return when all that a task waits for is at a place; None if some of it has not begun."""
        before = {source for source, _ in self.world.instance.task_inputs(task)}
        if before & state.left:
            return None
        ends, places = {run[2]: run[0] for run in state.begun}, {run[2]: run[1] for run in state.begun}
        return ready_us(self.world.instance, task, place, places, ends)

    def loads(self, state: _State, now: int) -> Iterator[_State]:
        """Yield the states after some load has begun."""
        for model, place in set().union(*(self.of_use[task] for task in state.left)):
            touching = [stay for stay in state.stays if self.world.touch(stay.place, place)]
            busy = any(stay.ready_us > now for stay in touching)
            if busy or any((stay.model, stay.place) == (model, place) for stay in touching):
                continue
            size, ready_us = self.world.part(model, place), now + self.world.load_us(model, place)
            for after in self.without(state, place, size, set(), model):
                yield after._replace(stays=after.stays | {_Stay(model, place, ready_us)})

    def without(
        self, state: _State, place: int, size: int, kept: set[_Pair], gone_model: int | None = None
    ) -> Iterator[_State]:
        """Yield the states after every choice of evictions that leaves room on a place, and none in vain."""
        used = {pair for _, there, task in state.runs for pair in self.world.wanted(task, there)} | kept
        # What was never used need not have been loaded.
        leaving = [
            stay
            for stay in (() if self.world.instance.restrictions.no_swaps else state.stays)
            if stay.used
            and (stay.model, stay.place) not in used
            and (self.world.touch(stay.place, place) or stay.model == gone_model)
        ]
        enough: list[set[_Stay]] = []
        for gone in map(set, chain.from_iterable(combinations(leaving, count) for count in range(len(leaving) + 1))):
            after = state._replace(stays=state.stays - gone)
            same = any(stay.model == gone_model and self.world.touch(stay.place, place) for stay in after.stays)
            room = all(self.free(after, gpu) >= size for gpu in self.world.places[place])
            room &= gone_model is None or self.allows(after, gone_model)
            if room and not same and not any(fewer <= gone for fewer in enough):
                enough.append(gone)
                yield after

    def allows(self, state: _State, model: int) -> bool:
        """Say whether the operator allows one more residency of a model, whatever its place."""
        most = self.world.instance.restrictions.max_replicas.get(self.world.names[model])
        return most is None or sum(stay.model == model for stay in state.stays) < most

    def free(self, state: _State, gpu: int) -> int:
        """Return the memory of a GPU that nothing holds."""
        places = self.world.places
        held = sum(self.world.part(stay.model, stay.place) for stay in state.stays if gpu in places[stay.place])
        held += sum(self.world.tasks[task].memory_bytes for _, place, task in state.runs if gpu in places[place])
        return self.memory[gpu] - held
