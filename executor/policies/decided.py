"""What a server that decides knows of its own decisions before they are published."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class OwnDecisions:
    """Work that servers have given to workers and that no publication contains yet, by who decided it.

    A task whose inputs are on their way counts from the decision until it queues up at its worker, and from then on
    until the next publication, which contains it. One that waits for its predecessors is in no publication: it counts
    until the next one alone, and anew once the last of its inputs leaves for it. What is sent elsewhere by another
    server, or will not run after all, counts until the next publication as well: no sooner does who decided it learn
    of that.

    Parameters
    ----------
    gpu_server
        Server per worker.
    apart
        Whether every server decides for itself; else there is one dispatcher, and each sees all decisions.

    Attributes
    ----------
    coming, queued
        Per server that decides, a row over the workers: what does not queue there yet, and what has queued up since
        the last publication, which a worker's own server sees anyway. Shape [workers], microseconds.
    """

    def __init__(self, gpu_server: Sequence[int], apart: bool) -> None:
        self._dispatcher = {server: server if apart else gpu_server[0] for server in gpu_server}
        made = {name: np.zeros((2, len(gpu_server)), np.int64) for name in self._dispatcher.values()}
        self.coming: dict[int, NDArray[np.int64]] = {at: made[name][0] for at, name in self._dispatcher.items()}
        self.queued: dict[int, NDArray[np.int64]] = {at: made[name][1] for at, name in self._dispatcher.items()}
        # By dispatcher; numpy takes twice as long over a single entry.
        self._coming_of = {name: rows[0].data for name, rows in made.items()}
        self._queued_of = {name: rows[1].data for name, rows in made.items()}
        # Who decided, where to, and how much work: of tasks that do not queue yet, and of those that are settled.
        self._open: dict[int, tuple[int, int, int]] = {}
        self._settled: list[tuple[int, int, int]] = []
        self._planned: set[int] = set()

    def decide(self, task: int, gpu: int, server: int, work_us: int, leaves: bool) -> None:
        """Note that a server gives a task to a worker, in place of what was decided before.

        Parameters
        ----------
        leaves
            Whether inputs are on their way to it, or it needs none.
        """
        who = self._dispatcher[server]
        if task in self._open:
            before, at, noted_us = self._open[task]
            # Who decides anew knows that at once; another server learns of it with the next publication.
            if before == who:
                self._coming_of[who][at] -= noted_us
            else:
                self.settle(task)
        self._open[task] = who, gpu, work_us
        self._coming_of[who][gpu] += work_us
        if leaves:
            self._planned.discard(task)
        else:
            self._planned.add(task)

    def settle(self, task: int) -> None:
        """Note that a task queues up, or will not: the next publication shows that."""
        if task not in self._open:
            return
        who, gpu, work_us = note = self._open.pop(task)
        self._planned.discard(task)
        self._coming_of[who][gpu] -= work_us
        self._queued_of[who][gpu] += work_us
        self._settled.append(note)

    def publish(self) -> None:
        """Forget what counts no longer once everything up to now is published."""
        while self._planned:
            who, gpu, work_us = self._open.pop(self._planned.pop())
            self._coming_of[who][gpu] -= work_us
        while self._settled:
            who, gpu, work_us = self._settled.pop()
            self._queued_of[who][gpu] -= work_us
