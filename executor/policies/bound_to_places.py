"""Policies that bind a run to a place of several GPUs, idle or not, once all that it waits for is over."""

from __future__ import annotations

from abc import abstractmethod
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from truenorth.executor.policies.bookings import PlaceBookings, PlaceRows, PlaceTimes
from truenorth.executor.policies.eviction import furthest_use_first
from truenorth.executor.policies.gangs import OneByOne
from truenorth.executor.policies.hadar import HadarOptions, PriceRange, fitting_window, near_windows
from truenorth.executor.policies.place_loads import PlaceLoads
from truenorth.executor.policies.rltune import RltuneOptions
from truenorth.executor.site import Site
from truenorth.models.cluster import FOREVER
from truenorth.models.features import LOADED, NO_RULES, Features
from truenorth.models.instance import Ints

_US_PER_S = 1_000_000


class _Among:
    """The places where a task can run.

    Attributes
    ----------
    place, run_us, rows
        Each place, and how long the task runs there; the same with the GPUs of each, and what models take of them.
    alike
        The positions of places of equally many GPUs.
    """

    def __init__(self, site: Site, task: int) -> None:
        places = site.able_gpus(task)
        self.place = np.array(places, np.int64)
        self.run_us = np.array([site.run_time(task, place) for place in places], np.int64)
        members = [site.places[place] for place in places]
        gpus = np.array([gpu for gpus in members for gpu in gpus], np.int64)
        sizes = np.array([len(gpus) for gpus in members], np.int64)
        self.alike = [np.flatnonzero(sizes == size) for size in np.unique(sizes)]
        held = [share for place in places for share in _held(site, task, place)]
        self.rows = PlaceRows(gpus, np.cumsum([0, *map(len, members[:-1])]), self.run_us, np.array(held))

    def latest(self, of_gpu: Ints) -> Ints:
        """Return, per place, the latest of its GPUs'."""
        latest: Ints = np.maximum.reduceat(of_gpu[self.rows.gpus], self.rows.first)
        return latest

    def latest_start(self, site: Site) -> Ints:
        """Return, per place, until when the task can start there and end before a GPU goes."""
        if site.stays:
            return np.full(len(self.place), FOREVER, np.int64)
        goes_us = np.array(site.goes_us, np.int64)
        starts: Ints = np.minimum.reduceat(goes_us[self.rows.gpus], self.rows.first) - self.run_us
        return starts


def _held(site: Site, task: int, place: int) -> list[float]:
    """Return which part of each GPU's memory the models of a run take at a place, at most all."""
    needs = site.needs[site.template[task]]
    if not needs:
        return [0.0] * len(site.places[place])
    where = site.model_places(task, place)[0]
    held = sum(site.part_bytes(model, where) for model in needs)
    return [min(held / site.cluster.gpus[gpu].memory_bytes, 1.0) for gpu in site.places[place]]


class BoundToPlaces(OneByOne):
    """Base of the policies that bind a run to a place, idle or not: each GPU runs what was bound to it in one order.

    Models that are not at a place are loaded once it is the turn of the run on all of its GPUs, while inputs travel.

    Where GPUs come and go a place has to stay until the run should have ended. Who finds none, or is bound to one that
    went or goes too soon, since others were late, seeks anew: at once, when a GPU comes, or when a run ends otherwise
    than it should.

    Invariant: some run that is bound can start whenever nothing runs or loads, and no input travels.
    Because: all GPUs keep the same order; the first of it stands first on every GPU of its place, what it waits for
        has ended, and nothing is bound before who loads.
    """

    supports: ClassVar[Features] = LOADED - NO_RULES
    hears_progress: ClassVar[bool] = True

    def begin(self, site: Site) -> None:
        """Begin with nothing bound."""
        super().begin(site)
        self._among: dict[int, _Among] = {}
        # What runs, if anything does, and behind it what is bound.
        self.queue = [deque[int]() for _ in range(site.n_gpus)]
        self._bound_to: dict[int, int] = {}
        self.loads = PlaceLoads(site, lambda gpu, models: furthest_use_first(site, self.queue[gpu], models))
        # Who found no place, in the order of asking, and whether they may find one now.
        self._homeless: dict[int, None] = {}
        self._look = False

    def among(self, task: int) -> _Among:
        """Return the places where a task can run."""
        template = self.site.template[task]
        if template not in self._among:
            self._among[template] = _Among(self.site, task)
        return self._among[template]

    def earliest(self, task: int, free_us: Ints) -> Ints:
        """Return, per place, when its GPUs are free and a task's inputs there, if it is bound now; from now on."""
        site, among = self.site, self.among(task)
        latest, template = among.latest(free_us), site.template[task]
        if not site.inputs[template] and not site.input_us[template]:
            return latest
        return np.maximum(latest, [site.inputs_after(task, place) for place in among.place.tolist()])

    @abstractmethod
    def seek(self, task: int) -> bool:
        """Bind a task to a place that stays for long enough; say whether there is one."""

    def ready(self, task: int) -> None:
        """Bind a task, now or when it finds a place."""
        if not self.seek(task):
            self._homeless[task] = None

    def turn(self, task: int) -> tuple[int, int]:
        """Return where a task that is bound stands in the order, the least first; what runs stands before all."""
        return 0, 0  # that of binding

    def bind(self, task: int, place: int) -> None:
        """Give a task a place; it runs there behind all of its GPUs' that come before it."""
        self.site.assign(task, place)
        self._bound_to[task] = place
        for gpu in self.site.places[place]:
            insort(self.queue[gpu], task, key=self.turn)
        if self.site.needs[self.site.template[task]]:
            # Its turn may be now, though its inputs still travel.
            self.site.touched[place] = None

    def unbind(self, task: int) -> None:
        """Have a task that has not started bound to no place."""
        for gpu in self.site.places[self._bound_to.pop(task)]:
            self.queue[gpu].remove(task)
            self.site.touched[gpu] = None
        self._look = True

    def finished(self, task: int, gpu: int) -> None:
        """Have its GPUs go on, and take note of what has waited for it."""
        for each in self.site.places[gpu]:
            self.queue[each].popleft()
        del self._bound_to[task]
        super().finished(task, gpu)

    def came(self, gpu: int) -> None:
        """Have those seek who found no place."""
        self._look = True

    def went(self, gpu: int, tasks: Sequence[int]) -> None:
        """Have those seek a place who were bound there."""
        for task in tasks:
            self.unbind(task)
        for task in tasks:
            self.ready(task)

    def act(self, gpus: Sequence[int]) -> None:
        """Start who is first on every GPU of its place, with its inputs; what was bound names its place, too."""
        site, queue = self.site, self.queue
        if self._look and self._homeless:
            waiting, self._homeless = self._homeless, {}
            for task in waiting:
                self.ready(task)
        self._look = False
        for first in dict.fromkeys(queue[gpu][0] for each in gpus for gpu in site.places[each] if queue[gpu]):
            if site.started_us[first] < 0 and all(queue[gpu][0] == first for gpu in site.places[site.gpu[first]]):
                self.go_on(first)

    def go_on(self, task: int) -> None:
        """Have a run that stands first on every GPU of its place load what it lacks, and start it if it has all.

        If they go too soon it seeks.
        """
        site = self.site
        if site.models and site.stays:
            self.loads.go_on(task)
            return
        if site.inputs_missing[task]:
            return
        if site.stays or site.could_end(task, site.gpu[task]):
            site.start(task)
        else:
            site.take_back(task)
            self.unbind(task)
            self.ready(task)

    def loaded(self, model: int, gpu: int) -> None:
        """Go on with the run that waited for a model."""
        self.go_on(self.loads.holder(gpu))


class InOrderOfBinding(BoundToPlaces):
    """Base of those that keep the order of binding, and foresee by it when each GPU is free."""

    def begin(self, site: Site) -> None:
        """Begin with all GPUs free."""
        super().begin(site)
        # Who is bound and has not ended, in that order; when each should end, and when its inputs should be there.
        self._end_us: dict[int, int] = {}
        self._there_us: dict[int, int] = {}
        # What the loads of each should take, as seen when it was bound.
        self._load_us: dict[int, int] = {}
        self._free_us = np.zeros(site.n_gpus, np.int64)
        self._late = False

    def free_us(self) -> Ints:
        """Return when each GPU has done what is bound to it, by what is told of run times; no sooner than now."""
        site, now = self.site, self.site.now
        if self._late:
            self._free_us[:] = now
            for task in self._end_us:
                gpus = list(site.places[site.gpu[task]])
                if site.started_us[task] < 0:
                    begin_us = max(int(self._free_us[gpus].max()) + self._load_us.get(task, 0), self._there_us[task])
                    end_us = begin_us + site.run_time(task, site.gpu[task])
                else:
                    end_us = max(now, site.expected_end(task))
                self._free_us[gpus] = self._end_us[task] = end_us
            self._late = False
        return np.maximum(self._free_us, now)

    def starts(self, task: int, free_us: Ints, loads_us: Ints) -> Ints:
        """Return, per place, when a task could start if it is bound now, and loads for so long."""
        starts: Ints = np.maximum(self.earliest(task, free_us), self.among(task).latest(free_us) + loads_us)
        return starts

    def loads_us(self, task: int) -> Ints:
        """Return, per place, how long a task loads, by what is there now: twice as long if something has to leave."""
        places = self.among(task).place
        if not self.site.needs[self.site.template[task]]:
            return np.zeros(len(places), np.int64)
        return np.array([self.loads.missing_us(task, place, evicting=2) for place in places.tolist()], np.int64)

    def bind(self, task: int, place: int) -> None:
        """Give a task a place behind all that is bound to its GPUs."""
        gpus = list(self.site.places[place])
        if self.site.needs[self.site.template[task]]:
            self._load_us[task] = self.loads.missing_us(task, place, evicting=2)
        self._there_us[task] = self.site.now + self.site.inputs_after(task, place)
        begin_us = max(int(self.free_us()[gpus].max()) + self._load_us.get(task, 0), self._there_us[task])
        self._end_us[task] = begin_us + self.site.run_time(task, place)
        self._free_us[gpus] = self._end_us[task]
        super().bind(task, place)

    def ending(self, task: int, end_us: int) -> None:
        """Foresee all anew."""
        self._late = self._look = True

    def unbind(self, task: int) -> None:
        """Foresee all anew."""
        super().unbind(task)
        del self._end_us[task]
        self._late = True

    def finished(self, task: int, gpu: int) -> None:
        """Have its GPUs go on; foresee all anew if it did not end when it should."""
        # What is foreseen is wrong from the first run that ends at another time; those that are late show at their end.
        if self._end_us.pop(task) != self.site.now:
            self._late = self._look = True
        self._load_us.pop(task, None)
        super().finished(task, gpu)


class CompassOnPlaces(InOrderOfBinding):
    """A run goes where it would end first once it is ready: a place is available when the last of its GPUs is.

    Loads count twice where something has to leave for them; those leave first that no run bound to the GPU needs, then
    that needed last.
    """

    name: ClassVar[str] = "compass"

    def seek(self, task: int) -> bool:
        """Bind a task; of equal places to the lowest."""
        site, among = self.site, self.among(task)
        free_us, loads_us = self.free_us() - site.now, self.loads_us(task)
        starts = self.starts(task, free_us, loads_us) if loads_us.any() else self.earliest(task, free_us)
        in_time = site.now + starts <= among.latest_start(site)
        end_us = np.where(in_time, starts + among.run_us, FOREVER)
        best = int(end_us.argmin())
        if end_us[best] == FOREVER:
            return False
        self.bind(task, int(among.place[best]))
        return True


class RltuneOnPlaces(InOrderOfBinding):
    """While somebody who waits finds a place idle, the first of the queue goes to the cheapest of its candidates.

    First is who has the least run time squared / (1 + wait / mean wait). Candidates are those of `rltune`: the place of
    least wait, which is that of its last GPU, the one whose GPUs have most memory that no model takes, and, where it
    needs models, the one of least wait that has them all, or else the one whose victims the queue needs least; of each
    number of GPUs that it may take. Costs are those of `rltune`; loads count twice where something has to leave.
    """

    name: ClassVar[str] = "rltune"

    def __init__(self, options: RltuneOptions) -> None:
        self._weights = options

    def begin(self, site: Site) -> None:
        """Begin with an empty queue."""
        super().begin(site)
        self.loads = PlaceLoads(site)
        self._waiting: list[int] = []
        self._memory = np.array([gpu.memory_bytes for gpu in site.cluster.gpus], np.int64)

    def act(self, gpus: Sequence[int]) -> None:
        """Start who is due, then place the first of the queue, again and again, while a place is idle for somebody."""
        super().act(gpus)
        while any(self._finds_idle(task) for task in self._waiting):
            # Where GPUs come and go somebody may have no place to be bound to.
            task = min((task for task in self._waiting if self._in_time(task).any()), key=self._urgency())
            self._waiting.remove(task)
            self.bind(task, self._cheapest(task))

    def seek(self, task: int) -> bool:
        """Let a task wait."""
        self._waiting.append(task)
        return True

    def _in_time(self, task: int) -> NDArray[np.bool_]:
        """Say at which places a task would end before a GPU goes."""
        among = self.among(task)
        return np.asarray(among.latest(self.free_us()) <= among.latest_start(self.site), np.bool_)

    def _finds_idle(self, task: int) -> bool:
        idle = self.among(task).latest(self.free_us()) == self.site.now
        return bool((idle & self._in_time(task)).any())

    def _fastest_us(self, task: int) -> int:
        return int(self.among(task).run_us.min())

    def _urgency(self) -> Callable[[int], tuple[float, int]]:
        """Return what orders the queue, the least first; equals by their numbers."""
        waits = {task: self.site.now - self.site.jobs[self.site.job[task]].release_us for task in self._waiting}
        mean_wait = sum(waits.values()) / len(waits)

        def urgency(task: int) -> tuple[float, int]:
            return self._fastest_us(task) ** 2 / (1 + (waits[task] / mean_wait if mean_wait else 0.0)), task

        return urgency

    def _cheapest(self, task: int) -> int:
        """Return the cheapest candidate; of equal ones the one that is found first."""
        among, weights, free = self.among(task), self._weights, self.free_us() - self.site.now
        loads = self.loads_us(task)
        waits = self.earliest(task, free)
        starts = self.starts(task, free, loads) if loads.any() else waits
        found = self._candidates(task, waits, loads)
        room_us = sum(map(self._fastest_us, self._waiting)) / max(1, len(self._waiting))

        def cost(position: int) -> float:
            after, end_us = free.copy(), int(starts[position] + among.run_us[position])
            after[list(self.site.places[int(among.place[position])])] = end_us
            stays = self._waiting and self._would_start(self._waiting[0], after)
            spread = weights.balance * int(after.max() - after.min())
            again = weights.reload * self._reload_us(task, int(among.place[position])) if self.site.models else 0.0
            return weights.finish * end_us + again + spread - (weights.room * room_us if stays else 0.0)

        return int(among.place[min(found, key=cost)])

    def _would_start(self, task: int, free_us: Ints) -> bool:
        """Say whether a place is idle that has all models of a task."""
        idle = self.among(task).latest(free_us) == 0
        if self.site.needs[self.site.template[task]]:
            idle &= self.loads_us(task) == 0
        return bool(idle.any())

    def _candidates(self, task: int, waits: Ints, loads: Ints) -> list[int]:
        """Return the positions of the candidates, each once."""
        site, among = self.site, self.among(task)
        late = np.where(self._in_time(task), 0, FOREVER)
        taken = among.latest(-self._unused_bytes())
        found = dict[int, None]()
        for alike in among.alike:
            orders = [(waits + late)[alike], (taken + late)[alike]]
            if site.needs[site.template[task]]:
                holders = alike[loads[alike] == 0]
                if holders.size:
                    found[int(holders[(waits + late)[holders].argmin()])] = None
                else:
                    missed = [self._reload_us(task, place) for place in among.place[alike].tolist()]
                    orders.append(np.array(missed, np.int64) + late[alike])
            found.update((int(alike[order.argmin()]), None) for order in orders)
        return list(found)

    def _unused_bytes(self) -> Ints:
        """Return, per GPU, the memory that no model takes."""
        unused = self._memory.copy()
        for gpu, memory in enumerate(self.site.memory if self.site.models else ()):
            unused[gpu] -= sum(map(memory.held_bytes, memory.residents))
        return unused

    def _reload_us(self, task: int, place: int) -> int:
        """Return the load time of what leaves a place for a task, once per task of the queues that needs it there."""
        site, victims = self.site, self.loads.leaving(task, place)
        if not victims:
            return 0
        bound = dict.fromkeys(other for gpu in site.places[place] for other in self.queue[gpu])
        wanted = [model for other in (*self._waiting, *bound) for model in site.needs[site.template[other]]]
        return sum(site.load_time(model, where) * wanted.count(model) for model, where in victims)


class HadarOnPlaces(BoundToPlaces):
    """A run that is ready books the place and start of least weight x finish + price, that of all GPUs of the place.

    Prices are those of `hadar`, per GPU, from delay avoided per second of GPU-time, of the memory that its models take
    there, too. A missing model is loaded before the run, unless another run that is bound there needs it as well.
    Equal offers: the lowest place.
    """

    name: ClassVar[str] = "hadar"

    def __init__(self, options: HadarOptions) -> None:
        self._readings = options

    def begin(self, site: Site) -> None:
        """Open the books."""
        super().begin(site)
        windows, self._window_us = self._readings.windows, self._readings.window or fitting_window(site.catalogue)
        self._near, self._prices = near_windows(windows), PriceRange(site.catalogue)
        self._books = PlaceBookings(site.n_gpus, windows, self._window_us)
        self._start_us: dict[int, int] = {}
        self._late_us, self._looked = np.zeros(site.n_gpus, np.int64), -1
        # How many runs that are bound need each model at each place.
        self._coming: Counter[tuple[int, int]] = Counter()

    def ending(self, task: int, end_us: int) -> None:
        """See anew, before the next run books, how late GPUs are."""
        self._looked = -1

    def turn(self, task: int) -> tuple[int, int]:
        """Return its booked start; who loads is not passed any more."""
        stands = self.site.started_us[task] >= 0 or self.loads.is_loading(task)
        return (-1, task) if stands else (self._start_us[task], task)

    def finished(self, task: int, gpu: int) -> None:
        """Have its GPUs go on, and those seek who found no place: it may be late for what is booked there."""
        self._look = True
        self._coming -= Counter(self._wanted(task, gpu))
        super().finished(task, gpu)

    def seek(self, task: int) -> bool:
        """Book and bind a task."""
        site, among = self.site, self.among(task)
        weight = float(site.jobs[site.job[task]].weight)
        self._books.advance(site.now)
        self._see_lateness()
        when = PlaceTimes(site.now + self._could_begin(task), among.latest_start(site))
        offer = self._books.cheapest(among.rows, when, weight / _US_PER_S, self._prices.range, self._near)
        if offer is None:
            return False
        place, run_us = int(among.place[offer.position]), int(among.run_us[offer.position])
        if offer.booked:
            self._books.book(site.places[place], offer.start_us, run_us, among.rows.held_at(offer.position))
        self._start_us[task] = offer.start_us
        work_s = run_us / _US_PER_S * len(site.places[place])
        self._prices.see(weight * (offer.avoided_us / _US_PER_S) / work_s)
        self._coming.update(self._wanted(task, place))
        self.bind(task, place)
        return True

    def _wanted(self, task: int, place: int) -> list[tuple[int, int]]:
        """Return which models a run at a place needs, each with where."""
        where = self.site.model_places(task, place)
        return [(model, each) for model in self.site.needs[self.site.template[task]] for each in where]

    def _could_begin(self, task: int) -> Ints:
        """Return, per place, when it is late no more and a task's inputs and models are there; from now on."""
        site, among = self.site, self.among(task)
        starts = self.earliest(task, self._late_us)
        if not site.needs[site.template[task]]:
            return starts
        loads = [self.loads.missing_us(task, place, coming=self._coming) for place in among.place.tolist()]
        return np.maximum(starts, among.latest(self._late_us) + np.array(loads, np.int64))

    def _see_lateness(self) -> None:
        """Once a window, add up what each GPU should have done by now and has not."""
        site = self.site
        if site.now // self._window_us == self._looked:
            return
        self._looked = site.now // self._window_us
        self._late_us = np.maximum(np.array(site.run_end_us, np.int64) - site.now, 0)
        for gpu, queue in enumerate(self.queue):
            for task in queue:
                if site.started_us[task] < 0 and self._start_us[task] < site.now:
                    self._late_us[gpu] += site.run_time(task, site.gpu[task])
