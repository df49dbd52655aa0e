"""What counts as known: the latest runs of a key that had ended by then, and nothing later."""

from __future__ import annotations

import numpy as np
import pytest

from tests.planner.inputs.estimate.past import past
from truenorth.planner.inputs.estimate.known import WINDOW, KnownTimes, PastRuns
from truenorth.planner.inputs.estimate.ladder import climb
from truenorth.planner.inputs.estimate.rungs import Default, Estimate, back_offs, steady_key
from truenorth.planner.inputs.estimate.tasks import History, Tasks, plain

NAMES = ("model", "steps")


def seconds(log_us: np.ndarray) -> list[float]:
    return [round(float(value), 6) for value in np.exp(log_us) / 1e6]


def test_a_run_is_known_once_its_time_has_passed_and_not_before() -> None:
    # Asked about at 0 s and 10 s, for 5 s and 2 s: known at 5 s and 12 s.
    tasks = Tasks({"model": np.array(["opt", "opt"], object)}, np.array([0, 10_000_000]))
    history = History.of(tasks, np.array([5_000_000, 2_000_000]), timed=True)
    runs = PastRuns(history, history.tasks.keys(("model",)))
    asked_us = np.array([4_999_999, 5_000_000, 11_999_999, 12_000_000])
    latest = runs.latest(np.array(["opt"] * 4, object), asked_us)
    assert latest.tolist() == [-1, 0, 0, 1]
    assert seconds(runs.log_us[latest[1:]]) == [5.0, 5.0, 2.0]
    assert runs.latest(np.array(["nli"], object), np.array([99_000_000])).tolist() == [-1]


def test_a_history_is_sorted_by_time() -> None:
    tasks = Tasks({"model": np.array(["b", "a"], object)}, np.array([7, 3]))
    history = History.of(tasks, np.array([10, 20]), timed=True)
    assert history.tasks.text("model").tolist() == ["a", "b"]
    assert history.known_us.tolist() == [23, 17]


def test_only_the_latest_runs_of_a_key_count() -> None:
    # 5 runs of 100 s, then as many as the window holds of 1 s: the old ones are forgotten.
    history = past([{"model": "opt", "s": 100}] * 5 + [{"model": "opt", "s": 1}] * WINDOW)
    known = KnownTimes(history, NAMES)
    task = Tasks.of([{"model": "opt"}], NAMES)
    assert seconds(steady_key(NAMES).answer(task, known).quantiles[0]) == [1.0, 1.0, 1.0]


def test_the_gate_wants_five_repeats_within_a_factor_of_one_and_a_half() -> None:
    # Logs of 10, 10, 10, 10, x: p10 = 10 and p90 lies at 0.6 of the way from the fourth to the fifth (0.9 x 4 = 3.6),
    # 10 (x / 10)^0.6; that is 15 for x = 10 x 1.5^(1 / 0.6) = 19.656.
    def answered(*runs: float) -> bool:
        known = KnownTimes(past([{"model": "opt", "steps": 3, "s": run} for run in runs]), NAMES)
        return bool(steady_key(NAMES).answer(Tasks.of([{"model": "opt", "steps": "3.0"}], NAMES), known).given[0])

    assert answered(10, 10, 10, 10, 19.65)
    assert not answered(10, 10, 10, 10, 19.66)
    assert not answered(10, 10, 10, 10)


def test_back_offs_drop_columns_from_the_end_and_never_the_first() -> None:
    rows = [{"model": "opt", "steps": 3, "s": s} for s in (1, 2, 4)] + [{"model": "opt", "steps": 9, "s": 8}] * 2
    known = KnownTimes(past(rows), NAMES)
    asked = Tasks.of([{"model": m, "steps": s} for m, s in (("opt", 3), ("opt", 9), ("opt", 5), ("nli", 3))], NAMES)
    answers, _ = climb(back_offs(NAMES), asked, known)
    # opt / 3 has three runs, median 2. opt / 9 has only two, opt / 5 none: all of opt, 1 2 4 8 8, median 4.
    assert seconds(answers.quantiles[:3, 1]) == [2.0, 4.0, 4.0]
    assert answers.given.tolist() == [True, True, True, False]
    assert answers.neighbours.tolist() == [("opt / 3",), ("opt",), ("opt",), ()]


def test_the_default_counts_every_model_alike() -> None:
    # Nine runs of 1 s of one model and one of 100 s of another: half of the models take 100 s.
    history = past([{"model": "opt", "s": 1}] * 9 + [{"model": "nli", "s": 100}])
    answers = Default().answer(Tasks.of([{"model": "new"}], NAMES), KnownTimes(history, NAMES))
    low, middle, high = seconds(answers.quantiles[0])
    # Two models are few: a third may well lie outside of both.
    assert low < middle == 1.0 < 100.0 < high


def test_the_default_of_a_model_taken_for_new_leaves_out_its_own_runs() -> None:
    history = past([{"model": "opt", "s": 1}] * 9 + [{"model": "nli", "s": 100}])
    asked = Tasks.of([{"model": "opt"}, {"model": "nli"}, {"model": "new"}], NAMES)
    answers = Default(others_only=True).answer(asked, KnownTimes(history, NAMES))
    assert seconds(answers.quantiles[:, 1]) == [100.0, 1.0, 1.0]


def test_values_are_compared_as_what_they_say() -> None:
    assert [plain(value) for value in (30, 30.0, "30.0", " a  b ", float("nan"), 0.5)] == ["30"] * 3 + [
        "a b",
        "",
        "0.5",
    ]


@pytest.mark.parametrize("quantiles", [(2, 1, 3), (0, 1, 2), (1, 3, 2)])
def test_quantiles_out_of_order_are_no_estimate(quantiles: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="ascending order"):
        Estimate(*quantiles, "default")


def test_a_confidence_is_a_share() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Estimate(1, 2, 3, "default", 1.5)
