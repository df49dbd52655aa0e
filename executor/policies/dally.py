"""Dally (arXiv 2401.16492): delay scheduling. A task declines worse places for a while, for a better one may fall free.

There the levels of a place are machine, rack and network; here they are what stands between the task and its start on a
GPU: nothing, a load, or a load that evicts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from typing import ClassVar

from truenorth.executor.execution import NOWHERE
from truenorth.executor.policies.central import CentralQueue
from truenorth.executor.policies.eviction import fit_slots
from truenorth.executor.policies.options import QueueOptions, duration, option
from truenorth.executor.policies.view import CostRows
from truenorth.executor.policy import Knows
from truenorth.executor.site import Site
from truenorth.models import NEVER

AUTO = -1.0
"""Stands for a patience that follows the waits."""
RECENT = 0.1
"""Weight of the latest wait in the mean of the waits."""
MOST_LOADS = 4
"""Most load times of patience."""
_WORST = 2
"""The level of an offer that takes an eviction."""


def patience(text: str) -> float:
    """Read a time with its unit, ``inf`` or ``auto``.

    >>> patience("500 ms"), patience("inf"), patience("auto") == AUTO
    (500000, inf, True)
    """
    if text in ("auto", "inf"):
        return AUTO if text == "auto" else inf
    try:
        return duration(text)
    except ValueError as error:
        raise ValueError(f"{error}, auto or inf") from None


@dataclass(frozen=True, slots=True)
class DallyOptions:
    """Readings of delay scheduling.

    Parameters
    ----------
    tau
        How long a task declines GPUs that would have to evict for it, in microseconds; those that would only have to
        load, half as long. 0: greedy; inf: sticky; ``auto``: twice the mean of the last waits of tasks of the same
        models for a GPU that held them (exponential, weight 0.1; at first their load time), at most four load times.
    period
        The queue is central, and what it sees of memories is fresh unless a period is given.
    """

    tau: float = option(AUTO, patience)
    period: int = option(0, duration)


class Dally(CentralQueue):
    """One queue in the order in which tasks became ready; idle GPUs are offered to them in turn.

    An offer is of level 0 if all models are ready on the GPU, 1 if they can be loaded without an eviction, else 2. A
    task takes the lowest level offered once it has waited tau_l since it was ready (tau_0 = 0, tau_1 = tau / 2,
    tau_2 = tau), and any offer if some model of it is neither ready nor being loaded anywhere; with tau = inf, if no
    GPU that can run it has, or is loading, all of them. Equal offers: a GPU of the job's ingress server, then the
    lowest index. Victims are the least recently used models.
    """

    Options: ClassVar[type[object]] = DallyOptions
    knows: ClassVar[Knows] = Knows.NOTHING

    def __init__(self, options: DallyOptions | None = None) -> None:
        readings = options or DallyOptions()
        self.tau_us = readings.tau
        super().__init__(QueueOptions(period=readings.period, prefetch=0, evict="lru"))

    def begin(self, site: Site) -> None:
        """Count where each model is."""
        super().begin(site)
        self._mean_wait: dict[tuple[int, ...], float] = {}
        self._groups: dict[int, deque[int]] = {}
        # Idle GPUs that all who wait have declined: they are offered anew only to whom something has changed for.
        self._asked: set[int] = set()
        self._to_ask: set[int] = set()
        # By instant: templates whose first task is less patient from then on.
        self._due: dict[int, set[int]] = {}
        self._load_us = CostRows(self._fastest_loads)
        self._copies = [0] * len(site.models)
        self._ready_on: list[set[int]] = [set() for _ in site.models]
        for gpu, memory in enumerate(site.memory):
            for model in memory.residents:
                self._copies[model] += 1
            for model in memory.ready:
                self._ready_on[model].add(gpu)

    def runnable(self, task: int, server: int) -> None:
        """Let a task wait behind those of its kind: they take what it takes, and at least as soon."""
        self.ready_us[task] = self.site.now
        template = self.site.template[task]
        group = self._groups.setdefault(template, deque())
        # The first of a group has been offered nothing yet.
        if not self._waits(template):
            self._to_ask.add(template)
        group.append(task)

    def came(self, gpu: int) -> None:
        """Offer it to all."""
        self._asked.discard(gpu)
        super().came(gpu)

    def offer(self) -> None:
        """Offer GPUs that have become idle to all who wait, and all idle ones to those for whom something changed."""
        again = self._to_ask | self._due.pop(self.site.now, set())
        # GPUs that nobody has declined so far.
        fresh = self.idle - self._asked
        self._to_ask = set()
        # Without a fresh GPU only those are asked for whom something changed.
        asked = self._groups if fresh else again
        heads = [self._head(template) for template in asked if self._waits(template)]
        heapify(heads)
        while heads and self.idle:
            _, task, template = heappop(heads)
            if task not in self.ready_us:  # another one took it along
                if self._waits(template):
                    heappush(heads, self._head(template))
                continue
            # Who declined before is asked about fresh GPUs alone: of the others it thinks as it did.
            best = self._best_offer(task, self.idle if template in again else fresh & self.idle)
            if best is None:
                self._ask_again(task, template)
                continue
            self._groups[template].popleft()
            self._take(task, *best)
            if self._waits(template):
                heappush(heads, self._head(template))
        self._asked = set(self.idle)

    def _waits(self, template: int) -> bool:
        """Say whether a task of a group waits, after dropping those that others took along."""
        group = self._groups[template]
        while group and group[0] not in self.ready_us:
            group.popleft()
        return bool(group)

    def _head(self, template: int) -> tuple[int, int, int]:
        """Return the first task of a group behind its turn."""
        task = self._groups[template][0]
        return self.ready_us[task], task, template

    def _ask_again(self, task: int, template: int) -> None:
        """Have a task that declined asked again when it has become less patient."""
        now = self.site.now
        for tau in self._tau(template)[1:]:
            due_us = self.ready_us[task] + tau
            if now < due_us < inf and template not in self._due.setdefault(int(due_us), set()):
                self._due[int(due_us)].add(template)
                self.site.wake(int(due_us))

    def _tau(self, template: int) -> tuple[float, float, float]:
        """Return how long a task declines offers of each level, in whole microseconds."""
        needs, tau = self.site.needs[template], self.tau_us
        if tau == AUTO and needs:
            load_us = self._load_us[template]
            # Whole microseconds, since it is woken at them.
            tau = min(2 * self._mean_wait.setdefault(needs, load_us), MOST_LOADS * load_us) // 1
        half = tau if tau == inf else tau // 2
        return (0, half, tau) if needs else (0, 0, 0)

    def _fastest_loads(self, template: int) -> int:
        """Return the load time of the models of a template, each where it is least."""
        site = self.site
        return sum(min(us for us in site.load_us[model] if us != NEVER) for model in site.needs[template])

    def _best_offer(self, task: int, gpus: set[int]) -> tuple[int, int] | None:
        """Return level and GPU of the best offer if the task takes it."""
        site, template = self.site, self.site.template[task]
        needs, waited_us = site.needs[template], site.now - self.ready_us[task]
        # A model that is nowhere has to be loaded in any case: waiting gains nothing.
        patient = all(self._copies[model] for model in needs) and (self.tau_us < inf or self._have_met(task, needs))
        tau = self._tau(template) if patient else (0, 0, 0)
        holders = gpus.intersection(*(self._ready_on[model] for model in needs))
        able = [gpu for gpu in holders if self.can_run(task, gpu)]
        favoured = self.favoured(task)
        if able:
            return 0, min(able, key=lambda gpu: (gpu not in favoured, gpu))
        if waited_us < tau[1]:
            return None  # too patient for either of the levels that are left
        best = _WORST + 1, NOWHERE
        # The ingress server's first, so that it wins among equals.
        for gpu in (*(gpu for gpu in favoured if gpu in gpus), *sorted(gpus)):
            if self.can_run(task, gpu):
                level = self._level(gpu, needs)
                best = best if best[0] <= level else (level, gpu)
                # No better one is left, since no GPU has all models.
                if level == 1:
                    break
        return None if best[0] > _WORST or waited_us < tau[best[0]] else best

    def _have_met(self, task: int, needs: tuple[int, ...]) -> bool:
        """Say whether a GPU that can run a task has, or is loading, all its models: no other is worth waiting for."""
        wanted = set(needs)
        return any(
            wanted <= memory.residents.keys() and self.can_run(task, gpu) for gpu, memory in enumerate(self.site.memory)
        )

    def _level(self, gpu: int, needs: tuple[int, ...]) -> int:
        """Return what stands between a task with these needs and its start on an idle GPU that lacks some of them."""
        memory, size = self.site.memory[gpu], self.site.weight_bytes
        absent = [size[model] for model in needs if model not in memory.ready]
        fits = fit_slots(absent, memory.empty_slots) if memory.slots else sum(absent) <= memory.free_bytes
        return 1 if fits else _WORST

    def _take(self, task: int, level: int, gpu: int) -> None:
        """Bind a task; of those that found their models ready, the waits are remembered."""
        needs = self.site.needs[self.site.template[task]]
        # Others say how long a load takes, and not how soon a GPU with the models falls free.
        if not level and needs in self._mean_wait:
            waited = self.site.now - self.ready_us[task]
            self._mean_wait[needs] += RECENT * (waited - self._mean_wait[needs])
        self.bind_batch(task, gpu)

    def _load(self, gpu: int, model: int, evict: Sequence[int], slot: int | None) -> None:
        super()._load(gpu, model, evict, slot)
        self._copies[model] += 1

    def loaded(self, model: int, gpu: int) -> None:
        """Take note of where the model is ready."""
        self._ready_on[model].add(gpu)

    def evicted(self, model: int, gpu: int) -> None:
        """Count the copies; who waits for a model that is gone everywhere is asked again, the sticky ones at once."""
        self._ready_on[model].discard(gpu)
        self._copies[model] -= 1
        if not self._copies[model] or self.tau_us == inf:
            needs = self.site.needs
            self._to_ask.update(t for t in self._groups if model in needs[t] and self._waits(t))
