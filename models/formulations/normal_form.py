"""Between timelines and chains: who serves a need, and how long a residency lasts in normal form (rule R7).

A formulation knows a residency as a chain: the load (or time 0) that opens it and the needs it serves, in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from truenorth.models.instance import NONE, Instance
from truenorth.models.metrics import serving_residency
from truenorth.models.timeline import Placement, Residency, Timeline, end_with_gpu


@dataclass(frozen=True, slots=True)
class Chain:
    """A residency by what it serves.

    Parameters
    ----------
    model, gpu
        Indices in the instance; `gpu` may be a place of several, over which the model is split.
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
    serving = serving_residency(instance, timeline, task, model, timeline.place[task])
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
    placements = _shorten_batches(first_jobs, [p for p in timeline.placements if p.task < first_jobs.n_tasks])
    ends_us = {placement.task: placement.end_us for placement in placements}
    task, _ = instance.model_uses()
    chains = []
    for residency, needs in serving_chains(instance, timeline):
        ends = [ends_us[int(task[need])] for need in needs if task[need] < first_jobs.n_tasks]
        if ends:
            slots = () if residency.slot is None else (residency.slot,)
            start, initial = residency.load_start_us, residency.initial
            chains.append(Chain(residency.model, residency.gpu, start, initial, max(ends), slots))
    return normal_form(first_jobs, placements, chains)


def _shorten_batches(instance: Instance, placements: list[Placement]) -> list[Placement]:
    """Return placements with the run times of the batches that are left of larger ones."""
    if not instance.batches:
        return placements
    batch = instance.template_batch[instance.task_template]
    # Those of a batch that are left are the batch now, and a smaller one is no longer.
    members = Counter((int(batch[p.task]), p.gpu, p.start_us) for p in placements)
    times = {(k, gpu, start): instance.batch_time(k, gpu, n) for (k, gpu, start), n in members.items() if k != NONE}
    keys = [(int(batch[p.task]), p.gpu, p.start_us) for p in placements]
    return [
        replace(p, end_us=p.start_us + times[key]) if key in times else p
        for p, key in zip(placements, keys, strict=True)
    ]


def normal_form(instance: Instance, placements: Iterable[Placement], chains: Sequence[Chain]) -> Timeline:
    """Return the timeline of these chains in normal form.

    A residency stays until a load, or a run that holds memory, takes its room, the one whose model is loaded last
    again leaving first; a load of a model that is still there is dropped. It ends with its GPU at the latest (A1).
    """
    placed = list(placements)
    residencies = [end_with_gpu(instance, r) for r in _MemoryReplay(instance, chains, placed).residencies()]
    return Timeline.build(instance.n_tasks, placed, residencies)


@dataclass(slots=True)
class _KeptResidency:
    """A residency while the loads are replayed: until when it is needed, and its slot."""

    residency: Residency
    needed_until_us: int


class _MemoryReplay:
    """Replays loads and runs that hold memory in order of time over all GPUs, and evicts only what they displace."""

    def __init__(self, instance: Instance, chains: Sequence[Chain], placements: Sequence[Placement]) -> None:
        self.instance = instance
        working = instance.template_memory[instance.task_template].tolist() if not instance.one_at_a_time else ()
        self.runs = sorted(
            (
                (run.start_us, run.end_us, gpu, working[run.task])
                for run in placements
                if working[run.task]
                for gpu in instance.places.gpus[run.gpu]
            )
            if working
            else ()
        )
        self.begun: list[tuple[int, int, int, int]] = []
        self.staying: list[_KeptResidency] = []
        self.gone: list[Residency] = []
        self.coming = sorted(chains, key=lambda c: (not c.initial, c.load_start_us, c.gpu))

    def residencies(self) -> list[Residency]:
        """Return all residencies."""
        for position, chain in enumerate(self.coming):
            # At equal times loads come first: their memory is held from the instant on.
            while self.runs and self.runs[0][0] < chain.load_start_us:
                self._begin(position)
            self._open(chain, position)
        while self.runs:
            self._begin(len(self.coming))
        return self.gone + [stay.residency for stay in self.staying]

    def _open(self, chain: Chain, position: int) -> None:
        self._leave_with_gpus(chain.load_start_us)
        # A load of what is still there is dropped: the residency goes on.
        kept = self._on(chain.gpu, chain.model)
        if kept is not None and (kept.residency.slot is None or kept.residency.slot in chain.slots):
            kept.needed_until_us = chain.last_end_us
            return
        now = chain.load_start_us
        for stay in tuple(self.staying):
            if stay.residency.model == chain.model and self._touch(stay, chain.gpu):
                self._evict(stay, now)
        self._make_room(chain, position)
        ready = 0 if chain.initial else now + self.instance.load_time(chain.model, chain.gpu)
        slot = self._free_slot(chain) if chain.slots else None
        residency = Residency(chain.model, chain.gpu, now, ready, None, slot, chain.initial)
        self.staying.append(_KeptResidency(residency, chain.last_end_us))

    def _leave_with_gpus(self, now: int) -> None:
        """Count no longer what has gone with its GPU: another model need not make room for it."""
        for stay in () if self.instance.always_available else tuple(self.staying):
            gone_us = end_with_gpu(self.instance, stay.residency).end_us
            if gone_us is not None and gone_us <= now:
                self._evict(stay, gone_us)

    def _begin(self, position: int) -> None:
        """Begin the next run that holds memory."""
        start_us, _, gpu, _ = run = self.runs.pop(0)
        self.begun = [other for other in self.begun if other[1] > start_us] + [run]
        for stay in sorted(self.staying, key=lambda stay: -self._next_load(stay, position - 1)):
            here = self._touch(stay, gpu)
            if here and self._overfull(gpu, [], start_us) and stay.needed_until_us <= start_us:
                self._evict(stay, start_us)

    def _make_room(self, chain: Chain, position: int) -> None:
        """Evict what is done, furthest next load first, until the model fits its GPU and its number of replicas."""
        now = chain.load_start_us
        # Belady: what is loaded last again leaves first, so that no later load is needed in vain.
        for stay in sorted(self.staying, key=lambda stay: -self._next_load(stay, position)):
            same_model = stay.residency.model == chain.model and self._too_many(chain)
            same_gpu = self._touch(stay, chain.gpu) and self._too_full(chain, stay)
            in_the_way = same_model or (same_gpu and (not chain.slots or stay.residency.slot in chain.slots))
            if in_the_way and stay.needed_until_us <= now:
                self._evict(stay, now)

    def _next_load(self, stay: _KeptResidency, position: int) -> int:
        """Return the position of the next load of the same model there; past the end if there is none."""
        for later in range(position + 1, len(self.coming)):
            chain = self.coming[later]
            if chain.gpu == stay.residency.gpu and chain.model == stay.residency.model:
                return later
        return len(self.coming)

    def _touch(self, stay: _KeptResidency, place: int) -> bool:
        """Say whether a residency is on a GPU of a place."""
        here, gpus = stay.residency.gpu, self.instance.places.gpus
        return here == place or not set(gpus[here]).isdisjoint(gpus[place])

    def _too_full(self, chain: Chain, stay: _KeptResidency) -> bool:
        """Say whether a model lacks room on a GPU that would have more of it without a residency."""
        if chain.slots:
            return self._free_slot(chain) is None
        size, gpus = self.instance.held_bytes(chain.model, chain.gpu), self.instance.places.gpus
        common = set(gpus[chain.gpu]).intersection(gpus[stay.residency.gpu])
        return any(self._overfull(gpu, [size], chain.load_start_us) for gpu in common)

    def _overfull(self, gpu: int, more: list[int], now: int) -> bool:
        """Say whether the models on a GPU, and more bytes, exceed its memory beside what runs hold now."""
        stays = (stay.residency for stay in self.staying if self._touch(stay, gpu))
        held = [self.instance.held_bytes(stay.model, stay.gpu) for stay in stays] + more
        working = sum(size for _, end, where, size in self.begun if where == gpu and end > now)
        return not self.instance.cluster.gpus[gpu].fits(held, working)

    def _too_many(self, chain: Chain) -> bool:
        most = self.instance.restrictions.max_replicas.get(self.instance.models[chain.model].name)
        return most is not None and sum(stay.residency.model == chain.model for stay in self.staying) >= most

    def _free_slot(self, chain: Chain) -> int | None:
        taken = {stay.residency.slot for stay in self.staying if stay.residency.gpu == chain.gpu}
        given = [r.slot for r in self.instance.initial if r.gpu == chain.gpu and r.model == chain.model]
        # An initial residency has the slot that it had before time 0.
        wanted = given if chain.initial else chain.slots
        return next((slot for slot in wanted if slot is not None and slot not in taken), None)

    def _on(self, gpu: int, model: int) -> _KeptResidency | None:
        return next((s for s in self.staying if s.residency.gpu == gpu and s.residency.model == model), None)

    def _evict(self, stay: _KeptResidency, now: int) -> None:
        self.staying.remove(stay)
        self.gone.append(replace(stay.residency, end_us=now))
