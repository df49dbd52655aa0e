"""Jobs that a log says failed: when they end, and whether starting them again could have helped.

A failed job holds its GPUs until it fails, and nothing knows beforehand that it will. It counts for nothing itself: its
weight is 0, so that weighted latency is the mean over the jobs that did not fail. Early stopping is a what-if: jobs
that failed for good end after a time at most, as if a reader of their progress had seen it by then.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from truenorth.executor.policies.options import positive_duration
from truenorth.models.instance import Ints
from truenorth.models.scenario.quantities import MAX_TIME_US
from truenorth.planner.inputs.importers.tables import Texts

FOR_GOOD = frozenset(("failed", "fail", "failure", "error", "crashed", "out_of_memory", "oom", "oomkilled"))
"""What logs say of jobs that would fail again: these early stopping ends."""
BY_CHANCE = frozenset(("node_fail", "boot_fail", "preempted", "evicted", "revoked", "requeued", "lost"))
"""Of jobs that something else brought down: a retry, which the log lists as a row of its own, may succeed."""

ENDED_OTHERWISE = frozenset(("timeout", "timelimit", "deadline", "cancelled", "canceled", "killed"))
"""Of jobs that somebody, or a time limit, ended: they held their GPUs and count like others."""


def until(text: str) -> int:
    """Read how long failed jobs run: ``run``, as long as in the log, or ``stop:TIME``, that long at most; in us.

    >>> until("stop:5 min"), until("run") == MAX_TIME_US
    (300000000, True)
    """
    if text == "run":
        return MAX_TIME_US
    word, _, time = text.partition(":")
    if word != "stop" or not time:
        raise ValueError(f"{text!r} is not run or stop:TIME")
    return positive_duration(time)


def outcomes(status: Texts, runtime_us: Ints, latest_us: int | None) -> tuple[Ints, dict[str, NDArray[np.bool_]]]:
    """Return how long jobs run, and what `Requests` say of failures, by the first word of what the log says of them.

    Parameters
    ----------
    latest_us
        What `until` read; None: failed jobs are jobs like any other.

    Returns
    -------
    tuple
        Microseconds, and by name the columns of requests: which failed, and which of these are stopped early. Shapes
        [jobs].
    """
    if latest_us is None:
        return runtime_us, {}
    said = pd.Series(status, dtype=object).str.strip().str.lower().str.split().str[0]
    for_good = said.isin(FOR_GOOD).to_numpy(np.bool_)
    run_us = np.where(for_good, np.minimum(runtime_us, latest_us), runtime_us)
    columns = {"failed": for_good | said.isin(BY_CHANCE).to_numpy(np.bool_)}
    return run_us, columns | ({"stopped": for_good} if latest_us < MAX_TIME_US else {})


def refuse_retries(tries_us: int | None, failed: int | None, split: bool) -> None:
    """Refuse to look for retries of what has not failed, or runs on GPUs apart.

    Raises
    ------
    ValueError
        If it is asked for.
    """
    if tries_us is not None and failed is None:
        raise ValueError("retries= is about jobs that failed; allowed is beside failed=run or failed=stop:TIME")
    if tries_us is not None and split:
        raise ValueError("retries= is about jobs whose GPUs run together; allowed is without splitting them")
