"""Policies of single GPUs where runs take several: the same rules on places.

`compass`, `hadar` and `rltune` bind a run to a place; `dally` declines places that are spread further than need be, and
loads; `srpt` asks the run first whose job has least left to run, and `ahead` is shortest job first with reservations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, ClassVar

from truenorth.executor.policies.ahead import Ahead
from truenorth.executor.policies.bound_to_places import CompassOnPlaces, HadarOnPlaces, RltuneOnPlaces
from truenorth.executor.policies.central import RemainingWork
from truenorth.executor.policies.compass import Compass
from truenorth.executor.policies.conservative import Conservative
from truenorth.executor.policies.dally import AUTO, MOST_LOADS, RECENT, Dally
from truenorth.executor.policies.gangs import Answer, InOrder
from truenorth.executor.policies.hadar import Hadar
from truenorth.executor.policies.rltune import Rltune
from truenorth.executor.policies.room import NO_PLACE
from truenorth.executor.policies.srpt import Srpt
from truenorth.executor.policy import Knows, Policy
from truenorth.executor.site import Site


class AheadOnPlaces(Conservative):
    """At every event all who wait reserve anew, shortest first, and who could begin now does.

    So a run on many GPUs is not passed for ever, as in `sjf`: others start before it if they do not delay it. Who needs
    models, or may take several numbers of GPUs, reserves as in `conservative`: where it ends first.
    """

    name: ClassVar[str] = "ahead"

    def __init__(self, window: int) -> None:
        self._window = window

    def offer(self) -> None:
        """List who waits, so many per GPU, and start who could begin now."""
        waits = False
        for task in sorted(self.waits, key=self._run_us)[: self._window * self.site.n_gpus]:
            if not self.room.any_free():
                return  # of those behind none can start now, and all are listed anew at the next event
            kinds = self.kinds(task)
            weighs = self.chooses(kinds) or bool(self.site.needs[self.site.template[task]])
            # As long as nobody before has to wait, whoever finds room, and has nothing to weigh, starts.
            place = NO_PLACE if waits or weighs else self.find(task, kinds)
            if place != NO_PLACE:
                self.start(task, place)
                continue
            if not waits:
                self.reserve_anew()
            waits = True
            self.start_if_due(task)

    def _run_us(self, task: int) -> tuple[int, int]:
        return self.site.run_us[self.site.template[task]][self.kinds(task)[0]], task


class DallyOnPlaces(InOrder):
    """In order of arrival whoever fits starts, but for a while at places that are spread no further than need be.

    A place is of level 0 inside a server, 1 inside a group of servers, else 2. A task takes its lowest level at once, a
    higher one once it has waited for tau_l (tau_1 = tau / 2, tau_2 = tau); ``auto`` is twice the mean of the last waits
    of tasks of as many GPUs that got their lowest level. Who may choose takes the most GPUs that it finds at a level.

    Loads are declined as on single GPUs, as long as a place that the task takes has all of its models, or loads them:
    those that fit until tau_1, those for which something leaves until tau_2. There ``auto`` is twice the mean of the
    last waits of tasks of the same models for a place that had them, at first their load time, at most four. A place is
    as good as the worse of its two levels, of equal ones the less spread one.
    """

    name: ClassVar[str] = "dally"
    knows: ClassVar[Knows] = Knows.NOTHING

    def __init__(self, tau_us: float) -> None:
        super().__init__()
        self._tau_us = tau_us

    def begin(self, site: Site) -> None:
        """Begin with an empty queue."""
        super().begin(site)
        self._level: dict[int, int] = {}
        for kind, gpus in zip(site.place_class, site.places, strict=True):
            ends = (site.cluster.gpus[gpus[0]], site.cluster.gpus[gpus[-1]])
            self._level[kind] = len({gpu.server for gpu in ends}) + len({gpu.group for gpu in ends}) - 2
        self._levels: dict[int, tuple[int, ...]] = {}
        self._mean_wait_us: dict[int, float] = {}
        self._mean_met_us: dict[tuple[int, ...], float] = {}
        self._load_us: dict[int, int] = {}
        # Who may become less patient, and when the next do.
        self._patient: dict[int, None] = {}
        self._due: set[int] = set()

    def kinds(self, task: int) -> tuple[int, ...]:
        """Return the classes of places that a task takes by now, the least spread first."""
        template, waited_us = self.site.template[task], self.site.now - self.came_us(task)
        if template not in self._levels:
            order = sorted(super().kinds(task), key=lambda kind: (self._level[kind], -self.size_of[kind], kind))
            self._levels[template] = tuple(order)
        able = self._levels[template]
        tau = self._tau(task)
        lowest = self._level[able[0]]
        return tuple(kind for kind in able if self._level[kind] == lowest or waited_us >= tau[self._level[kind]])

    def _tau(self, task: int) -> tuple[float, float, float]:
        """Return how long a task declines each level, in whole microseconds, since it is woken at them."""
        tau = self._tau_us
        if tau == AUTO:
            tau = 2 * self._mean_wait_us.get(self._size(task), 0.0) // 1
        return 0, tau if tau == inf else tau // 2, tau

    def _load_tau(self, task: int) -> tuple[float, float, float]:
        """Return the same for the levels of loads."""
        needs, tau = self.site.needs[self.site.template[task]], self._tau_us
        if not needs:
            return 0, 0, 0
        if tau == AUTO:
            load_us = self._least_load_us(task)
            tau = min(2 * self._mean_met_us.setdefault(needs, load_us), MOST_LOADS * load_us) // 1
        return 0, tau if tau == inf else tau // 2, tau

    def _least_load_us(self, task: int) -> int:
        """Return how long the models of a task take to the place that loads them soonest."""
        template = self.site.template[task]
        if template not in self._load_us:
            places = self.site.able_gpus(task)
            self._load_us[template] = min(self.loads.longest_us(task, place) for place in places)
        return self._load_us[template]

    def _load_level(self, task: int, place: int) -> int:
        """Return whether a task would find its models at a place that is free (0), load them, or have models leave."""
        if not self.loads.missing_us(task, place):
            return 0
        return 2 if self.loads.leaving(task, place) else 1

    def _free_places(self, task: int, choices: Sequence[tuple[int, ...]]) -> Iterable[int]:
        """Return the free places that a task takes by now, the best first."""
        if not self.site.needs[self.site.template[task]]:
            return super()._free_places(task, choices)
        first = [place for kinds in choices if (place := self.find(task, kinds)) != NO_PLACE]
        rest = (place for kinds in choices for place in self._choice(kinds).place if self.room.is_free(place))
        waited_us, tau = self.site.now - self.came_us(task), self._load_tau(task)
        level = {place: self._load_level(task, place) for place in (*first, *rest)}
        if any(waited_us < tau[load] for load in level.values()) and self._is_somewhere(task, choices):
            level = {place: load for place, load in level.items() if waited_us >= tau[load]}

        def by_levels(place: int) -> tuple[int, int, int]:
            kind = self.site.place_class[place]
            return max(level[place], self._level[kind]), self._level[kind], -self.size_of[kind]

        return sorted(level, key=by_levels)

    def _is_somewhere(self, task: int, choices: Sequence[tuple[int, ...]]) -> bool:
        """Say whether a place of some classes has all models of a task, or loads them: it is worth waiting for."""
        places = (place for kinds in choices for place in self._choice(kinds).place)
        return any(self.loads.has_all(task, place) for place in places)

    def _ask(self, task: int, kinds: tuple[int, ...]) -> Answer:
        """Start a task if it takes a place; one that declines leaves it to others of its line."""
        answer = super()._ask(task, kinds)
        declines = answer is Answer.NO_PLACE and bool(self.site.needs[self.site.template[task]])
        return Answer.WAITS if declines and self.room.find(kinds) != NO_PLACE else answer

    def _size(self, task: int) -> int:
        return len(self.site.places[self.site.able_gpus(task)[0]])

    def start(self, task: int, place: int) -> None:
        """Start a task; of those that got their lowest level, the waits are remembered."""
        level = self._level[self.site.place_class[place]]
        if level == self._level[self._levels[self.site.template[task]][0]]:
            size, waited_us = self._size(task), self.site.now - self.came_us(task)
            mean_us = self._mean_wait_us.setdefault(size, float(waited_us))
            self._mean_wait_us[size] += RECENT * (waited_us - mean_us)
        needs = self.site.needs[self.site.template[task]]
        if needs in self._mean_met_us and not self.loads.missing_us(task, place):
            waited_us = self.site.now - self.came_us(task)
            self._mean_met_us[needs] += RECENT * (waited_us - self._mean_met_us[needs])
        super().start(task, place)

    def act(self, gpus: Sequence[int]) -> None:
        """Ask who waits, also when somebody has become less patient."""
        if self.site.now in self._due:
            self._due.remove(self.site.now)
            self._freed = True
        super().act(gpus)

    def ready(self, task: int) -> None:
        """Queue a task up; if it has places of several levels, or loads, what it takes is seen again."""
        super().ready(task)
        template = self.site.template[task]
        if self.site.needs[template] or len({self._level[kind] for kind in self._levels[template]}) > 1:
            self._patient[task] = None

    def loaded(self, model: int, gpu: int) -> None:
        """Go on with a run; models may have left that others wait for."""
        super().loaded(model, gpu)
        self._freed = True

    def offer(self) -> None:
        """Start who fits by what it takes now, and have the others asked again when they take more."""
        self._patient = {task: None for task in self._patient if task in self.waits}
        for task in self._patient:
            self.enter(task)
        count = 0
        while count != len(self.waits):
            count = len(self.waits)
            super().offer()
            if not self.site.models:
                break
            self._freed = True  # whoever started may have had models leave that others wait for
        for task in self._patient:
            for due_us in (self.came_us(task) + tau for tau in (*self._tau(task)[1:], *self._load_tau(task)[1:])):
                if self.site.now < due_us < inf and due_us not in self._due:
                    self._due.add(int(due_us))
                    self.site.wake(int(due_us))


class SrptOnPlaces(InOrder):
    """In the order of what is left of their jobs, by the fastest run times, whoever fits starts."""

    name: ClassVar[str] = "srpt"

    def begin(self, site: Site) -> None:
        """Begin with nothing left."""
        super().begin(site)
        self._work = RemainingWork(site)

    def released(self, job: int) -> None:
        """Take note of what is to do, and queue up what can be done."""
        self._work.released(job)
        super().released(job)

    def decided(self, job: int, dropped: Sequence[int]) -> None:
        """Take note of what is left."""
        self._work.decided(job)
        self._move(job)
        super().decided(job, dropped)

    def key(self, task: int) -> int:
        """Return what is left of its job."""
        return self._work.remaining_us[self.site.job[task]]

    def start(self, task: int, place: int) -> None:
        """Start a task; less is left of its job."""
        super().start(task, place)
        self._work.started(task)
        self._move(self.site.job[task])

    def _move(self, job: int) -> None:
        """Have those tasks of a job that wait stand where they do now."""
        for task in self.site.job_tasks[job]:
            if task in self.waits:
                self.enter(task)


_ON_PLACES: Mapping[type[Policy], tuple[type[Policy], Callable[[Any], Policy]]] = {
    Srpt: (SrptOnPlaces, lambda _: SrptOnPlaces()),
    Ahead: (AheadOnPlaces, lambda ahead: AheadOnPlaces(ahead.readings.window)),
    Compass: (CompassOnPlaces, lambda _: CompassOnPlaces()),
    Dally: (DallyOnPlaces, lambda dally: DallyOnPlaces(dally.tau_us)),
    Hadar: (HadarOnPlaces, lambda hadar: HadarOnPlaces(hadar.readings)),
    Rltune: (RltuneOnPlaces, lambda rltune: RltuneOnPlaces(rltune.weights)),
}


def on_places(policy: Policy) -> Policy:
    """Return what decides in place of a policy where tasks take several GPUs; itself if nothing does."""
    made = _ON_PLACES.get(type(policy))
    return policy if made is None else made[1](policy)


def rule_on_places(policy: type[Policy]) -> type[Policy]:
    """Return the policy that has the rule of another where tasks take several GPUs; itself if there is none."""
    return _ON_PLACES[policy][0] if policy in _ON_PLACES else policy
