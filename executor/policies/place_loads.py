"""Loads at places: what a run lacks where it is to run is loaded once all GPUs of its place are its own.

Its inputs may travel meanwhile; it starts when it has both.
Whatever else is there leaves as far as its room is needed: nothing uses it, for a run that did would hold its GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from truenorth.executor.site import Site
from truenorth.models.gpu_state import IDLE

Order = Callable[[int, Sequence[int]], Sequence[int]]
"""In what order models leave a GPU."""


class PlaceLoads:
    """The runs that have their places and wait for models or inputs.

    Parameters
    ----------
    site
        Where they load and start.
    order
        In what order models leave a GPU; None: the least recently used first.

    Attributes
    ----------
    waiting
        By GPU: the run that holds it and waits.

    Notes
    -----
    Invariant: every run that waits starts, once its inputs are there.
    Because: its models and what it holds fit every GPU of its place, no other run or load is there, and what is ready
        and not its own can leave.
    If wrong: loud; the site refuses what does not fit, and the engine a policy that stalls.
    """

    def __init__(self, site: Site, order: Order | None = None) -> None:
        self._site, self._order = site, order or self._least_recent
        self._used_us: list[dict[int, int]] = [{} for _ in range(site.n_gpus)]
        self.waiting: dict[int, int] = {}
        # What runs of each template would load at each place, as it was last seen.
        self._missing_us: dict[tuple[int, int, int], int] = {}
        self._seen_us = -1

    def holder(self, place: int) -> int:
        """Return the run that waits at a place, or holds it with other GPUs."""
        return self.waiting[self._site.places[place][0]]

    def is_loading(self, task: int) -> bool:
        """Say whether a run holds its place and has not started, for which models are loaded."""
        site = self._site
        return bool(site.needs[site.template[task]]) and self.waiting.get(site.places[site.gpu[task]][0]) == task

    def missing_us(self, task: int, place: int, evicting: int = 1, coming: Container[tuple[int, int]] = ()) -> int:
        """Return how long a run would have to load at a place that nothing else uses, by what is there now.

        Parameters
        ----------
        evicting
            A load counts so many times where something has to leave for it.
        coming
            Models that will be there anyhow, each with where.
        """
        site, template = self._site, self._site.template[task]
        if coming or not site.needs[template]:
            return self._sum_up(task, place, evicting, coming)
        if site.now != self._seen_us:
            self._missing_us.clear()
            self._seen_us = site.now
        key = template, place, evicting
        if key not in self._missing_us:
            self._missing_us[key] = self._sum_up(task, place, evicting, coming)
        return self._missing_us[key]

    def _sum_up(self, task: int, place: int, evicting: int, coming: Container[tuple[int, int]]) -> int:
        site, total = self._site, dict[int, int]()
        lacking = site.lacks(task, place) if site.needs[site.template[task]] else ()
        for model, where in lacking:
            if (model, where) not in coming:
                total[where] = total.get(where, 0) + site.load_time(model, where)
        if evicting > 1:
            for where in total:
                parts = sum(site.part_bytes(model, at) for model, at in lacking if at == where)
                if any(site.memory[gpu].free_bytes < parts for gpu in site.places[where]):
                    total[where] *= evicting
        return max(total.values(), default=0)

    def longest_us(self, task: int, place: int) -> int:
        """Return how long a run would have to load at a place where it finds nothing."""
        site = self._site
        needs = site.needs[site.template[task]]
        return max(sum(site.load_time(model, where) for model in needs) for where in site.model_places(task, place))

    def has_all(self, task: int, place: int) -> bool:
        """Say whether a place has all models that a run needs there, or loads them."""
        site = self._site
        needs, where = site.needs[site.template[task]], site.model_places(task, place)
        return all(
            model in site.memory[site.places[each][0]].residents
            and site.stay_place(site.places[each][0], model) == each
            for model in needs
            for each in where
        )

    def leaving(self, task: int, place: int) -> list[tuple[int, int]]:
        """Return what would leave for a run at a place that nothing else uses, each model with where it is now."""
        site, gone = self._site, dict[tuple[int, int], None]()
        lacking = site.lacks(task, place)
        wanted = dict.fromkeys(site.places[place], site.task_bytes[site.template[task]])
        for model, where in lacking:
            for gpu in site.places[where]:
                wanted[gpu] += site.part_bytes(model, where)
                if model in site.memory[gpu].residents:  # in another form
                    gone[model, site.stay_place(gpu, model)] = None
        for gpu, wanted_bytes in wanted.items():
            memory = site.memory[gpu]
            stays = {model: (model, site.stay_place(gpu, model)) for model in memory.residents}
            free_bytes = memory.free_bytes + sum(memory.held_bytes(each) for each in stays if stays[each] in gone)
            own = set(site.needs[site.template[task]])
            for model in self._order(gpu, [each for each in stays if each not in own and stays[each] not in gone]):
                if free_bytes >= wanted_bytes:
                    break
                gone[stays[model]] = None
                free_bytes += memory.held_bytes(model)
        return list(gone)

    def go_on(self, task: int) -> None:
        """Load what a run lacks at its place, all of which is its own, one model at a time; start it if it has all.

        To be asked again whenever a load or the last of its inputs has arrived.
        """
        site = self._site
        place = site.gpu[task]
        self._missing_us.clear()
        self.waiting.update(dict.fromkeys(site.places[place], task))
        lacking = site.lacks(task, place)
        for model, where in lacking:
            gpus = site.places[where]
            if all(site.state[gpu].loading == IDLE for gpu in gpus):
                for gpu in gpus:
                    if model in site.memory[gpu].residents:  # in another form
                        site.evict(gpu, model)
                for gpu in gpus:
                    self._make_room(task, gpu, site.part_bytes(model, where))
                site.load(where, model)
        if lacking or site.inputs_missing[task]:
            return
        for gpu in site.places[place]:
            self._make_room(task, gpu, site.task_bytes[site.template[task]])
            self._used_us[gpu].update(dict.fromkeys(site.needs[site.template[task]], site.now))
            del self.waiting[gpu]
        site.start(task)

    def _make_room(self, task: int, gpu: int, wanted_bytes: int) -> None:
        """Evict from a GPU what a run does not need there, until so much memory is free."""
        site, memory = self._site, self._site.memory[gpu]
        if memory.free_bytes >= wanted_bytes:
            return
        place = site.gpu[task]
        where = place if len(site.model_places(task, place)) == 1 else gpu
        own = {model for model in site.needs[site.template[task]] if site.is_ready(model, where)}
        able = [each for each in memory.residents if each not in own and each != site.state[gpu].loading]
        for model in self._order(gpu, able):
            if memory.free_bytes >= wanted_bytes:
                return
            site.evict(gpu, model)

    def _least_recent(self, gpu: int, models: Sequence[int]) -> Sequence[int]:
        return sorted(models, key=lambda model: self._used_us[gpu].get(model, -1))
