"""Clockwork (OSDI 2020, arXiv 2006.02464): batches as large as the due times of their members allow, one at a time."""

from __future__ import annotations

from collections.abc import Sequence

from executor.policies.due_queue import DueQueue, Group


class Clockwork(DueQueue):
    """An idle GPU runs the largest batch of a class, earliest due first, that is still on time for all its members.

    The paper cancels what can no longer be on time; here it goes last, in batches as large as the class allows. The
    paper's controller sends actions ahead to workers that execute them one at a time; here a GPU is told when it is
    idle, which without noise is the same.
    """

    def batch_now(self, group: Group, gpu: int) -> Sequence[int]:
        """Return the batch that an idle GPU starts now."""
        first = self.on_time(group, gpu)
        largest = self.batches.largest(self.site.template[group[0][1]], gpu)
        if first == len(group):  # all of them are late
            return [task for _, task in group[:largest]]
        due_us, task = group[first]
        size = min(largest, len(group) - first)
        while size > 1 and self.site.now + self.run_us(task, gpu, size) > due_us:
            size -= 1
        return [task for _, task in group[first : first + size]]
