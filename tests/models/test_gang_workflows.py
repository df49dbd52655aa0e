"""Runs on several GPUs that wait for others: transfers between places, the checker, and what is torn (rule G4)."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.gangs import draw_workflows, optimum, ready_us, servers, travel_us
from tests.instances import MB, instance, network, task
from truenorth.models import Edge, Instance, Job, Link, Objective, Task, Timeline, Workflow, check, scenario_hash
from truenorth.models.instance import NONE
from truenorth.models.scenario import load_scenario
from truenorth.models.scenario.writing import document_of, write_scenario
from truenorth.models.torn import torn


def _chain(rule: str = "aligned") -> Instance:
    """Return prepare (1 GPU), train (2) and evaluate (1) of one job on two servers of two GPUs; 1 us per byte."""
    cluster = replace(servers(2, 2, rule), network=network(1, MB, Link(0, Fraction(2 * MB))))
    steps = (
        task("prepare", 3),
        replace(task("train", 5, after={"prepare": 4}), gpus=2),
        task("evaluate", 2, after={"train": 2}),
    )
    return instance([Job(Workflow("w", steps), 0)], on=cluster)


def _timeline(places: list[int], starts: list[int], ends: list[int]) -> Timeline:
    return Timeline(np.array(places), np.array(starts), np.array(ends), ())


def test_places_that_share_a_gpu_transfer_nothing_and_others_by_their_nearest() -> None:
    made = _chain()
    train, evaluate = made.inputs[1][0][1], made.inputs[2][0][1]
    pair, other = made.places.number[0, 1], made.places.number[2, 3]
    assert made.transfer_time(train, 0, pair) == 0
    # Between servers 1 us and 4 bytes; inside one 2 bytes at twice that speed.
    assert made.transfer_time(train, 0, other) == 5
    assert made.transfer_time(evaluate, pair, 3) == 3
    wide = replace(made, cluster=replace(made.cluster, places=((0, 2),)))
    # From g0 and g2 of two servers to g3: the second has it nearer.
    assert wide.transfer_time(evaluate, wide.places.number[0, 2], 3) == 1


def test_the_checker_asks_for_the_transfer_between_places() -> None:
    made = _chain()
    pair = made.places.number[0, 1]
    assert check(made, _timeline([0, pair, 0], [0, 3, 8], [3, 8, 10])) == []
    late = check(made, _timeline([2, pair, 3], [0, 7, 14], [3, 12, 16]))
    assert [(each.rule, each.found, each.allowed) for each in late] == [("T2", 7, 8), ("T2", 14, 15)]


def test_input_bytes_lie_at_the_ingress_of_any_gpu_of_a_place() -> None:
    given = replace(task("run", 5, input_bytes=3), gpus=4)
    small = replace(given, gpus=2)
    jobs = [Job(Workflow("wide", (given,)), 0, ingress=1), Job(Workflow("small", (small,)), 0, ingress=1)]
    made = instance(jobs, on=servers(2, 2))
    assert made.earliest_start(0, made.places.number[0, 1, 2, 3]) == 0
    assert [made.earliest_start(1, made.places.number[pair]) for pair in ((0, 1), (2, 3))] == [4, 0]


@pytest.mark.parametrize("seed", range(30))
def test_times_between_places_are_those_of_the_oracle(seed: int) -> None:
    made = draw_workflows(random.Random(seed))
    for before, after, edge in zip(*(column.tolist() for column in made.edges()), strict=True):
        job = made.jobs[int(made.task_job[after])]
        given = job.workflow.tasks[after - int(made.job_first_task[made.task_job[after]])]
        source = made.task_name(before)
        size_bytes = next(each.size_bytes for each in given.inputs if each.source == source)
        for here in made.eligible_places(before):
            for there in made.eligible_places(after):
                assert made.transfer_time(edge, here, there) == travel_us(made, size_bytes, here, there)
    for each in np.flatnonzero(made.input_us[made.task_template]).tolist():
        for place in made.eligible_places(each):
            assert made.earliest_start(each, place) == ready_us(made, each, place, {}, [])
            if place < made.n_gpus:
                assert made.earliest_starts()[each, place] == made.earliest_start(each, place)


def test_what_waits_for_a_torn_run_waits_for_all_its_parts() -> None:
    twin = torn(_chain())
    edges = {
        each.name: [(edge.source, edge.size_bytes, edge.delay_us) for edge in each.inputs] for each in _tasks(twin)
    }
    assert edges == {
        "prepare": [],
        "train/0": [("prepare", 0, 0)],
        "train/1": [("prepare", 0, 0)],
        "evaluate": [("train/0", 0, 0), ("train/1", 0, 0)],
    }
    assert twin.cluster.network.between.latency_us == 0
    assert not twin.transfer_us.any()
    assert twin.job_ideal_us.tolist() == [10]


def test_a_torn_run_waits_for_the_least_transfer_there_is() -> None:
    # Prepare runs on kind B alone, train on A: whatever place is taken, 4 bytes go from server to server.
    cluster = replace(servers(2, 2, kinds="AB"), network=network(1, MB))
    steps = (
        task("prepare", {"B": 3}),
        replace(task("train", {"A": 5}, after={"prepare": 4}), gpus=2),
        task("report", {"B": 1}, after={"prepare": 2}),
    )
    steps = (steps[0], replace(steps[1], inputs=(Edge("prepare", 4, delay_us=2),)), steps[2])
    twin = torn(instance([Job(Workflow("w", steps), 0)], on=cluster))
    train, _, report = (each for each in _tasks(twin) if each.name != "prepare")
    assert [(edge.size_bytes, edge.delay_us) for edge in train.inputs] == [(0, 7)]
    # What runs on one GPU each keeps its bytes; links have no latency.
    assert [(edge.size_bytes, edge.delay_us) for edge in report.inputs] == [(2, 0)]


def test_edges_between_others_keep_their_network() -> None:
    steps = (task("a", 3), task("b", 2, after={"a": 4}))
    alone = Workflow("large", (replace(task("run", 5), gpus=2),))
    made = instance([Job(Workflow("w", steps), 0), Job(alone, 0)], on=servers(2, 2))
    assert torn(made).cluster == made.cluster
    assert (torn(made).transfer_us == made.transfer_us).all()


@pytest.mark.parametrize("seed", range(40))
def test_a_plan_of_the_window_is_one_of_the_twin(seed: int) -> None:
    """Any plan, cut into its parts on the GPUs of its places, breaks no rule of the twin; without a choice of modes."""
    rng = random.Random(seed)
    made = draw_workflows(rng)
    twin = torn(made)
    plan = _some_plan(rng, made)
    assert check(made, plan) == []
    places, starts, ends = list[int](), list[int](), list[int]()
    for each in range(made.n_tasks):
        gpus = made.places.gpus[int(plan.place[each])]
        places += gpus
        starts += [int(plan.start_us[each])] * len(gpus)
        ends += [int(plan.end_us[each])] * len(gpus)
    across = {each.rule for each in check(twin, _timeline(places, starts, ends))}
    # A run across servers takes longer than its parts, which are as fast as its fastest place.
    assert across <= {"T1"}
    if across:
        assert any(each.across > 1 for each in _tasks(made))


def _tasks(made: Instance) -> list[Task]:
    return [each for workflow in made.workflows for each in workflow.tasks]


def _some_plan(rng: random.Random, made: Instance) -> Timeline:
    """Return a plan that takes tasks in a random order that keeps to what they wait for, at random places."""
    place_of: dict[int, int] = {}
    start_us, end_us, free_us = [0] * made.n_tasks, [0] * made.n_tasks, [0] * made.n_gpus
    left = set(range(made.n_tasks))
    while left:
        able = sorted(each for each in left if left.isdisjoint({before for before, _ in made.task_inputs(each)}))
        each = rng.choice(able)
        place = rng.choice(made.eligible_places(each))
        gpus = made.places.gpus[place]
        start = max(ready_us(made, each, place, place_of, end_us), *(free_us[gpu] for gpu in gpus))
        start_us[each], end_us[each], place_of[each] = start, start + made.run_time(each, place), place
        for gpu in gpus:
            free_us[gpu] = end_us[each]
        left.remove(each)
    return _timeline([place_of[each] for each in range(made.n_tasks)], start_us, end_us)


TEXT = """
cluster:
  servers: 2
  gpus_per_server: 4
  gpu: {kind: V100, memory: 16 GB, load_bandwidth: 10 GB/s}
  network: {bandwidth: 10 GB/s}
workflows:
  model:
    tasks:
      prepare: {runtime: 10 min, input: 1 GB, output: 20 GB}
      train: {gpus: 4, runtime: 1 h, output: 5 GB, after: {prepare: {delay: 1 min}}}
      tune: {modes: [{gpus: 1, runtime: 30 min}, {gpus: 4, runtime: 9 min}], after: [train]}
      again: {gpus: 2, runtime: 3 min, input: 2 GB}
workload: {jobs: [{release: 0 s, workflow: model, ingress: s1}]}
"""


def test_such_workflows_are_read_and_written_back(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(TEXT)
    made = load_scenario(tmp_path / "scenario.yaml").instance
    assert [len(each.inputs) for each in _tasks(made)] == [0, 1, 1, 0]
    assert made.delay_us.tolist() == [60_000_000, 0]
    write_scenario(tmp_path / "again.yaml", document_of(made))
    assert scenario_hash(load_scenario(tmp_path / "again.yaml").instance) == scenario_hash(made)


def test_drawn_windows_have_what_is_asked_for() -> None:
    drawn = [draw_workflows(random.Random(seed)) for seed in range(30)]
    assert any(made.delay_us.any() for made in drawn)
    assert any(made.input_us.any() and (made.job_ingress != NONE).any() for made in drawn)
    assert all(made.gangs for made in drawn)
    assert optimum(_chain(), Objective.MAKESPAN) == 10
