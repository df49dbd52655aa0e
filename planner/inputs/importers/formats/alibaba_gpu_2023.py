"""Alibaba's GPU cluster of 2023: pods of a cluster that shares GPUs between pods.

Schema: github.com/alibaba/clusterdata, cluster-trace-gpu-v2023/README.md, csv/openb_pod_list_*.csv (commit 7a6c496e):
name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, qos, pod_phase, creation_time, deletion_time, scheduled_time.
Times are seconds on a clock of the trace's own; scheduled_time is empty for pods that never ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd

from executor.policies.options import one_of, option
from planner.inputs.importers.csv_files import csv_rows
from planner.inputs.importers.format import Format, Hardware
from planner.inputs.importers.formats.cluster_jobs import GPUOptions, Ids, absent, gpus_that_count
from planner.inputs.importers.rows import Rows, Tally
from planner.inputs.importers.tables import Requests, Texts

_SHAPE = ("cpu_milli", "memory_mib", "gpu_milli")
_TIMES = ("creation_time", "scheduled_time", "deletion_time")
_COLUMNS = ("name", *_SHAPE, "num_gpu", "gpu_spec", "qos", "pod_phase", *_TIMES)
_MOST = 10**12


@dataclass(frozen=True, slots=True)
class AlibabaGPU(GPUOptions):
    """Reads the lists of pods.

    Parameters
    ----------
    phase
        ``any``: every pod that ran; ``succeeded``: only pods that finished successfully.
    model
        Which pods share a model: those that request the same processors, memory and share of a GPU (``shape``), or
        those of the same quality of service besides (``shape-qos``).
    """

    phase: str = option("any", one_of("any", "succeeded"))
    model: str = option("shape", one_of("shape", "shape-qos"))

    def hardware(self, files: Sequence[Path], tally: Tally) -> Hardware:
        """Return four servers of two GPUs of 16 GB, as most named kinds have, and models of 4 GB."""
        return Hardware(
            memory_bytes=16 * 10**9,
            weight_bytes=4 * 10**9,
            load_bandwidth=Fraction(10**10),
            servers=4,
            gpus_per_server=2,
        )

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the pods of the files."""
        tied = 0
        for path in files:
            ids = Ids()
            for rows in csv_rows(path, _COLUMNS, tally):
                yield self._pods(rows, ids)
                tied += int((rows.kept & ~absent(rows.text("gpu_spec"))).sum())
        if tied:
            tally.notes.append(f"pods that ask for kinds of GPU, and here run on any: {tied:,}")

    def _pods(self, rows: Rows, ids: Ids) -> Requests:
        ids.refuse_repeated(rows, "name")
        if self.phase == "succeeded":
            rows.leave_out_unless("pod_phase", "Succeeded")
        rows.leave_out(absent(rows.text("scheduled_time")), "never scheduled")
        rows.leave_out(absent(rows.text("deletion_time")), "no deletion_time")
        gpus = gpus_that_count(rows, "num_gpu", self)
        created_us, scheduled_us, deleted_us = (rows.times(column) for column in _TIMES)
        rows.refuse(scheduled_us < created_us, "scheduled_time", "is before creation_time", "a time from then on")
        rows.refuse(deleted_us < scheduled_us, "deletion_time", "is before scheduled_time", "a time from then on")
        rows.leave_out(deleted_us == scheduled_us, "ran for 0 s")
        return rows.requests(created_us, self._names(rows), deleted_us - scheduled_us, gpus=gpus)

    def _names(self, rows: Rows) -> Texts:
        """Return the name of the model of each row. Shape [rows]."""
        requested = pd.DataFrame({column: rows.wholes(column, 0, _MOST) for column in _SHAPE})
        which = requested.groupby(list(_SHAPE), sort=False).ngroup().to_numpy()
        distinct = requested.drop_duplicates().itertuples(index=False)
        named = [f"cpu{cpu}-memory{memory}-gpu{gpu}" for cpu, memory, gpu in distinct]
        shape: Texts = np.array(named, np.object_)[which]
        if self.model == "shape-qos":
            shape = shape + "-" + rows.names("qos")
        return shape


FORMAT = Format(
    name="alibaba-gpu-2023",
    title="pods of an Alibaba cluster that shares GPUs, 2023",
    source="github.com/alibaba/clusterdata, cluster-trace-gpu-v2023 (no licence of its own; its README asks to cite); "
    "Weng et al., USENIX ATC 2023",
    notes=(
        "the list names no models: pods that request the same processors, memory and share of a GPU share one, such as "
        "cpu6000-memory12288-gpu460",
        "the share of a GPU is not used, a task has its GPU to itself",
        "pods on several GPUs are left out (gpus=split: they become as many tasks on one GPU each, side by side)",
        "a run time is deletion_time - scheduled_time, also of pods that failed or, in phase Running, were still there "
        "when the trace ended (phase=succeeded: without them)",
    ),
    sizes="the list has no sizes: every model weighs 4 GB, a GPU has 16 GB for weights",
    reader=AlibabaGPU,
)
