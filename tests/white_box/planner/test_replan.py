"""Planning the rest of a window anew with what the logs of running tasks say."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

import truenorth as tn
from tests.executor.scripted import runs
from tests.instances import random_instance
from tests.planner.answers.uncertain.work import timeline
from truenorth.executor import simulate
from truenorth.models import Objective, Timeline, check
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import Scenario, scenario_from
from truenorth.planner.answers.policies.offline import Following, anneal
from truenorth.planner.answers.policies.receding_horizon import RecedingOptions
from truenorth.planner.inputs.estimate.logs import FailureClass, LogFailure, LogReading, Remaining, read_log
from truenorth.planner.inputs.told import Told


def reading(left_us: int | None = None, *, finished: bool = False, retry: bool | None = None) -> LogReading:
    """Return what a log says: of what is left, that it is through, or that it failed."""
    remaining = None if left_us is None else Remaining(None, left_us, None)
    failure = None if retry is None else LogFailure(FailureClass.NCCL, retry, "a rank was lost: line", (1,))
    return LogReading(1, (), None, remaining, (), finished, failure)


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    """Return two GPUs and three jobs: a of 180 us, b of 240 us, c of 60 us, which nothing comes before."""
    return scenario_from(
        {
            "cluster": {
                "servers": 2,
                "gpu": {"kind": "A", "memory": "2 GB", "load_bandwidth": "1 GB/s"},
                "network": {"bandwidth": "1 GB/s"},
            },
            "workflows": {
                name: {"tasks": {"t": {"runtime": f"{us} us"}}} for name, us in (("a", 180), ("b", 240), ("c", 60))
            },
            "workload": {"jobs": [{"release": "0 us", "workflow": name} for name in "abc"]},
            "objective": "mean_latency",
        }
    )


@pytest.fixture(scope="module")
def plan(scenario: Scenario) -> Timeline:
    """Return a and then c on the first GPU, b on the second."""
    return timeline(scenario.instance, (0, 0), (1, 0), (0, 180))


@pytest.mark.parametrize(
    ("at_us", "said", "a_ends", "c"),
    [
        (90, reading(90), 180, (0, 180)),  # as planned
        (90, reading(210), 300, (1, 240)),  # 300 on the first GPU, 240 on the second
        (90, reading(149), 239, (0, 239)),
        (90, reading(20), 110, (0, 110)),
        (90, reading(finished=True), 90, (0, 90)),
        (90, reading(retry=False), 90, (0, 90)),  # its GPU is free
        (90, reading(retry=True), 270, (1, 240)),  # over again, from the moment on
        (200, reading(10), 210, (0, 210)),  # it should have ended at 180: c waits where it was planned until the moment
        (200, reading(50), 250, (1, 240)),
        (200, reading(finished=True), 180, (0, 180)),
    ],
)
def test_the_rest_is_planned_by_when_the_running_task_ends(
    scenario: Scenario, plan: Timeline, at_us: int, said: LogReading, a_ends: int, c: tuple[int, int]
) -> None:
    made = tn.replan(scenario, plan, at_us, {(0, "t"): said})
    gpu, start = c
    assert runs(made.timeline) == [(0, 0, a_ends), (1, 0, 240), (gpu, start, start + 60)]
    assert made.timeline.realised
    assert made.exact == Fraction(a_ends + 240 + start + 60, 3)
    assert check(scenario.instance, made.timeline) == []


def test_a_log_on_disk_moves_what_waits(scenario: Scenario, plan: Timeline, tmp_path: Path) -> None:
    # 100 of 1000 steps in one second: the other 900 take 9 s, and c has the second GPU to itself from 240 us on.
    log = tmp_path / "job.log"
    log.write_text("2026-11-21 10:00:00 step 0/1000\n2026-11-21 10:00:01 step 100/1000\n")
    made = tn.replan(scenario, plan, 90, {(0, "t"): read_log(log)})
    assert runs(made.timeline) == [(0, 0, 9_000_090), (1, 0, 240), (1, 240, 300)]


def test_what_has_started_stands_and_every_rule_is_kept(scenario: Scenario) -> None:
    draws, moved = random.Random(5), 0
    for seed in range(20):
        on = random_instance(random.Random(seed), max_tasks=9)
        found = anneal(on, Objective.MEAN_LATENCY, 200, seed)
        assert found is not None
        plan = simulate(on, lambda: Following(Told.exactly(on), found, RecedingOptions()))  # noqa: B023 (called at once)
        at_us = int(plan.end_us.max()) // 2 + 1
        running = [run for run in plan.placements if run.start_us < at_us < run.end_us]
        job_of, first = on.task_job.tolist(), on.job_first_task.tolist()
        logs = {}
        for run in running:
            job = job_of[run.task]
            name = on.jobs[job].workflow.tasks[run.task - first[job]].name
            logs[job, name] = reading(draws.randrange(1, 40))
        made = tn.replan(replace(scenario, instance=on), plan, at_us, logs, moves=100)
        assert check(made.truth, replace(made.timeline, realised=False)) == []
        begun = plan.start_us < at_us
        assert (made.timeline.place[begun] == plan.place[begun]).all()
        assert (made.timeline.start_us[begun] == plan.start_us[begun]).all()
        moved += int((made.timeline.place != plan.place).sum())
    assert moved


@pytest.mark.parametrize(
    ("job", "task", "at_us", "said", "problem"),
    [
        (3, "t", 90, reading(1), "unknown job 3; allowed are 0 to 2"),
        (0, "u", 90, reading(1), "unknown task 'u' of job 0; allowed"),
        (2, "t", 90, reading(1), "task t of job 2 starts at 180 us; allowed are tasks that started before 90 us"),
        (0, "t", 90, reading(), "the log of task t of job 0 says nothing of what is left; allowed is to leave it out"),
    ],
)
def test_what_cannot_be_used_is_refused(
    scenario: Scenario, plan: Timeline, job: int, task: str, at_us: int, said: LogReading, problem: str
) -> None:
    with pytest.raises(QuestionError, match=f"logs: {problem}"):
        tn.replan(scenario, plan, at_us, {(job, task): said})


def test_others_cannot_wait_for_a_task_that_has_failed_for_good(scenario: Scenario) -> None:
    data = {"first": {"runtime": "9 us"}, "then": {"runtime": "1 us", "after": ["first"]}}
    made = scenario_from(
        {
            "cluster": {
                "servers": 1,
                "gpu": {"kind": "A", "memory": "2 GB", "load_bandwidth": "1 GB/s"},
                "network": {"bandwidth": "1 GB/s"},
            },
            "workflows": {"w": {"tasks": data}},
            "workload": {"jobs": [{"release": "0 s", "workflow": "w"}]},
        }
    )
    plan = timeline(made.instance, (0, 0), (0, 9))
    with pytest.raises(QuestionError, match="task first of job 0: a rank was lost: line; allowed are failures that"):
        tn.replan(made, plan, 5, {(0, "first"): reading(retry=False)})
