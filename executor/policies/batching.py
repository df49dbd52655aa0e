"""How a worker forms batches from its queue, and makes room for what their tasks hold while they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from truenorth.executor.policies.options import BATCHES_OFF
from truenorth.executor.site import Site
from truenorth.models import NEVER, NONE


class _MemoryKeeper(Protocol):
    """Whoever keeps the memories of the GPUs."""

    def eviction_order(self, gpu: int) -> list[int]:
        """Return the models that may leave, first the first to leave."""

    def evict(self, model: int, gpu: int) -> None:
        """Evict a model."""


class Batches:
    """Forms the batch of a task in turn, as inference servers such as Triton and TorchServe do.

    Parameters
    ----------
    site
        For the classes and what is free.
    delay_us
        How long a batch that is not full waits, counted from when its first task was ready; BATCHES_OFF: no batches.
    memory
        Says which models of a GPU may leave, and evicts them.
    """

    def __init__(self, site: Site, delay_us: int, memory: _MemoryKeeper) -> None:
        self._site, self._delay_us, self._memory = site, delay_us, memory
        self._ready_us: dict[int, int] = {}
        self._full_size: dict[tuple[int, int], int] = {}

    def ready(self, task: int) -> None:
        """Take note that all inputs of a task are there."""
        if self._delay_us > 0 and self._site.batch[self._site.template[task]] != NONE:
            self._ready_us[task] = self._site.now

    def gather(self, task: int, gpu: int, queue: Sequence[int]) -> tuple[int, ...]:
        """Return the task and those that start with it, in the order of the queue; nothing if it has to wait."""
        site, state = self._site, self._site.state[gpu]
        template = site.template[task]
        if site.share[template] > state.free_share:
            return ()
        largest = self.largest(template, gpu)
        if not largest:
            return ()
        batch = site.batch[template]
        if state.runs and state.begins(batch, site.now):
            site.wake(site.now + 1)  # two batches of one class start apart
            return ()
        tasks = [task]
        if largest > 1 and queue:
            tasks = self._alike(task, queue, self._full(batch, gpu))
        if self._ready_us:
            if self._waits(task, gpu, len(tasks)):
                return ()
            for member in tasks[:largest]:
                self._ready_us.pop(member, None)
        del tasks[largest:]
        held = site.task_bytes[template]
        if held:
            self._make_room(gpu, site.needs[template], held * len(tasks))
        return tuple(tasks)

    def _alike(self, task: int, queue: Sequence[int], most: int) -> list[int]:
        """Return a task and those of its class behind it whose inputs are there, at most so many."""
        site, tasks = self._site, [task]
        class_of, template, missing = site.batch, site.template, site.inputs_missing
        batch = class_of[template[task]]
        for other in queue:
            if class_of[template[other]] == batch and not missing[other]:
                tasks.append(other)
                if len(tasks) == most:
                    break
        return tasks

    def largest(self, template: int, gpu: int) -> int:
        """Return the most tasks of a template that can start together on a GPU now; 0 if what runs leaves no room."""
        site = self._site
        batch, held = site.batch[template], site.task_bytes[template]
        most = 1
        if batch != NONE and self._delay_us != BATCHES_OFF:
            most = self._full(batch, gpu)
        if held:
            needs, memory = site.needs[template], site.state[gpu].memory
            room = memory.free_bytes
            room += sum(site.weight_bytes[model] for model in self._memory.eviction_order(gpu) if model not in needs)
            most = min(most, room // held)
        return most

    def _full(self, batch: int, gpu: int) -> int:
        """Return the size of a full batch on an empty GPU."""
        kind = batch, self._site.gpu_class[gpu]
        if kind not in self._full_size:
            times = self._site.batch_us[batch][kind[1]]
            self._full_size[kind] = max((size for size, time_us in enumerate(times) if time_us != NEVER), default=0)
        return self._full_size[kind]

    def _waits(self, task: int, gpu: int, size: int) -> bool:
        """Say whether a batch of so many waits for more; the policy is then called when the time is up."""
        site, since = self._site, self._ready_us.get(task)
        if since is None or size >= self._full(site.batch[site.template[task]], gpu):
            return False
        until_us = since + self._delay_us
        if site.now < until_us:
            site.wake(until_us)
        return site.now < until_us

    def _make_room(self, gpu: int, needs: Sequence[int], held_bytes: int) -> None:
        """Evict until so many bytes are free; there is enough that may leave."""
        memory = self._site.state[gpu].memory
        if held_bytes > memory.free_bytes:
            for model in self._memory.eviction_order(gpu):
                if model not in needs:
                    self._memory.evict(model, gpu)
                if held_bytes <= memory.free_bytes:
                    break
