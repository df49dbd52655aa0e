"""Jobs of a cluster's scheduler: the rules that Acme, Helios, Philly and RLTune's traces share.

Tasks on several GPUs do not exist here. So only jobs on one GPU count, unless the user asks to split: then a job on n
GPUs becomes n tasks on one GPU each, side by side, which occupy as much GPU time but need not start together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from executor.policies.options import one_of, option
from models.instance import Ints
from planner.inputs.importers.rows import MAX_GPUS_PER_REQUEST, Mask, Rows
from planner.inputs.importers.tables import Requests, Texts

_ABSENT = ("", "none", "nan", "nat", "null")
_LONGEST_ABSENT = 10
"""So long may they be with spaces around them."""


@dataclass(frozen=True, slots=True)
class GPUOptions:
    """Which jobs count, by their GPUs.

    Parameters
    ----------
    gpus
        ``single``: jobs on one GPU; ``split``: also those on several, as that many tasks side by side.
    """

    gpus: str = option("single", one_of("single", "split"))


@dataclass(frozen=True, slots=True)
class ClusterOptions(GPUOptions):
    """Which jobs of a cluster's log count, by their GPUs and by how they ended.

    Parameters
    ----------
    state
        ``any``: every job that ran; ``completed``: only jobs that finished successfully.
    """

    state: str = option("any", one_of("any", "completed"))


@dataclass(frozen=True, slots=True)
class OwnerOptions(ClusterOptions):
    """Which jobs of a log that names no models count, and which of them share one.

    Parameters
    ----------
    model
        Those of a ``user``, or of a virtual cluster (``vc``).
    """

    model: str = option("user", one_of("user", "vc"))


SHARED_BY_OWNER = "the log names no models: the jobs of a user share one (model=vc: those of a virtual cluster)"
"""What is assumed of such a log."""


class Ids:
    """The ids of a file so far; a row whose id has occurred is malformed."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def refuse_repeated(self, rows: Rows, column: str) -> None:
        """Refuse rows whose id stands in an earlier row."""
        texts = rows.text(column)
        known = np.fromiter((text in self._seen for text in texts), np.bool_, len(texts))
        self._seen.update(texts)
        repeated = pd.Series(texts, dtype=object).duplicated().to_numpy(np.bool_)
        rows.refuse(known | repeated, column, "stands in an earlier row", "an id of its own per row")


def absent(texts: Texts) -> Mask:
    """Say which texts are no value: empty, or one of the words that stand for it. Shape as `texts`."""
    found = np.fromiter(map(len, texts), np.int64, len(texts)) <= _LONGEST_ABSENT
    found[found] = [text.strip().lower() in _ABSENT for text in texts[found]]
    return found


def gpus_that_count(rows: Rows, column: str, options: GPUOptions) -> Ints | None:
    """Leave out jobs on no GPU, and on several unless they are split; return GPUs per job, None for one each."""
    gpus = rows.wholes(column, 0, MAX_GPUS_PER_REQUEST)
    rows.leave_out(gpus == 0, "no GPU")
    if options.gpus == "split":
        return gpus
    rows.leave_out(gpus > 1, "several GPUs")
    return None


def read_jobs(rows: Rows, ids: Ids, model: Texts, options: ClusterOptions) -> Requests:
    """Return the jobs of a log with the columns of Helios, which Acme has too.

    The run time is end_time - start_time: the column duration is no substitute, since in Acme's Kalos it also holds
    the time in the queue. The release is submit_time.

    Parameters
    ----------
    model
        Name of the model of each row. Shape [rows].
    """
    ids.refuse_repeated(rows, "job_id")
    if options.state == "completed":
        rows.leave_out_unless("state", "COMPLETED")
    gpus = gpus_that_count(rows, "gpu_num", options)
    for column in ("submit_time", "start_time", "end_time"):
        rows.leave_out(absent(rows.text(column)), f"no {column}")
    submit_us, start_us, end_us = (rows.moments(column) for column in ("submit_time", "start_time", "end_time"))
    rows.refuse(end_us < start_us, "end_time", "is before start_time", "a time from start_time on")
    rows.refuse(start_us < submit_us, "start_time", "is before submit_time", "a time from submit_time on")
    rows.leave_out(end_us == start_us, "ran for 0 s")
    return rows.requests(submit_us, model, end_us - start_us, gpus=gpus)
