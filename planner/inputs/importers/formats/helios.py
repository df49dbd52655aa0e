"""Helios: jobs of SenseTime's training clusters Earth, Saturn, Uranus and Venus, April to September 2020.

Schema: github.com/S-Lab-System-Group/HeliosData, README, section cluster_log.csv (commit 159f0cae): job_id, user, vc,
gpu_num, cpu_num, node_num, state, submit_time, start_time, end_time, duration, queue. Times have no zone; they are read
as UTC, which shifts all alike (they are local to a country without daylight saving).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from planner.inputs.importers.cluster_jobs import SHARED_BY_OWNER, Ids, OwnerOptions, read_jobs
from planner.inputs.importers.csv_files import csv_rows
from planner.inputs.importers.format import Format, Hardware
from planner.inputs.importers.rows import Tally
from planner.inputs.importers.tables import Requests

_COLUMNS = ("job_id", "user", "vc", "gpu_num", "state", "submit_time", "start_time", "end_time")


@dataclass(frozen=True, slots=True)
class Helios(OwnerOptions):
    """Reads ``cluster_log.csv`` of any of the clusters."""

    def hardware(self, files: Sequence[Path], tally: Tally) -> Hardware:
        """Return two servers of eight GPUs of 32 GB, and models of 8 GB; the log knows neither."""
        return Hardware(
            memory_bytes=32 * 10**9,
            weight_bytes=8 * 10**9,
            load_bandwidth=Fraction(10**10),
            servers=2,
            gpus_per_server=8,
            kind="V100",
        )

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the jobs of the files."""
        for path in files:
            ids = Ids()
            for rows in csv_rows(path, _COLUMNS, tally):
                yield read_jobs(rows, ids, rows.names(self.model), self)


FORMAT = Format(
    name="helios",
    title="training jobs of SenseTime's Helios clusters, 2020",
    source="github.com/S-Lab-System-Group/HeliosData (CC-BY 4.0); Hu et al., SC 2021",
    notes=(
        SHARED_BY_OWNER,
        "jobs on several GPUs are left out (gpus=split: they become as many tasks on one GPU each, side by side)",
        "a run time is end_time - start_time, also of jobs that failed or were cancelled (state=completed: without)",
    ),
    sizes="the log has no sizes: every model weighs 8 GB, a GPU has 32 GB for weights",
    reader=Helios,
    dated=True,
)
