"""The receding horizon where tasks take several GPUs: whenever a job arrives, those who wait are planned anew.

Plans are orders, improved by the local search of plans of such runs. Between two plans a run starts once its GPUs are
free and all that the plan starts before it on a server of its own have started; so nothing waits for ever.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from truenorth.executor import PolicyError, Site
from truenorth.executor.policies.gangs import GangQueue
from truenorth.models.features import Feature, Features
from truenorth.models.instance import Instance, Ints
from truenorth.models.objective import Objective
from truenorth.models.workload import Job
from truenorth.planner.answers.policies.receding_horizon import Oracle, RecedingHorizon, RecedingOptions
from truenorth.solvers.bounds.critical_path import fastest_run_us
from truenorth.solvers.compiled import random_state
from truenorth.solvers.result import Search
from truenorth.solvers.search.gangs import METHOD, PlannedRun, plan_anew

_ENDLESS_S = 1e9
"""The search counts moves, not seconds."""


class RecedingOnPlaces(GangQueue):
    """Plans all who wait, and jobs in sight, at every arrival, and when a run ends off its time by more than tolerated.

    Parameters
    ----------
    options, oracle
        As of `receding`.

    Attributes
    ----------
    decision_s
        Wall-clock seconds of every decision.
    """

    name: ClassVar[str] = "receding"
    supports: ClassVar[Features] = GangQueue.supports - {
        Feature.WORKFLOWS,
        Feature.DELAYS,
        Feature.ABSENCES,
        Feature.MODELS,
        Feature.SPLITS,
    }

    def __init__(self, options: RecedingOptions, oracle: Oracle | None) -> None:
        self._options, self._oracle = options, oracle
        self._objective = Objective(options.objective or Objective.MEAN_SLOWDOWN)
        self._moves = options.moves
        self.decision_s: list[float] = []

    @classmethod
    def looks_ahead(cls, options: object | None) -> bool:
        """Say whether it is given an oracle."""
        return RecedingHorizon.looks_ahead(options)

    def begin(self, site: Site) -> None:
        """Have it called when jobs come into sight."""
        super().begin(site)
        self._random, self._due, self._in_sight = random_state(self._options.seed), False, 0
        self._place = {gpus: place for place, gpus in enumerate(site.places)}
        # Who waits, or is in sight, in the order of planned starts.
        self._planned: dict[int, PlannedRun] = {}
        if self._oracle is not None:
            for release_us in sorted({max(0, us - self._options.lookahead) for us in self._oracle.releases_us}):
                site.wake(release_us)

    def finished(self, task: int, gpu: int) -> None:
        """Have its GPUs free; plan anew if it did not end when it should."""
        off_us = abs(self.site.now - self._end_of[task])
        self._due |= off_us > self._options.tolerance * self.site.run_time(task, gpu)
        super().finished(task, gpu)

    def ending(self, task: int, end_us: int) -> None:
        """Plan anew."""
        super().ending(task, end_us)
        self._due = True

    def act(self, gpus: Sequence[int]) -> None:
        """Plan anew if jobs have come into sight."""
        until_us = self.site.now + self._options.lookahead
        ahead = () if self._oracle is None else self._oracle.next_jobs(len(self.site.jobs), until_us)
        known = len(self.site.jobs) + len(ahead)
        if known > self._in_sight or self._due:
            self._in_sight, self._due = known, False
            begun = time.perf_counter()
            self._plan_anew(ahead)
            self.decision_s.append(time.perf_counter() - begun)
            self._freed = True
        super().act(gpus)

    def offer(self) -> None:
        """Start in the order of the plan who finds its GPUs free, and is behind nobody on its servers."""
        waiting = set[int]()
        for task, run in list(self._planned.items()):
            servers = {self.site.gpu_server[gpu] for gpu in run.among}
            if waiting.isdisjoint(servers) and task in self.waits:
                free = tuple(gpu for gpu in run.among if self.room.is_free(gpu))[: run.takes]
                if len(free) == run.takes:
                    self.start(task, self._place[free])
                    del self._planned[task]
                    continue
            waiting |= servers

    def _plan_anew(self, ahead: Sequence[Job]) -> None:
        """Replace what is left of the plan."""
        site, coming = self.site, len(self.site.gpu)
        # Jobs in sight get the next numbers.
        number = [*self.waits, *range(coming, coming + len(ahead))]
        if not number:
            return
        jobs = (*(site.jobs[site.job[task]] for task in self.waits), *ahead)
        instance = Instance(site.cluster, site.models, jobs, site.overlap_loads, (), site.restrictions)
        search = Search(instance, self._objective, _ENDLESS_S)
        found = plan_anew(search, site.now, self._busy_us(), self._orders(instance, number), self._random, self._moves)
        if found is None:
            raise PolicyError(f"policy receding: its search of orders has no support here: {search.left_out[METHOD]}")
        order = sorted(range(len(number)), key=lambda index: found[index].start_us)
        self._planned = {number[index]: found[index] for index in order}

    def _busy_us(self) -> list[int]:
        """Return per GPU until when it is taken; what is late ends at once."""
        busy_us = [0] * self.site.n_gpus
        for task, end_us in self._end_of.items():
            for gpu in self.site.places[self.site.gpu[task]]:
                busy_us[gpu] = max(end_us, self.site.now + 1)
        return busy_us

    def _orders(self, instance: Instance, number: Sequence[int]) -> list[Ints]:
        """Return two orders to begin with: the plan so far and behind it who is new, and by run time over weight."""
        worth = [max(float(job.weight), 1e-200) for job in instance.jobs]
        shortest = np.argsort(fastest_run_us(instance)[instance.task_template] / worth, kind="stable")
        rank = {task: position for position, task in enumerate(self._planned)}
        before = sorted(shortest.tolist(), key=lambda index: rank.get(number[index], len(rank)))
        return [np.array(before, np.int64), shortest.astype(np.int64)]
