"""What tasks have put out, to which GPUs it has travelled, and until when somebody needs it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from truenorth.executor.devices.digests import Digest, digest
from truenorth.executor.devices.station import StationWork
from truenorth.models import Instance

_NOTHING = torch.empty(0, dtype=torch.uint8)


class Outputs:
    """Outputs of tasks, and copies of them that have reached the GPU of a successor.

    Parameters
    ----------
    instance
        Who needs what.
    keep
        Whether outputs stay after the last use.

    Attributes
    ----------
    of
        By task.
    digests
        Of outputs that nobody needs any more, by task.
    """

    def __init__(self, instance: Instance, keep: bool) -> None:
        self.of: dict[int, Tensor] = {}
        self.digests: dict[int, Digest] = {}
        self._instance, self._keep = instance, keep
        self._job: list[int] = instance.task_job.tolist()
        self._first: list[int] = instance.job_first_task.tolist()
        self._template: list[int] = instance.task_template.tolist()
        self._received: dict[tuple[int, int], dict[int, Tensor]] = {}
        self._ran_on: dict[int, int] = {}
        self._uses_left = [len(instance.outputs[template]) for template in self._template]

    def note_place(self, tasks: Sequence[int], gpu: int) -> None:
        """Take note of where tasks run, or would have."""
        for task in tasks:
            self._ran_on[task] = gpu

    def receive(self, source: int, target: int, gpu: int, output: Tensor) -> None:
        """Keep a copy for a task that has no place yet.

        It was sent before its task moved elsewhere if that has one, and nobody wants it.
        """
        if target not in self._ran_on:
            self._received.setdefault((source, target), {})[gpu] = output

    def work(self, task: int, gpu: int, run_us: int, coming: Collection[int] = ()) -> StationWork:
        """Return a task with the inputs that have reached its GPU.

        Parameters
        ----------
        coming
            Tasks that have not put anything out yet; `complete` is to fill their outputs in.
        """
        job = self._job[task]
        workflow, first = self._instance.jobs[job].workflow, self._first[job]
        described, inputs = workflow.tasks[task - first], {}
        for edge in described.inputs:
            source = first + workflow.position[edge.source]
            if source in coming:
                output = _NOTHING
            elif self._ran_on[source] == gpu:
                output = self.of[source]
            else:
                output = self._received[source, task][gpu]
            inputs[edge.source] = output, edge.size_bytes
        needs = self._instance.needs[self._template[task]]
        return StationWork(job, workflow.name, described.name, run_us, needs, inputs)

    def complete(self, work: StationWork, task: int, fresh: Mapping[int, Tensor]) -> None:
        """Fill in what has only just been put out on its GPU, by task."""
        first = self._first[self._job[task]]
        tasks = self._instance.jobs[self._job[task]].workflow.tasks
        for source, output in fresh.items():
            name = tasks[source - first].name if 0 <= source - first < len(tasks) else None
            if name in work.inputs:
                work.inputs[name] = output, work.inputs[name][1]

    def sources(self, task: int) -> list[int]:
        """Return the tasks whose outputs a task needs."""
        return [task + offset for offset, _ in self._instance.inputs[self._template[task]]]

    def edge_bytes(self, source: int, target: int) -> int:
        """Return what travels between two tasks."""
        job = self._job[target]
        tasks, first = self._instance.jobs[job].workflow.tasks, self._first[job]
        name = tasks[source - first].name
        return next(edge.size_bytes for edge in tasks[target - first].inputs if edge.source == name)

    def forget_inputs(self, task: int) -> None:
        """Forget what reached a task that is over, and outputs that it was the last to use."""
        for source in self.sources(task):
            self._received.pop((source, task), None)
            self._uses_left[source] -= 1
            self._forget(source)
        self._forget(task)

    def _forget(self, task: int) -> None:
        if self._uses_left[task] <= 0 and task in self.of:
            self._take_leave(task)

    def finish(self) -> None:
        """Take leave of what nobody was the last to use, since jobs have failed."""
        for task in list(self.of):
            self._take_leave(task)

    def _take_leave(self, task: int) -> None:
        """Keep the digest of an output, and the output itself at most in the host's memory."""
        output = self.of.pop(task)
        if task not in self.digests:
            self.digests[task] = digest(output)
        if self._keep:
            self.of[task] = output.cpu()
