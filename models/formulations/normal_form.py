"""Between timelines and chains: who serves a need, and how long a residency lasts in normal form (rule R7).

A formulation knows a residency as a chain: the load (or time 0) that opens it and the needs it serves, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.instance import Instance
from models.metrics import serving_residency
from models.timeline import Placement, Residency, Timeline


@dataclass(frozen=True, slots=True)
class Chain:
    """A residency by what it serves.

    Parameters
    ----------
    model, gpu
        Indices in the instance.
    load_start_us
        0 if initial.
    initial
        Whether it needs no load.
    last_end_us
        When the last task that it serves ends.
    slots
        The slots it may take: those of one size; empty if memory is shared by bytes.
    """

    model: int
    gpu: int
    load_start_us: int
    initial: bool
    last_end_us: int
    slots: tuple[int, ...] = ()


def serving_chains(instance: Instance, timeline: Timeline) -> list[tuple[Residency, list[int]]]:
    """Return each residency that serves a task with the needs that it serves, in the order of their starts.

    Needs are numbered as `Instance.model_uses` lists them. Residencies that serve nothing are left out.
    """
    task, model = instance.model_uses()
    serving = serving_residency(instance, timeline, task, model)
    served: dict[int, list[int]] = {}
    for need in np.argsort(timeline.start_us[task], kind="stable"):
        served.setdefault(int(serving[need]), []).append(int(need))
    return [(timeline.residencies[residency], needs) for residency, needs in sorted(served.items())]


def restrict(instance: Instance, timeline: Timeline, first_jobs: Instance) -> Timeline:
    """Return what a timeline does for the first jobs of an instance, in normal form.

    Parameters
    ----------
    first_jobs
        The same instance with only its first jobs.
    """
    placements = [placement for placement in timeline.placements if placement.task < first_jobs.n_tasks]
    task, _ = instance.model_uses()
    chains = []
    for residency, needs in serving_chains(instance, timeline):
        ends = [int(timeline.end_us[task[need]]) for need in needs if task[need] < first_jobs.n_tasks]
        if ends:
            slots = () if residency.slot is None else (residency.slot,)
            start, initial = residency.load_start_us, residency.initial
            chains.append(Chain(residency.model, residency.gpu, start, initial, max(ends), slots))
    return normal_form(first_jobs, placements, chains)


def normal_form(instance: Instance, placements: Iterable[Placement], chains: Sequence[Chain]) -> Timeline:
    """Return the timeline of these chains in normal form.

    A residency stays until a load takes its room, the one whose model is loaded last again leaving first; a load of
    a model that is still there is dropped.
    """
    residencies = _Memory(instance, chains).residencies()
    return Timeline.build(instance.n_tasks, placements, residencies)


@dataclass(slots=True)
class _Stay:
    """A residency while the loads are replayed: until when it is needed, and its slot."""

    residency: Residency
    needed_until_us: int


class _Memory:
    """Replays loads in order of time over all GPUs, and evicts only what a load displaces."""

    def __init__(self, instance: Instance, chains: Sequence[Chain]) -> None:
        self.instance = instance
        self.staying: list[_Stay] = []
        self.gone: list[Residency] = []
        self.coming = sorted(chains, key=lambda c: (not c.initial, c.load_start_us, c.gpu))

    def residencies(self) -> list[Residency]:
        """Return all residencies."""
        for position, chain in enumerate(self.coming):
            self._open(chain, position)
        return self.gone + [stay.residency for stay in self.staying]

    def _open(self, chain: Chain, position: int) -> None:
        kept = self._on(chain.gpu, chain.model)
        if kept is not None and (kept.residency.slot is None or kept.residency.slot in chain.slots):
            kept.needed_until_us = chain.last_end_us
            return
        now = chain.load_start_us
        if kept is not None:
            self._evict(kept, now)
        self._make_room(chain, position)
        ready = 0 if chain.initial else now + self.instance.load_time(chain.model, chain.gpu)
        slot = self._free_slot(chain) if chain.slots else None
        residency = Residency(chain.model, chain.gpu, now, ready, None, slot, chain.initial)
        self.staying.append(_Stay(residency, chain.last_end_us))

    def _make_room(self, chain: Chain, position: int) -> None:
        """Evict what is done, furthest next load first, until the model fits its GPU and its number of replicas."""
        now = chain.load_start_us
        for stay in sorted(self.staying, key=lambda stay: -self._next_load(stay, position)):
            same_model = stay.residency.model == chain.model and self._too_many(chain)
            same_gpu = stay.residency.gpu == chain.gpu and self._too_full(chain)
            in_the_way = same_model or (same_gpu and (not chain.slots or stay.residency.slot in chain.slots))
            if in_the_way and stay.needed_until_us <= now:
                self._evict(stay, now)

    def _next_load(self, stay: _Stay, position: int) -> int:
        """Return the position of the next load of the same model there; past the end if there is none."""
        for later in range(position + 1, len(self.coming)):
            chain = self.coming[later]
            if chain.gpu == stay.residency.gpu and chain.model == stay.residency.model:
                return later
        return len(self.coming)

    def _too_full(self, chain: Chain) -> bool:
        if chain.slots:
            return self._free_slot(chain) is None
        held = [stay.residency.model for stay in self.staying if stay.residency.gpu == chain.gpu] + [chain.model]
        return not self.instance.cluster.gpus[chain.gpu].fits(int(self.instance.weight_bytes[m]) for m in held)

    def _too_many(self, chain: Chain) -> bool:
        most = self.instance.restrictions.max_replicas.get(self.instance.models[chain.model].name)
        return most is not None and sum(stay.residency.model == chain.model for stay in self.staying) >= most

    def _free_slot(self, chain: Chain) -> int | None:
        taken = {stay.residency.slot for stay in self.staying if stay.residency.gpu == chain.gpu}
        given = [r.slot for r in self.instance.initial if r.gpu == chain.gpu and r.model == chain.model]
        wanted = given if chain.initial else chain.slots
        return next((slot for slot in wanted if slot is not None and slot not in taken), None)

    def _on(self, gpu: int, model: int) -> _Stay | None:
        return next((s for s in self.staying if s.residency.gpu == gpu and s.residency.model == model), None)

    def _evict(self, stay: _Stay, now: int) -> None:
        self.staying.remove(stay)
        self.gone.append(replace(stay.residency, end_us=now))
