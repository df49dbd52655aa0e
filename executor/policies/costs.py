"""Rows over the workers: run times and transfers as arrays, so that a decision is a few array operations."""

from __future__ import annotations

import numpy as np

from executor.policies.view import Row
from executor.site import Site
from models import NEVER

UNREACHABLE = 1 << 60
"""Stands in rows for "not there": above every time that can add up."""


class RunRows:
    """Run times per template as rows over the workers.

    Attributes
    ----------
    row
        Per template: run time by worker, UNREACHABLE where it cannot run.
    uniform
        Per template: the run time if it is the same on every worker, else None.
    """

    def __init__(self, site: Site) -> None:
        of_worker = np.array(site.gpu_class)
        by_class = np.array(site.run_us, np.int64)
        by_class[by_class == NEVER] = UNREACHABLE
        self.row: list[Row] = [times[of_worker] for times in by_class]
        self.uniform: list[int | None] = [
            int(times[0]) if times[0] < UNREACHABLE and (times == times[0]).all() else None for times in by_class
        ]


def load_rows(site: Site) -> list[Row]:
    """Return, per model, its load times as a row over the workers; 0 where it may not be."""
    of_worker = np.array(site.gpu_class)
    return [np.maximum(np.array(times, np.int64), 0)[of_worker] for times in site.load_us]


class TransferRows:
    """Transfer times per edge as rows over the receiving workers.

    Parameters
    ----------
    site
        For the network, the GPU classes and the servers.
    """

    def __init__(self, site: Site) -> None:
        of_worker = np.array(site.gpu_class)
        self._class = site.gpu_class
        self._far: list[list[Row]] = [
            [np.array(targets, np.int64)[of_worker, 0] for targets in sources] for sources in site.transfer_us
        ]
        self._near: list[list[Row]] = [
            [np.array(targets, np.int64)[of_worker, 1] for targets in sources] for sources in site.transfer_us
        ]
        servers = np.array(site.gpu_server)
        alike = all(
            (near == far).all()
            for a, b in zip(self._near, self._far, strict=True)
            for near, far in zip(a, b, strict=True)
        )
        self._neighbours = [
            None if alike or (servers == server).sum() == 1 else np.flatnonzero(servers == server)
            for server in site.gpu_server
        ]

    def arrive(self, edge: int, source: int, sent_us: int, out: Row) -> None:
        """Write when an output that leaves one worker reaches each worker."""
        of_class = self._class[source]
        np.add(self._far[edge][of_class], sent_us, out=out)
        neighbours = self._neighbours[source]
        if neighbours is not None:
            out[neighbours] = self._near[edge][of_class][neighbours] + sent_us
        out[source] = sent_us
