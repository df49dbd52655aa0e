"""What tasks have put out, to which GPUs it has travelled, and until when somebody needs it; KV of prompts, too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from truenorth.executor.devices.gpu_process import COMING
from truenorth.executor.devices.moved_kv import kv_moves
from truenorth.executor.devices.shelf import Ref
from truenorth.models import Instance


class Outputs:
    """Where the outputs of tasks lie, and copies of them that have reached the GPU of a successor.

    Parameters
    ----------
    instance
        Who needs what.
    leave
        Told of every output that nobody needs any more, with its task.
    free
        Told of every copy that nobody needs any more.

    Attributes
    ----------
    of
        By task, as long as somebody needs it; of one that ran on several GPUs, on the first of them.
    ran_on
        By task that has run, or would have: at which place.
    """

    def __init__(self, instance: Instance, leave: Callable[[int, Ref], None], free: Callable[[Ref], None]) -> None:
        self.of: dict[int, Ref] = {}
        self.ran_on: dict[int, int] = {}
        self._instance, self._leave, self._free = instance, leave, free
        self._job: list[int] = instance.task_job.tolist()
        self._first: list[int] = instance.job_first_task.tolist()
        self._template: list[int] = instance.task_template.tolist()
        self._places = instance.places.gpus
        self._others: dict[int, dict[int, Ref]] = {}
        self._received: dict[tuple[int, int], dict[int, Ref]] = {}
        self._uses_left = [len(instance.outputs[template]) for template in self._template]
        moves = kv_moves(instance)
        self._kv: dict[int, Ref] = {}
        self._kv_source = {target: source for source, target in moves}
        self._waiting = set(self._kv_source)  # who has yet to take in what moves
        self._takers: dict[int, set[int]] = {source: set() for source, _ in moves}
        for source, target in moves:
            self._takers[source].add(target)

    def note_place(self, tasks: Sequence[int], gpu: int) -> None:
        """Take note of where tasks run, or would have."""
        for task in tasks:
            self.ran_on[task] = gpu

    def keep(self, task: int, refs: Sequence[Ref]) -> None:
        """Take note of where an output lies, which each GPU of a place has put out."""
        gpus = self._places[self.ran_on[task]]
        self.of[task] = refs[0]
        self._others[task] = dict(zip(gpus[1:], refs[1:], strict=True))

    def receive(self, source: int, target: int, gpu: int, copy: Ref) -> None:
        """Keep a copy for a task that has no place yet.

        It was sent before its task moved elsewhere if that has one, and nobody wants it.
        """
        if target in self.ran_on:
            self._free(copy)
            return
        received = self._received.setdefault((source, target), {})
        if gpu in received:  # its task was to run there before, moved elsewhere, and has moved back
            self._free(received[gpu])
        received[gpu] = copy

    def lacks(self, source: int, place: int) -> list[int]:
        """Return the GPUs of a place that a task has not run on."""
        ran_on = self._places[self.ran_on[source]]
        return [gpu for gpu in self._places[place] if gpu not in ran_on]

    def places(self, task: int, gpu: int, coming: Collection[int] = ()) -> list[int]:
        """Return where the inputs of a task lie that have reached its GPU: of each the piece and the place in it.

        Parameters
        ----------
        coming
            Tasks that have not put anything out yet; their outputs come on the same lane.
        """
        found: list[int] = []
        for source in self.sources(task):
            if source in coming:
                found += COMING, 0
            else:
                ref = self._on(source, task, gpu)
                found += ref.piece, ref.offset
        return found

    def _on(self, source: int, task: int, gpu: int) -> Ref:
        """Return where an output lies for a task on a GPU."""
        if self.ran_on[source] == gpu:
            return self.of[source]
        ran_on = self._places[self.ran_on[source]]
        if gpu in ran_on:
            return self._others[source].get(gpu, self.of[source])
        return self._received[source, task][gpu]

    def sources(self, task: int) -> list[int]:
        """Return the tasks whose outputs a task needs."""
        return [task + offset for offset, _ in self._instance.inputs[self._template[task]]]

    def moves_kv(self, source: int, target: int) -> bool:
        """Say whether KV is what travels between two tasks."""
        return self._kv_source.get(target) == source

    def between(self, source: int, target: int) -> Ref | None:
        """Return where lies what travels between two tasks; None if nobody needs it any more."""
        return (self._kv if self.moves_kv(source, target) else self.of).get(source)

    def edge_bytes(self, source: int, target: int) -> int:
        """Return what travels between two tasks."""
        job = self._job[target]
        if self.moves_kv(source, target):
            return self._instance.kv_sent_bytes(source, self.ran_on[source])
        tasks, first = self._instance.jobs[job].workflow.tasks, self._first[job]
        name = tasks[source - first].name
        return next(edge.size_bytes for edge in tasks[target - first].inputs if edge.source == name)

    # -- KV ---------------------------------------------------------------------------------------------------------

    def sends_kv(self, task: int) -> bool:
        """Say whether the KV of a request's prompt is to move."""
        return bool(self._takers.get(task))

    def keep_kv(self, task: int, ref: Ref) -> None:
        """Take note of where the KV of a request's prompt lies."""
        self._kv[task] = ref

    def take_kv(self, task: int, gpu: int) -> tuple[int, Ref] | None:
        """Return for a request that joins whose answer it goes on with, and where the KV lies on its GPU; else None."""
        if task not in self._waiting:
            return None
        self._waiting.discard(task)
        source = self._kv_source[task]
        return source, self._kv[source] if self.ran_on[source] == gpu else self._received[source, task][gpu]

    def forget_kv(self, task: int) -> None:
        """Forget KV that reached a request, which has taken it in, and that of a prompt if it was the last to."""
        if task not in self._kv_source:
            return
        source = self._kv_source[task]
        for copy in self._received.pop((source, task), {}).values():
            self._free(copy)
        self._takers[source].discard(task)
        if not self._takers[source] and source in self._kv:
            self._free(self._kv.pop(source))

    def forget_inputs(self, task: int) -> None:
        """Forget what reached a task that is over, and outputs that it was the last to use."""
        self.forget_kv(task)
        for source in self.sources(task):
            for copy in self._received.pop((source, task), {}).values():
                self._free(copy)
            self._uses_left[source] -= 1
            self._forget(source)
        self._forget(task)

    def _forget(self, task: int) -> None:
        if self._uses_left[task] <= 0 and task in self.of:
            self._leave(task, self.of.pop(task))
            self._free_others(task)

    def _free_others(self, task: int) -> None:
        for ref in self._others.pop(task, {}).values():
            self._free(ref)

    def finish(self) -> None:
        """Forget what nobody was the last to use, since jobs have failed."""
        for task, ref in self.of.items():
            self._leave(task, ref)
            self._free_others(task)
        for copies in self._received.values():
            for copy in copies.values():
                self._free(copy)
        for ref in self._kv.values():
            self._free(ref)
        self.of.clear()
        self._kv.clear()
        self._received.clear()
