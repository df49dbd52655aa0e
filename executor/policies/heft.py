"""The HEFT of the Compass paper's comparison: it plans as Compass does, blind to load and to locality."""

from __future__ import annotations

import numpy as np

from executor.policies.planning import JobPlanner
from executor.policies.queueing import QueuePolicy
from executor.site import Site


class Heft(QueuePolicy):
    """Planning on arrival with every worker available at once and no load to pay (TD = 0); no adjustment.

    All workers look alike to the head of a job, so it stays at the ingress server. Topcuoglu's HEFT is another
    algorithm (insertion, mean costs): a list heuristic among the solvers.
    """

    def begin(self, site: Site) -> None:
        """Set up the planner."""
        super().begin(site)
        self._planner = JobPlanner(site)

    def released(self, job: int) -> None:
        """Plan the job."""
        site = self.site
        available = np.full(site.n_gpus, site.now, np.int64)
        ingress = self.view.gpus_of[site.job_ingress[job]]
        where = self._planner.plan(job, available, None, ingress)
        for task, gpu in where:
            self.place(task, gpu)
