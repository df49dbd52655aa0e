"""Compass (arXiv 2402.17652), the strongest honest reading of the paper; every reading is an option."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from executor.policies.costs import least
from executor.policies.options import QueueOptions, factor, option, switch
from executor.policies.planning import JobPlanner
from executor.policies.queueing import QueuePolicy
from executor.policies.view import PublishedView, Row
from executor.site import Site


@dataclass(frozen=True, slots=True)
class CompassOptions(QueueOptions):
    """Readings of Compass.

    Parameters
    ----------
    adjust
        Whether a task is placed anew when its predecessor finishes and its planned worker has become busy.
    threshold
        A task stays where it was planned while the wait there is at most so many times its run time.
    """

    adjust: bool = option(True, switch)
    threshold: float = option(1.5, factor)


class _SeenCosts:
    """Load costs as the view of one server shows them: nothing is reserved while a job is planned."""

    def __init__(self, view: PublishedView, server: int) -> None:
        self._view, self._server = view, server

    def add(self, row: Row, needs: tuple[int, ...], out: Row) -> None:
        """Add TD."""
        self._view.add_load_costs(row, needs, self._server, out)

    def placed(self, worker: int, needs: tuple[int, ...]) -> None:
        """Change nothing."""


class Compass(QueuePolicy):
    """Plans a job on its arrival, by the server where it arrives, from the published view of every worker.

    Tasks are placed in decreasing rank on the worker of the earliest start, a missing model counting with its load
    time, or twice that if something must be evicted; several missing models add up. With `adjust`, a task with one
    predecessor whose planned worker's wait exceeds `threshold` x R(t) when that predecessor finishes moves to the
    worker with the least wait + TD + input transfer; a join stays.
    """

    Options: ClassVar[type[object]] = CompassOptions

    def __init__(self, options: CompassOptions | None = None) -> None:
        self.readings = options or CompassOptions()
        super().__init__(self.readings)

    def begin(self, site: Site) -> None:
        """Set up the planner."""
        super().begin(site)
        self._planner = JobPlanner(site)

    def released(self, job: int) -> None:
        """Plan the job, and let its first tasks queue."""
        site, view = self.site, self.view
        server = site.job_ingress[job]
        view.advance()
        available = view.waits(server, site.now)
        where = self._planner.plan(job, available, _SeenCosts(view, server), view.gpus_of[server])
        for task, gpu in where:
            self.place(task, gpu)

    def reconsider(self, task: int, edge: int, here: int) -> None:
        """Adjust the plan, unless the task is a join."""
        site, view = self.site, self.view
        template, planned, server = site.template[task], site.gpu[task], site.gpu_server[here]
        if not self.readings.adjust or len(site.inputs[template]) > 1:
            return
        view.advance()
        if view.wait(planned, server) <= self.readings.threshold * site.run_time(task, planned):
            return
        row = view.waits(server, view.boundary_us)
        self._planner.runs.add_to(row, template)
        view.add_load_costs(row, site.needs[template], server, out=row)
        self._planner.transfers.add_to(row, edge, here)
        best = least(row, view.gpus_of[site.job_ingress[site.job[task]]])
        if best != planned:
            self.place(task, best)
