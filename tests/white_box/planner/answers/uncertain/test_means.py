"""Who is told means only: one run time for all requests that need the same models."""

from __future__ import annotations

import pytest

import truenorth as tn
from tests.instances import chain, cluster, instance, task
from truenorth.models import BatchClass, Edge, Job, Task
from truenorth.models.scenario import Scenario, scenario_from
from truenorth.planner.answers.uncertain.spec import parse_uncertainty, tell_means

TIMES_S = {"m 10": 10, "m 50": 50, "other": 4}


def log(jobs: str, model: str = "models: [m], ") -> Scenario:
    """Return a scenario as an import makes it: a workflow per run time, released as listed, one every second."""
    return scenario_from(
        {
            "cluster": {
                "servers": 1,
                "gpu": {"kind": "A", "memory": "10 GB", "load_bandwidth": "10 GB/s"},
                "network": {"bandwidth": "1 GB/s"},
            },
            "models": {"m": {"weights": "1 GB"}, "n": {"weights": "1 GB"}},
            "workflows": {
                name: {"tasks": {"run": {"models": ["n" if name == "other" else "m"], "runtime": f"{seconds} s"}}}
                for name, seconds in TIMES_S.items()
            },
            "workload": {
                "jobs": [{"release": f"{at} s", "workflow": name} for at, name in enumerate(jobs.split(", "))]
            },
            "objective": "mean_latency",
        }
    )


def test_requests_of_one_model_are_told_their_mean() -> None:
    # Three of 10 s and one of 50 s are 20 s in the mean; the one of another model keeps its 4 s. What holds stays.
    scenario = log("m 10, m 50, m 10, other, m 10")
    sides = parse_uncertainty("told=mean").sides(scenario, seed=0)
    told = sides.told.instance
    assert [job.workflow.tasks[0].fastest_us for job in told.jobs] == [20_000_000] * 3 + [4_000_000, 20_000_000]
    assert sides.truth is scenario.instance
    assert parse_uncertainty("told=mean").keeps_truth


def test_shortest_first_is_first_come_first_served_to_who_is_told_means() -> None:
    # The first runs from 0.1 s, after its load, to 10.1 s; at 10.1 s wait 50 s (released at 1 s) and 10 s (2 s).
    # Exact: 10 s first, latencies 10.1, 18.1 and 69.1 s; told 70 / 3 s of each, the order of release: 10.1, 59.1, 68.1.
    scenario = log("m 10, m 50, m 10")
    mean_s = {noise: tn.simulate(scenario, "srpt", noise=noise).metrics.mean_latency_s for noise in (None, "told=mean")}
    assert mean_s == pytest.approx({None: (10.1 + 18.1 + 69.1) / 3, "told=mean": (10.1 + 59.1 + 68.1) / 3})


def test_every_kind_has_its_mean_and_a_batch_class_keeps_its_table() -> None:
    # 10 and 30 us on A, 40 and 20 on B: 20 and 30. The class says how long a batch of it takes whatever the request.
    pairs = BatchClass("pairs", {"A": {1: 4, 2: 6}})
    works = [
        chain(task("t", {"A": a, "B": b}, ["m"]), Task.of_class("u", pairs), name=f"w{a}")
        for a, b in ((10, 40), (30, 20))
    ]
    on = instance([Job(work, 0) for work in works], {"m": 4}, cluster(2))
    told = tell_means(on)
    assert [job.workflow.tasks[0].runtime_us for job in told.jobs] == [{"A": 20, "B": 30}] * 2
    assert [job.workflow.tasks[1] for job in told.jobs] == [works[0].tasks[1]] * 2


def test_workflows_without_models_are_told_apart_by_name() -> None:
    on = instance([Job(chain(task("t", us), name=name), 0) for name, us in (("a", 10), ("b", 30), ("b", 30))])
    assert [job.workflow.tasks[0].fastest_us for job in tell_means(on).jobs] == [10, 30, 30]


def test_delays_are_told_as_the_workflow_says_them() -> None:
    """A job's own delay is part of what happens, and of nothing that is told."""
    after = Task("b", {"*": 20}, inputs=(Edge("a", 0, delay_us=5),))
    agent = chain(task("a", 10), after)
    told = tell_means(instance([Job(agent, 0), Job(agent, 1, delays_us={"b": 70})]))
    assert [edge.delay_us for job in told.jobs for edge in job.workflow.tasks[1].inputs] == [5, 5]
    assert told.delay_us.tolist() == [5, 70]
