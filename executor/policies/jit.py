"""JIT: no plan; every task, when it becomes runnable, goes where it could start first."""

from __future__ import annotations

import numpy as np

from executor.policies.costs import RunRows
from executor.policies.queueing import QueuePolicy
from executor.site import Site


class Jit(QueuePolicy):
    """Just-in-time placement: argmin of wait + TD over the workers (several kinds: plus the run time there).

    A task becomes runnable when its last predecessor finishes; the server where that happened decides, by its view.
    Equal workers: lowest index.
    """

    def begin(self, site: Site) -> None:
        """Tabulate run times."""
        super().begin(site)
        self._runs = RunRows(site)
        self._row = np.zeros(site.n_gpus, np.int64)

    def runnable(self, task: int, server: int) -> None:
        """Place the task where it could start (several kinds: finish) first."""
        self.view.advance()
        template = self.site.template[task]
        np.add(self.view.waits(server), self._runs.row[template], out=self._row)
        self.view.add_load_costs(self._row, self.site.needs[template], server)
        self.place(task, int(self._row.argmin()))
