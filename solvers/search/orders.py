"""Plans of requests of any kind: orders are changed, and what a GPU then does is served anew by the rules.

Simulated annealing from the best plan that is known. A queue falls into *turns*, requests of one class behind each
other: where models swap, requests go to other turns of their class, and parts of turns pass the turn beside them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import inf, log
from random import Random
from typing import TypeVar

import numpy as np

from truenorth.models.instance import NONE
from truenorth.models.stream_tables import StreamTables
from truenorth.models.timeline import ServedRequests, Timeline, end_with_gpu, file_order
from truenorth.solvers.clock import MOVE_S
from truenorth.solvers.incumbents import PlanOrigin
from truenorth.solvers.result import Search
from truenorth.solvers.search.decoder_tables import tabulate
from truenorth.solvers.search.serving import FAR, Decisions, Served, Window, serve

_Entry = TypeVar("_Entry")
_HOT, _COLD = 0.03, 0.001
"""First and last temperature, as multiples of a job's average share of the cost."""
_NEAR = 8
"""Places that a near move goes at most."""
_OFFER_EVERY_S = 1.0
_MOVES_OF_ONE = 6
"""A request that is served anew counts as so many moves of compiled search, about what it takes."""


@dataclass(slots=True)
class Change:
    """What comes in place of what a plan decides; made, it is what was there before."""

    queues: dict[int, list[int]] = field(default_factory=dict)
    holds: dict[int, int] = field(default_factory=dict)
    limits: dict[int, int] = field(default_factory=dict)
    eager: dict[int, bool] = field(default_factory=dict)


def _exchange(rows: list[_Entry], new: dict[int, _Entry]) -> None:
    """Put what is new in place of what is there, and the other way round."""
    for at in new:
        rows[at], new[at] = new[at], rows[at]


class _Costs:
    """What jobs cost that end at a time, as compiled search has it."""

    def __init__(self, search: Search) -> None:
        tables = tabulate(search.instance, search.objective, idle_first=False)
        self._linear, self._step = tables.linear.tolist(), tables.step.tolist()
        self._peak, self._due = tables.peak.tolist(), tables.due_us.tolist()
        self._peaked = not search.objective.is_sum

    def of(self, job: int, end_us: int) -> float:
        """Return what a job costs, the worst one aside."""
        beyond = max(0, end_us - self._due[job])
        return float(self._linear[job] * beyond + (self._step[job] if beyond else 0.0))

    def worst(self, ends_us: Sequence[int]) -> float:
        """Return what the worst job costs besides; 0 where none does."""
        if not self._peaked:
            return 0.0
        return float(max(p * max(0, end - due) for p, end, due in zip(self._peak, ends_us, self._due, strict=True)))


class Orders:
    """A plan under way: what is decided, and what comes of it.

    Attributes
    ----------
    total
        What it costs; infinite if somebody is never served.
    """

    def __init__(self, search: Search, streams: StreamTables, timeline: Timeline) -> None:
        instance = search.instance
        self._instance, self._streams, self._window = instance, streams, Window(instance, streams)
        queue: list[list[int]] = [[] for _ in range(instance.n_gpus)]
        for task in file_order(instance, timeline).tolist():
            queue[int(timeline.place[task])].append(task)
        said = timeline.served
        holds = [0] * instance.n_tasks if said is None else said.not_before_us.tolist()
        limits = [0 if said is None else said.limits.get(gpu, 0) for gpu in range(instance.n_gpus)]
        self._plan = Decisions(queue, holds, limits, [False] * instance.n_gpus)
        self._place: list[int] = timeline.place.tolist()
        self._ends = [FAR] * instance.n_tasks
        self._served = [Served() for _ in queue]
        self._job: list[int] = instance.task_job.tolist()
        self._first: list[int] = instance.job_first_task.tolist()
        self._costs = _Costs(search)
        self._cost, self._job_end = [0.0] * len(instance.jobs), [0] * len(instance.jobs)
        self.total = inf
        able = {gpu for gpu, each in enumerate(instance.cluster.gpus) if not each.slots}
        self._able = [able & set(instance.eligible_gpus(task)) for task in range(instance.n_tasks)]
        self._most = dict(instance.restrictions.max_replicas)
        self.served_anew = 0
        if all(gpu in able for gpu in self._place):
            self.try_change(Change(queues=dict(enumerate(queue))), inf)

    # -- what comes of a plan -------------------------------------------------------------------------------------

    def try_change(self, change: Change, allowed: float) -> bool:
        """Make a change if that costs at most so much more; say whether it was made."""
        self._exchange(change)
        gpus = sorted({*change.queues, *change.limits, *change.eager, *(self._place[task] for task in change.holds)})
        if not self._window.apart:
            gpus = list(range(self._instance.n_gpus))
        served = (
            None if self._has_too_many_replicas() else serve(self._window, self._plan, gpus, self._place, self._ends)
        )
        self.served_anew += sum(len(self._plan.queue[gpu]) for gpu in gpus)
        if served is not None:
            jobs = {self._job[task] for gpu in gpus for task in self._plan.queue[gpu]}
            ends = list(self._job_end)
            for job in jobs:
                ends[job] = max(self._ends[self._first[job] : self._first[job + 1]])
            cost = {job: self._costs.of(job, ends[job]) for job in jobs}
            before = self.total if self.total < inf else 0.0
            grown = sum(cost[job] - self._cost[job] for job in sorted(jobs))
            grown += self._costs.worst(ends) - self._costs.worst(self._job_end)
            if grown <= allowed:
                self.total = before + grown
                self._job_end = ends
                for job, each in cost.items():
                    self._cost[job] = each
                for gpu, new in zip(gpus, served, strict=True):
                    self._served[gpu] = new
                return True
        self._exchange(change)
        for gpu in gpus:
            for task, end in zip(self._plan.queue[gpu], self._served[gpu].end, strict=False):
                self._ends[task] = end
        return False

    def _exchange(self, change: Change) -> None:
        """Put what a change says in place of what is decided, and the other way round."""
        plan = self._plan
        _exchange(plan.queue, change.queues)
        _exchange(plan.not_before, change.holds)
        _exchange(plan.limit, change.limits)
        _exchange(plan.eager, change.eager)
        for gpu in change.queues:
            for task in plan.queue[gpu]:
                self._place[task] = gpu

    def _has_too_many_replicas(self) -> bool:
        """Say whether more GPUs serve requests of a model than may hold it."""
        for name, most in self._most.items():
            model = next(at for at, each in enumerate(self._instance.models) if each.name == name)
            holding = (any(model in self._window.needs[task] for task in queue) for queue in self._plan.queue)
            if sum(holding) > most:
                return True
        return False

    def timeline(self) -> Timeline:
        """Return the plan."""
        instance, streams, n_tasks = self._instance, self._streams, self._instance.n_tasks
        start, first, end, cached = (np.zeros(n_tasks, np.int64) for _ in range(4))
        for queue, served in zip(self._plan.queue, self._served, strict=True):
            start[queue], first[queue], end[queue] = served.start, served.first, served.end
            cached[queue] = served.cached
        is_request = np.array(self._window.stream) != NONE
        at = np.zeros(n_tasks, np.int64)
        for queue in self._plan.queue:
            at[queue] = np.arange(len(queue))
        order = np.full(n_tasks, NONE, np.int64)
        order[np.lexsort((at, start))] = np.arange(n_tasks)
        grows, caches = bool(streams.grows.any()), streams.prefixes is not None
        top = [self._most_seats(gpu) for gpu in range(instance.n_gpus)]
        held = ServedRequests(
            np.where(is_request, first, NONE),
            np.where(is_request, np.minimum(self._plan.not_before, start), 0),
            np.where(is_request, streams.output, 0),
            {gpu: most for gpu, most in enumerate(self._plan.limit) if 0 < most < top[gpu]},
            np.where(is_request, order, NONE) if grows or caches else None,
            (),
            cached if caches else None,
        )
        stays = [end_with_gpu(instance, stay) for served in self._served for stay in served.stays]
        place = np.array(self._place, np.int64)
        return Timeline(place, start, end, tuple(stays), served=held)

    def _most_seats(self, gpu: int) -> int:
        here = (row[self._window.gpu_class[gpu]] for row in self._streams.speeds)
        return max((speed.seats for speed in here if speed is not None), default=0)

    # -- moves ----------------------------------------------------------------------------------------------------

    def propose(self, random: Random) -> Change | None:
        """Draw a change; None if what was drawn is none."""
        task, gpus = random.randrange(self._instance.n_tasks), self._instance.n_gpus
        drawn = random.random()
        gpu = self._place[task]
        turns = self._turns(gpu)
        if drawn < 0.3 and len(turns) > 1:
            return self._pass(random, gpu, turns, task)
        if drawn < 0.55 and len(turns) > 1:
            return self._join_turn(random, gpu, turns, task)
        if drawn < 0.7 and gpus > 1:
            return self._send(random, task) if random.random() < 0.3 else self._swap(random, task)
        if drawn < 0.78:
            return self._hold(random, task)
        if drawn < 0.8:
            return self._limit(random, task)
        if drawn < 0.81:
            return Change(eager={gpu: not self._plan.eager[gpu]})
        if drawn < 0.84:
            return self._sort(random, gpu, turns, task)
        return self._shift(random, gpu, turns, task)

    def _turns(self, gpu: int) -> list[tuple[int, int]]:
        """Return the turns of a GPU: from which place on, and up to which."""
        found, at = [], 0
        stream = self._window.stream
        for _, turn in groupby(self._plan.queue[gpu], key=lambda task: stream[task]):
            beyond = at + sum(1 for _ in turn)
            found.append((at, beyond))
            at = beyond
        return found

    def _where(self, gpu: int, turns: Sequence[tuple[int, int]], task: int) -> tuple[int, int]:
        """Return the place of a task in its queue, and the number of its turn."""
        place = self._plan.queue[gpu].index(task)
        return place, next(number for number, (_, beyond) in enumerate(turns) if place < beyond)

    def _pass(self, random: Random, gpu: int, turns: Sequence[tuple[int, int]], task: int) -> Change | None:
        """Have the end of a turn, or all of it, pass the next one, or its beginning the one before."""
        queue, (place, number) = self._plan.queue[gpu], self._where(gpu, turns, task)
        begin, beyond = turns[number]
        whole = random.random() < 0.3
        if random.random() < 0.5:
            if number + 1 == len(turns):
                return None
            cut, after = begin if whole else place, turns[number + 1][1]
            return Change({gpu: queue[:cut] + queue[beyond:after] + queue[cut:beyond] + queue[after:]})
        if not number:
            return None
        cut, before = beyond if whole else place + 1, turns[number - 1][0]
        return Change({gpu: queue[:before] + queue[begin:cut] + queue[before:begin] + queue[cut:]})

    def _join_turn(self, random: Random, gpu: int, turns: Sequence[tuple[int, int]], task: int) -> Change | None:
        """Have a request join another turn of its class, mostly the next or the one before."""
        queue, stream = self._plan.queue[gpu], self._window.stream
        place, number = self._where(gpu, turns, task)
        step = random.choice((-1, 1))
        own = [n for n, (begin, _) in enumerate(turns) if stream[queue[begin]] == stream[task]]
        to = own.index(number) + step * (1 + int(3 * random.random() ** 3))
        if not 0 <= to < len(own):
            return None
        begin, beyond = turns[own[to]]
        put = random.randint(begin, beyond)
        left = queue[:place] + queue[place + 1 :]
        put -= put > place
        return Change({gpu: [*left[:put], task, *left[put:]]})

    def _shift(self, random: Random, gpu: int, turns: Sequence[tuple[int, int]], task: int) -> Change | None:
        """Have a request go to another place of its turn, nearer ones more often."""
        queue, (place, number) = self._plan.queue[gpu], self._where(gpu, turns, task)
        begin, beyond = turns[number]
        reach = max(1, int((beyond - begin) * random.random() ** 3))
        put = min(max(place + random.randint(-reach, reach), begin), beyond - 1)
        if put == place:
            return None
        left = queue[:place] + queue[place + 1 :]
        return Change({gpu: [*left[:put], task, *left[put:]]})

    def _sort(self, random: Random, gpu: int, turns: Sequence[tuple[int, int]], task: int) -> Change:
        """Have the requests of a turn join in order of release, or the shortest or the longest first."""
        queue, (_, number) = self._plan.queue[gpu], self._where(gpu, turns, task)
        begin, beyond = turns[number]
        release, output = self._instance.job_release_us, self._streams.output
        kind = random.randrange(3)

        def key(each: int) -> int:
            return int(output[each] * (2 * kind - 3) if kind else release[self._job[each]])

        return Change({gpu: [*queue[:begin], *sorted(queue[begin:beyond], key=key), *queue[beyond:]]})

    def _send(self, random: Random, task: int) -> Change | None:
        """Have a request, and all that are tied to it, go to another GPU."""
        gpu = random.randrange(self._instance.n_gpus)
        return None if gpu == self._place[task] else self._moved([(task, gpu)], random)

    def _swap(self, random: Random, task: int) -> Change | None:
        """Have a request and one of about the same time on another GPU change their places."""
        gpu, other = self._place[task], random.randrange(self._instance.n_gpus)
        if other == gpu or not self._plan.queue[other]:
            return None
        at = self._place_at(other, self._start_of(task)) + random.randint(-_NEAR, _NEAR)
        partner = self._plan.queue[other][min(max(at, 0), len(self._plan.queue[other]) - 1)]
        return self._moved([(task, other), (partner, gpu)], random)

    def _moved(self, moves: Iterable[tuple[int, int]], random: Random) -> Change | None:
        """Return the change in which tasks, with all that are tied to them, go to GPUs, each near its time."""
        change = Change()
        for task, gpu in moves:
            template = int(self._instance.task_template[task])
            tied = [task + offset for offset in self._streams.together[template]]
            if not all(gpu in self._able[each] for each in tied):
                return None
            source = self._place[task]
            start = [self._start_of(each) for each in tied]
            for changed in (source, gpu):
                change.queues.setdefault(changed, list(self._plan.queue[changed]))
            for each, start_us in zip(tied, start, strict=True):
                change.queues[source].remove(each)
                self._put(change.queues[gpu], gpu, each, start_us, random)
        return change

    def _put(self, queue: list[int], gpu: int, task: int, start_us: int, random: Random) -> None:
        """Put a task into a queue near a time: into a turn of its class, if there is one near."""
        at = min(self._place_at(gpu, start_us) + random.randint(-2, 2), len(queue))
        at, stream = max(at, 0), self._window.stream
        for by in range(len(queue)):
            for near in (at + by, at - 1 - by):
                if 0 <= near < len(queue) and stream[queue[near]] == stream[task]:
                    queue.insert(near, task)
                    return
        queue.insert(at, task)

    def _start_of(self, task: int) -> int:
        gpu = self._place[task]
        return self._served[gpu].start[self._plan.queue[gpu].index(task)]

    def _place_at(self, gpu: int, now: int) -> int:
        """Return the first place of a queue whose task starts at a time or later."""
        return bisect_left(self._served[gpu].start, now)

    def _hold(self, random: Random, task: int) -> Change | None:
        """Hold a request until another one of its GPU ends; or one that is held no more."""
        gpu, until = self._place[task], 0
        if not self._plan.not_before[task]:
            place = self._plan.queue[gpu].index(task)
            until = self._served[gpu].end[max(0, place - 1 - random.randrange(2 * _NEAR))]
            if until <= self._served[gpu].start[place]:
                return None
        return Change(holds={task: until})

    def _limit(self, random: Random, task: int) -> Change | None:
        """Let the GPU of a request serve a few more, or fewer, at once."""
        gpu = self._place[task]
        seats = self._most_seats(gpu)
        limit = min(max((self._plan.limit[gpu] or seats) + random.randint(-_NEAR, _NEAR), 1), seats)
        return None if limit == (self._plan.limit[gpu] or seats) else Change(limits={gpu: limit})


def improve(search: Search, seed: int, iterations: int | None) -> str | None:
    """Offer ever better plans until the time, or the work of so many moves, is used up; return why it did not begin."""
    instance = search.instance
    if instance.streams is None or search.timeline is None:
        return "there is no plan of requests to begin with"
    if search.clock.left_s < _MOVES_OF_ONE * MOVE_S * instance.n_tasks:
        return "serving all requests once more takes longer than the time that is left"
    orders = Orders(search, instance.streams, search.timeline)
    if orders.total == inf:
        return "its orders alone do not make a plan"
    random, share = Random(seed), orders.total / len(instance.jobs)  # noqa: S311
    search.offer(orders.timeline(), PlanOrigin.START)
    least, best, offered_s = orders.total, None, search.clock.elapsed_s
    begun_s, allowed_s, done = search.clock.elapsed_s, search.clock.left_s, 0
    while search.clock.left_s > 0 and not search.proved and (iterations is None or done < iterations):
        passed = (search.clock.elapsed_s - begun_s) / allowed_s if iterations is None else done / iterations
        temperature = share * _HOT * (_COLD / _HOT) ** passed
        before, change = orders.served_anew, orders.propose(random)
        made = change is not None and orders.try_change(change, -temperature * log(1 - random.random()))
        work = 1 + _MOVES_OF_ONE * (orders.served_anew - before)
        search.clock.count(work)
        done += work
        if made and orders.total < least:
            least, best = orders.total, orders.timeline()
        if best is not None and search.clock.elapsed_s - offered_s > _OFFER_EVERY_S:
            search.offer(best)
            best, offered_s = None, search.clock.elapsed_s
    if best is not None:
        search.offer(best)
    return None
