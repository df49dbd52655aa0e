"""What runs when, and for how long: limits are kept by what is not begun."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from types import ModuleType
from typing import Any

import pytest

from tests import instances as make
from tests.streams.worlds import random_chats
from truenorth.executor import parse_policy, simulate
from truenorth.models import BatchClass, Instance, Job, Objective, Task, Timeline, check, measure, timeline_value
from truenorth.models.scenario.limits import check_horizon
from truenorth.planner.answers.plan import starts_for
from truenorth.solvers import portfolio, side_by_side, strategy
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.exact import cp_sat, milp
from truenorth.solvers.portfolio import solve
from truenorth.solvers.result import Search
from truenorth.solvers.search import annealing
from truenorth.solvers.search.decoder import Decoder
from truenorth.solvers.search.dispatch import greedy, greedy_decisions
from truenorth.solvers.tuning import USUAL, Tuning

AT_ONCE = Budget(1e-9)


def queue(jobs: int = 6) -> Instance:
    """Jobs of one task of 5 us that all arrive at 0 on one GPU: the critical path is far from the optimum."""
    return make.instance([Job(make.chain(make.task("t", 5, ["m"])), 0)] * jobs, {"m": 3}, make.cluster(1))


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan])
def test_a_limit_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="allowed is a finite number above 0"):
        Budget(seconds)


def test_the_first_plan_is_made_and_said_to_be_late_however_short_the_limit() -> None:
    asked = []

    def starts(left_s: Callable[[], float]) -> Iterator[Timeline]:
        asked.append(left_s())
        return iter(())

    result = solve(queue(), Objective.MEAN_LATENCY, AT_ONCE, starts=starts)
    # One load of 3 us, then runs: 8, 13, ..., 33 us, in the mean 20.5; only the critical path was counted: 8.
    assert result.value == Fraction(41, 2)
    assert result.lower_bound == 8
    assert result.bound_method == "critical_path"
    assert not result.within_limit
    assert asked[0] <= 0


def test_requests_get_a_plan_however_short_the_limit() -> None:
    of = random_chats(random.Random(1), 4)
    result = solve(of, Objective.MEAN_LATENCY, AT_ONCE, starts=starts_for(of, 0))
    assert result.timeline is not None
    assert check(of, result.timeline) == []
    # Who asks to stop is obeyed all the same.
    stopped = Budget(60.0)
    stopped.stop.set()
    assert solve(of, Objective.MEAN_LATENCY, stopped, starts=starts_for(of, 0)).timeline is None


def test_a_plan_in_time_is_said_to_be() -> None:
    assert solve(queue(2), Objective.MEAN_LATENCY, Budget(60.0)).within_limit


def test_of_known_plans_one_is_kept_even_if_time_is_up() -> None:
    of = queue()
    known = simulate(of, parse_policy("jit"))
    result = solve(of, Objective.MEAN_LATENCY, AT_ONCE, starts=lambda left_s: [known, known])
    assert result.timeline is known


def test_a_large_window_has_a_plan_before_policies_are_simulated() -> None:
    of = make.instance([Job(make.chain(make.task("a", 3)), 0)])
    values: list[Fraction | None] = []
    before: list[int] = []

    def starts(left_s: Callable[[], float]) -> Iterator[Timeline]:
        before.append(len(values))
        yield from ()

    for most in (1, 0):
        values.clear()
        tuning = Tuning("dispatched", dispatched_tasks=most)
        budget = Budget(60, watch=lambda moment: values.append(moment.value), tuning=tuning)
        assert solve(of, Objective.MAKESPAN, budget, starts=starts).options["tuning"] == "dispatched"
    assert before == [0, 1]


def test_no_policy_is_begun_without_time_and_none_is_finished_after_it() -> None:
    of = queue()
    assert list(starts_for(of, 0)(lambda: 0.0)) == []
    seconds = iter([9.0, 0.0])  # enough to begin, none left at the first instant
    assert list(starts_for(of, 0)(lambda: next(seconds))) == []
    assert len(list(starts_for(of, 0)(lambda: 9.0))) == 4


def test_formulas_that_may_take_too_long_are_left_out() -> None:
    of = queue()
    assert closed_form.best(of, Objective.MEAN_LATENCY)[1] == "mean_busy_time"
    assert closed_form.best(of, Objective.MEAN_LATENCY, lambda: 0.0)[1] == "critical_path"


def test_dispatch_tries_no_further_rule_once_it_has_enough() -> None:
    decoder = Decoder(queue(), Objective.MEAN_LATENCY)
    assert len(greedy_decisions(decoder, lambda: True)) == 1
    assert len(greedy_decisions(decoder)) > 1


def test_a_window_too_large_to_set_up_gets_no_ascent_and_no_cp_sat() -> None:
    of = queue()
    search = Search(of, Objective.MEAN_LATENCY, USUAL.ascent_s_per_task * of.n_tasks)
    assert side_by_side.raise_bound(search) is None
    wide = replace(of, cluster=make.cluster(500))  # its model takes 6 tasks x 500 GPUs x 0.6 ms = 1.8 s to build
    assert cp_sat.build_s(wide) == pytest.approx(1.8)
    left = Search(wide, Objective.MEAN_LATENCY, 1.0)
    cp_sat.improve(left)
    assert (left.timeline, left.bound) == (None, None)
    # Whoever wants to know why reads it in the result, and annealing takes the time.
    assert search.left_out["lagrangian"].startswith("no time to begin it: that takes 0.0006 s, of which ")
    assert left.left_out["cp-sat"].startswith("no time to begin it: that takes 1.8 s, of which ")


def test_short_limits_give_the_bound_all_of_its_worker() -> None:
    # Up to 10 s, then 30 %.
    limits = (4.0, 10.0, 20.0, 60.0)
    assert [side_by_side.share_of_bound_s(USUAL, limit) for limit in limits] == [4.0, 10.0, 10.0, 18.0]


def test_beams_follow_the_first_prices_and_the_bound_goes_on_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two GPUs, runs of 10 and 4 at 0, of 4 and 1 at 1: best with latencies 14, 4, 5 and 1, in the mean 6. Annealing,
    # which is called for a first plan, beside the first prices and after the beams, does nothing here.
    runs = [(10, 0), (4, 0), (4, 1), (1, 1)]
    jobs = [Job(make.chain(make.task("t", run), name=f"w{at}"), release) for at, (run, release) in enumerate(runs)]
    of, known, ascents = make.instance(jobs, on=make.cluster(2)), list[Fraction | None](), list[Fraction]()
    raise_bound = side_by_side.raise_bound

    def raise_and_note(search: Search, *told: Any) -> object:
        priced = raise_bound(search, *told)
        assert priced is not None
        ascents.append(priced.bound)
        return priced

    monkeypatch.setattr(annealing, "improve", lambda search, *_, **__: known.append(search.value))
    monkeypatch.setattr(side_by_side, "raise_bound", raise_and_note)
    search = Search(of, Objective.MEAN_LATENCY, 60.0)
    side_by_side.bound_and_beam(search, Budget(60.0, Method.SEARCH), 60.0)
    assert known == [None, None, 6]
    assert len(ascents) == 2
    assert (search.bound, search.bound_method) == (max(ascents), "lagrangian")
    assert Fraction(21, 4) <= max(ascents) <= 6  # the critical paths alone come to 19 / 4


def test_a_bound_finds_what_a_plan_finds() -> None:
    # The window of the test above twice, far apart, and taken for too large for CP-SAT: it is proved part by part.
    by_parts = Tuning("by parts", exact_tasks=0)
    runs = [(10, 0), (4, 0), (4, 1), (1, 1)]
    jobs = [
        Job(make.chain(make.task("t", run), name=f"w{at}"), begin + release)
        for begin in (0, 1000)
        for at, (run, release) in enumerate(runs)
    ]
    of = make.instance(jobs, on=make.cluster(2))
    planned = solve(of, Objective.MEAN_LATENCY, Budget(3.0, tuning=by_parts))
    bounded = portfolio.bound(of, Objective.MEAN_LATENCY, Budget(3.0, tuning=by_parts))
    known = (planned.value, planned.lower_bound, bounded.found.value, bounded.found.lower_bound)
    assert known == (Fraction(6),) * 4
    assert bounded.priced is not None
    assert bounded.formula[0] <= bounded.priced.bound <= 6


def test_a_plan_that_search_did_not_better_is_said_to_be_one() -> None:
    of = queue()
    known = simulate(of, parse_policy("jit"))
    kept = solve(of, Objective.MEAN_LATENCY, AT_ONCE, starts=lambda left_s: [known])
    assert kept.fell_back == "the plan is an online policy's: search found none better"
    hinted = solve(of, Objective.MEAN_LATENCY, AT_ONCE, hint=known)
    assert hinted.fell_back == "the plan is the given one: search found none better"
    # In the end it is proved, whoever made it.
    assert solve(of, Objective.MEAN_LATENCY, Budget(60.0), hint=known).fell_back is None


def test_search_goes_on_once_cp_sat_has_had_its_share_of_a_window_with_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = BatchClass("c", {"*": {1: 4, 2: 5}})
    of = make.instance([Job(make.chain(Task.of_class("t", batch)), at) for at in range(4)], on=make.cluster(2))
    asked = list[tuple[str, float]]()

    def note(name: str) -> Callable[..., None]:
        return lambda search, *_, **__: asked.append((name, search.clock.left_s))

    monkeypatch.setattr(annealing, "improve", note("annealing"))
    monkeypatch.setattr(cp_sat, "ask_plainly", note("plainly"))
    monkeypatch.setattr(cp_sat, "improve", note("cp-sat"))
    monkeypatch.setattr(side_by_side, "raise_bound", note("bound"))
    solve(of, Objective.MEAN_LATENCY, Budget(60.0, workers=1))
    names = [name for name, _ in asked]
    proof = names.index("cp-sat")
    assert asked[proof][1] == pytest.approx(30, abs=2)
    assert {"annealing", "bound"} <= set(names[:proof])
    assert {"annealing", "bound"} <= set(names[proof + 1 :])


def test_a_result_says_why_a_proof_had_no_turn() -> None:
    batch = BatchClass("c", {"*": {1: 4, 2: 5}})
    of = make.instance([Job(make.chain(Task.of_class("t", batch)), at) for at in range(4)], on=make.cluster(2))
    search = Search(of, Objective.MEAN_LATENCY, 60.0)
    strategy.prove(search, Budget(60.0, Method.CP_SAT, workers=1), None)
    assert search.proved
    assert search.result("test", {}).skipped == {
        "arc-flow": "has no support for batches",
        "start-orders": "has no support for batches",
        "refutation": "has no support for batches",
        "cp-sat beside annealing": "is only for maxima, with workers for both",
        "cp-sat on the window as it is": "is only for windows of up to 60 tasks, where no method is named",
    }
    alone = Search(queue(), Objective.MEAN_LATENCY, 60.0)
    strategy.prove(alone, Budget(60.0, workers=1), None)
    assert alone.skipped["start-orders"] == "needs prices of the Lagrangian bound, and there are none"
    assert alone.skipped["refutation"] == "is only for maxima and late jobs"


@pytest.mark.parametrize(("method", "module"), [(Method.CP_SAT, cp_sat), (Method.MILP, milp)])
def test_time_too_short_for_a_model_goes_to_annealing(
    method: Method, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    annealed = list[Search]()
    monkeypatch.setattr(strategy, "anneal", lambda search, _: annealed.append(search))
    monkeypatch.setattr(module, "_BUILD_S", 1.0)
    search = Search(queue(), Objective.MEAN_LATENCY, 5.0)
    strategy.prove(search, Budget(5.0, method, workers=1), None)
    assert annealed == [search]
    assert search.left_out[str(method)].startswith("no time to begin it: ")
    # Counted moves are over by then: what the clock decides must not add to them.
    strategy.prove(search, Budget(5.0, method, workers=1, iterations=10), None)
    assert annealed == [search]


def test_a_warm_up_without_time_for_the_bound_is_repeated_until_there_was() -> None:
    search, asked = Search(queue(), Objective.MEAN_LATENCY, 60.0), list[float]()

    def plan_and_bound(limit_s: float) -> None:
        asked.append(limit_s)
        if len(asked) < 3:  # other processes took the time
            search.left_out["lagrangian"] = "no time"

    assert portfolio._warm_up(search, 0.5, plan_and_bound) is None
    assert asked == [0.5, 1.0, 2.0]
    assert search.left_out == {}


def test_a_warm_up_for_which_no_bound_is_ever_built_ends() -> None:
    search, asked = Search(queue(), Objective.MEAN_LATENCY, 60.0), list[float]()

    def plan_and_bound(limit_s: float) -> None:
        asked.append(limit_s)
        search.left_out["lagrangian"] = "no time"

    assert portfolio._warm_up(search, 0.5, plan_and_bound) is None
    # Twice as long each time, but no longer than half of what is left.
    assert asked == [0.5 * 2**turn for turn in range(6)]


def test_what_is_small_is_proved_without_a_long_warm_up() -> None:
    # 60 ms per task; of a long limit a window of many tasks takes 15 %, and a maximum 5 %.
    for objective, share in ((Objective.MEAN_LATENCY, 0.15), (Objective.MAKESPAN, 0.05)):
        for jobs, expected in ((2, 0.12), (1000, share * 60)):
            search = Search(queue(jobs), objective, 60.0)
            assert portfolio.warm_up_s(search, Budget(60.0)) == pytest.approx(expected, rel=0.05)


def test_no_sum_wraps_at_the_longest_window_that_a_scenario_may_have() -> None:
    # 100 runs of 10^16 us one after the other end at 10^18 us; their completions sum up to 5050 * 10^16, beyond 64
    # bits. In the mean 50.5 runs.
    of = make.instance([Job(make.chain(make.task("t", 10**16)), 0)] * 100, on=make.cluster(1))
    check_horizon(of)
    dispatched = greedy(of, Objective.MEAN_LATENCY)
    assert dispatched is not None
    for timeline in (dispatched, simulate(of, parse_policy("jit"))):
        assert check(of, timeline) == []
        assert timeline_value(Objective.MEAN_LATENCY, of, timeline) == Fraction(101, 2) * 10**16
        metrics = measure(of, timeline)
        assert metrics.mean_latency_s == 50.5 * 1e10
        assert metrics.compute_busy == 1.0
