"""GenTD26: requests to a diffusion service at Alibaba, each naming the base model it needs.

The request trace is ``lora_request_trace.csv``. Beside it, the log of pipeline updates may be given
(``pipeline_update_latency_anon.csv``: timestamp, milliseconds, container): its median is then the load time of every
model, since no update can be joined to a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from executor.policies.options import one_of, option
from models.scenario import InputError
from models.units import round_half_up
from planner.inputs.importers.csv_files import csv_rows, header_of
from planner.inputs.importers.format import Format, Hardware
from planner.inputs.importers.rows import Tally
from planner.inputs.importers.tables import Requests

MEDIAN_UPDATE_US = 8_454_000
"""Median of the 36,046 updates in pipeline_update_latency_anon.csv."""

_STATUS = {"succeeded": ("SUCCEED",), "finished": ("SUCCEED", "FAILED")}
_TRACE = ("gmt_create", "predict_status", "exec_time_seconds", "checkpoint_model_version_id")
_UPDATES = ("timestamp_anon", "value")


@dataclass(frozen=True, slots=True)
class GenTD26:
    """Reads the request trace.

    Parameters
    ----------
    status
        Which requests count: those that ``succeeded``, or all that ``finished``. Others have no run time yet.
    """

    status: str = option("succeeded", one_of(*_STATUS))

    def hardware(self, files: Sequence[Path], tally: Tally) -> Hardware:
        """Return GPUs of 24 GB, models of 6.5 GB, and the median update as load time, measured if the log is given."""
        documented = Hardware(
            memory_bytes=24 * 10**9, weight_bytes=6_500_000_000, load_bandwidth=Fraction(10**9), servers=2
        )
        updates = [path for path in files if _is_updates(path)]
        if not updates:
            tally.notes.append("load time: 8.454 s, the median of the trace's 36,046 pipeline updates")
            return documented.with_load_time(MEDIAN_UPDATE_US)
        counted = Tally(tally.skip_malformed)
        columns = [
            rows.times("value", "ms")[rows.kept] for path in updates for rows in csv_rows(path, _UPDATES, counted)
        ]
        middle = _median_us(np.concatenate(columns), updates[0])
        tally.notes.append(
            f"load time: {middle / 1e6:g} s, the median of {counted.read - counted.refused.total():,} updates in "
            + ", ".join(path.name for path in updates)
        )
        return documented.with_load_time(middle)

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


def _is_updates(path: Path) -> bool:
    return all(name in header_of(path) for name in _UPDATES)


def _median_us(values: np.ndarray, path: Path) -> int:
    if not values.size or not (middle := round_half_up(Fraction(float(np.median(values))))):
        raise InputError(str(path), 2, "value", "its median is no load time; allowed is a log with positive updates")
    return middle


FORMAT = Format(
    name="gentd26",
    title="requests to a diffusion service at Alibaba (GenTD26, cluster-trace-v2026-GenAI)",
    source="github.com/alibaba/clusterdata, cluster-trace-v2026-GenAI; Lin et al., SoCC 2025",
    notes=(
        "a model is a base model (checkpoint); LoRAs are left out, since the trace has only their number",
        "updates are not joined to models: every load takes the same time",
        "run times are whole seconds and partly contain switching, so loads count twice where they do",
    ),
    sizes="the trace has no sizes: every model weighs 6.5 GB, a GPU has 24 GB for weights",
    reader=GenTD26,
    dated=True,
)
