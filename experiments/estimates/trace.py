"""The requests of GenTD26 as a history, and what a naive estimator makes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from planner.inputs.estimate.estimate import Estimate
from planner.inputs.estimate.known import LEVELS
from planner.inputs.estimate.table import Wanted, read_table
from planner.inputs.estimate.tasks import Columns, History, Tasks

TRACE = Path(__file__).parents[3] / "shared" / "data" / "gentd26" / "lora_request_trace.csv.gz"
MODEL = "checkpoint_model_version_id"
COLUMNS = Columns(
    key=(MODEL, "predict_type", "num_images_per_prompt", "num_inference_steps", "num_lora", "groupId"),
    features=("prompt_length", "negative_prompt_length"),
)
"""The group, which few requests share, goes last; prompts count only by their length."""


def requests(path: Path) -> History:
    """Return the requests that succeeded, in the order of their arrival.

    Raises
    ------
    InputError
        If it is no such trace.
    """
    wanted = Wanted(COLUMNS.all, "exec_time_seconds", "gmt_create", (("predict_status", "SUCCEED"),))
    table = read_table(path, wanted)
    if table.runtime_us is None:
        raise ValueError("run times were asked for")
    return History.of(table.tasks, table.runtime_us, timed=True)


def split(history: History, start: float, end: float) -> tuple[History, History]:
    """Return what was known when a share of the requests had arrived, and the requests from there to another share."""
    first, last = int(len(history) * start), int(len(history) * end)
    known = np.flatnonzero(history.known_us[:first] <= history.tasks.asked_us[first])
    return history.take(known), history.take(np.arange(first, last))


def naive(past: History, tasks: Tasks, by: tuple[str, ...]) -> list[Estimate]:
    """Return quantiles of all past requests of the same key, uncalibrated; of all past requests where it is new."""
    own = past.tasks.keys(by) if by else np.full(len(past), "", np.object_)
    asked = tasks.keys(by) if by else np.full(len(tasks), "", np.object_)
    everywhere = _quantiles(past.runtime_us, "everything")
    found = {key: _quantiles(past.runtime_us[own == key], "median") for key in dict.fromkeys(own)}
    return [found.get(key, everywhere) for key in asked]


def _quantiles(runtime_us: np.ndarray[tuple[int], np.dtype[np.int64]], source: str) -> Estimate:
    low, middle, high = (round(value) for value in np.quantile(runtime_us, LEVELS))
    return Estimate(low, middle, high, source)
