"""RLTune's traces: jobs of Helios, Philly and Alibaba in one format of 19 columns without a header.

Schema: github.com/dshruti20/RLTune, GPU_Traces/README.md (commit fad68ad2): job_id, submit_time, wait_time, run_time
(seconds), num_gpus, cpu_time, used_memory, request_cpus, request_time, request_memory, status, user_id, group_id,
executable_number, queue_number, partition_number, proceeding_job_number, vc_id, gpu_type; -1 stands for a field that is
not available.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from truenorth.executor.policies.options import one_of, option
from truenorth.planner.inputs.importers.csv_files import csv_rows
from truenorth.planner.inputs.importers.formats.cluster_jobs import GPUOptions, Ids, gpus_that_count
from truenorth.planner.inputs.importers.rows import Mask, Rows, Tally
from truenorth.planner.inputs.importers.tables import Requests, Texts

COLUMNS = (
    "job_id", "submit_time", "wait_time", "run_time", "num_gpus", "cpu_time", "used_memory", "request_cpus",
    "request_time", "request_memory", "status", "user_id", "group_id", "executable_number", "queue_number",
    "partition_number", "proceeding_job_number", "vc_id", "gpu_type",
)  # fmt: skip
_MODELS = {column.partition("_")[0]: column for column in (*COLUMNS[11:16], "vc_id")}
"""Columns by what an option says of models: from ``user_id`` to ``partition_number``, and the virtual cluster's."""
_READ = ("job_id", "submit_time", "run_time", "num_gpus", "proceeding_job_number")
_MOST_SECONDS = 10**10
_US = 1_000_000


@dataclass(frozen=True, slots=True)
class RLTune(GPUOptions):
    """Reads traces of 19 columns.

    Parameters
    ----------
    model
        Which jobs share a model: those of a ``user``, ``group``, ``executable``, ``queue``, ``partition`` or ``vc``;
        or those whose ids begin alike (``name``: what stands before the last hyphen, ``bert`` in ``bert-7_1``).
    """

    model: str = option("user", one_of(*_MODELS, "name"))

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the jobs of the files."""
        wanted = (*_READ, *(column for model, column in _MODELS.items() if model == self.model))
        after = unnamed = 0
        for path in files:
            ids = Ids()
            for rows in csv_rows(path, wanted, tally, header=COLUMNS):
                found = self._jobs(rows, ids)
                after += int((rows.kept & ~_unavailable(rows.text("proceeding_job_number"))).sum())
                unnamed += int((found.model == _unknown(self.model)).sum())
                yield found
        if after:
            tally.notes.append(f"jobs that follow a job of their workflow, but are released on their own: {after:,}")
        if unnamed:
            tally.notes.append(
                f"jobs without a {self.model}, which share the model {_unknown(self.model)!r}: {unnamed:,}"
            )

    def _jobs(self, rows: Rows, ids: Ids) -> Requests:
        ids.refuse_repeated(rows, "job_id")
        for column in ("submit_time", "run_time", "num_gpus"):
            rows.leave_out(_unavailable(rows.text(column)), f"no {column}")
        gpus = gpus_that_count(rows, "num_gpus", self)
        submit_s = rows.wholes("submit_time", 0, _MOST_SECONDS)
        run_us = rows.times("run_time")
        rows.leave_out(run_us == 0, "ran for 0 s")
        return rows.requests(submit_s * _US, self._names(rows), run_us, gpus=gpus)

    def _names(self, rows: Rows) -> Texts:
        """Return the name of the model of each row. Shape [rows]."""
        if self.model == "name":
            ids = rows.names("job_id")
            return np.array([text.rpartition("-")[0] or _unknown("name") for text in ids], np.object_)
        column = _MODELS[self.model]
        names = rows.names(column)
        return np.where(_unavailable(names), _unknown(self.model), self.model + " " + names)


def _unavailable(texts: Texts) -> Mask:
    """Say which fields are -1. Shape as `texts`."""
    return np.asarray((texts == "-1") | (texts == "-1.0"), np.bool_)


def _unknown(model: str) -> str:
    return f"unknown {model}"
