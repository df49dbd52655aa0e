"""Plans for p50, p90 and samples, and what becomes of them: cases derived by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.executor.scripted import runs
from tests.instances import random_instance
from tests.planner.answers.uncertain.work import timeline, told, window
from truenorth.executor import PolicyError, parse_policy, simulate
from truenorth.models import Instance, Objective, check, timeline_value
from truenorth.planner.answers.policies.offline import Offline, OfflineOptions, anneal
from truenorth.planner.answers.policies.receding_horizon import RecedingHorizon, RecedingOptions
from truenorth.planner.answers.uncertain.planning import ConsideredPlan, candidates, values
from truenorth.planner.answers.uncertain.spec import Error
from truenorth.planner.inputs.told import Told, retime, stretch
from truenorth.planner.questions.options import PlanFor

LATENCY = Objective.MEAN_LATENCY

# One GPU. Job a takes 4 us and at p90 5; job b takes 3, and at p90 9.
ON = window({"a": 4, "b": 3})
KNOWN = told(ON, 1.0, [1.25, 3.0])


def planner(instance: Instance) -> object:
    return anneal(instance, LATENCY, 200, 0)


def best(plan_for: PlanFor, samples: int = 2) -> ConsideredPlan:
    return candidates(KNOWN, LATENCY, plan_for, planner, 0, samples)[0]  # type: ignore[arg-type]


def test_the_quantile_that_is_planned_for_decides_the_order() -> None:
    # Shortest first. By the medians that is b: 3 and 7, where a first gives 4 and 7. By p90 it is a: 5 and 14, where b
    # first gives 9 and 14. Either plan is timed with the medians.
    assert best(PlanFor.P50).timeline.start_us.tolist() == [3, 0]
    assert best(PlanFor.P90).timeline.start_us.tolist() == [0, 4]


def test_the_mean_over_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    # Samples: (a, b) = (4, 2) and (4, 10). Order b, a: ends 2, 6 and 10, 14, means 4 and 12, together 8.
    # Order a, b: ends 4, 6 and 4, 14, means 5 and 9, together 7: that is chosen, although p50 has the other one.
    truths = [window({"a": 4, "b": 2}), window({"a": 4, "b": 10})]
    b_first, a_first = timeline(ON, (0, 3), (0, 0)), timeline(ON, (0, 0), (0, 4))
    assert list(values(ON, b_first, truths, LATENCY)) == [4, 12]
    assert list(values(ON, a_first, truths, LATENCY)) == [5, 9]
    monkeypatch.setattr(Told, "draw", lambda self, seed: truths[seed])
    assert best(PlanFor.P50).mean == 8
    chosen = best(PlanFor.SAMPLES)
    assert chosen.mean == 7
    assert chosen.timeline.start_us.tolist() == [0, 4]
    listed = candidates(KNOWN, LATENCY, PlanFor.SAMPLES, planner, 0, 2)  # type: ignore[arg-type]
    assert {c.made_for: c.mean for c in listed} == {
        # Medians and sample 1 say b first; p90 and sample 2 a first. p70: a 4 x 1.25^(0.524 / 1.28) = 4.38, b 4.70,
        # so a first, and so does p80.
        "p50": 8, "p70": 7, "p80": 7, "p90": 7, "sample 1": 8, "sample 2": 7,
    }  # fmt: skip


def test_placement_and_order_are_kept_whatever_holds() -> None:
    # Two GPUs: a and b one after the other on the first, c on the second. In truth a takes 100 us: b waits for it,
    # although the second GPU is idle from 5 on.
    on = window({"a": 10, "b": 10, "c": 11}, gpus=2)
    truth = window({"a": 100, "b": 10, "c": 5}, gpus=2)
    plan = timeline(on, (0, 0), (0, 10), (1, 0))
    happened = retime(on, plan, truth)
    assert runs(happened) == [(0, 0, 100), (0, 100, 110), (1, 0, 5)]
    assert check(truth, happened) == []
    assert check(on, replace(happened, realised=True)) == []
    assert {violation.rule for violation in check(on, happened)} == {"T1"}


def test_what_is_told_alone_decides_and_what_is_true_happens() -> None:
    # One GPU, both jobs there at 0. Told a 4, b 3; true a 1, b 9. srpt starts b, which it takes for the shorter one.
    truth = window({"a": 1, "b": 9})
    assert runs(simulate(ON, parse_policy("srpt"), truth=truth)) == [(0, 9, 10), (0, 0, 9)]
    assert runs(simulate(truth, parse_policy("srpt"))) == [(0, 0, 1), (0, 1, 10)]


def test_the_true_instance_must_be_the_same_work() -> None:
    for other in (window({"a": 4}), window({"a": 4, "b": 3}, gpus=2)):
        with pytest.raises(ValueError, match="the same jobs, tasks and GPUs"):
            simulate(ON, parse_policy("jit"), truth=other)


def test_without_error_what_happens_is_the_plan() -> None:
    for seed in range(60):
        on = random_instance(random.Random(seed), max_tasks=9)
        plan = anneal(on, Objective.MEAN_SLOWDOWN, 200, seed)
        assert plan is not None
        same = stretch(stretch(on, 2.0 * Told.exactly(on).low), 0.5 * Told.exactly(on).low)
        assert same is not on
        happened = retime(on, plan, same)
        assert happened.start_us.tolist() == plan.start_us.tolist()
        assert happened.place.tolist() == plan.place.tolist()


def test_every_run_under_errors_keeps_the_rules_and_repeats() -> None:
    ran = 0
    for seed in range(40):
        on = random_instance(random.Random(seed), max_tasks=9)
        error = Error("lognormal", 0.8, by_job=bool(seed % 2))
        truth = error.around(on, seed)
        for policy in (
            parse_policy("compass"),
            parse_policy("srpt"),
            lambda: RecedingHorizon(RecedingOptions(moves=50)),
        ):
            try:
                first, again = (simulate(on, policy, seed, truth=truth) for _ in range(2))
            except PolicyError:
                continue
            ran += 1
            assert check(truth, first) == []
            assert check(on, replace(first, realised=True)) == []
            assert runs(first) == runs(again)
    assert ran > 80


def test_policies_do_not_see_the_truth_of_what_has_not_ended() -> None:
    # Truths that differ for the last job only: nothing that begins before that job is released may differ.
    for seed in range(40):
        on = random_instance(random.Random(seed), max_tasks=9)
        last = on.tasks_of(len(on.jobs) - 1)
        one, other = Error("lognormal", 0.5).around(on, 1), None
        factor = Told.exactly(on).low.copy()
        factor[last.start :] = 7.0
        other = stretch(one, factor)
        release = on.jobs[-1].release_us
        for policy in (
            parse_policy("compass"),
            parse_policy("srpt"),
            lambda: RecedingHorizon(RecedingOptions(moves=50)),
        ):
            try:
                first, second = (simulate(on, policy, seed, truth=truth) for truth in (one, other))
            except PolicyError:
                continue
            for a, b in zip(runs(first), runs(second), strict=True):
                assert a[:2] == b[:2] or min(a[1], b[1]) >= release


@pytest.mark.parametrize("on", ["p50", "p90", "samples"])
def test_the_policy_named_offline_carries_out_such_a_plan(on: str, scenario: object) -> None:
    from truenorth.models.scenario import Scenario

    assert isinstance(scenario, Scenario)
    known = Told.exactly(scenario.instance)
    options = OfflineOptions(on=on, moves=300, samples=2)
    happened = simulate(scenario.instance, lambda: Offline(options, scenario, known))
    assert timeline_value(scenario.objective, scenario.instance, happened) == Fraction("1.4")  # the optimum
