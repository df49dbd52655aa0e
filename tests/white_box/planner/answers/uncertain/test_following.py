"""Planning anew exactly when a run time leaves its interval."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.executor.scripted import runs
from tests.instances import random_instance
from tests.planner.answers.uncertain.work import timeline, told, window
from truenorth.executor import Policy, simulate
from truenorth.models import Instance, Objective, Timeline, check
from truenorth.planner.answers.policies.offline import Following, anneal
from truenorth.planner.answers.policies.receding_horizon import RecedingOptions
from truenorth.planner.answers.uncertain.spec import Error
from truenorth.planner.inputs.told import Told

OPTIONS = RecedingOptions(moves=50, objective="mean_latency")


def followed(known: Told, plan: Timeline, truth: Instance) -> tuple[Timeline, Following]:
    """Return what happens, and who did it."""
    made: list[Following] = []

    def make() -> Policy:
        made.append(Following(known, plan, OPTIONS))
        return made[-1]

    factory: Callable[[], Policy] = make
    return simulate(known.instance, factory, truth=truth), made[-1]


@pytest.mark.parametrize(
    ("true_us", "decisions"),
    [
        (10, 0),
        (8, 0),  # p10 itself lies inside
        (12, 0),  # and so does p90
        (7, 1),  # ended too early
        (13, 2),  # still ran at 12, and ended outside
        (50, 2),  # once is enough while it runs
    ],
)
def test_it_plans_anew_exactly_when_a_task_leaves_its_interval(true_us: int, decisions: int) -> None:
    # One GPU, a and then b. a is told to take 10 us, 8 to 12 in 80 % of cases. b takes what was told.
    on = window({"a": 10, "b": 20})
    plan = timeline(on, (0, 0), (0, 10))
    happened, policy = followed(told(on, 0.8, 1.2), plan, window({"a": true_us, "b": 20}))
    assert runs(happened) == [(0, 0, true_us), (0, true_us, true_us + 20)]
    assert len(policy.decision_s) == decisions


def test_what_waits_behind_a_long_task_goes_elsewhere() -> None:
    # Two GPUs: a, then b on the first; c on the second. a should take 10 us and still runs at 12, its p90; c has ended
    # by then, at 11, so b starts on the second GPU at once. As planned it would have waited until 100.
    on = window({"a": 10, "b": 10, "c": 11}, gpus=2)
    plan = timeline(on, (0, 0), (0, 10), (1, 0))
    truth = window({"a": 100, "b": 10, "c": 11}, gpus=2)
    happened, policy = followed(told(on, 0.8, 1.2), plan, truth)
    assert runs(happened) == [(0, 0, 100), (1, 12, 22), (1, 0, 11)]
    assert check(truth, happened) == []
    assert len(policy.decision_s) == 1  # when a ends, nothing is left to plan


def test_without_error_it_does_what_was_planned() -> None:
    for seed in range(60):
        on = random_instance(random.Random(seed), max_tasks=9)
        plan = anneal(on, Objective.MEAN_LATENCY, 200, seed)
        assert plan is not None
        happened, policy = followed(Told.exactly(on), plan, on)
        assert happened.place.tolist() == plan.place.tolist()
        assert (happened.start_us <= plan.start_us).all()
        assert policy.decision_s == []


def test_under_errors_it_keeps_the_rules_and_repeats() -> None:
    planned_anew = 0
    for seed in range(60):
        truth = random_instance(random.Random(seed), max_tasks=9)
        error = Error("lognormal", 1.0, by_job=False)
        known = error.told(error.around(truth, seed))
        plan = anneal(known.instance, Objective.MEAN_LATENCY, 200, seed)
        assert plan is not None
        (first, policy), (again, _) = (followed(known, plan, truth) for _ in range(2))
        assert check(truth, first) == []
        assert runs(first) == runs(again)
        planned_anew += len(policy.decision_s)
    assert planned_anew > 30
