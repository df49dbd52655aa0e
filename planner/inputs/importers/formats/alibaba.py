"""Alibaba's public traces: requests to a diffusion service (GenTD26), and pods of a cluster that shares GPUs (2023).

The request trace of GenTD26 is ``lora_request_trace.csv``; each request names the base model it needs. Beside it, the
log of pipeline updates may be given (``pipeline_update_latency_anon.csv``: timestamp, milliseconds, container): its
median is then the load time of every model, since no update can be joined to a model.

Schema of the pods: github.com/alibaba/clusterdata, cluster-trace-gpu-v2023/README.md, csv/openb_pod_list_*.csv (commit
7a6c496e): name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, qos, pod_phase, creation_time, deletion_time,
scheduled_time. Times are seconds on a clock of the trace's own; scheduled_time is empty for pods that never ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd

from truenorth.executor.policies.options import one_of, option
from truenorth.models.scenario import InputError
from truenorth.models.units import round_half_up
from truenorth.planner.inputs.importers.csv_files import csv_rows, header_of
from truenorth.planner.inputs.importers.format import Hardware
from truenorth.planner.inputs.importers.formats.cluster_jobs import GPUOptions, Ids, absent, gpus_that_count
from truenorth.planner.inputs.importers.rows import Rows, Tally
from truenorth.planner.inputs.importers.tables import Requests, Texts

MEDIAN_UPDATE_US = 8_454_000
"""Median of the 36,046 updates in pipeline_update_latency_anon.csv."""

_STATUS = {"succeeded": ("SUCCEED",), "finished": ("SUCCEED", "FAILED")}
_TRACE = ("gmt_create", "predict_status", "exec_time_seconds", "checkpoint_model_version_id")
_UPDATES = ("timestamp_anon", "value")
_SHAPE = ("cpu_milli", "memory_mib", "gpu_milli")
_TIMES = ("creation_time", "scheduled_time", "deletion_time")
_COLUMNS = ("name", *_SHAPE, "num_gpu", "gpu_spec", "qos", "pod_phase", *_TIMES)
_MOST = 10**12


@dataclass(frozen=True, slots=True)
class GenTD26:
    """Reads the request trace.

    Parameters
    ----------
    status
        Which requests count: those that ``succeeded``, or all that ``finished``. Others have no run time yet.
    """

    status: str = option("succeeded", one_of(*_STATUS))

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the requests of the traces among the files."""
        traces = [path for path in files if not _is_updates(path)]
        if not traces:
            raise InputError(str(files[0]), 1, "file", "is a log of updates; allowed is a request trace beside it")
        for path in traces:
            for rows in csv_rows(path, _TRACE, tally):
                rows.leave_out_unless("predict_status", *_STATUS[self.status])
                yield rows.requests(
                    release_us=rows.moments("gmt_create"),
                    model=rows.names("checkpoint_model_version_id"),
                    runtime_us=rows.times("exec_time_seconds", "s", least_us=1),
                )


def measure_hardware(files: Sequence[Path], tally: Tally) -> Hardware:
    """Return GPUs of 24 GB, models of 6.5 GB, and the median update as load time, measured if the log is given."""
    documented = Hardware.of("24 GB", "6.5 GB", "1 GB/s", servers=2)
    updates = [path for path in files if _is_updates(path)]
    if not updates:
        tally.notes.append("load time: 8.454 s, the median of the trace's 36,046 pipeline updates")
        return documented.with_load_time(MEDIAN_UPDATE_US)
    counted = Tally(tally.skip_malformed)
    columns = [rows.times("value", "ms")[rows.kept] for path in updates for rows in csv_rows(path, _UPDATES, counted)]
    middle = _median_us(np.concatenate(columns), updates[0])
    tally.notes.append(
        f"load time: {middle / 1e6:g} s, the median of {counted.read - counted.refused.total():,} updates in "
        + ", ".join(path.name for path in updates)
    )
    return documented.with_load_time(middle)


def _is_updates(path: Path) -> bool:
    return set(_UPDATES) <= set(header_of(path, _UPDATES))


def _median_us(values: np.ndarray, path: Path) -> int:
    if not values.size or not (middle := round_half_up(Fraction(float(np.median(values))))):
        raise InputError(str(path), 2, "value", "its median is no load time; allowed is a log with positive updates")
    return middle


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
        return rows.requests(
            created_us, self._names(rows), deleted_us - scheduled_us, gpus=gpus, split=self.gpus == "split"
        )

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
