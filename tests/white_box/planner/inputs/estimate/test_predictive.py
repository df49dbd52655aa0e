"""What few past runs predict of the next: intervals of 80 % hold 80 %, of new runs, from short histories too."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.night import by_day
from tests.planner.inputs.estimate.past import past
from truenorth.planner.inputs.estimate.known import ASSUMED, predictive_quantiles, usual_scatter
from truenorth.planner.inputs.estimate.ladder import Recipe, fit_ladder, shift
from truenorth.planner.inputs.estimate.run import score
from truenorth.planner.inputs.estimate.tasks import TaskColumns, Tasks

KEYS = TaskColumns(("model", "steps"))


def test_one_run_is_as_wide_as_runs_are_as_a_rule() -> None:
    # Student's t of 4 degrees of freedom has its 90 % quantile at 1.533206; one run adds its own scatter: sqrt(2).
    found = predictive_quantiles(np.array([[5.0]]), np.ones((1, 1)), np.array([0.3]))
    assert found[0] == pytest.approx([5 - 0.3 * math.sqrt(2) * 1.533206, 5, 5 + 0.3 * math.sqrt(2) * 1.533206])


def test_few_runs_that_lie_close_by_chance_are_wider_than_they_are() -> None:
    # Five equal runs and a usual scatter of 1: of 8 degrees of freedom (t = 1.396815) four say 1 and four say 0.
    found = predictive_quantiles(np.full((1, 5), 2.0), np.ones((1, 5)), np.ones(1))
    assert found[0, 2] - 2 == pytest.approx(1.396815 * math.sqrt(4 / 8 * (1 + 1 / 5)))


@pytest.mark.parametrize(("runs", "low", "high"), [(9, 1.0, 9.0), (19, 2.0, 18.0), (14, 1.5, 13.5)])
def test_the_order_of_many_runs_tells_where_the_next_one_lies(runs: int, low: float, high: float) -> None:
    # The k-th smallest of n has k / (n + 1) below it: a tenth of 10, 20 and 15.
    found = predictive_quantiles(np.arange(1.0, runs + 1)[None], np.ones((1, runs)), np.ones(1))
    assert found[0] == pytest.approx([low, (runs + 1) / 2, high])


def test_scatter_is_assumed_until_runs_repeat() -> None:
    # No repeat: a factor of two. Three repeats with squares of 1 each, and one of log(2)^2.
    assert usual_scatter(np.array([0.0, 3.0]), np.array([0.0, 3.0])) == pytest.approx(
        [ASSUMED, math.sqrt((3 + ASSUMED**2) / 4)]
    )


def test_few_cases_never_narrow_an_interval() -> None:
    wide = np.tile([0.0, 5.0, 10.0], (8, 1))
    assert shift(wide, np.full(8, 5.0)).below == 0.0
    assert shift(np.vstack([wide, wide]), np.full(16, 5.0)).below == -5.0


@pytest.mark.parametrize(
    ("tasks", "models", "steps", "scatter"),
    by_day([(120, 12, 4, (0.3, 0.3)), (8, 2, 1, (0.3, 0.3)), (120, 6, 4, (0.4, 0.1)), (40, 6, 2, (0.3, 0.3))], 2),
)
def test_intervals_from_short_histories_hold_eighty_per_cent_of_new_runs(
    tasks: int, models: int, steps: int, scatter: tuple[float, float]
) -> None:
    # Twelve draws of a history and 200 new runs each. The mean of twelve coverages that scatter by 0.1 has a standard
    # deviation of 0.03; without prediction from few runs it is 0.67, 0.70, 0.50 and 0.34.
    covered = []
    for seed in range(12):
        draws = np.random.default_rng(seed)
        usual = draws.normal(1, 1, (models, steps))

        def draw(count: int, draws: np.random.Generator = draws, usual: np.ndarray = usual) -> list[dict[str, object]]:
            at = zip(draws.integers(models, size=count), draws.integers(steps, size=count), strict=True)
            return [
                {"model": m, "steps": s, "s": math.exp(usual[m, s] + scatter[m % 2] * draws.normal())} for m, s in at
            ]

        ladder, new = fit_ladder(past(draw(tasks), KEYS.all), Recipe(KEYS)), draw(200)
        found = score(
            ladder.predict_all(Tasks.of(new, KEYS.all)), np.array([float(str(row["s"])) * 1e6 for row in new])
        )
        assert found is not None
        covered.append(found.covered)
    assert 0.74 <= np.mean(covered) <= 0.9
    assert min(covered) > 0.45


def test_a_history_of_one_run_predicts_no_certainty() -> None:
    found = fit_ladder(past([{"model": "opt", "s": 4}], KEYS.all), Recipe(KEYS)).predict({"model": "opt"})
    assert found.p10_us < 2_000_000 < found.p50_us == 4_000_000 < 8_000_000 < found.p90_us
