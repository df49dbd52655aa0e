"""Queues that are served strictly in order: a task keeps its place while its inputs are on the way."""

from __future__ import annotations

from executor.policies.queueing import QueuePolicy


class HeadFirst(QueuePolicy):
    """Base of the policies that queue a task up when they place it, and let nothing pass it."""

    def place_in_queue(self, task: int, gpu: int) -> None:
        """Send a task to a GPU, where it takes its place at once."""
        self.place(task, gpu)
        self.enqueue(task, gpu)

    def arrived(self, task: int, missing: int) -> None:
        """Take note of a task that can run: it has its place already."""
        if not missing:
            self.batches.ready(task)

    def next_in_turn(self, gpu: int) -> int | None:
        """Return the place of the head, once its inputs are there."""
        queue = self.queue[gpu]
        return 0 if queue and not self.site.inputs_missing[queue[0]] else None
