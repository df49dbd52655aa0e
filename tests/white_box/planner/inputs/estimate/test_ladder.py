"""The ladder: who answers, that intervals hold, that nothing later is used, and that it repeats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.planner.inputs.estimate.past import COLUMNS, lognormal, past
from truenorth.planner.inputs.estimate.known import KnownTimes, Novelty
from truenorth.planner.inputs.estimate.ladder import Ladder, Recipe, fit_ladder, fit_rungs, order_rungs
from truenorth.planner.inputs.estimate.run import score
from truenorth.planner.inputs.estimate.rungs import Asked, KeyRuns, MeasuredProfile, steady_key
from truenorth.planner.inputs.estimate.tasks import History, TaskColumns, Tasks

PROFILE = MeasuredProfile({("w", "measured"): (6.5e6, 7e6, 7.5e6)})
FEW = TaskColumns(("model", "steps", "workflow", "task"), ("text",))
# Ten runs of opt, steady for 3 steps and wide for 9; and what else is asked answers for one model.
ROWS = [{"model": "opt", "steps": 3, "text": "decoder", "s": 10 + i % 2} for i in range(10)]
ROWS += [{"model": "opt", "steps": 9, "text": "decoder", "s": 10 * (1 + i % 4)} for i in range(10)]


@pytest.fixture(scope="module")
def few() -> Ladder:
    asked = Asked(lambda task: (1.0, 2.0, 3.0) if task["model"] == "told" else None)
    return fit_ladder(past(ROWS, FEW.all), Recipe(FEW, first=(PROFILE,), asked=(asked,)))


@pytest.mark.parametrize(
    ("task", "source", "p50_s"),
    [
        # The profile goes first, though the exact key is steady.
        ({"model": "opt", "steps": 3, "workflow": "w", "task": "measured"}, "profile", 7.0),
        # Ten runs, 10 and 11 s in turn: the geometric mean of both is their median in logarithms.
        ({"model": "opt", "steps": 3, "text": "decoder"}, "exact key", (10 * 11) ** 0.5),
        # 10, 20, 30, 40, ... ten of them: three of 10 and of 20, two of 30 and of 40, median 20. Too wide for the gate.
        ({"model": "opt", "steps": 9, "text": "decoder"}, "back-off key 4/4", 20.0),
        ({"model": "told"}, "asked", 2.0),
        # All twenty runs of the only model: 10 x 8, 11 x 5, 20 x 3, ...; the tenth smallest is 11.
        ({"model": "new"}, "default", 11.0),
    ],
)
def test_the_first_rung_that_applies_answers(few: Ladder, task: dict[str, object], source: str, p50_s: float) -> None:
    estimate = few.predict(task)
    assert estimate.source == source
    assert estimate.p50_us / 1e6 == pytest.approx(p50_s, abs=1e-6)


def test_rungs_stand_in_the_documented_order_where_too_little_is_known_to_measure_it(few: Ladder) -> None:
    names = [rung.name for rung in few.rungs]
    keys = [f"back-off key {left}/4" for left in (4, 3, 2, 1)]
    assert names == ["profile", "exact key", *keys, "retrieval", "asked", "default"]


def test_a_rung_that_is_better_on_common_tasks_goes_first() -> None:
    # Runs of the exact key alternate 1 and 2 s; then 40 tasks take 9 s. A rung that says 9 s is better on them all.
    history = past([{"model": "opt", "steps": 3, "s": 1 + i % 2} for i in range(20)])
    tasks = Tasks.of([{"model": "opt", "steps": 3}] * 40, COLUMNS.all)
    truth, known = np.full(40, np.log(9e6)), KnownTimes(history, COLUMNS.key)
    nine = Asked(lambda task: (9.0, 9.0, 9.0))
    key, steady = KeyRuns(("model",), "model"), steady_key(COLUMNS.key)
    assert order_rungs([key, nine], tasks, truth, known) == [nine, key]
    few = tasks.take(np.arange(29))
    assert order_rungs([key, nine], few, truth[:29], known) == [key, nine]
    # The gate keeps the exact key silent here; with nothing in common it stays where it is.
    assert order_rungs([steady, nine], tasks, truth, known) == [steady, nine]


@pytest.fixture(scope="module")
def many() -> Ladder:
    return fit_ladder(past(lognormal(2000, seed=3)), Recipe(COLUMNS))


def test_intervals_cover_eighty_per_cent_of_new_tasks(many: Ladder) -> None:
    # 400 tasks calibrate and 1000 are new: three standard deviations are 3 sqrt(0.16 / 400 + 0.16 / 1000) = 0.071.
    rows = lognormal(1000, seed=4)
    truth_us = np.array([float(str(row["s"])) * 1e6 for row in rows])
    estimates = many.predict_all(Tasks.of(rows, COLUMNS.all))
    found = score(estimates, truth_us)
    assert found is not None
    assert {estimate.source for estimate in estimates} == {"boosted"}
    assert found.covered == pytest.approx(0.8, abs=0.071)
    # The best any estimator can do: the median of |exp(0.3 z) - 1| over normal z is 0.2; R2 comes with the spread of
    # sizes, var of the medians over var of the run times. Here the fit is to come close.
    assert found.median_error < 0.24
    assert all(1 <= e.p10_us <= e.p50_us <= e.p90_us for e in estimates)


@pytest.mark.nightly
def test_equal_seeds_give_equal_estimates() -> None:
    one, again = (fit_ladder(past(lognormal(900, seed=3)), Recipe(COLUMNS)) for _ in range(2))
    tasks = Tasks.of(lognormal(50, seed=5), COLUMNS.all)
    estimates = one.predict_all(tasks)
    assert {estimate.source for estimate in estimates} == {"boosted"}
    assert estimates == again.predict_all(tasks)
    assert estimates[7] == one.predict(lognormal(50, seed=5)[7])


def test_estimates_rest_on_nothing_that_was_not_known_when_they_were_asked_for() -> None:
    # A task a second, for 1 to 90 s. From the 600th on the run times are tripled in a second history: estimates online
    # may differ only once one of those has ended.
    rows = lognormal(900, seed=6, spread=0.5)
    tasks = replace(Tasks.of(rows, COLUMNS.all), asked_us=np.arange(900) * 1_000_000)
    runtime_us = np.array([float(str(row["s"])) * 1e6 for row in rows]).astype(np.int64)
    other_us = np.where(np.arange(900) < 600, runtime_us, 3 * runtime_us)
    whole, other = (History.of(tasks, times, timed=True) for times in (runtime_us, other_us))
    fitted = fit_rungs(whole.take(whole.known_us <= 600_000_000), Recipe(COLUMNS))
    ladder, later = fitted.ladder(online=True), tasks.take(np.arange(600, 900))
    one, two = ladder.predict_all(later, whole), ladder.predict_all(later, other)
    first_known = min(int(h.known_us[600:].min()) for h in (whole, other))
    same = [a == b for a, b in zip(one, two, strict=True)]
    before = later.asked_us < first_known
    assert before.sum() >= 2
    assert all(np.array(same)[before])
    assert not all(same)


def test_keys_that_never_repeat_leave_the_fit_its_other_columns() -> None:
    # 1 s for even models, 4 s for odd ones; the steps of every task are its own.
    rows = [{"model": f"m{n % 2}", "steps": n, "s": 1 + 3 * (n % 2)} for n in range(900)]
    ladder = fit_ladder(past(rows), Recipe(COLUMNS))
    found = ladder.predict({"model": "m1", "steps": 10_000})
    assert found.source == "boosted"
    assert found.p50_us == pytest.approx(4e6, rel=0.001)


def test_the_fit_is_judged_for_new_keys_by_tasks_whose_keys_are_taken_for_new() -> None:
    # Each of 40 keys has a run time of its own, which nothing else tells: the fit knows it only where the key repeats.
    draws = np.random.default_rng(1)
    own = np.exp(draws.normal(0, 1.5, 40))
    rows = [{"model": "opt", "steps": n, "s": float(own[n])} for n in draws.integers(0, 40, 1500).tolist()]
    fitted = fit_ladder(past(rows), Recipe(TaskColumns(("model", "steps"), (), ())))
    repeated, new = (fitted.calibrations["boosted", novelty] for novelty in (Novelty.NOTHING, Novelty.KEY))
    assert repeated.within_factor_two > 0.9
    assert new.within_factor_two < repeated.within_factor_two
    assert new.shift.above >= repeated.shift.above


def test_nothing_is_estimated_before_anything_is_known() -> None:
    rows = [{"model": "opt", "steps": 3, "s": 10}] * 20
    ladder = fit_ladder(past(rows), Recipe(COLUMNS))
    later = Tasks(Tasks.of([{"model": "opt", "steps": 3}], COLUMNS.all).columns, np.array([5]))
    with pytest.raises(ValueError, match="1 tasks are asked about before any run time is known"):
        ladder.predict_all(later, History(past(rows).tasks, past(rows).runtime_us, np.full(20, 6)))


def test_unseen_is_whatever_has_a_new_first_value(few: Ladder) -> None:
    tasks = Tasks.of([{"model": "opt", "steps": 77}, {"model": "opt-2"}], FEW.all)
    assert few.known.seen(tasks).tolist() == [True, False]


def test_a_history_of_one_task_is_enough_for_an_answer() -> None:
    ladder = fit_ladder(past([{"model": "opt", "s": 4}]), Recipe(COLUMNS))
    assert ladder.predict({"model": "nli"}).p50_us == 4_000_000
    assert ladder.predict({"model": "nli"}).confidence is None


@pytest.mark.parametrize(("tasks", "confidence"), [(45, None), (50, 0.5)])
def test_a_confidence_rests_on_ten_tasks_at_least(tasks: int, confidence: float | None) -> None:
    # A fifth of the history judges: of 45 tasks nine, of 50 ten. All took 4 s, but every other one of those 40 s.
    later = round(tasks / 5)
    runtimes = [4] * (tasks - later) + [4, 40] * (later // 2) + [4] * (later % 2)
    ladder = fit_ladder(past([{"model": "opt", "s": s} for s in runtimes]), Recipe(COLUMNS))
    assert ladder.predict({"model": "opt"}).confidence == confidence
