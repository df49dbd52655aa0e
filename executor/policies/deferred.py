"""Deferred batching (Symphony, arXiv 2308.07470): a batch waits for more as long as that makes nobody late."""

from __future__ import annotations

from collections.abc import Sequence

from executor.policies.due_queue import DueQueue, Group


class Deferred(DueQueue):
    """A batch starts once it is full, or once waiting longer would miss the earliest due time less its run time.

    Its size is what waits, up to the largest; what comes meanwhile makes it run longer, and so start earlier. The paper
    drops what can no longer be on time; here nothing is dropped: what is late waits no more, and takes along what else
    waits of its class, those on time first.
    """

    def batch_now(self, group: Group, gpu: int) -> Sequence[int]:
        """Return the batch that an idle GPU starts now; it is asked again when the batch has to start."""
        first = self.on_time(group, gpu)
        largest = self.batches.largest(self.site.template[group[0][1]], gpu)
        size = min(largest, len(group))
        latest_us = group[0][0] - self.run_us(group[0][1], gpu, size)
        if size < largest and self.site.now < latest_us:
            self.site.wake(latest_us)
            return ()
        return [task for _, task in (*group[first:], *group[:first])[:size]]
