"""Windows that count in a longer unit: the same optima, and progress that does not depend on the scale of time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from experiments.benchmarks.textbook import draw
from tests import gangs
from tests import instances as make
from truenorth.executor import parse_policy, simulate
from truenorth.models import BatchClass, Instance, Job, Objective, Task, check, timeline_value
from truenorth.solvers.budget import Budget
from truenorth.solvers.exact import arc_flow, exhaustive
from truenorth.solvers.portfolio import solve
from truenorth.solvers.reductions import ticks_of
from truenorth.solvers.result import Search
from truenorth.solvers.strategy import prove

SECOND = 1_000_000


def three_equal(run_us: int = SECOND) -> Instance:
    """Three jobs of one task on two GPUs: two of them follow each other."""
    return make.instance([Job(make.chain(make.task("t", run_us)), 0)] * 3, on=make.cluster(2))


@pytest.mark.parametrize("seed", range(7))
def test_the_twin_has_the_optimum_of_the_window(seed: int) -> None:
    scenario = draw(seed)
    ticks = ticks_of(scenario.instance, scenario.objective)
    assert ticks is not None
    assert ticks.tick_us % SECOND == 0
    found = exhaustive.solve(ticks.twin, scenario.objective)
    assert found.timeline is not None
    assert found.value is not None
    plan = ticks.back(found.timeline)
    assert check(scenario.instance, plan) == []
    value = timeline_value(scenario.objective, scenario.instance, plan)
    assert value == found.value * ticks.value == exhaustive.solve(scenario.instance, scenario.objective).value


@pytest.mark.parametrize("seed", range(7))
def test_a_plan_off_the_grid_is_a_plan_of_the_twin_and_no_worse(seed: int) -> None:
    scenario = draw(seed)
    ticks = ticks_of(scenario.instance, scenario.objective)
    assert ticks is not None
    plan, late_us = ticks.back(simulate(ticks.twin, parse_policy("jit"))), 300_000
    stays = tuple(
        replace(
            stay,
            load_start_us=stay.load_start_us + late_us,
            ready_us=stay.ready_us + late_us,
            end_us=None if stay.end_us is None else stay.end_us + late_us,
        )
        for stay in plan.residencies
    )
    late = replace(plan, start_us=plan.start_us + late_us, end_us=plan.end_us + late_us, residencies=stays)
    assert check(scenario.instance, late) == []
    rounded = ticks.to_twin(late)
    assert check(ticks.twin, rounded) == []
    assert timeline_value(scenario.objective, ticks.twin, rounded) * ticks.value <= timeline_value(
        scenario.objective, scenario.instance, late
    )


@pytest.mark.parametrize("seed", [0, 2, 5, 6, 7])
@pytest.mark.parametrize(("of", "least"), [(gangs.draw, gangs.optimum), (gangs.draw_moldable, gangs.moldable_optimum)])
def test_runs_on_several_gpus_are_counted_in_their_unit(
    of: Callable[[random.Random], Instance], least: Callable[[Instance, Objective], Fraction], seed: int
) -> None:
    rng = random.Random(seed)
    drawn, objective = of(rng), rng.choice(list(Objective))
    longer = drawn.with_tasks(lambda task: task.with_times(lambda us: 2 * SECOND * us))
    jobs = tuple(
        replace(job, release_us=2 * SECOND * job.release_us, deadline_us=2 * SECOND * (job.deadline_us or 0))
        for job in longer.jobs
    )
    window = replace(longer, jobs=jobs, catalogue=())
    ticks = ticks_of(window, objective)
    assert ticks is not None
    assert ticks.tick_us % SECOND == 0
    assert ticks.twin.places.gpus == window.places.gpus
    assert least(ticks.twin, objective) * ticks.value == least(window, objective)


def test_a_bound_between_two_seconds_is_rounded_up_to_the_next() -> None:
    search = Search(three_equal(), Objective.MAKESPAN, 600.0)
    search.offer_bound(Fraction(3 * SECOND, 2), "energetic")
    counted = search.in_ticks()
    # Three runs of a second on two GPUs: 1.5 s of work each, and no plan ends between whole seconds.
    assert (counted.bound, search.bound, search.bound_method) == (Fraction(2), Fraction(2 * SECOND), "energetic")


def test_doubts_and_what_is_offered_in_ticks_reach_the_window() -> None:
    search = Search(three_equal(), Objective.MAKESPAN, 600.0)
    counted = search.in_ticks()
    found = exhaustive.solve(counted.instance, Objective.MAKESPAN).timeline
    assert found is not None
    counted.offer(found)
    assert (counted.value, search.value) == (Fraction(2), Fraction(2 * SECOND))
    counted.offer_bound(Fraction(2), "cp-sat")
    assert search.proved
    counted.forget("CP-SAT", "tried")
    assert (search.bound, search.faults, counted.faults) == (None, ["tried"], ["tried"])
    assert search.in_ticks().faults == ["tried"]


def test_three_equal_jobs_are_proved_whatever_their_length() -> None:
    for run_us in (1, 10_000, SECOND, 3_600 * SECOND, 999_983):
        found = solve(three_equal(run_us), Objective.MAKESPAN, Budget(60.0))
        assert (found.value, found.lower_bound) == (Fraction(2 * run_us),) * 2


def test_packing_leaves_others_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[float, float]]()

    def note(search: Search, workers: int, seed: int, limit_s: float) -> None:
        asked.append((limit_s, search.clock.left_s))

    monkeypatch.setattr(arc_flow, "improve", note)
    sizes = (7, 6, 5, 4, 4, 3, 3, 2)  # 34 in all: the bound of 17 is met, but not by the first plan
    of = make.instance(
        [Job(make.chain(make.task("t", size), name=f"w{at}"), 0) for at, size in enumerate(sizes)], on=make.cluster(2)
    )
    search = Search(of, Objective.MAKESPAN, 60.0)
    search.offer(simulate(of, parse_policy("jit")))
    prove(search, Budget(60.0), None)
    assert asked
    assert asked[0][0] == pytest.approx(asked[0][1] / 2, rel=0.05)


def test_batches_that_start_a_microsecond_apart_keep_their_microseconds() -> None:
    half = BatchClass("c", {"*": {1: 4 * SECOND, 2: 5 * SECOND}}, share=5_000)
    of = make.instance([Job(make.chain(Task.of_class("t", half)), 0)] * 2)
    assert ticks_of(of, Objective.MAKESPAN) is None


def test_deadlines_and_paths_count_where_the_objective_sees_them() -> None:
    of = make.instance([Job(make.chain(make.task("t", 6)), 0, deadline_us=8)])
    units = {objective: ticks_of(of, objective) for objective in Objective}
    assert {each: ticks.tick_us for each, ticks in units.items() if ticks is not None} == {
        objective: 2 if objective is Objective.WEIGHTED_TARDINESS else 6 for objective in Objective
    }
