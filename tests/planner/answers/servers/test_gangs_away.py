"""Servers that come and go beside jobs on several GPUs: sizes with absences, and servers by the interval."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

import truenorth as tn
from tests.gangs import moldable_least
from tests.night import by_day
from tests.planner.answers.servers.test_gangs import training, written
from truenorth.models import InstanceError
from truenorth.models.errors import QuestionError
from truenorth.models.instance import UnsupportedInstanceError
from truenorth.models.scenario import Scenario, scenario_from
from truenorth.models.slo import ServiceLevels
from truenorth.planner.answers.servers.goal import goals
from truenorth.planner.answers.servers.scheduled import ScheduleAnswer


def _has_a_plan(scenario: Scenario, levels: ServiceLevels) -> bool:
    goal = goals(scenario.instance, levels)[0]
    assert goal.suffices
    best = moldable_least(goal.instance, goal.objective)
    return best is not None and best <= goal.most


def test_maintenance_takes_a_server_more() -> None:
    """Two jobs on both GPUs of a server for 10 s, within 25 s: one server does both, or, if it is away, two."""
    jobs = [(2, 10, 0), (2, 10, 0)]
    for away, least in (({}, 1), ({"s0": [["10 s", "15 s"]]}, 1), ({"s0": [["10 s", "16 s"]]}, 2)):
        answer = tn.servers(training(jobs, away=away), slo="p100 latency <= 25 s", max=2, time_limit=3)
        assert (answer.servers, answer.proved) == (least, True), away


@pytest.mark.parametrize("seed", by_day(range(60), 3))
def test_no_size_with_absences_is_refuted_that_has_a_plan(seed: int) -> None:
    rng = random.Random(seed)
    jobs = [(rng.choice((1, 2, 2, 4)), rng.randint(1, 9), rng.choice((0, 0, 2, 5))) for _ in range(3)]
    away: dict[str, Any] = {}
    for server in rng.sample(("s0", "s1"), rng.choice((1, 2))):
        gone_s = rng.randint(0, 8)
        away[server] = [[f"{gone_s} s", f"{gone_s + rng.randint(1, 6)} s"]]
    longest = max(run_s for _, run_s, _ in jobs)
    slo = rng.choice(
        (
            f"mean latency <= {rng.randint(longest // 2 + 1, 2 * longest)} s",
            f"p100 latency <= {rng.randint(longest, 3 * longest)} s",
            f"p60 latency <= {rng.randint(longest // 2 + 1, 2 * longest)} s",
        )
    )
    answer = tn.servers(training(sorted(jobs, key=lambda each: each[2]), away=away), slo=slo, max=3, time_limit=4)
    enough: dict[tuple[int, ...], bool] = {}
    for count in (1, 2, 3):
        try:
            enough[count,] = _has_a_plan(answer.sizes.at((count,)), answer.levels)
        except InstanceError:
            enough[count,] = False
    assert not any(enough[done.mix] for done in answer.refutations if done.mix in enough), slo
    assert answer.mix is None or enough[answer.mix]
    assert all(row.mix is None or enough[row.mix] for row in answer.policies)


def test_a_wide_job_is_waited_for_by_the_hour() -> None:
    """A job on two servers comes in the second of three intervals of 20 s; before and after, one on one GPU."""
    made = training([(1, 10, 0), (4, 10, 20), (1, 10, 40)])
    answer = tn.servers_by(made, "20 s", slo="p100 latency <= 10 s", time_limit=15)
    assert answer.optimum.schedule == ((1,), (2,), (1,))
    assert {name: row.schedule for name, row in answer.policies.items()} == dict.fromkeys(
        ("sjf", "easy", "dally", "qssf", "fifo"), ((1,), (2,), (1,))
    )
    # Of 4 servers x 20 s the bound knows all: 10 s on one GPU, on four, and on one.
    assert answer.lower_bound == Fraction(80, 3600)


def _least_cost(answer: ScheduleAnswer, most: int) -> Fraction | None:
    """Return the least server-hours of any schedule with a plan within the levels."""
    day, costs = answer.day, []
    for counts in product(range(most + 1), repeat=day.count):
        schedule = tuple((count,) for count in counts)
        try:
            if _has_a_plan(day.at(schedule), answer.fixed.levels):
                costs.append(day.cost(schedule))
        except InstanceError:
            continue
    return min(costs, default=None)


@pytest.mark.parametrize("seed", by_day(range(100, 160), 3))
def test_no_schedule_with_a_plan_costs_less_than_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    jobs = [(rng.choice((1, 2, 2, 4)), rng.randint(1, 9), rng.choice((0, 2, 10, 13))) for _ in range(3)]
    jobs = sorted([*jobs, (1, 2, 12)], key=lambda each: each[2])
    longest = max(run_s for _, run_s, _ in jobs)
    slo = rng.choice(
        (
            f"mean latency <= {rng.randint(longest // 2 + 1, 2 * longest)} s",
            f"p100 latency <= {rng.randint(longest, 3 * longest)} s",
            f"p75 latency <= {rng.randint(longest // 2 + 1, 2 * longest)} s",
        )
    )
    answer = tn.servers_by(training(jobs), "10 s", slo=slo, max=3, time_limit=4)
    least = _least_cost(answer, 3)
    for row in (answer.optimum, *answer.policies.values()):
        if row.schedule is not None:
            assert _has_a_plan(answer.day.at(row.schedule), answer.fixed.levels), slo
            assert least is not None
            assert least <= answer.day.cost(row.schedule)
    assert least is None or answer.lower_bound <= least


def test_what_is_not_known_of_servers_that_come_and_go_is_refused() -> None:
    away = training([(2, 10, 0)], away={"s0": [["10 s", "15 s"]]})
    with pytest.raises(UnsupportedInstanceError, match="by the interval knows no servers that come and go"):
        tn.servers_by(away, "10 s", slo="p100 latency <= 20 s")
    with pytest.raises(QuestionError, match="elsewhere policies would know of them"):
        tn.servers(training([(2, 10, 0)]), slo="p100 latency <= 20 s", failures="1 per node per day, 10 s")


@pytest.mark.parametrize("beside", [{"after": ["a"]}, {"input": "1 GB"}, {"models": ["m"]}])
def test_by_the_hour_refuses_what_needs_servers_that_stay(beside: dict[str, Any]) -> None:
    """Every schedule but that of a fleet which stays would be refused, and count as missing the level."""
    tasks = {"a": {"runtime": "4 s", "gpus": 2}, "b": {"runtime": "3 s", "gpus": 2} | beside}
    data = written([]) | {"workflows": {"w": {"tasks": tasks}}, "models": {"m": {"weights": "1 GB"}}}
    jobs = [{"release": release, "workflow": "w", "ingress": "s0"} for release in ("0 s", "20 s")]
    made = scenario_from(data | {"workload": {"jobs": jobs}})
    with pytest.raises(QuestionError, match="by: has no support for runs on several GPUs beside tasks that wait"):
        tn.servers_by(made, "10 s", slo="p100 latency <= 8 s", max=2, time_limit=2)
