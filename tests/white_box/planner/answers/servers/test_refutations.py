"""No size that some plan serves is ever refuted: bounds against the exhaustive solver on random tiny instances."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tests.instances import chain, instance, random_instance, task
from truenorth.models import Instance, Job, Objective, Placement, ServiceLevels, Timeline, objective_value
from truenorth.models.objective import Status
from truenorth.planner.answers.servers.goal import goals, tolerances
from truenorth.solvers.bounds import closed_form, fluid
from truenorth.solvers.exact import exhaustive
from truenorth.solvers.rounding import round_up

LEVELS = (
    ["p50 slowdown <= 1.5"],
    ["p100 latency <= 9 us"],
    ["60 % within deadline"],
    ["mean slowdown <= 2"],
    ["no late jobs"],
    ["p50 latency of odd <= 9 us", "no late jobs of even"],
    ["mean latency of even <= 12 us", "p60 slowdown <= 2", "p100 latency <= 20 us"],
    ["p100 latency of even <= 9 us", "no late jobs"],
    ["mean latency of even <= 9 us", "mean slowdown <= 2"],
)


def _told_apart(drawn: Instance) -> Instance:
    """Return an instance whose jobs are in turn of the workflows even and odd."""
    names = ("even", "odd")
    jobs = tuple(
        replace(job, workflow=replace(job.workflow, name=names[index % 2])) for index, job in enumerate(drawn.jobs)
    )
    return replace(drawn, jobs=jobs, catalogue=tuple(job.workflow for job in jobs))


@pytest.mark.parametrize("seed", range(40))
def test_bounds_never_exceed_the_optimum_of_a_goal(seed: int) -> None:
    rng = random.Random(seed)
    drawn = _told_apart(random_instance(rng, max_tasks=4, restricted=seed // 8 % 2 == 1))
    levels = ServiceLevels.parse(*LEVELS[seed % len(LEVELS)])
    for goal in goals(drawn, levels):
        best = exhaustive.solve(goal.instance, goal.objective)
        if best.status is Status.INFEASIBLE or best.value is None:
            continue
        for name, method in closed_form.METHODS.items():
            bound = method(goal.instance, goal.objective)
            assert bound is None or round_up(goal.instance, goal.objective, bound) <= best.value, name


@pytest.mark.parametrize("seed", range(40))
def test_a_plan_within_the_level_reaches_every_goal(seed: int) -> None:
    # Whatever the completions: if the level holds, no goal may be missed, or a refutation of the goal would lie.
    rng = random.Random(seed)
    drawn = _told_apart(random_instance(rng, max_tasks=5))
    for texts in LEVELS:
        levels = ServiceLevels.parse(*texts)
        asked = goals(drawn, levels)
        for _ in range(20):
            latency = np.array([rng.randint(1, 25) for _ in drawn.jobs])
            completion = drawn.job_release_us + latency
            reached = [objective_value(g.objective, g.instance, completion) <= g.most for g in asked]
            met = levels.met_by(drawn, latency, range(len(drawn.jobs)))
            assert asked[0].suffices or len(texts) > 1
            assert all(reached) or not met
            assert all(met for goal, good in zip(asked, reached, strict=True) if goal.suffices and good)


def test_the_latest_jobs_are_given_up() -> None:
    # One GPU runs the three in turn: they end at 4, 8 and 12 us, 2 us early, 4 us and 3 us late. One may be late.
    drawn = instance([Job(chain(task("a", 4)), 0, deadline_us=due) for due in (6, 4, 9)])
    (goal,) = goals(drawn, ServiceLevels.parse("66 % within deadline"))
    given_up = goal.without_latest(Timeline.build(3, [Placement(job, 0, 4 * job, 4 * job + 4) for job in range(3)], []))
    assert [job.deadline_us for job in given_up.jobs] == [6, None, 9]


def _late(drawn: Instance) -> Fraction | None:
    return fluid.bound(drawn, Objective.LATE_JOBS)


def test_fluid_counts_late_jobs_by_work() -> None:
    # Five jobs of 4 us due at 10 us on one GPU: 20 us of work in 10 us, so 3 must go until the rest (8 us) fits.
    jobs = [Job(chain(task("a", 4)), 0, deadline_us=10)] * 5
    assert _late(instance(jobs)) == 3


def test_fluid_counts_what_cannot_leave_a_window() -> None:
    # Released at 0, due at 6, 4 us each: both must run in [2, 4) for 2 us, twice what one GPU offers there, though
    # in [0, 6) 8 us of work exceed 6 us as well; a third job from 2 to 4 with 1 us leaves two late of three.
    long = Job(chain(task("a", 4)), 0, deadline_us=6)
    short = Job(chain(task("b", 1), name="v"), 2, deadline_us=2)
    assert _late(instance([long, long])) == 1
    assert _late(instance([long, short])) == 1
    assert _late(instance([Job(chain(task("a", 3)), 0, deadline_us=6), short])) == 0


def test_fluid_counts_cold_loads() -> None:
    # Models of 3, 4 and 5 bytes load at a byte per us: 12 us on one copy engine, 9 us until the deadline. Leaving out
    # one model saves at most 5 of the excess of 3: one job late.
    flows = [chain(task("a", 1, [name]), name=name) for name in ("x", "y", "z")]
    drawn = instance([Job(flow, 0, deadline_us=9) for flow in flows], {"x": 3, "y": 4, "z": 5})
    assert _late(drawn) == 1
    held = next(iter(fluid.demands(drawn, fluid.due_us(drawn))))
    assert held.resource == "compute"


def test_fluid_names_the_models_of_a_window_by_their_work() -> None:
    # In [0, 9) x works for 3 us, y for 5 and z, in two jobs, for 8; in [9, 20) z alone does.
    flows = {name: chain(task("a", us, [name]), name=name) for name, us in (("x", 3), ("y", 5), ("z", 4))}
    jobs = [Job(flows[name], at, deadline_us=9) for name, at in (("x", 0), ("y", 0), ("z", 0), ("z", 0), ("z", 11))]
    drawn = instance(jobs, {"x": 1, "y": 1, "z": 1, "w": 1})
    named = {
        (demand.begin_us, demand.end_us): [drawn.models[m].name for m in demand.models]
        for demand in fluid.demands(drawn, fluid.due_us(drawn))
        if demand.resource == "compute"
    }
    assert (named[0, 9], named[11, 20]) == (["z", "y", "x"], ["z"])


def test_fluid_least_gpus_of_a_long_trace() -> None:
    # 6,000 jobs of 8 us, one every us, due 10 us after release: 8 GPUs are always busy. In [0, 6009 + ...) the rate is
    # just below 8, which the ends of the window let 7.99 pass: 8 GPUs.
    jobs = [Job(chain(task("a", 8)), at, deadline_us=10) for at in range(6000)]
    drawn = instance(jobs)
    least, demand = fluid.least_gpus(drawn, fluid.due_us(drawn), 0)
    assert least == 8
    assert demand is not None
    # A tenth of the jobs may be late: 0.9 x 8 = 7.2 GPUs.
    assert fluid.least_gpus(drawn, fluid.due_us(drawn), 600)[0] == 8


def test_a_mean_bounds_the_share_far_above_it() -> None:
    # If more than half of the jobs took more than twice the mean, the mean would be above itself.
    drawn = instance([Job(chain(task("a", 4)), 0)] * 5)
    found = {t.multiple: t.most_late(drawn) for t in tolerances(ServiceLevels.parse("mean latency <= 10 us"))}
    assert found == {2: 2, 8: 0}
