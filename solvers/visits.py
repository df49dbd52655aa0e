"""GPUs that come and go as GPUs that come once: every interval in which one is there is a GPU of its own.

Nothing outlasts the absence between two intervals of a GPU but the outputs of its tasks, and these have arrived by the
time it is back unless a transfer takes longer than the absence. So the twin has the same plans.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from models import Cluster, InitialResidency, Instance, Restrictions, Timeline, UnsupportedInstanceError
from models.availability import Availability
from models.instance import Ints
from models.timeline import end_with_gpu
from solvers.delegate import Delegate
from solvers.result import Search


@dataclass(frozen=True, slots=True)
class Visits:
    """A window whose GPUs come and go, and its twin.

    Parameters
    ----------
    instance, twin
        GPU g is the twin's GPUs from `first[g]` on, in the order of time.
    of_gpu
        Per GPU of the twin: the GPU whose interval it is.
    """

    instance: Instance
    twin: Instance
    first: Ints
    of_gpu: Ints

    @classmethod
    def of(cls, instance: Instance) -> Visits:
        """Return the twin of a window.

        Raises
        ------
        UnsupportedInstanceError
            If an output may still travel to another GPU of its server when its own GPU is back.
        """
        _refuse_long_transfers(instance)
        gpus, of_gpu = [], list[int]()
        for index, gpu in enumerate(instance.cluster.gpus):
            for interval in gpu.available.intervals:
                gpus.append(replace(gpu, id=f"{gpu.id} from {interval[0]} us", available=Availability((interval,))))
                of_gpu.append(index)
        visited = np.array(of_gpu, np.int64)
        first = np.searchsorted(visited, np.arange(instance.n_gpus)).astype(np.int64)
        twin = Instance(
            Cluster(tuple(gpus), instance.cluster.network),
            instance.models,
            instance.jobs,
            instance.overlap_loads,
            tuple(InitialResidency(int(first[r.gpu]), r.model, r.slot) for r in instance.initial),
            _spread_limits(instance.restrictions, visited),
            instance.catalogue,
        )
        return cls(instance, twin, first, visited)

    def spread(self, timeline: Timeline) -> Timeline:
        """Return the plan on the twin."""
        gpu = [
            self._visit(g, start) for g, start in zip(timeline.gpu.tolist(), timeline.start_us.tolist(), strict=True)
        ]
        stays = [replace(r, gpu=self._visit(r.gpu, r.load_start_us)) for r in timeline.residencies]
        stays.sort(key=lambda r: (r.gpu, r.load_start_us, r.ready_us, r.model))
        return replace(timeline, gpu=np.array(gpu, np.int64), residencies=tuple(stays))

    def gather(self, timeline: Timeline) -> Timeline:
        """Return a plan of the twin as one of the window."""
        stays = (replace(r, gpu=int(self.of_gpu[r.gpu])) for r in timeline.residencies)
        ordered = sorted(stays, key=lambda r: (r.gpu, r.load_start_us, r.ready_us, r.model))
        return replace(timeline, gpu=self.of_gpu[timeline.gpu], residencies=tuple(ordered))

    def close(self, timeline: Timeline) -> Timeline:
        """Return a plan of the twin with every residency over when its GPU goes."""
        return replace(timeline, residencies=tuple(end_with_gpu(self.twin, r) for r in timeline.residencies))

    def _visit(self, gpu: int, instant: int) -> int:
        """Return the GPU of the twin that a GPU is at an instant at which it is there."""
        intervals = self.instance.cluster.gpus[gpu].available.intervals
        return int(self.first[gpu]) + next(k for k, (_, end) in enumerate(intervals) if instant < end)


class TwinSearch(Delegate):
    """A search on the twin, whose plans and bounds go on to the search on the window itself."""

    def __init__(self, search: Search, visits: Visits) -> None:
        self._visits = visits
        super().__init__(search, visits.twin, search.remaining_s)
        if search.timeline is not None:
            Search.offer(self, visits.spread(search.timeline))  # the other has it

    @property
    def proved(self) -> bool:
        """Whether nothing is left to search for, by the bounds of the window as well."""
        return super().proved or self._search.proved

    def finish(self, timeline: Timeline) -> Timeline:
        """Return a plan of the twin with every residency over when its GPU goes."""
        return self._visits.close(timeline)

    def hand_on(self, timeline: Timeline) -> Timeline:
        """Return a plan of the twin as one of the window."""
        return self._visits.gather(self.finish(timeline))


def on_twin(search: Search) -> Search:
    """Return where plans are looked for: the search itself, or where GPUs come and go that on its twin."""
    if search.instance.always_available or isinstance(search, TwinSearch):
        return search
    return TwinSearch(search, Visits.of(search.instance))


def _spread_limits(limits: Restrictions, of_gpu: Ints) -> Restrictions:
    """Return an operator's limits for the GPUs of the twin."""
    models, workflows = (
        {name: frozenset(np.flatnonzero(np.isin(of_gpu, sorted(gpus))).tolist()) for name, gpus in limit.items()}
        for limit in (limits.model_gpus, limits.workflow_gpus)
    )
    return replace(limits, model_gpus=models, workflow_gpus=workflows)


def _refuse_long_transfers(instance: Instance) -> None:
    longest = int(instance.transfer_us[..., 1].max(initial=0))
    for gpu in instance.cluster.gpus:
        for before, after in pairwise(gpu.available.intervals):
            if after[0] - before[1] < longest:
                problem = (
                    f"a transfer within a server takes {longest} us, and {gpu.id} is away for {after[0] - before[1]}"
                )
                raise UnsupportedInstanceError(f"plan: {problem} us; allowed are absences as long as such transfers")
