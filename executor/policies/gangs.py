"""Runs on several GPUs: one queue for the cluster, as in training clusters; jobs hold their GPUs from start to end.

FIFO, EASY backfill (Lifka, 1995), shortest job first, and least GPU-time first as Helios has it (QSSF, SC'21). Run
times are those that they are told.

A task waits for GPUs once all that it waits for has ended, and what has to pass behind that. It takes its GPUs when its
turn comes; its inputs travel then, if they have to, models are loaded, and it starts when both are there.

A task that chooses how many GPUs it takes starts where it would end first of what is free; who may reserve looks at
what becomes free, too, and waits for it if it would end sooner so.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from truenorth.executor.errors import PolicyError
from truenorth.executor.policies.line import Line, Waiting
from truenorth.executor.policies.options import duration, option, switch
from truenorth.executor.policies.place_loads import PlaceLoads
from truenorth.executor.policies.room import NO_PLACE, Room
from truenorth.executor.policy import Knows, Policy
from truenorth.executor.site import Site
from truenorth.models import NEVER
from truenorth.models.cluster import FOREVER
from truenorth.models.features import LOADED, NO_RULES, Features
from truenorth.models.instance import Ints

_FIRST = (-(1 << 62), 0)
"""Where those stand who are asked before all others."""
_NEVER_US = FOREVER
"""Later than any end."""


class Choice:
    """The places where tasks of some kinds can run.

    Attributes
    ----------
    place
        The places.
    of_gpu
        Per GPU: the places that it belongs to.
    """

    def __init__(self, site: Site, kinds: Sequence[int]) -> None:
        self.place = [place for place, kind in enumerate(site.place_class) if kind in kinds]
        members = [site.places[place] for place in self.place]
        self._gpus = np.array([gpu for gpus in members for gpu in gpus], np.int64)
        self._first = np.cumsum([0, *map(len, members[:-1])])
        self._server = np.array([site.gpu_server[gpus[0]] for gpus in members], np.int64)
        self._kind = np.array([site.place_class[place] for place in self.place], np.int64)
        self._spans = site.gpu_server[members[0][0]] != site.gpu_server[members[0][-1]]
        self.of_gpu: list[list[int]] = [[] for _ in range(site.n_gpus)]
        for place, gpus in zip(self.place, members, strict=True):
            for gpu in gpus:
                self.of_gpu[gpu].append(place)

    def open_first(self, free_us: Ints, site: Site, task: int) -> tuple[int, set[int]]:
        """Return when the first place is free, no sooner than now, and those that are free then.

        Where GPUs come and go a place has to stay until the task has ended; without one the time is _NEVER_US.
        """
        now, latest = site.now, np.maximum.reduceat(free_us[self._gpus], self._first)
        if not site.stays:
            ends = np.maximum(latest, now) + np.array(site.run_us[site.template[task]], np.int64)[self._kind]
            latest = np.where(ends <= self._stays_until(site), latest, _NEVER_US)
            if latest.min() >= _NEVER_US:
                return _NEVER_US, set()
        start_us = max(now, int(latest.min()))
        return start_us, {self.place[position] for position in np.flatnonzero(latest <= start_us).tolist()}

    def _stays_until(self, site: Site) -> Ints:
        """Return when the first GPU of each place goes."""
        stays: Ints = np.minimum.reduceat(np.array(site.goes_us, np.int64)[self._gpus], self._first)
        return stays

    def longest_us(self, free_us: Ints, site: Site) -> int:
        """Return for how long from now on some place, of those that are free, stays."""
        free = np.maximum.reduceat(free_us[self._gpus], self._first) <= site.now
        return int(np.where(free, self._stays_until(site), 0).max()) - site.now

    def open_until(self, of_gpu: Ints) -> Ints:
        """Return the least of what is so for each GPU of a place. Shape [instants, places]."""
        least: Ints = np.minimum.reduceat(of_gpu[:, self._gpus], self._first, axis=1)
        return least

    def best(self, free: NDArray[np.bool_], gpu_server: Ints, positions: Ints) -> int:
        """Return which of some places of one kind, as the room has it: in the fullest server, beyond it the first."""
        server = self._server[positions]
        fullness = np.zeros_like(server) if self._spans else np.bincount(gpu_server[free])[server]
        order = np.lexsort((positions, np.zeros_like(server) if self._spans else server, fullness))
        return self.place[int(positions[order[0]])]


class _Reservation:
    """A task that waits for GPUs, and whom others may not delay.

    Parameters
    ----------
    site, task, choice
        The task, and where it can run.
    free_us
        Per GPU: when what runs there should end, by the run times that were told.

    Attributes
    ----------
    start_us
        When there should be a place for it, _NEVER_US while none is known.
    """

    def __init__(self, site: Site, task: int, choice: Choice, free_us: Ints) -> None:
        self.task = task
        self._places, self._choice = site.places, choice
        self.start_us, self._open = choice.open_first(free_us, site, task)
        self._free: list[bool] = (free_us <= self.start_us).tolist()

    def leaves_room(self, place: int) -> bool:
        """Say whether a place is free then, with another one left for the task; it is taken if so."""
        gpus = self._places[place]
        if not all(self._free[gpu] for gpu in gpus):
            return False
        taken = {each for gpu in gpus for each in self._choice.of_gpu[gpu] if each in self._open}
        if len(taken) == len(self._open):
            return False
        self._open -= taken
        for gpu in gpus:
            self._free[gpu] = False
        return True


class Answer(Enum):
    """What comes of asking a task.

    It starts; there is no place; it would delay whoever has a reservation; it waits for where it ends sooner; or what
    is free goes too soon for it.
    """

    STARTS, NO_PLACE, DELAYS, WAITS, GOES = range(5)


class OneByOne(Policy):
    """Base of policies that take note of a task once all that it waits for is over."""

    @abstractmethod
    def ready(self, task: int) -> None:
        """Take note of a task that waits for nothing any more."""

    def released(self, job: int) -> None:
        """Take note of the first tasks of a job."""
        self._see_ready(self.site.job_tasks[job])

    def finished(self, task: int, gpu: int) -> None:
        """Take note of what has waited for a task."""
        self._see_followers(task)

    def elapsed(self, task: int, follower: int, edge: int) -> None:
        """Take note of what has waited for a delay."""
        self._see_ready((follower,))

    def decided(self, job: int, dropped: Sequence[int]) -> None:
        """Take note of what has waited for nothing but tasks that will not run."""
        waited = (task + offset for task in dropped for offset, _ in self.site.outputs[self.site.template[task]])
        self._see_ready(dict.fromkeys(waited))

    def _see_followers(self, task: int) -> None:
        self._see_ready(task + offset for offset, _ in self.site.outputs[self.site.template[task]])

    def _see_ready(self, tasks: Iterable[int]) -> None:
        for task in tasks:
            if not self.site.predecessors_left[task]:
                self.ready(task)


class GangQueue(OneByOne):
    """Base of the policies for runs on several GPUs: who waits, what runs and what is free.

    Attributes
    ----------
    waits
        Who waits, in the order in which they came.
    room
        The GPUs that are free.
    loads
        The runs that have their places and wait for models.
    size_of
        By class of places: how many GPUs one has.
    """

    supports: ClassVar[Features] = LOADED - NO_RULES
    hears_progress: ClassVar[bool] = True

    def begin(self, site: Site) -> None:
        """Begin with an empty queue and free GPUs."""
        super().begin(site)
        self.size_of = {kind: len(gpus) for kind, gpus in zip(site.place_class, site.places, strict=True)}
        self._choosy: dict[tuple[int, ...], bool] = {}
        self.waits: dict[int, None] = {}
        self.room = Room(site)
        self.loads = PlaceLoads(site)
        self._kinds: dict[int, tuple[int, ...]] = {}
        # Since when each task has waited; who has GPUs, and waits for inputs; whose inputs have come.
        self._since_us: dict[int, int] = {}
        self._expecting = set[int]()
        self._complete: list[int] = []
        # When each running task should end, by the run times that were told or as its progress has shown.
        self._end_of: dict[int, int] = {}
        # Whether GPUs have become free since all who wait were asked, and who came since.
        self._freed, self._new = False, set[int]()

    def chooses(self, kinds: tuple[int, ...]) -> bool:
        """Say whether places of some classes have different numbers of GPUs."""
        if kinds not in self._choosy:
            self._choosy[kinds] = len({self.size_of[kind] for kind in kinds}) > 1
        return self._choosy[kinds]

    def kinds(self, task: int) -> tuple[int, ...]:
        """Return the classes of places that can run a task, the fastest first, of equal ones the fewest GPUs."""
        template = self.site.template[task]
        if template not in self._kinds:
            row = self.site.run_us[template]
            able = [kind for kind, run_us in enumerate(row) if run_us != NEVER]
            self._kinds[template] = tuple(sorted(able, key=row.__getitem__))
        return self._kinds[template]

    def released_us(self, task: int) -> int:
        """Return when a task's job came."""
        return self.site.jobs[self.site.job[task]].release_us

    def came_us(self, task: int) -> int:
        """Return since when a task has waited for GPUs."""
        return self._since_us[task]

    def ready(self, task: int) -> None:
        """Queue a task up.

        Raises
        ------
        PolicyError
            If it needs models where servers come and go.
        """
        if self.site.needs[self.site.template[task]] and not self.site.stays:
            who = self.name or type(self).__name__.lower()
            problem = "models where servers are not always available; choose another policy"
            raise PolicyError(f"policy {who} has no support for {problem}, or leave them out of the scenario")
        self.waits[task] = None
        self._since_us[task] = self.site.now
        self._new.add(task)

    def finished(self, task: int, gpu: int) -> None:
        """Have its GPUs free, as far as they are there, and queue up what has waited for it."""
        self.room.give(gpu)
        for each in self._gone(gpu):
            self.room.take(each)
        del self._end_of[task]
        self._freed = True
        super().finished(task, gpu)

    def arrived(self, task: int, missing: int) -> None:
        """Have a task start that has its GPUs and lacked but this."""
        if not missing and task in self._expecting:
            self._complete.append(task)

    def came(self, gpu: int) -> None:
        """Have a GPU."""
        self.room.give(gpu)
        self._freed = True

    def went(self, gpu: int, tasks: Sequence[int]) -> None:
        """Have a GPU no more: at once, or once what runs there has ended."""
        if self.room.is_free(gpu):
            self.room.take(gpu)

    def _gone(self, place: int) -> list[int]:
        """Return the GPUs of a place that are away."""
        site = self.site
        return [] if site.stays else [gpu for gpu in site.places[place] if site.is_away(gpu)]

    def find(self, task: int, kinds: Sequence[int]) -> int:
        """Return where a task can run now, the first of some classes of places with room; else NO_PLACE."""
        if self.site.stays:
            return self.room.find(kinds)
        row = self.site.run_us[self.site.template[task]]
        found = (self.room.find_until(kind, self.site.now + row[kind]) for kind in kinds)
        return next((place for place in found if place != NO_PLACE), NO_PLACE)

    def loaded(self, model: int, gpu: int) -> None:
        """Go on with the run that waited for a model."""
        task = self.loads.holder(gpu)
        self._go_on(task)
        self._see_start(task)

    def ending(self, task: int, end_us: int) -> None:
        """Ask who waits anew."""
        self._end_of[task], self._freed = end_us, True

    def start(self, task: int, place: int) -> None:
        """Have a task get a place that is free; it starts when its inputs and models are there."""
        self.room.take(place)
        self._end_of[task] = self.ends_us(task, place)
        self.site.assign(task, place)
        if self.site.inputs_missing[task]:
            self._expecting.add(task)
        self._go_on(task)
        del self.waits[task]

    def _go_on(self, task: int) -> None:
        """Start a task that has its GPUs if it lacks nothing, or load what it lacks."""
        if self.site.models:
            self.loads.go_on(task)
        elif not self.site.inputs_missing[task]:
            self.site.start(task)

    def ends_us(self, task: int, place: int) -> int:
        """Return when a task ends that gets a place now, by the run time that is told; it loads while inputs travel."""
        waits_us = self.site.inputs_after(task, place)
        if self.site.needs[self.site.template[task]]:
            waits_us = max(waits_us, self.loads.missing_us(task, place))
        return self.site.now + waits_us + self.site.run_time(task, place)

    def _start_complete(self) -> None:
        """Start whose inputs have come."""
        for task in self._complete:
            self._expecting.remove(task)
            self._go_on(task)
            self._see_start(task)
        self._complete.clear()

    def _see_start(self, task: int) -> None:
        """Note when a task ends, if it has started: inputs and loads may take longer than they should."""
        if self.site.started_us[task] >= 0:
            end_us = self.site.expected_end(task)
            if end_us != self._end_of[task]:
                self.ending(task, end_us)

    def act(self, gpus: Sequence[int]) -> None:
        """Start whose inputs have come, and ask who waits."""
        self._start_complete()
        if self.waits and (self._freed or self._new):
            self.offer()
        self._freed = False
        self._new.clear()

    @abstractmethod
    def offer(self) -> None:
        """Start who can start, and may."""


@dataclass(frozen=True, slots=True)
class InOrderOptions:
    """Readings of a queue in an order of its own.

    Parameters
    ----------
    blocking
        Whether nobody starts before those in front of them have.
    reserve_after
        Who has waited for so long is asked first, and nobody else may delay it; None: never.
    """

    blocking: bool = option(False, switch)
    reserve_after: int | None = option(None, duration)


class InOrder(GangQueue):
    """Asks who waits in order; others start before those that do not fit, as far as they may.

    Those of higher priority come first, and who may pass them is as among equals.

    Tasks that can take the same places stand in one line: where one of them does not fit, the others need not be asked.
    """

    supports: ClassVar[Features] = LOADED

    def __init__(self, blocking: bool = False, reserve_after: int | None = None) -> None:
        self._blocking, self._reserve_after = blocking, reserve_after
        # What is reserved, and what of it holds for those who are asked now.
        self._reservation: _Reservation | None = None
        self._held: _Reservation | None = None

    def begin(self, site: Site) -> None:
        """Begin with empty lines."""
        super().begin(site)
        self._lines: dict[tuple[int, ...], Line] = {}
        self._entry: dict[int, tuple[tuple[int, ...], Waiting]] = {}
        self._choices: dict[tuple[int, ...], Choice] = {}
        # When what runs on each GPU should end; _NEVER_US while it is away.
        self._free_us = np.array([_NEVER_US * site.is_away(gpu) for gpu in range(site.n_gpus)], np.int64)
        self._impatient = deque[int]()

    def key(self, task: int) -> int:
        """Return where a task stands in the queue, the least first: its release, unless a policy says otherwise."""
        return self.released_us(task)

    def enter(self, task: int, stands: tuple[int, int] | None = None) -> None:
        """Have a task wait in the line of its kinds, where it stands by its priority and key unless said otherwise."""
        kinds, row = self.kinds(task), self.site.run_us[self.site.template[task]]
        if stands is None:
            stands = -self.site.jobs[self.site.job[task]].priority, self.key(task)
        self.leave(task)
        self._entry[task] = kinds, Waiting(stands, task, min(row[kind] for kind in kinds))
        self._lines.setdefault(kinds, Line()).add(self._entry[task][1])

    def leave(self, task: int) -> None:
        """Have a task wait in no line."""
        if task in self._entry:
            kinds, entry = self._entry.pop(task)
            self._lines[kinds].remove(entry)

    def ready(self, task: int) -> None:
        """Queue a task up, and look again when it has waited for too long."""
        super().ready(task)
        self.enter(task)
        if self._reserve_after is not None:
            self._impatient.append(task)
            self.site.wake(self.site.now + self._reserve_after)

    def act(self, gpus: Sequence[int]) -> None:
        """Ask who waits; first those who have waited for too long, the longest first."""
        while self._impatient and self.reserves(self._impatient[0]):
            task = self._impatient.popleft()
            if task in self.waits:
                self.enter(task, _FIRST)
        self._freed |= self._reserve_after is not None
        super().act(gpus)

    def start(self, task: int, place: int) -> None:
        """Start a task at a place that is free."""
        super().start(task, place)
        self.leave(task)
        self._free_us[list(self.site.places[place])] = self._end_of[task]

    def ending(self, task: int, end_us: int) -> None:
        """Reserve anew."""
        self._reservation = None
        self._free_us[list(self.site.places[self.site.gpu[task]])] = end_us
        super().ending(task, end_us)

    def finished(self, task: int, gpu: int) -> None:
        """Have its GPUs free; what was reserved stands if the run ended when it should."""
        if self._end_of[task] != self.site.now:
            self._reservation = None
        self._free_us[list(self.site.places[gpu])] = 0
        self._free_us[self._gone(gpu)] = _NEVER_US
        super().finished(task, gpu)

    def came(self, gpu: int) -> None:
        """Reserve anew."""
        self._reservation = None
        self._free_us[gpu] = 0
        super().came(gpu)

    def went(self, gpu: int, tasks: Sequence[int]) -> None:
        """Have a GPU no more; what was reserved stands, for it was known when the GPU would go."""
        self._free_us[gpu] = _NEVER_US
        super().went(gpu, tasks)

    def reserves(self, task: int) -> bool:
        """Say whether others may not delay a task."""
        return self._reserve_after is not None and self.came_us(task) + self._reserve_after <= self.site.now

    def offer(self) -> None:
        """Start in order who fits and delays nobody with a reservation."""
        self._held = None
        # Where GPUs come and go, who does not fit may have no reservation either: then the next one has it.
        if self._freed or not self.site.stays:
            self._ask_all()
        else:
            self._ask_new()

    def _ask_all(self) -> None:
        """Ask the lines by turns, as their next ones stand in order."""
        lines = dict(self._lines)
        following = {kinds: entry for kinds, line in lines.items() if (entry := line.first()) is not None}
        while following:
            kinds = min(following, key=following.__getitem__)
            entry = following.pop(kinds)
            answer = self._ask(entry.task, kinds)
            if answer is not Answer.STARTS and self._blocking:
                return
            if answer is Answer.STARTS:
                # Lines whose next ones were refused may find another place now.
                again = {other: line.after(entry) for other, line in lines.items()}
            elif answer is Answer.WAITS:
                again = {kinds: lines[kinds].after(entry)}
            elif answer is Answer.GOES:
                longest_us = self._choice(kinds).longest_us(self._free_us, self.site)
                again = {kinds: lines[kinds].after(entry, longest_us)}
            elif answer is Answer.DELAYS and self._held is not None:
                again = {kinds: lines[kinds].after(entry, self._held.start_us - self.site.now)}
            else:
                again = {}
                del lines[kinds]
            following.update((other, found) for other, found in again.items() if found is not None)

    def _ask_new(self) -> None:
        """Ask who is new: where nothing was freed, who did not fit before does not fit now."""
        before = min(filter(None, map(self._first_old, self._lines.values())), default=None)
        full: set[tuple[int, ...]] = set()
        asked = [self._entry[task][1] for task in self._new] + ([] if before is None else [before])
        for entry in sorted(asked):
            kinds = self._entry[entry.task][0]
            refused = entry is before or kinds in full
            answer = self._refuse(entry.task) if refused else self._ask(entry.task, kinds)
            if answer is Answer.NO_PLACE:
                full.add(kinds)
            if self._blocking and answer is not Answer.STARTS:
                return

    def _first_old(self, line: Line) -> Waiting | None:
        """Return the first of a line who is not new."""
        entry = line.first()
        while entry is not None and entry.task in self._new:
            entry = line.after(entry)
        return entry

    def _ask(self, task: int, kinds: tuple[int, ...]) -> Answer:
        """Start a task if there is a place where it delays nobody with a reservation."""
        held, choosy = self._held, self.chooses(kinds)
        if held is None and choosy and self.reserves(task):
            return self._ask_first(task, kinds)
        answer = Answer.NO_PLACE
        # Where one number of GPUs would delay somebody another one may not.
        for place in self._free_places(task, [(kind,) for kind in kinds] if choosy else [kinds]):
            ends_before = held is None or self.ends_us(task, place) <= held.start_us
            if ends_before or (held is not None and held.leaves_room(place)):
                self.start(task, place)
                return Answer.STARTS
            answer = Answer.DELAYS
        if answer is Answer.NO_PLACE:
            answer = self._refuse(task)
            if answer is Answer.NO_PLACE and not self.site.stays and self.room.find(kinds) != NO_PLACE:
                return Answer.GOES
        return answer

    def _free_places(self, task: int, choices: Sequence[tuple[int, ...]]) -> Iterable[int]:
        """Return a free place of each of some choices of classes; where the task needs models, by its end there."""
        found = (place for some in choices if (place := self._find(task, some)) != NO_PLACE)
        if not self.site.needs[self.site.template[task]]:
            return found
        return sorted(found, key=lambda place: self.ends_us(task, place))

    def _find(self, task: int, kinds: tuple[int, ...]) -> int:
        """Return the free place where a task goes; where it needs models, that where it would end first."""
        first = self.find(task, kinds)
        if first == NO_PLACE or not self.site.needs[self.site.template[task]]:
            return first
        free = (place for place in self._choice(kinds).place if self.room.is_free(place))
        return min((first, *free), key=lambda place: self.ends_us(task, place))

    def _ask_first(self, task: int, kinds: tuple[int, ...]) -> Answer:
        """Start a task that may reserve, and chooses, if it would end first in a place that is free."""
        kind, start_us = self._first_to_end(task, kinds)
        place = self._find(task, (kind,)) if start_us == self.site.now else NO_PLACE
        if place == NO_PLACE:
            return self._refuse(task)
        self.start(task, place)
        return Answer.STARTS

    def _first_to_end(self, task: int, kinds: tuple[int, ...]) -> tuple[int, int]:
        """Return where a task would end first, by the class of places, of equal ones the fewest GPUs; and its start."""
        row = self.site.run_us[self.site.template[task]]
        opens = {kind: self._choice((kind,)).open_first(self._free_us, self.site, task)[0] for kind in kinds}
        first = min(kinds, key=lambda kind: (opens[kind] + row[kind], self.size_of[kind], kind))
        return first, opens[first]

    def _refuse(self, task: int) -> Answer:
        """Reserve for a task without a place if nobody before it has a reservation, and it may have one."""
        if self._held is not None or not self.reserves(task):
            return Answer.NO_PLACE
        kinds, last, now = self._entry[task][0], self._reservation, self.site.now
        choosy = self.chooses(kinds)
        # As before, as long as all runs end when they should.
        if last is None or last.task != task or last.start_us <= now:
            some = self._first_to_end(task, kinds)[:1] if choosy else kinds
            self._reservation = _Reservation(self.site, task, self._choice(some), self._free_us)
        # Where GPUs come and go there may be no place for it until one comes.
        if self._reservation is not None and self._reservation.start_us < _NEVER_US:
            self._held = self._reservation
        # Who chooses may leave room for others that can take the same places.
        return Answer.WAITS if choosy else Answer.NO_PLACE

    def _choice(self, kinds: tuple[int, ...]) -> Choice:
        if kinds not in self._choices:
            self._choices[kinds] = Choice(self.site, kinds)
        return self._choices[kinds]


class Fifo(InOrder):
    """First in, first out: the head waits until there is room for it, and with it all behind."""

    knows: ClassVar[Knows] = Knows.WAITS  # of GPUs of several kinds it takes the fastest that are free

    def __init__(self) -> None:
        super().__init__(blocking=True)


class Easy(InOrder):
    """EASY backfill: the first that does not fit reserves, and others may start if they do not delay it."""

    def reserves(self, task: int) -> bool:
        """Say yes: whoever is asked first of those that do not fit."""
        return True


class Sjf(InOrder):
    """Shortest job first: in the order of the run times that were told, the fastest of each, whoever fits starts."""

    Options: ClassVar[type[object]] = InOrderOptions

    def __init__(self, options: InOrderOptions | None = None) -> None:
        readings = options or InOrderOptions()
        super().__init__(readings.blocking, readings.reserve_after)

    def key(self, task: int) -> int:
        """Return its run time."""
        row = self.site.run_us[self.site.template[task]]
        return min(run_us for run_us in row if run_us != NEVER)


class Qssf(Sjf):
    """Least GPU-time first: in the order of run time times GPUs, the least of each, whoever fits starts."""

    def key(self, task: int) -> int:
        """Return its run time times the number of its GPUs."""
        row = self.site.run_us[self.site.template[task]]
        return min(run_us * self.size_of[kind] for kind, run_us in enumerate(row) if run_us != NEVER)
