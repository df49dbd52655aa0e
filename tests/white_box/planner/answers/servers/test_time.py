"""Every part keeps to its share of the time, on a clock that only simulations move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import truenorth as tn
from tests.planner.answers.servers.scenarios import NO_LATE_JOBS, scenario
from truenorth.executor import StoppedError
from truenorth.models import Workflow
from truenorth.planner.answers.ask import ask
from truenorth.planner.answers.servers.sizes import Sizing
from truenorth.planner.answers.simulate import simulate
from truenorth.planner.questions.sizes import ScheduleQuestion
from truenorth.solvers.bounds import fluid

GPU = {"kind": "A", "memory": "10 GB", "load_bandwidth": "1 GB/s"}
FOUR = {"servers": 4, "gpu": GPU, "network": {"bandwidth": "1 GB/s"}}
# Jobs of 400 ms every 100 ms, due 450 ms after their release: four GPUs take them in turn, three are too few.
WINDOW = scenario({"run": {"runtime": "400 ms"}}, [(100 * index, "run", 450) for index in range(20)], cluster=FOUR)


class Clock:
    """Seconds, moved by simulations."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def simulate_within(self, seconds: float) -> Callable[..., Any]:
        """Return a simulation that takes so long unless it is stopped."""

        def run(*arguments: Any, stop: Callable[[], bool], **options: Any) -> Any:
            end = self.now + seconds
            while self.now < end:
                if stop():
                    raise StoppedError
                self.now += 1
            return simulate(*arguments, **options)

        return run

    def wait(self, ask: Sizing, policy: str, made: object, reserve_s: float) -> None:
        """Take until it is stopped."""
        while ask.left_s > reserve_s:
            self.now += 1
        raise StoppedError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock by which all parts go; every window is long."""
    made = Clock()
    monkeypatch.setattr("time.monotonic", made)
    monkeypatch.setattr("truenorth.planner.answers.servers.answer.LONG_TRACE", 1)
    monkeypatch.setattr("truenorth.planner.answers.servers.schedule.LONG_TRACE", 1)
    return made


@pytest.mark.parametrize(("s_per_task", "planned"), [(1.0, 4), (2.0, None)])
def test_a_long_window_is_planned_before_simulations_take_the_time(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, s_per_task: float, planned: int | None
) -> None:
    # Of 60 s plans may have half: one of 20 s is begun, one of 40 s is not.
    monkeypatch.setattr("truenorth.planner.answers.servers.hunt._S_PER_TASK", s_per_task)
    monkeypatch.setattr("truenorth.planner.answers.servers.by_policy.simulate", clock.simulate_within(1000))
    answer = tn.servers(WINDOW, NO_LATE_JOBS, policies=("jit", "srpt"), time_limit=60, workers=1)
    assert (answer.servers, [row.mix for row in answer.policies], clock.now) == (planned, [None, None], 60)


def test_time_that_is_asked_for_is_used_while_sizes_are_left(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten sizes that are not refuted, 4 to 13, a minute has room for eight simulations of 7 s and a part of one.

    It ended at 42 s, which are 0.7 of it, without the largest.
    """
    monkeypatch.setattr("truenorth.planner.answers.servers.by_policy.simulate", clock.simulate_within(7))
    answer = tn.servers(WINDOW, NO_LATE_JOBS, policies=("hash",), max=13, time_limit=60, workers=1)
    (row,) = answer.policies
    assert (clock.now, row.mix, len(row.reached), row.skipped) == (60, None, 8, 2)
    assert (13,) in row.reached
    closest = answer.record().policies["hash"].closest
    assert closest is not None
    shares = [float(reached[0] or 0) for reached in row.reached.values() if reached is not None]
    assert (closest.value, closest.share_of_limit) == (max(shares), 1 / max(shares))


def test_schedules_have_what_the_fleet_that_stays_leaves(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    # Five jobs every 100 ms in each of three seconds, in the middle one four times as long: 1, 4, 1 servers. More
    # traffic and what an autoscaler orders take until they are stopped, what an interval demands 20 s.
    for part, seconds in (("by_policy", 5), ("schedule", 5), ("day", 1000)):
        monkeypatch.setattr(f"truenorth.planner.answers.servers.{part}.simulate", clock.simulate_within(seconds))
    monkeypatch.setattr("truenorth.planner.answers.servers.deployable.serve", clock.wait)
    jobs = [
        (1000 * second + 100 * index, "run" if second == 1 else "short", 450)
        for second in range(3)
        for index in range(5)
    ]
    built = scenario({"run": {"runtime": "400 ms"}, "short": {"runtime": "100 ms"}}, jobs, cluster=FOUR)
    told: dict[str, float] = {}
    asked: list[int] = []

    def demand(*arguments: Any) -> list[fluid.Demand]:
        clock.now += 20
        asked.append(arguments[2])
        return []

    monkeypatch.setattr("truenorth.solvers.bounds.fluid.demands_within", demand)

    def tell(words: str) -> None:
        told.setdefault(words, clock.now)

    answer = ask(
        ScheduleQuestion(NO_LATE_JOBS, by_us=1_000_000, policies=("jit",), time_limit_s=100, workers=1, watch=tell),
        built,
    )
    assert told["floors of the intervals"] <= 35
    assert asked == [0]
    assert answer.policies["jit"].schedule == ((1,), (4,), (1,))
    assert clock.now == 100  # all that policies leave is the autoscaler's, where no plan is looked for


def test_a_workflow_is_changed_once_for_all_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[str] = []
    change = Workflow.with_tasks

    def count(workflow: Workflow, *arguments: Any) -> Workflow:
        changed.append(workflow.name)
        return change(workflow, *arguments)

    jobs = [(2000 * index, "run", 1900) for index in range(5)]
    built = scenario({"run": {"models": ["m"], "runtime": "400 ms"}}, jobs, {"m": "1 GB"})
    monkeypatch.setattr(Workflow, "with_tasks", count)
    answer = tn.servers(built, NO_LATE_JOBS, policies=("jit",), time_limit=60, workers=1)
    assert [(each.model, each.figure) for each in answer.strains] == [("m", "run time"), ("m", "size")]
    assert changed == ["run"]
