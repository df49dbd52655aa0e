"""JIT: no plan; every task, when it becomes runnable, goes where it could start first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from executor.policies.costs import RunRows, least
from executor.policies.hashing import hashed_gpu
from executor.policies.options import QueueOptions, one_of, option
from executor.policies.queueing import QueuePolicy
from executor.site import Site


@dataclass(frozen=True, slots=True)
class JitOptions(QueueOptions):
    """Readings of JIT.

    Parameters
    ----------
    roots
        Tasks without predecessors go to the ``least`` wait + TD as all others do, or by ``hash`` as in the simulator
        that one of the Compass authors released.
    """

    roots: str = option("least", one_of("least", "hash"))


class Jit(QueuePolicy):
    """Just-in-time placement: argmin of wait + TD over the workers (several kinds: plus the run time there).

    A task becomes runnable when its last predecessor finishes; the server where that happened decides, by its view.
    Equal workers: those of the job's ingress server, then the lowest index.
    """

    Options: ClassVar[type[object]] = JitOptions

    def __init__(self, options: JitOptions | None = None) -> None:
        self._roots = (options or JitOptions()).roots
        super().__init__(options or JitOptions())

    def begin(self, site: Site) -> None:
        """Tabulate run times."""
        super().begin(site)
        self._runs = RunRows(site)

    def runnable(self, task: int, server: int) -> None:
        """Place the task where it could start (several kinds: finish) first."""
        site, view = self.site, self.view
        template = site.template[task]
        if self._roots == "hash" and not site.inputs[template]:
            self.place(task, hashed_gpu(site, task))
            return
        view.advance()
        row = view.waits(server, view.boundary_us)
        self._runs.add_to(row, template)
        view.add_load_costs(row, site.needs[template], server, out=row)
        self.place(task, least(row, view.gpus_of[site.job_ingress[site.job[task]]]))
