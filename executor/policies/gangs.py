"""Runs on several GPUs: one queue for the cluster, as in training clusters; jobs hold their GPUs from start to end.

FIFO, EASY and conservative backfill (Lifka, 1995; Mu'alem and Feitelson, 2001), shortest job first, and least GPU-time
first as Helios has it (QSSF, SC'21). Run times are those that they are told.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from truenorth.executor.policies.options import duration, option, switch
from truenorth.executor.policies.room import NO_PLACE, Room
from truenorth.executor.policy import Knows, Policy
from truenorth.executor.site import Site
from truenorth.models import NEVER
from truenorth.models.features import NO_RULES, TOGETHER, Features


class _Waiting(NamedTuple):
    """A task in the queue: those with the least key are asked first, equal ones by release, then by file order."""

    key: int
    task: int


@dataclass(slots=True)
class _Reservation:
    """A task that waits for GPUs, and whom others may not delay.

    Parameters
    ----------
    task
        The task.
    start_us
        When there should be room for it, by the run times that were told.
    room
        What should be free then.
    """

    task: int
    start_us: int
    room: Room


class GangQueue(Policy):
    """Base of the policies for runs on several GPUs: who waits, what runs and what is free.

    Attributes
    ----------
    line
        Who waits, in the order in which they are asked.
    room
        The GPUs that are free.
    """

    supports: ClassVar[Features] = TOGETHER - NO_RULES

    def begin(self, site: Site) -> None:
        """Begin with an empty queue and free GPUs."""
        super().begin(site)
        self.line: list[_Waiting] = []
        self.room = Room(site)
        self._kinds: dict[int, tuple[int, ...]] = {}
        # Running tasks by the end that was told.
        self._ends: list[tuple[int, int]] = []
        self._end_of: dict[int, int] = {}
        self._waits: set[int] = set()
        # Whether GPUs have become free since all who wait were asked, and who came since.
        self._freed, self._new = False, set[int]()

    def kinds(self, task: int) -> tuple[int, ...]:
        """Return the classes of places that can run a task, the fastest first."""
        template = self.site.template[task]
        if template not in self._kinds:
            row = self.site.run_us[template]
            able = [kind for kind, run_us in enumerate(row) if run_us != NEVER]
            self._kinds[template] = tuple(sorted(able, key=row.__getitem__))
        return self._kinds[template]

    def released_us(self, task: int) -> int:
        """Return when a task's job came."""
        return self.site.jobs[self.site.job[task]].release_us

    def key(self, task: int) -> int:
        """Return where a task stands in the queue, the least first: its release, unless a policy says otherwise."""
        return self.released_us(task)

    def released(self, job: int) -> None:
        """Queue the tasks of a job up."""
        for task in self.site.job_tasks[job]:
            insort(self.line, _Waiting(self.key(task), task))
            self._waits.add(task)
            self._new.add(task)

    def finished(self, task: int, gpu: int) -> None:
        """Have its GPUs free."""
        self.room.give(gpu)
        end_us = self._end_of.pop(task)
        del self._ends[bisect_left(self._ends, (end_us, task))]
        self._freed = True

    def start(self, task: int, place: int) -> None:
        """Start a task at a place that is free."""
        self.room.take(place)
        self.site.assign(task, place)
        self.site.start(task)
        end_us = self.site.now + self.site.run_time(task, place)
        self._end_of[task] = end_us
        insort(self._ends, (end_us, task))
        self._waits.discard(task)

    def act(self, gpus: Sequence[int]) -> None:
        """Ask who waits."""
        if self._waits and (self._freed or self._new):
            self.offer()
            self.line = [waiting for waiting in self.line if waiting.task in self._waits]
        self._freed = False
        self._new.clear()

    @abstractmethod
    def offer(self) -> None:
        """Start who can start, and may."""

    def ends(self) -> Iterator[tuple[int, int]]:
        """Yield when each run should end, not before now, and its place; by time."""
        for end_us, task in self._ends:
            yield max(end_us, self.site.now), self.site.gpu[task]

    def reserve(self, task: int) -> _Reservation:
        """Return when there should be room for a task if nobody else starts, and what is free then."""
        room, start_us, kinds = self.room.copy(), self.site.now, self.kinds(task)
        place = room.find(kinds)
        for end_us, ended in self.ends():
            if place != NO_PLACE and end_us > start_us:
                break
            start_us = end_us
            room.give(ended)
            if place == NO_PLACE:
                place = room.find(kinds)
        return _Reservation(task, start_us, room)


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
    """Asks who waits in order; others start before those that do not fit, as far as they may."""

    def __init__(self, blocking: bool = False, reserve_after: int | None = None) -> None:
        self._blocking, self._reserve_after = blocking, reserve_after
        self._reservation: _Reservation | None = None

    def released(self, job: int) -> None:
        """Queue the tasks up, and look again when they have waited for too long."""
        super().released(job)
        if self._reserve_after is not None:
            self.site.wake(self.site.now + self._reserve_after)

    def act(self, gpus: Sequence[int]) -> None:
        """Ask who waits, also when somebody has waited for too long."""
        self._freed |= self._reserve_after is not None
        super().act(gpus)

    def finished(self, task: int, gpu: int) -> None:
        """Have its GPUs free; what was reserved stands if the run ended when it should."""
        if self._end_of[task] != self.site.now:
            self._reservation = None
        super().finished(task, gpu)

    def reserves(self, task: int) -> bool:
        """Say whether others may not delay a task."""
        return self._reserve_after is not None and self.released_us(task) + self._reserve_after <= self.site.now

    def _in_line(self) -> list[int]:
        """Return who waits in the order in which they are asked: those first who have waited for too long."""
        line = [waiting.task for waiting in self.line]
        if self._reserve_after is None:
            return line
        # Tasks are numbered by release, then in the order of the file.
        return sorted(filter(self.reserves, line)) + [task for task in line if not self.reserves(task)]

    def offer(self) -> None:
        """Start in order who fits and delays nobody with a reservation."""
        held: _Reservation | None = None
        full: set[tuple[int, ...]] = set()
        for task in self._in_line():
            kinds = self.kinds(task)
            # Where nothing was freed, who did not fit before does not fit now.
            waits = not self._freed and task not in self._new and not self._reserved(task)
            place = NO_PLACE if waits or kinds in full else self.room.find(kinds)
            if place == NO_PLACE and not waits:
                full.add(kinds)
            if place != NO_PLACE and (held is None or self._leaves_room(task, place, held)):
                self.start(task, place)
            elif self._blocking:
                return
            elif held is None and self.reserves(task):
                held = self._hold(task)

    def _reserved(self, task: int) -> bool:
        return self._reservation is not None and self._reservation.task == task

    def _hold(self, task: int) -> _Reservation:
        """Return what is reserved for a task: as before, as long as all runs end when they should."""
        last = self._reservation
        if last is None or last.task != task or last.start_us <= self.site.now:
            self._reservation = last = self.reserve(task)
        return last

    def _leaves_room(self, task: int, place: int, held: _Reservation) -> bool:
        """Say whether a task can start now and leaves room for who is reserved; note it if it still runs then."""
        if self.site.now + self.site.run_time(task, place) <= held.start_us:
            return True
        if not held.room.is_free(place):
            return False
        held.room.take(place)
        if held.room.find(self.kinds(held.task)) != NO_PLACE:
            return True
        held.room.give(place)
        return False


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


class Conservative(GangQueue):
    """Conservative backfill: everybody reserves on arrival, as early as delays nobody before.

    Reservations are made anew, in the order of release, when a run does not end when it should.
    """

    def begin(self, site: Site) -> None:
        """Begin with nothing reserved."""
        super().begin(site)
        self._reserved_at: dict[int, tuple[int, int]] = {}
        # What is free from each instant on, by what runs and is reserved.
        self._times: list[int] = []
        self._rooms: list[Room] = []

    def finished(self, task: int, gpu: int) -> None:
        """Have its GPUs free; reservations stand if the run ended when it should."""
        if self._end_of[task] != self.site.now:
            self._reserved_at.clear()
        super().finished(task, gpu)

    def act(self, gpus: Sequence[int]) -> None:
        """Start who has its reservation now, and reserve for who came."""
        super().act(gpus)
        due = [start_us for start_us, _ in self._reserved_at.values() if start_us > self.site.now]
        if due:
            self.site.wake(min(due))

    def offer(self) -> None:
        """Reserve for those who have nothing reserved, in order, and start who is due."""
        now = self.site.now
        late = any(start_us < now for start_us, _ in self._reserved_at.values())
        if late or not self._reserved_at:
            self._reserved_at.clear()
            self._foresee()
        for waiting in self.line:
            if waiting.task not in self._reserved_at:
                self._reserve_early(waiting.task)
            start_us, place = self._reserved_at[waiting.task]
            if start_us == now and self.room.is_free(place):
                del self._reserved_at[waiting.task]
                self.start(waiting.task, place)

    def _foresee(self) -> None:
        """Note what is free from when on, by what runs."""
        room = self.room.copy()
        self._times, self._rooms = [self.site.now], [room]
        for end_us, place in self.ends():
            if end_us > self._times[-1]:
                self._times.append(end_us)
                self._rooms.append(self._rooms[-1].copy())
            self._rooms[-1].give(place)

    def _reserve_early(self, task: int) -> None:
        """Reserve the first place that is free for as long as a task runs."""
        kinds, now = self.kinds(task), self.site.now
        past = bisect_left(self._times, now + 1) - 1
        del self._times[:past], self._rooms[:past]
        for begin in range(len(self._times)):
            start_us = max(now, self._times[begin])
            for kind in kinds:
                run_us = self.site.run_us[self.site.template[task]][kind]
                until = bisect_left(self._times, start_us + run_us)
                place = Room.common(self._rooms[begin:until]).find((kind,))
                if place != NO_PLACE:
                    self._book(task, place, start_us, start_us + run_us)
                    return

    def _book(self, task: int, place: int, start_us: int, end_us: int) -> None:
        for instant in (start_us, end_us):
            after = bisect_left(self._times, instant)
            if after == len(self._times) or self._times[after] != instant:
                self._times.insert(after, instant)
                self._rooms.insert(after, self._rooms[after - 1].copy())
        for room in self._rooms[bisect_left(self._times, start_us) : bisect_left(self._times, end_us)]:
            room.take(place)
        self._reserved_at[task] = start_us, place


class Sjf(InOrder):
    """Shortest job first: in the order of the run times that were told, whoever fits starts."""

    Options: ClassVar[type[object]] = InOrderOptions

    def __init__(self, options: InOrderOptions | None = None) -> None:
        readings = options or InOrderOptions()
        super().__init__(readings.blocking, readings.reserve_after)

    def key(self, task: int) -> int:
        """Return its run time."""
        row = self.site.run_us[self.site.template[task]]
        return min(run_us for run_us in row if run_us != NEVER)


class Qssf(Sjf):
    """Least GPU-time first: in the order of run time times GPUs, whoever fits starts."""

    def key(self, task: int) -> int:
        """Return its run time times the number of its GPUs."""
        place = self.site.able_gpus(task)[0]
        return super().key(task) * len(self.site.places[place])
