"""Replay: carry out a plan, keeping its placement, batches, order, loads and evictions, each as early as possible.

The plan becomes a graph of operations. Every operation waits for others that ended, in the plan, no later than it
started; so the graph has no cycle, a late operation delays only what depends on it, and without noise no operation
starts later than planned. Operations that wait for one another neither way lay beside each other in the plan, all of
them at some instant: whatever runs at once in reality has the compute and the memory that it had there. Evictions
happen at the start of the load or run that takes their room (normal form R7).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate
from math import inf
from typing import ClassVar, NamedTuple

from truenorth.executor.errors import PolicyError
from truenorth.executor.execution import NOWHERE
from truenorth.executor.policies.carrying_out import CarryingOut, Join, Load, Start, Step, leave_out_unused
from truenorth.executor.policy import Policy
from truenorth.executor.site import Site
from truenorth.models import NONE, Instance, Residency, Timeline, check
from truenorth.models.features import HELD, Feature, Features
from truenorth.models.metrics import model_uses, serving_residency
from truenorth.models.timeline import batch_leaders, file_order, is_eviction


def replay(instance: Instance, timeline: Timeline) -> Callable[[], Policy]:
    """Return what makes the replay of a plan, for `simulate`.

    Parameters
    ----------
    timeline
        Of this instance; a plan, or what happened in an earlier run.

    Raises
    ------
    PolicyError
        If the timeline breaks a rule, so that it cannot be carried out.
    """
    # What breaks a rule might wait for itself in a circle.
    if timeline.cuts:
        problem = f"{len(timeline.cuts)} runs of requests were cut as their GPU went"
        raise PolicyError(f"the timeline is no plan to carry out: {problem}; allowed is one in which all end in time")
    if timeline.preempted:
        problem = "a policy had requests preempted by their priority"
        raise PolicyError(f"the timeline is no plan to carry out: {problem}; allowed is to simulate that policy again")
    violations = check(instance, timeline)
    if violations:
        raise PolicyError(f"the plan cannot be carried out; violations: {len(violations)}, first: {violations[0]}")
    return lambda: Replay(instance, timeline)


class Replay(Policy):
    """Carries out a plan that passed the checker; made by `replay`.

    It is clairvoyant as its plan is: it may load before any job arrives. It cannot deadlock, with or without noise.
    Where servers come and go, each operation waits for the interval that the plan has it in. On GPUs that serve
    requests of streams operations begin in the planned order, and no request joins before its planned start.
    """

    supports: ClassVar[Features] = HELD | {Feature.GANGS, Feature.MODES, Feature.SPLITS, Feature.DELAYS}
    knows_paths: ClassVar[bool] = True
    foresees: ClassVar[bool] = True
    serves_streams: ClassVar[bool] = True
    knows_lengths = True

    def __init__(self, instance: Instance, timeline: Timeline) -> None:
        self._instance, self._plan = instance, timeline
        self._gpu: list[int] = timeline.place.tolist()
        self._operations = operations = _Operations(instance, timeline)
        loads = range(instance.n_tasks, len(operations.waiting))
        # Loads that wait for nothing may begin before any job is released.
        self._possible = [(operations.planned_us[key], key) for key in loads if not operations.waiting[key]]
        heapify(self._possible)
        self._called_us: set[int] = set()
        self._under_way: dict[int, int] = {}
        self._evicted: set[int] = set()
        self._free_now: set[int] = set()
        self._until_it_comes: defaultdict[int, list[int]] = defaultdict(list)
        self._until_it_goes: defaultdict[int, list[int]] = defaultdict(list)

    def begin(self, site: Site) -> None:
        """Leave out the initial residencies that the plan does without."""
        super().begin(site)
        if self._plan.served is not None:
            site.limits.update(self._plan.served.limits)
        leave_out_unused(site, self._plan)
        self._carrying = CarryingOut(site)

    def released(self, job: int) -> None:
        """Send the tasks of a job where the plan has them."""
        for task in self.site.job_tasks[job]:
            self.site.assign(task, self._gpu[task])

    def arrived(self, task: int, missing: int) -> None:
        """Free a task of its wait for inputs."""
        if not missing:
            self._free(self._operations.leader[task])

    def finished(self, task: int, gpu: int) -> None:
        """Free what waited for a run; a batch is known by its first task."""
        self._done(task)

    def loaded(self, model: int, gpu: int) -> None:
        """Free what waited for a load."""
        self._done(self._under_way.pop(gpu))

    def act(self, gpus: Sequence[int]) -> None:
        """Carry out every operation that waits for nothing, in the planned order."""
        site, operations, refused = self.site, self._operations, []
        in_order = dict.fromkeys(gpu for gpu in gpus if gpu in operations.in_order)
        # In planned order, whatever became possible first.
        while self._possible:
            planned_us, operation = heappop(self._possible)
            gpu = operations.gpu_of(operation)
            if gpu in operations.in_order and operation not in operations.eviction_of:
                self._free_now.add(operation)
                in_order[gpu] = None
            elif not site.stays and self._waits_for_gpu(operation, planned_us):
                continue
            elif operation in operations.eviction_of:
                if self._waits_for_time(planned_us):
                    refused.append((planned_us, operation))
                else:
                    self._evict(operation)
            elif not self._begins(operation, gpu):
                refused.append((planned_us, operation))  # two batches of one class start apart
        self._possible = refused
        for gpu in in_order:
            self._go_on(gpu)
        if site.queues:
            for gpu in gpus:
                self._queue_next(gpu)

    def _go_on(self, gpu: int) -> None:
        """Begin what is next in the planned order of a GPU, as far as it waits for nothing and there is room."""
        site, operations, queue = self.site, self._operations, self._operations.in_order[gpu]
        while queue and queue[0] in self._free_now:
            operation = queue[0]
            planned_us = operations.planned_us[operation]
            # Joining sooner than planned could delay requests that the plan has in the same iterations.
            if operations.joins(operation) and planned_us > site.now:
                site.wake(planned_us)
                return
            if self._waits_for_time(planned_us):
                return
            if not site.stays and self._waits_for_gpu(operation, planned_us):
                self._free_now.discard(operation)
                return
            if not self._begins(operation, gpu):
                return
            queue.popleft()

    def _waits_for_time(self, planned_us: int) -> bool:
        """Say whether an operation is too early, and have the policy called: room may matter at any time."""
        if not self._operations.keeps_times or planned_us <= self.site.now:
            return False
        if planned_us not in self._called_us:
            self._called_us.add(planned_us)
            self.site.wake(planned_us)
        return True

    def _begins(self, operation: int, gpu: int) -> bool:
        """Begin a load or a run if its GPU lets it now; say whether it has begun."""
        operations, residencies = self._operations, self._plan.residencies
        # The first of those that wait for the end of a residency evicts its model.
        leaving = [residencies[other] for other in operations.evicted_by[operation] if other not in self._evicted]
        if self._instance.gangs:
            return self._begins_together(operation, leaving)
        evict = [stay.model for stay in leaving if self.site.stays or is_eviction(self._instance, stay)]
        what: Step
        if operation in operations.load_of:
            loaded = residencies[operations.load_of[operation]]
            what = Load(loaded.model, loaded.slot, evict)
        elif operations.joins(operation):
            what = Join(operation, evict)
        else:
            what = Start(operations.members[operation], evict)
        if not self._carrying.begin(what, gpu):
            return False
        self._evicted.update(operations.evicted_by[operation])
        if operation in operations.load_of:
            self._under_way[gpu] = operation
        return True

    def _begins_together(self, operation: int, leaving: Sequence[Residency]) -> bool:
        """Begin a load or a run where some take several GPUs, if all GPUs of its place let it; say whether it has."""
        site, operations, place = self.site, self._operations, self._operations.gpu_of(operation)
        residency = operations.load_of.get(operation)
        going = {(gpu, stay.model) for stay in leaving for gpu in site.places[stay.gpu]}
        if residency is not None:
            model = self._plan.residencies[residency].model
            room_bytes = site.part_bytes(model, place)
            possible = all(
                site.state[gpu].refuse_copying() is None
                and (model not in site.memory[gpu].residents or (gpu, model) in going)
                for gpu in site.places[place]
            )
        else:
            room_bytes = site.task_bytes[site.template[operation]] if operation < len(site.gpu) else 0
            possible = operation < len(site.gpu) and not site.inputs_missing[operation]
            possible = possible and not site.lacks(operation, place)
            possible = possible and all(not site.state[gpu].runs for gpu in site.places[place])
            if not site.overlap_loads:
                possible = possible and all(site.state[gpu].loading == NOWHERE for gpu in site.places[place])
        if not possible or any(site.state[gpu].refuse_eviction(model) is not None for gpu, model in going):
            return False
        freed = dict.fromkeys(site.places[place], 0)
        for gpu, model in going:
            if gpu in freed:
                freed[gpu] += site.memory[gpu].held_bytes(model)
        if any(site.memory[gpu].free_bytes + freed[gpu] < room_bytes for gpu in freed):
            return False
        for stay in leaving:
            site.evict(stay.gpu, stay.model)
        if residency is None:
            site.start(operation)
        else:
            site.load(place, self._plan.residencies[residency].model)
            self._under_way[place] = operation
        self._evicted.update(operations.evicted_by[operation])
        return True

    def _queue_next(self, gpu: int) -> None:
        """Have the batch ready that waits for nothing but the end of what runs on a GPU."""
        site, operations = self.site, self._operations
        running = next(iter(site.state[gpu].runs), NOWHERE)
        freed = operations.then[running] if running != NOWHERE else []
        for operation in freed:
            members = operations.members.get(operation)  # a load has none
            # A member that is not released yet has no number on the site.
            if not members or members[-1] >= len(site.gpu) or self._gpu[operation] != gpu:
                continue
            # What has to evict first cannot be begun without a word.
            if operations.evicted_by.get(operation):
                continue
            inputs = sum(site.inputs_missing[member] > 0 for member in members)
            if operations.waiting[operation] == freed.count(operation) + inputs:
                site.queue(*members)
                return

    def _waits_for_gpu(self, operation: int, planned_us: int) -> bool:
        """Put an operation off until its GPU comes, or goes if that alone evicts a model; say whether it was.

        Raises
        ------
        PolicyError
            If the GPU has gone before it could begin.
        """
        operations, gpu = self._operations, self._operations.gpu_of(operation)
        if operation in operations.eviction_of:
            ending = self._plan.residencies[operations.eviction_of[operation]]
            if not is_eviction(self._instance, ending) and not self.site.is_away(gpu):
                self._until_it_goes[gpu].append(operation)
                return True
            return False
        for each in self.site.places[gpu]:
            interval = self._instance.cluster.gpus[each].available.at(planned_us)
            # Too late: no later interval is the one that it was planned for.
            if interval is None or self.site.now >= interval[1]:
                problem = f"GPU {each} went before what was planned at {planned_us} us"
                raise PolicyError(f"the plan cannot be carried out: {problem}")
            if self.site.goes_us[each] != interval[1]:
                self._until_it_comes[each].append(operation)
                return True
        return False

    def came(self, gpu: int) -> None:
        """Go on with what waited for a GPU."""
        for operation in self._until_it_comes.pop(gpu, ()):
            heappush(self._possible, (self._operations.planned_us[operation], operation))

    def went(self, gpu: int, tasks: Sequence[int]) -> None:
        """Free what waited for the models to go with their GPU.

        Raises
        ------
        PolicyError
            If it served a request that has not ended, as under noise may be: a plan has no other place for it.
        """
        if tasks:
            problem = f"GPU {gpu} went while it served task {tasks[0]}"
            raise PolicyError(f"the plan cannot be carried out: {problem}")
        for operation in self._until_it_goes.pop(gpu, ()):
            self._done(operation)

    def _evict(self, operation: int) -> None:
        """Carry out an eviction on its own."""
        residency = self._plan.residencies[self._operations.eviction_of[operation]]
        if self.site.stays or is_eviction(self._instance, residency):
            self.site.evict(residency.gpu, residency.model)
            self.site.touched[residency.gpu] = None
        self._done(operation)

    def _done(self, operation: int) -> None:
        for other in self._operations.then[operation]:
            self._free(other)

    def _free(self, operation: int) -> None:
        self._operations.waiting[operation] -= 1
        if not self._operations.waiting[operation]:
            heappush(self._possible, (self._operations.planned_us[operation], operation))


class _PlannedSpan(NamedTuple):
    """Since and until when the plan has something on a GPU: an operation, or a residency from its load on."""

    start_us: int
    end_us: float
    operation: int
    residency: int = NOWHERE


class _Operations:
    """The batches (numbered as their first tasks), loads and separate evictions of a plan, and who waits for whom.

    Attributes
    ----------
    leader, members
        The first task of each task's batch; the tasks of each batch by its first one.
    planned_us
        Per operation: when the plan begins it.
    waiting, then
        Per operation: how many things it waits for (a run also for its inputs), and which operations it frees.
    load_of, eviction_of
        Residency of an operation that is a load, or an eviction on its own.
    evicted_by
        Residencies that have ended when an operation begins and may still be there.
    in_order
        Per GPU that serves requests of streams: its loads and runs, in the order in which the plan begins them.
    keeps_times
        Whether loads and evictions keep their planned times: requests cache prefixes or take more KV while they run.
    """

    def __init__(self, instance: Instance, plan: Timeline) -> None:
        self._instance, self._plan = instance, plan
        streams = instance.streams
        self.keeps_times = streams is not None and (streams.prefixes is not None or bool(streams.grows.any()))
        self.leader: list[int] = batch_leaders(instance, plan).tolist()
        self.members: defaultdict[int, list[int]] = defaultdict(list)
        for task, leader in enumerate(self.leader):
            self.members[leader].append(task)
        self.planned_us: list[int] = plan.start_us.tolist()
        self.waiting = [len(self.members.get(task, ())) for task in range(instance.n_tasks)]
        self.then: list[list[int]] = [[] for _ in range(instance.n_tasks)]
        self.load_of: dict[int, int] = {}
        self.eviction_of: dict[int, int] = {}
        self.evicted_by: defaultdict[int, list[int]] = defaultdict(list)
        self.in_order: dict[int, deque[int]] = {}
        self._requests = frozenset(_requests(instance))
        self._users = self._uses()
        self._load_key = self._loads()
        self._eviction_key = self._separate_evictions()
        for residency, load in self._load_key.items():
            for user in self._users[residency]:
                self._order(load, user)
        self._sequences()
        self._engines()
        self._room()

    def gpu_of(self, operation: int) -> int:
        """Return the GPU of an operation."""
        if operation < self._instance.n_tasks:
            return int(self._plan.place[operation])
        residency = self.load_of.get(operation)
        return self._plan.residencies[self.eviction_of[operation] if residency is None else residency].gpu

    def joins(self, operation: int) -> bool:
        """Say whether an operation is a request of a stream, which joins what its GPU serves."""
        return operation in self._requests

    def _sequences(self) -> None:
        """Put loads and runs of GPUs with requests in one order; what has ended by then leaves before the next."""
        served = {int(self._plan.place[task]) for task in self._requests}
        # Requests that join at one instant do so in the order of the file.
        place = {task: at for at, task in enumerate(file_order(self._instance, self._plan).tolist())}
        begun: dict[int, list[tuple[int, int, int]]] = {gpu: [] for gpu in served}
        for residency, load in self._load_key.items():
            stay = self._plan.residencies[residency]
            if stay.gpu in served:
                # -1: a load comes before the runs of its instant, which may need it.
                begun[stay.gpu].append((stay.load_start_us, -1, load))
        for gpu, run in self._runs():
            if gpu in served:
                begun[gpu].append((run.start_us, place[run.operation], run.operation))
        for gpu, operations in begun.items():
            operations.sort()
            self.in_order[gpu] = deque(operation for _, _, operation in operations)
            instants = [planned_us for planned_us, _, _ in operations]
            for residency, stay in enumerate(self._plan.residencies):
                if stay.gpu == gpu and stay.end_us is not None:
                    after = bisect_left(instants, stay.end_us)
                    if after < len(operations):
                        self._end_before(residency, operations[after][2])

    def _order(self, before: int, after: int) -> None:
        self.then[before].append(after)
        self.waiting[after] += 1

    def _operation(self, planned_us: int) -> int:
        self.planned_us.append(planned_us)
        self.waiting.append(0)
        self.then.append([])
        return len(self.waiting) - 1

    def _uses(self) -> list[set[int]]:
        """Return the batches that use each residency."""
        users: list[set[int]] = [set() for _ in self._plan.residencies]
        task, model, where = model_uses(self._instance, self._plan)
        serving = serving_residency(self._instance, self._plan, task, model, where)
        for user, residency in zip(task.tolist(), serving.tolist(), strict=True):
            users[residency].add(self.leader[user])
        return users

    def _loads(self) -> dict[int, int]:
        """Give every load a number; return it by residency."""
        for residency, stay in enumerate(self._plan.residencies):
            if not stay.initial:
                self.load_of[self._operation(stay.load_start_us)] = residency
        return {residency: operation for operation, residency in self.load_of.items()}

    def _runs(self) -> Iterator[tuple[int, _PlannedSpan]]:
        """Yield GPU and span of every batch, of a run on several GPUs once for each."""
        for run in self._plan.placements:
            if self.leader[run.task] == run.task:
                for gpu in self._instance.places.gpus[run.gpu]:
                    yield gpu, _PlannedSpan(run.start_us, run.end_us, run.task)

    def _engines(self) -> None:
        """Keep the order of runs and of loads on every GPU; with overlap off they are one order."""
        lanes: defaultdict[tuple[int, bool], list[_PlannedSpan]] = defaultdict(list)
        one_lane = not self._instance.overlap_loads
        for gpu, run in self._runs():
            if gpu in self.in_order:
                continue
            lanes[gpu, one_lane].append(run)
        for residency, operation in self._load_key.items():
            stay = self._plan.residencies[residency]
            if stay.gpu in self.in_order:
                continue
            for gpu in self._instance.places.gpus[stay.gpu]:
                lanes[gpu, True].append(_PlannedSpan(stay.load_start_us, stay.ready_us, operation))
        for lane in lanes.values():
            for before, after in _successions(lane):
                self._order(before.operation, after.operation)

    def _room(self) -> None:
        """Let what takes room on a GPU, a load or a run that holds memory, wait for what had it before."""
        held: defaultdict[int, list[_PlannedSpan]] = defaultdict(list)
        for gpu, run in self._runs():
            if self._instance.template_memory[self._instance.task_template[run.operation]]:
                held[gpu].append(run)
        for residency, stay in enumerate(self._plan.residencies):
            since_us = -1 if stay.initial else stay.load_start_us
            until_us = inf if stay.end_us is None else stay.end_us
            load = self._load_key.get(residency, NOWHERE)
            for gpu in self._instance.places.gpus[stay.gpu]:
                held[gpu].append(_PlannedSpan(since_us, until_us, load, residency))
        for gpu, spans in held.items():
            for before, after in () if gpu in self.in_order else _successions(spans):
                if before.residency == NOWHERE:
                    self._order(before.operation, after.operation)
                else:
                    self._end_before(before.residency, after.operation)

    def _end_before(self, residency: int, operation: int) -> None:
        """Tie the end of a residency to an operation that takes its room, after everything that uses it."""
        if residency in self._eviction_key:
            self._order(self._eviction_key[residency], operation)
            return
        if residency in self.evicted_by[operation]:  # on another GPU of its place
            return
        self.evicted_by[operation].append(residency)
        for before in self._last_of(residency):
            self._order(before, operation)

    def _last_of(self, residency: int) -> set[int]:
        """Return what has to end before a residency does: its users, or its load if there are none."""
        load = {self._load_key[residency]} if residency in self._load_key else set()
        return self._users[residency] or load

    def _separate_evictions(self) -> dict[int, int]:
        """Evict a model of limited replicas as soon as its users have ended: other GPUs may wait for that.

        Where room matters at any time every model leaves when the plan has it leave, and its cache with it.
        """
        made: dict[int, int] = {}
        limited = self._instance.restrictions.max_replicas
        for residency, stay in enumerate(self._plan.residencies):
            if stay.end_us is None or not (self.keeps_times or self._instance.models[stay.model].name in limited):
                continue
            made[residency] = eviction = self._operation(stay.end_us)
            self.eviction_of[eviction] = residency
            for before in self._last_of(residency):
                self._order(before, eviction)
            for other, load in self._load_key.items():
                later = self._plan.residencies[other]
                if later.model == stay.model and later.load_start_us >= stay.end_us:
                    self._order(eviction, load)
        return made


def _requests(instance: Instance) -> list[int]:
    """Return the tasks that are requests of streams."""
    streams = instance.streams
    if streams is None:
        return []
    return [task for task, template in enumerate(instance.task_template.tolist()) if streams.template[template] != NONE]


def _successions(spans: Sequence[_PlannedSpan]) -> Iterator[tuple[_PlannedSpan, _PlannedSpan]]:
    """Yield the pairs of spans one of which ends before the other begins, without those that follow from others.

    Of what has ended when a span begins, only that counts which ended after the last of these had begun.
    """
    by_end = sorted(spans, key=lambda span: span.end_us)
    ends = [span.end_us for span in by_end]
    begun = list(accumulate((span.start_us for span in by_end), max))
    for span in spans:
        beyond = bisect_right(ends, span.start_us)
        if beyond:
            for before in by_end[bisect_right(ends, begun[beyond - 1]) : beyond]:
                yield before, span
