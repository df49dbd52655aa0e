"""Replay: carry out a plan, keeping its placement, orders, loads and evictions, each as early as reality allows.

The plan becomes a graph of operations. Every operation waits for others that ended, in the plan, no later than it
started; so the graph has no cycle, a late operation delays only what depends on it, and without noise no operation
starts later than planned. Evictions happen at the start of the load that takes their room (normal form R7).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise

from executor.errors import PolicyError
from executor.policy import Policy
from executor.site import Site
from models import Instance, Timeline, check
from models.metrics import serving_residency


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
    instance.require_one_at_a_time("the replay of a plan")
    violations = check(instance, timeline)
    if violations:
        raise PolicyError(f"the plan cannot be carried out; violations: {len(violations)}, first: {violations[0]}")
    return lambda: Replay(instance, timeline)


class Replay(Policy):
    """Carries out a plan that passed the checker; made by `replay`.

    It is clairvoyant as its plan is: it may load before any job arrives. It cannot deadlock, with or without noise.
    """

    def __init__(self, instance: Instance, timeline: Timeline) -> None:
        self._plan = timeline
        self._gpu: list[int] = timeline.gpu.tolist()
        self._operations = _Operations(instance, timeline)
        self._possible = [key for key, count in enumerate(self._operations.waiting) if not count]
        self._under_way: dict[int, int] = {}

    def begin(self, site: Site) -> None:
        """Leave out the initial residencies that the plan does without."""
        super().begin(site)
        kept = {(residency.gpu, residency.model) for residency in self._plan.residencies if residency.initial}
        for gpu, memory in enumerate(site.memory):
            for model in [model for model in memory.residents if (gpu, model) not in kept]:
                site.leave_out(gpu, model)

    def released(self, job: int) -> None:
        """Send the tasks of a job where the plan has them."""
        for task in self.site.job_tasks[job]:
            self.site.assign(task, self._gpu[task])

    def arrived(self, task: int, missing: int) -> None:
        """Free a task of its wait for inputs."""
        if not missing:
            self._free(task)

    def finished(self, task: int, gpu: int) -> None:
        """Free what waited for a run."""
        self._done(task)

    def loaded(self, model: int, gpu: int) -> None:
        """Free what waited for a load."""
        self._done(self._under_way.pop(gpu))

    def act(self, gpus: Sequence[int]) -> None:
        """Carry out every operation that waits for nothing."""
        while self._possible:
            operation = self._possible.pop()
            if operation < len(self._gpu):
                self.site.start(operation)
            elif operation in self._operations.eviction_of:
                residency = self._plan.residencies[self._operations.eviction_of[operation]]
                self.site.evict(residency.gpu, residency.model)
                self._done(operation)
            else:
                self._load(operation)

    def _load(self, operation: int) -> None:
        residencies = self._plan.residencies
        loaded = residencies[self._operations.load_of[operation]]
        evict = [residencies[other].model for other in self._operations.evicted_by[operation]]
        self._under_way[loaded.gpu] = operation
        self.site.load(loaded.gpu, loaded.model, evict, loaded.slot)

    def _done(self, operation: int) -> None:
        for other in self._operations.then[operation]:
            self._free(other)

    def _free(self, operation: int) -> None:
        self._operations.waiting[operation] -= 1
        if not self._operations.waiting[operation]:
            self._possible.append(operation)


class _Operations:
    """The runs (numbered as the tasks), loads and separate evictions of a plan, and who waits for whom.

    Attributes
    ----------
    waiting, then
        Per operation: how many things it waits for (a run also for its inputs), and which operations it frees.
    load_of, eviction_of
        Residency of an operation that is a load, or an eviction on its own.
    evicted_by
        Residencies that end with a load.
    """

    def __init__(self, instance: Instance, plan: Timeline) -> None:
        self._instance, self._plan = instance, plan
        self.waiting = [1] * instance.n_tasks
        self.then: list[list[int]] = [[] for _ in range(instance.n_tasks)]
        self.load_of: dict[int, int] = {}
        self.eviction_of: dict[int, int] = {}
        self.evicted_by: defaultdict[int, list[int]] = defaultdict(list)
        self._loads_on: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        self._users = self._uses()
        self._load_key = self._loads()
        self._engines()
        for residency in range(len(plan.residencies)):
            for user in self._users[residency]:
                if residency in self._load_key:
                    self._order(self._load_key[residency], user)
            if plan.residencies[residency].end_us is not None:
                self._eviction(residency)

    def _order(self, before: int, after: int) -> None:
        self.then[before].append(after)
        self.waiting[after] += 1

    def _operation(self) -> int:
        self.waiting.append(0)
        self.then.append([])
        return len(self.waiting) - 1

    def _uses(self) -> list[list[int]]:
        """Return the tasks that use each residency."""
        users: list[list[int]] = [[] for _ in self._plan.residencies]
        task, model = self._instance.model_uses()
        serving = serving_residency(self._instance, self._plan, task, model)
        for user, residency in zip(task.tolist(), serving.tolist(), strict=True):
            users[residency].append(user)
        return users

    def _loads(self) -> dict[int, int]:
        """Give every load a number; return it by residency."""
        for residency, stay in enumerate(self._plan.residencies):
            if not stay.initial:
                self.load_of[self._operation()] = residency
        return {residency: operation for operation, residency in self.load_of.items()}

    def _engines(self) -> None:
        """Keep the order of runs and of loads on every GPU; with overlap off they are one order."""
        lanes: defaultdict[tuple[int, bool], list[tuple[int, int, int]]] = defaultdict(list)
        one_lane = not self._instance.overlap_loads
        for run in self._plan.placements:
            lanes[run.gpu, one_lane].append((run.start_us, run.end_us, run.task))
        for residency, operation in self._load_key.items():
            stay = self._plan.residencies[residency]
            lanes[stay.gpu, True].append((stay.load_start_us, stay.ready_us, operation))
            self._loads_on[stay.gpu].append((stay.load_start_us, stay.ready_us, operation))
        for loads in self._loads_on.values():
            loads.sort()
        for lane in lanes.values():
            for (_, _, before), (_, _, after) in pairwise(sorted(lane)):
                self._order(before, after)

    def _eviction(self, residency: int) -> None:
        """Tie the end of a residency to the load that follows it on its GPU, after everything that uses it."""
        stay = self._plan.residencies[residency]
        if self._instance.models[stay.model].name in self._instance.restrictions.max_replicas:
            self._separate_eviction(residency)
            return
        loads = self._loads_on[stay.gpu]
        following = bisect_left(loads, (stay.end_us or 0,))
        if following == len(loads):
            return  # nothing takes its room: in normal form it stays
        load = loads[following][2]
        self.evicted_by[load].append(residency)
        for user in self._users[residency]:
            self._order(user, load)

    def _separate_eviction(self, residency: int) -> None:
        """Evict a model of limited replicas as soon as its users have ended: other GPUs may wait for that."""
        eviction = self._operation()
        self.eviction_of[eviction] = residency
        for before in [*self._users[residency], *filter(None, [self._load_key.get(residency)])]:
            self._order(before, eviction)
        stay = self._plan.residencies[residency]
        for other, load in self._load_key.items():
            later = self._plan.residencies[other]
            concerned = later.gpu == stay.gpu or later.model == stay.model
            if concerned and later.load_start_us >= (stay.end_us or 0):
                self._order(eviction, load)
