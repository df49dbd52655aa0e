"""Acme: jobs of Shanghai AI Lab's clusters Seren and Kalos, which develop large language models, March to August 2023.

Schema: github.com/InternLM/AcmeTrace, README, section Job Trace (commit 6d6ac9cd): job_id, user, node_num, gpu_num,
cpu_num, type, state, submit_time, start_time, end_time, duration, queue, gpu_time, and in Kalos four more. Times carry
their zone (+08:00 in Seren, +00:00 in Kalos). In the README's rows of Kalos the duration counts from submit_time, so it
is not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from executor.policies.options import one_of, option
from planner.inputs.importers.cluster_jobs import ClusterOptions, Ids, read_jobs
from planner.inputs.importers.csv_files import csv_rows
from planner.inputs.importers.format import Format, Hardware
from planner.inputs.importers.rows import Rows, Tally, join_names
from planner.inputs.importers.tables import Requests, Texts

_COLUMNS = ("job_id", "user", "gpu_num", "type", "state", "submit_time", "start_time", "end_time")


@dataclass(frozen=True, slots=True)
class Acme(ClusterOptions):
    """Reads ``trace_seren.csv`` and ``trace_kalos.csv``.

    Parameters
    ----------
    model
        Which jobs share a model: those of a ``user`` that are of the same type (``user-type``), those of a ``user``,
        or those of a ``type``.
    """

    model: str = option("user-type", one_of("user-type", "user", "type"))

    def hardware(self, files: Sequence[Path], tally: Tally) -> Hardware:
        """Return two servers of eight A100 of 80 GB, as Acme's are, and models of 14 GB, an assumption."""
        return Hardware(
            memory_bytes=80 * 10**9,
            weight_bytes=14 * 10**9,
            load_bandwidth=Fraction(20 * 10**9),
            servers=2,
            gpus_per_server=8,
            kind="A100",
        )

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the jobs of the files."""
        for path in files:
            ids = Ids()
            for rows in csv_rows(path, _COLUMNS, tally):
                yield read_jobs(rows, ids, self._model(rows), self)

    def _model(self, rows: Rows) -> Texts:
        """Return the name of the model of each row. Shape [rows]."""
        if self.model == "user-type":
            return join_names(rows, "user", "type")
        return rows.names(self.model)


FORMAT = Format(
    name="acme",
    title="jobs of Shanghai AI Lab's Acme clusters Seren and Kalos, 2023",
    source="github.com/InternLM/AcmeTrace (CC-BY 4.0); Hu et al., NSDI 2024",
    notes=(
        "the log names no models: the jobs of a user that are of one type (pretraining, evaluation, ...) share one "
        "(model=user, model=type)",
        "jobs on several GPUs are left out (gpus=split: they become as many tasks on one GPU each, side by side)",
        "a run time is end_time - start_time, also of jobs that failed or were cancelled (state=completed: without)",
    ),
    sizes="the log has no sizes: every model weighs 14 GB (7 billion parameters of 2 B), a GPU has 80 GB for weights",
    reader=Acme,
    dated=True,
)
