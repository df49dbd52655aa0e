"""Classes of run time: what they are, and that they keep the work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.scenario import InputError
from planner.inputs.importers import classes
from planner.inputs.importers.classes import Classes
from planner.inputs.importers.trace import import_trace
from tests.importers.small import table, written


def representatives(runtimes: list[int], most: int, models: list[int] | None = None) -> list[int]:
    frame = pd.DataFrame({"model": models or [0] * len(runtimes), "gpus": 1, "runtime_us": runtimes})
    return [int(value) for value in Classes(most).representatives(frame)[0]["runtime_us"]]


def test_classes_are_quantiles_represented_by_their_mean() -> None:
    # Ordered 1 2 3 | 10 11 30: two classes of three, means 2 and 17.
    assert representatives([30, 1, 10, 2, 11, 3], 2) == [17, 2, 17, 2, 17, 2]


def test_equal_run_times_share_a_class() -> None:
    # Four classes of one; the three fives start at rank 0, so all are in the first.
    assert representatives([5, 5, 5, 9], 4) == [5, 5, 5, 9]


def test_a_mean_rounds_half_up() -> None:
    assert representatives([1, 2], 1) == [2, 2]
    assert representatives([1, 1, 2], 1) == [1, 1, 1]


def test_every_model_has_classes_of_its_own() -> None:
    assert representatives([1, 3, 100, 300], 1, [0, 0, 1, 1]) == [2, 2, 200, 200]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 10**12)), min_size=1, max_size=60),
    st.integers(1, 8),
)
def test_the_work_of_every_model_is_kept_and_the_order_too(requests: list[tuple[int, int]], most: int) -> None:
    model, runtime = (np.array(column, np.int64) for column in zip(*requests, strict=True))
    made = np.array(representatives(runtime.tolist(), most, model.tolist()))
    for one in np.unique(model):
        before, after = runtime[model == one], made[model == one]
        assert 2 * abs(int(before.sum()) - int(after.sum())) <= len(before)
        assert len(np.unique(after)) <= most
        assert (np.diff(after[np.argsort(before, kind="stable")]) >= 0).all()
        assert before.min() <= after.min()
        assert after.max() <= before.max()


def test_as_many_classes_as_requests_change_nothing() -> None:
    runtimes = [7, 1, 5, 3]
    assert representatives(runtimes, 4) == runtimes


def test_classes_come_by_themselves_where_exact_run_times_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(tmp_path, table(*(f"0,a,{runtime}" for runtime in range(1, 11))))
    assert len(import_trace("table", [log]).workload.workflows) == 10
    monkeypatch.setattr(classes, "MOST_EXACT", 9)
    monkeypatch.setattr(classes, "DEFAULT_CLASSES", 5)
    made = import_trace("table", [log])
    assert [workflow.name for workflow in made.workload.workflows] == [
        f"a {mean} s" for mean in (1.5, 3.5, 5.5, 7.5, 9.5)
    ]
    assert made.workload.mapping == (
        "5 classes of run time per model, each represented by its mean (10 distinct before)"
    )
    assert len(import_trace("table", [log], runtime_classes="exact").workload.workflows) == 10
    monkeypatch.setattr(classes, "MOST_WORKFLOWS", 8)
    with pytest.raises(InputError, match="10 workflows; allowed are 8: ask for fewer runtime classes"):
        import_trace("table", [log], runtime_classes="exact")
