"""One class on one GPU by its dynamic programme, against the exhaustive search and by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.instances import chain, cluster, instance
from truenorth.models import BatchClass, Job, Objective, Task
from truenorth.models.restrictions import Restrictions
from truenorth.solvers.budget import Budget
from truenorth.solvers.exact import consecutive, exhaustive
from truenorth.solvers.portfolio import solve


def of_class(times: dict[int, int], releases: list[int], deadline_us: int | None = None, **options: object):  # type: ignore[no-untyped-def]
    workflow = chain(Task.of_class("t", BatchClass("c", {"*": times})))
    jobs = [Job(workflow, release, deadline_us=deadline_us) for release in releases]
    return instance(jobs, **options)  # type: ignore[arg-type]


def test_two_at_once_or_one_after_the_other() -> None:
    # Releases 0 and 1, times 4 and 5. Apart: 0 to 4, 4 to 8. Together: 1 to 6, latencies 6 and 5, the same sum of 11.
    of = of_class({1: 4, 2: 5}, [0, 1])
    for objective, least in (
        (Objective.MAKESPAN, 6),
        (Objective.MEAN_LATENCY, Fraction(11, 2)),
        (Objective.MAX_SLOWDOWN, Fraction(6, 4)),
    ):
        found = solve(of, objective, Budget(60))
        assert (found.value, found.status) == (least, "OPTIMAL")


@pytest.mark.parametrize("objective", [o for o in Objective if o is not Objective.LATE_JOBS])
def test_the_optimum_of_tiny_windows(objective: Objective) -> None:
    for seed in range(6):
        rng = random.Random(seed)
        times = dict(zip((1, 2, 4), sorted(rng.randint(1, 9) for _ in range(3)), strict=True))
        of = of_class(times, sorted(rng.randint(0, 12) for _ in range(5)), rng.choice((6, 10)))
        assert consecutive.applies(of, objective)
        assert solve(of, objective, Budget(60)).value == exhaustive.solve(of, objective).value


def test_forty_tasks_are_proved() -> None:
    # Ten full batches; the first starts when the fourth task is there, at 30.
    of = of_class({1: 40, 4: 70}, [10 * at for at in range(40)])
    found = solve(of, Objective.MAKESPAN, Budget(60))
    assert found.value == 30 + 10 * 70
    assert found.status == "OPTIMAL"
    assert solve(of, Objective.MEAN_LATENCY, Budget(60)).status == "OPTIMAL"


def test_where_it_does_not_apply() -> None:
    of = of_class({1: 4, 2: 5}, [0, 1], 3)
    assert consecutive.applies(of, Objective.MEAN_LATENCY)
    assert not consecutive.applies(of, Objective.LATE_JOBS)  # the late ones go last, whoever they are
    assert not consecutive.applies(of_class({1: 4}, [0, 1], on=cluster(2)), Objective.MAKESPAN)
    restricted = replace(of, restrictions=Restrictions(workflow_gpus={"w": frozenset({0})}))
    assert not consecutive.applies(restricted, Objective.MEAN_LATENCY)
    weighty = replace(of, jobs=(of.jobs[0], replace(of.jobs[1], weight=Fraction(2))))
    assert not consecutive.applies(weighty, Objective.WEIGHTED_LATENCY)
    assert consecutive.applies(weighty, Objective.MEAN_LATENCY)
