"""A policy of a user's."""

from __future__ import annotations

from executor import QueuePolicy


class Last(QueuePolicy):
    """Everything goes to the last GPU."""

    def runnable(self, task: int, server: int) -> None:
        """Place a task."""
        self.place(task, self.site.eligible_gpus(task)[-1])
