"""Conservative backfill of runs on several GPUs (Mu'alem and Feitelson, 2001)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from truenorth.executor.policies.gangs import Choice, GangQueue
from truenorth.executor.policies.room import NO_PLACE
from truenorth.executor.site import Site
from truenorth.models.cluster import FOREVER
from truenorth.models.instance import Ints


class _Reserved(NamedTuple):
    """A place that a task has reserved, from when until when."""

    start_us: int
    end_us: int
    place: int


class Conservative(GangQueue):
    """Conservative backfill: everybody reserves on arrival, as early as delays nobody before.

    Reservations are made anew, in the order of release, when a run does not end when it should.

    Who needs models reserves where it would end first if it found there what is there now. Nobody knows what it finds
    at a later start, so that the reservation has room for loads of all; if it finds some, others reserve anew.
    """

    def begin(self, site: Site) -> None:
        """Begin with nothing reserved."""
        super().begin(site)
        self._reserved_at: dict[int, _Reserved] = {}
        # Whether each GPU is free from each instant on, by what runs and is reserved. Shape [instants, GPUs].
        self._times = np.zeros(0, np.int64)
        self._free = np.zeros((0, site.n_gpus), np.bool_)
        self._choices: dict[int, Choice] = {}
        self._longest: dict[tuple[int, int], Ints] = {}
        self._gpu_server = np.array(site.gpu_server, np.int64)

    def ending(self, task: int, end_us: int) -> None:
        """Reserve anew."""
        self._reserved_at.clear()
        super().ending(task, end_us)

    def finished(self, task: int, gpu: int) -> None:
        """Have its GPUs free; reservations stand if the run ended when it should."""
        if self._end_of[task] != self.site.now:
            self._reserved_at.clear()
        super().finished(task, gpu)

    def came(self, gpu: int) -> None:
        """Reserve anew."""
        self._reserved_at.clear()
        super().came(gpu)

    def act(self, gpus: Sequence[int]) -> None:
        """Start who has its reservation now, and reserve for who came."""
        super().act(gpus)
        starts = (reserved.start_us for reserved in self._reserved_at.values())
        due = [start_us for start_us in starts if self.site.now < start_us < FOREVER]
        if due:
            self.site.wake(min(due))

    def offer(self) -> None:
        """Reserve for those who have nothing reserved, in order, and start who is due."""
        now = self.site.now
        late = any(reserved.start_us < now for reserved in self._reserved_at.values())
        if late or not self._reserved_at:
            self.reserve_anew()
        while any(self.start_if_due(task) for task in sorted(self.waits)):
            self.reserve_anew()

    def start_if_due(self, task: int) -> bool:
        """Start a task if it has its reservation now, and reserve for it before if it has none.

        Say whether it starts and will end sooner than was reserved.
        """
        if task not in self._reserved_at:
            self._reserve_early(task)
        reserved = self._reserved_at[task]
        if reserved.start_us != self.site.now or not self.room.is_free(reserved.place):
            return False
        del self._reserved_at[task]
        self.start(task, reserved.place)
        return self._end_of[task] < reserved.end_us

    def reserve_anew(self) -> None:
        """Forget all reservations, and see what is free from when on."""
        self._reserved_at.clear()
        self._foresee()

    def _foresee(self) -> None:
        """Note what is free from when on, by what runs and goes."""
        ends = [(max(end_us, self.site.now), self.site.gpu[task]) for task, end_us in self._end_of.items()]
        goes = [] if self.site.stays else [at for at in self.site.goes_us if self.site.now < at < FOREVER]
        self._times = np.unique([self.site.now, *(end_us for end_us, _ in ends), *goes])
        self._free = np.ones((len(self._times), self.site.n_gpus), np.bool_)
        for end_us, place in ends:
            self._free[: np.searchsorted(self._times, end_us), list(self.site.places[place])] = False
        if not self.site.stays:
            self._free &= self._times[:, None] < np.array(self.site.goes_us, np.int64)

    def _reserve_early(self, task: int) -> None:
        """Reserve the first place that is free for as long as a task runs; of equally early ones the fastest.

        Who chooses how many GPUs it takes reserves where it ends first; of equal ones the fewest GPUs. Where all known
        GPUs go too soon nothing is reserved until one comes.
        """
        now, row = self.site.now, self.site.run_us[self.site.template[task]]
        start_us = FOREVER
        past = int(np.searchsorted(self._times, now + 1)) - 1
        self._times, self._free = self._times[past:], self._free[past:]
        count = len(self._times)
        # Until which instant each GPU stays free, from each instant on.
        taken = np.where(self._free, count, np.arange(count)[:, None])
        until = np.minimum.accumulate(taken[::-1], axis=0)[::-1]
        if self.site.needs[self.site.template[task]]:
            self._reserve_loading(task, until)
            return
        first, best, kinds = count, NO_PLACE, self.kinds(task)
        choosy, begins, end_us = self.chooses(kinds), np.maximum(self._times, now), FOREVER
        for kind in sorted(kinds, key=self.size_of.__getitem__) if choosy else kinds:
            choice, run_us = self._choice(kind), row[kind]
            # From when a place is taken until the end of the run, by place where inputs travel.
            took_us = run_us + self._inputs_after(task, choice)
            ends = np.searchsorted(self._times, begins[:, None] + took_us)
            sooner = int(np.searchsorted(begins + took_us.min(), end_us)) if choosy else first
            fits = choice.open_until(until[:sooner]) >= ends[:sooner]
            able = np.flatnonzero(fits.any(axis=1))
            if able.size:
                at = int(able[0])
                free = until[at] >= np.searchsorted(self._times, begins[at] + run_us)
                place = choice.best(free, self._gpu_server, np.flatnonzero(fits[at]))
                ended_us = int(begins[at]) + self.site.inputs_after(task, place) + run_us
                if not choosy or ended_us < end_us:
                    first, best, start_us, end_us = at, place, int(begins[at]), ended_us
        if best == NO_PLACE:
            self._reserved_at[task] = _Reserved(FOREVER, FOREVER, NO_PLACE)
            return
        self._book(task, best, start_us, end_us)

    def _reserve_loading(self, task: int, until: Ints) -> None:
        """Reserve where a task that needs models ends first by what is there now; of equal ends the fewest GPUs.

        Parameters
        ----------
        until
            Until which instant each GPU stays free, from each instant on. Shape [instants, GPUs].
        """
        begins, found = np.maximum(self._times, self.site.now), list[tuple[int, int, int, _Reserved]]()
        for kind in self.kinds(task):
            choice, run_us = self._choice(kind), self.site.run_us[self.site.template[task]][kind]
            inputs_us, missing_us = self._inputs_after(task, choice), self.loads.missing_us
            seen = np.maximum(inputs_us, [missing_us(task, place) for place in choice.place]) + run_us
            most = np.maximum(inputs_us, self._longest_us(task, kind)) + run_us
            # What is there is sure of a run that starts now alone.
            took_us = np.where(np.arange(len(begins))[:, None], most, seen)
            fits = choice.open_until(until) >= np.searchsorted(self._times, begins[:, None] + took_us)
            at = fits.argmax(axis=0)
            ends_us = np.where(fits.any(axis=0), begins[at] + seen, FOREVER)
            first = int(at[ends_us == ends_us.min()].min())
            free = until[first] >= np.searchsorted(self._times, begins[first] + run_us)
            place = choice.best(free, self._gpu_server, np.flatnonzero((ends_us == ends_us.min()) & (at == first)))
            start_us, took = int(begins[first]), took_us[first, choice.place.index(place)]
            reserved = _Reserved(start_us, start_us + int(took), place)
            found.append((int(ends_us.min()), self.size_of[kind], kind, reserved))
        reserved = min(found)[-1]
        self._book(task, reserved.place, reserved.start_us, reserved.end_us)

    def _longest_us(self, task: int, kind: int) -> Ints:
        """Return how long a task loads at each place of a class where it finds nothing. Shape [places]."""
        key = self.site.template[task], kind
        if key not in self._longest:
            longest = [self.loads.longest_us(task, place) for place in self._choice(kind).place]
            self._longest[key] = np.array(longest, np.int64)
        return self._longest[key]

    def _inputs_after(self, task: int, choice: Choice) -> Ints:
        """Return how long inputs take to each place of a choice, or one 0 if there are none. Shape [places] or [1]."""
        site, template = self.site, self.site.template[task]
        if not site.inputs[template] and not site.input_us[template]:
            return np.zeros(1, np.int64)
        return np.array([site.inputs_after(task, place) for place in choice.place], np.int64)

    def _choice(self, kind: int) -> Choice:
        if kind not in self._choices:
            self._choices[kind] = Choice(self.site, (kind,))
        return self._choices[kind]

    def _book(self, task: int, place: int, start_us: int, end_us: int) -> None:
        for instant in (start_us, end_us):
            after = int(np.searchsorted(self._times, instant))
            if after == len(self._times) or self._times[after] != instant:
                self._times = np.insert(self._times, after, instant)
                self._free = np.insert(self._free, after, self._free[after - 1], axis=0)
        begin, end = np.searchsorted(self._times, (start_us, end_us))
        self._free[begin:end, list(self.site.places[place])] = False
        self._reserved_at[task] = _Reserved(start_us, end_us, place)
