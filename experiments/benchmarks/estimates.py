"""``python -m experiments estimates``: errors and coverage of estimates on GenTD26, out of time, rung by rung."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np

from experiments.bench import ask
from truenorth.planner.inputs.estimate.known import LEVELS
from truenorth.planner.inputs.estimate.ladder import Fitted, Recipe, fit_rungs
from truenorth.planner.inputs.estimate.run import score
from truenorth.planner.inputs.estimate.rungs import BACK_OFF, Estimate
from truenorth.planner.inputs.estimate.table import Wanted, read_table
from truenorth.planner.inputs.estimate.tasks import History, TaskColumns, Tasks

_KINDS = ("exact key", "boosted", BACK_OFF, "retrieval")
_HIDDEN = 4
"""Every how many-th model is hidden to see how unseen ones fare."""
TRACE = Path(__file__).parents[3] / "shared" / "data" / "gentd26" / "lora_request_trace.csv.gz"
MODEL = "checkpoint_model_version_id"
COLUMNS = TaskColumns(
    key=(MODEL, "predict_type", "num_images_per_prompt", "num_inference_steps", "num_lora", "groupId"),
    features=("prompt_length", "negative_prompt_length"),
)
"""The group, which few requests share, goes last; prompts count only by their length."""


def estimates(
    trace: Annotated[Path, "lora_request_trace.csv.gz"] = TRACE,
    window: Annotated[tuple[float, ...], "shares of the requests that are estimated: from, to"] = (0.8, 1.0),
    seed: int = 0,
    without_hidden: Annotated[bool, "leave out the last part, unseen models"] = False,
) -> None:
    """Print one row per estimator."""
    whole = requests(trace)
    past, asked = split(whole, *window)
    print(f"{len(past)} past requests, {len(asked)} estimated, {len(set(past.tasks.text(MODEL)))} models\n")
    print("".join(f"{name:>{width}}" for name, width in _COLUMNS))
    for by, name in (((), "median of all"), ((MODEL,), "median of the model")):
        _row(f"naive: {name}", naive(past, asked.tasks, by), asked)
    fitted = fit_rungs(past, Recipe(COLUMNS, seed=seed))
    for online in (False, True):
        print(
            "\nonline: run times become known as they end" if online else "\nfrozen: nothing is known after the split"
        )
        for name, estimated in _ladders(fitted, whole, asked, online=online):
            _row(name, estimated, asked)
    if not without_hidden:
        print(f"\nunseen: every {_HIDDEN}th model hidden from the history, and only those estimated")
        _hidden(past, asked, seed)


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


def _ladders(fitted: Fitted, whole: History, asked: History, *, online: bool) -> Iterator[tuple[str, list[Estimate]]]:
    """Yield the estimates of the ladder, of each rung with nothing but the default, and of the ladder less each."""
    names = frozenset(rung.name for rung in fitted.rungs)
    kinds = {kind: frozenset(name for name in names if name.startswith(kind)) for kind in _KINDS}
    variants = {"ladder": frozenset[str]()}
    variants |= {f"only {kind}": names - own for kind, own in kinds.items()} | {"only default": names}
    variants |= {f"ladder without {kind}": own for kind, own in kinds.items()}
    for name, without in variants.items():
        ladder = fitted.ladder(online=online, without=without)
        estimates = ladder.predict_all(asked.tasks, whole if online else None)
        yield name, estimates
        if name == "ladder":
            print(f"    asked in this order: {', '.join(rung.name for rung in ladder.rungs)}")
            for source in (rung.name for rung in ladder.rungs):
                rows = np.flatnonzero([estimate.source == source for estimate in estimates])
                if len(rows):
                    _row(f"of it, {source}", [estimates[row] for row in rows], asked.take(rows))


def _hidden(past: History, asked: History, seed: int) -> None:
    hidden = sorted(set(past.tasks.text(MODEL)))[::_HIDDEN]
    seen, unseen = (np.isin(h.tasks.text(MODEL).astype(str), hidden) for h in (past, asked))
    ladder = fit_rungs(past.take(~seen), Recipe(COLUMNS, seed=seed)).ladder()
    few = asked.take(unseen)
    _row("ladder", ladder.predict_all(few.tasks), few)
    _row("naive: median of all", naive(past.take(~seen), few.tasks, ()), few)


_COLUMNS = [("", 34), ("requests", 9), ("Spearman", 9), ("R2 in s", 8), ("error", 8), ("covered", 8)]
_COLUMNS += [("below", 7), ("above", 7), ("width", 6)]


def _row(name: str, estimates: Sequence[Estimate], asked: History) -> None:
    found = score(estimates, asked.runtime_us.astype(np.float64))
    if found is None:
        raise ValueError("every past request has a run time")
    print(
        f"{name:>34}{found.cases:9}{found.spearman:9.3f}{found.r2:8.3f}{found.median_error:8.1%}{found.covered:8.1%}"
        f"{found.below:7.1%}{found.above:7.1%}{found.width:6.2f}"
    )


main = partial(ask, estimates)
