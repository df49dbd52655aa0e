"""Plan the rest of a window anew with what the logs of running tasks say: what is left of them, or why they failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np

from truenorth.executor import Knows, simulate
from truenorth.models.errors import QuestionError
from truenorth.models.feasibility import assert_feasible
from truenorth.models.instance import Instance
from truenorth.models.metrics import measure
from truenorth.models.objective import timeline_value
from truenorth.models.scenario import Scenario
from truenorth.models.scenario.errors import allowed, quote
from truenorth.models.timeline import Timeline, batch_leaders
from truenorth.planner.answers.policies.offline import Following, Informed
from truenorth.planner.answers.policies.receding_horizon import RecedingOptions
from truenorth.planner.answers.simulate import Simulation
from truenorth.planner.inputs.estimate.logs import LogReading
from truenorth.planner.inputs.told import Told, stretch

Logs = Mapping[tuple[int, str], LogReading]
"""What logs say of tasks, by the index of the job in release order and the task's name."""


def replan(
    scenario: Scenario, plan: Timeline, at_us: int, logs: Logs, *, moves: int = 20_000, seed: int = 0
) -> Simulation:
    """Return a plan's timeline up to a moment, and from there on the rest, planned anew with what the logs say.

    A running task ends when what is left has passed; one that has failed starts over on its GPU at the moment if that
    may help, and else gives its GPU free. What has started stands. All other tasks take the scenario's run times, and
    all arrivals of the window are known, as in the plan.

    Parameters
    ----------
    plan
        Of the scenario, carried out until the moment: as it stands, or ahead of its times where that keeps its order.
    at_us
        The moment, to which the logs belong.
    logs
        Of tasks that the plan has running then, or that should have ended by then and have not; a running task without
        a log takes as long as planned.
    moves, seed
        Of the local search.

    Returns
    -------
    Simulation
        `truth` has the run times as they are now known; the timeline is marked as realised.

    Raises
    ------
    QuestionError
        If a log is of a task that has not started, says nothing of what is left, or says that the task has failed for
        good while others wait for what it puts out.
    PolicyError
        If the scenario's restrictions do not allow planning anew.
    """
    given = scenario.instance
    assert_feasible(given, plan)
    options = RecedingOptions(moves=moves, objective=str(scenario.objective), seed=seed)
    # Carried out, a plan may be ahead of its times: everything starts as soon as its order allows.
    followed = simulate(given, lambda: Following(Told.exactly(given), plan, options), seed)
    leaders, end_us = batch_leaders(given, followed), dict[int, int]()
    factor = np.ones(given.n_tasks)
    for (job, name), reading in logs.items():
        task = _task(given, job, name)
        ends = _end_us(given, followed, task, at_us, reading, f"task {name} of job {job}")
        for member in np.flatnonzero(leaders == leaders[task]).tolist():  # a batch ends with the last of its members
            end_us[member] = max(ends, end_us.get(member, 0))
    for task in end_us:
        factor[task] = (end_us[task] - followed.start_us[task]) / (followed.end_us[task] - followed.start_us[task])
    truth = stretch(given, factor)
    timeline = simulate(given, lambda: Informed(given, plan, options, at_us, end_us), seed, truth=truth)
    assert_feasible(truth, timeline)
    timeline = replace(timeline, realised=True)
    value = timeline_value(scenario.objective, truth, timeline)
    metrics = measure(truth, timeline, scenario.slo)
    policy = "offline:replan=on"
    return Simulation(scenario, policy, given, truth, timeline, Fraction(0), value, metrics, Knows.FUTURE)


def _task(instance: Instance, job: int, name: str) -> int:
    """Return the number of a task."""
    if not 0 <= job < len(instance.jobs):
        raise QuestionError(f"unknown job {job}; allowed are 0 to {len(instance.jobs) - 1}", "logs")
    position = instance.jobs[job].workflow.position
    if name not in position:
        raise QuestionError(f"unknown task {quote(name)} of job {job}; {allowed(name, position)}", "logs")
    return int(instance.job_first_task[job]) + position[name]


def _end_us(instance: Instance, followed: Timeline, task: int, at_us: int, reading: LogReading, said: str) -> int:
    """Return when a task that has started ends, by its log; `said` is what messages call it."""
    start_us, planned_us = int(followed.start_us[task]), int(followed.end_us[task])
    if start_us >= at_us:
        raise QuestionError(f"{said} starts at {start_us} us; allowed are tasks that started before {at_us} us", "logs")
    if reading.failure is not None and reading.failure.retry:
        return at_us + planned_us - start_us
    if reading.failure is not None:
        if any(True for _ in instance.task_outputs(task)):
            problem = f"{said}: {reading.failure.reason}; allowed are failures that may pass, or that nobody waits for"
            raise QuestionError(problem, "logs")
        return at_us
    if reading.finished:
        return min(planned_us, at_us)
    if reading.remaining is None:
        raise QuestionError(f"the log of {said} says nothing of what is left; allowed is to leave it out", "logs")
    return at_us + reading.remaining.expected_us
