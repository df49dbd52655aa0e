"""The receding horizon where tasks take several GPUs: by hand, and what holds on random windows."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from tests.gangs import draw, draw_moldable, job, moldable_optimum, optimum, servers, window
from truenorth.executor import Policy, PolicyError, simulate
from truenorth.executor.simulation import change_future, first_difference, past
from truenorth.models import Instance, Objective, check, timeline_value
from truenorth.planner.answers.policies.receding_horizon import EVERYTHING, Oracle, RecedingOptions
from truenorth.planner.answers.policies.receding_on_places import RecedingOnPlaces
from truenorth.planner.inputs.told import stretch


def receding(on: Instance, objective: Objective, lookahead: int = 0, moves: int = 200) -> Callable[[], Policy]:
    """Return what makes the policy for a window."""
    options = RecedingOptions(moves=moves, objective=objective, lookahead=lookahead)
    return lambda: RecedingOnPlaces(options, Oracle(on.jobs) if lookahead else None)


def _draw(rng: random.Random) -> Instance:
    """Return a random window in which some run takes several GPUs."""
    of = rng.choice((draw, draw_moldable))
    return next(made for made in iter(partial(of, rng), None) if made.gangs)


@pytest.mark.parametrize(
    ("lookahead", "starts"),
    [
        # The pair waits for the long run until 100, the single does not delay it: latencies of 100, 104 and 20.
        (0, [0, 100, 2]),
        # Knowing that the pair comes at 1 the long run waits for it: 106, 5 and 24.
        (1, [6, 1, 6]),
        (EVERYTHING, [6, 1, 6]),
    ],
)
def test_how_far_it_sees(lookahead: int, starts: list[int]) -> None:
    made = window(job(1, 100), job(2, 5, 1), job(1, 20, 2), on=servers(1, 2))
    timeline = simulate(made, receding(made, Objective.MEAN_LATENCY, lookahead))
    assert timeline.start_us.tolist() == starts


@pytest.mark.parametrize("seed", range(12))
def test_who_knows_everything_reaches_the_optimum(seed: int) -> None:
    rng = random.Random(seed)
    made, objective = _draw(rng), rng.choice(list(Objective))
    timeline = simulate(made, receding(made, objective, EVERYTHING, moves=3_000))
    assert check(made, timeline) == []
    chooses = any(each.workflow.tasks[0].modes for each in made.jobs)
    best = (moldable_optimum if chooses else optimum)(made, objective)
    assert timeline_value(objective, made, timeline) == best


@pytest.mark.parametrize("progress", [None, Fraction(1, 3)])
def test_rules_are_kept_whatever_runs_take(progress: Fraction | None) -> None:
    for seed in range(40):
        rng = random.Random(seed)
        truth, objective = _draw(rng), rng.choice(list(Objective))
        told = stretch(truth, np.random.default_rng(seed).choice([0.1, 0.5, 1.0, 3.0, 20.0], truth.n_tasks))
        seen = rng.choice((0, 2, EVERYTHING))
        timeline = simulate(told, receding(told, objective, seen, moves=50), truth=truth, progress=progress)
        assert check(truth, timeline) == [], seed


def test_the_future_changes_no_past_action() -> None:
    for seed in range(25):
        rng = random.Random(seed)
        made = _draw(rng)
        changed = change_future(made, rng)
        if changed.instance.gangs:
            pasts = [
                past(each, simulate(each, receding(each, Objective.MEAN_LATENCY)), changed.before_us)
                for each in (made, changed.instance)
            ]
            assert first_difference(*pasts) is None


def test_listed_places_are_refused() -> None:
    made = window(job(2, 5), on=servers(1, 3, ((0, 2),)))
    with pytest.raises(PolicyError, match="policy receding: its search of orders has no support here: it needs"):
        simulate(made, receding(made, Objective.MEAN_LATENCY))
