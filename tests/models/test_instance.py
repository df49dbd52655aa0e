"""Instances: numbering, tables against the definitions, and every refusal."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tests import instances as make
from truenorth.models import (
    NEVER,
    Edge,
    InitialResidency,
    Instance,
    InstanceError,
    Job,
    Link,
    MLModel,
    Restrictions,
    Task,
    Workflow,
)
from truenorth.models.tables import LARGEST

PAIR = make.chain(make.task("a", 2, ["m"]), make.task("b", {"A": 4}, ["m", "n"], after={"a": 3}), name="pair")
ONE = make.chain(make.task("c", {"A": 5, "B": 6}), name="one")
MODELS = {"m": 4, "n": 5}


def test_tasks_are_numbered_job_by_job() -> None:
    world = make.instance([Job(PAIR, 0), Job(ONE, 1), Job(PAIR, 1)], MODELS)
    assert world.n_tasks == 5
    assert world.workflows == (PAIR, ONE)
    assert world.job_workflow.tolist() == [0, 1, 0]
    assert world.job_first_task.tolist() == [0, 2, 3, 5]
    assert world.task_job.tolist() == [0, 0, 1, 2, 2]
    assert world.task_template.tolist() == [0, 1, 2, 0, 1]
    assert world.template_first.tolist() == [0, 2, 3]
    assert [world.task_name(task) for task in range(5)] == ["a", "b", "c", "a", "b"]
    assert [world.template_name(template) for template in range(3)] == ["pair/a", "pair/b", "one/c"]
    assert [list(world.tasks_of(job)) for job in range(3)] == [[0, 1], [2], [3, 4]]
    assert world.job_critical_us.tolist() == [6, 5, 6]
    assert world.job_release_us.tolist() == [0, 1, 1]


def test_precedence_and_needs() -> None:
    world = make.instance([Job(ONE, 0), Job(PAIR, 0), Job(PAIR, 0)], MODELS)
    assert world.needs == ((), (0,), (0, 1))
    assert world.task_needs(4) == (0, 1)
    assert [list(world.task_inputs(task)) for task in range(5)] == [[], [], [(1, 0)], [], [(3, 0)]]
    assert [list(world.task_outputs(task)) for task in range(5)] == [[], [(2, 0)], [], [(4, 0)], []]
    source, target, edge = world.edges()
    assert (source.tolist(), target.tolist(), edge.tolist()) == ([1, 3], [2, 4], [0, 0])
    task, model = world.model_uses()
    assert list(zip(task.tolist(), model.tolist(), strict=True)) == [(1, 0), (2, 0), (2, 1), (3, 0), (4, 0), (4, 1)]


def test_run_and_load_times_by_class() -> None:
    gpus = (
        make.gpu(0),
        make.gpu(1, None, kind="B"),
        make.gpu(2),  # as GPU 0
        make.gpu(3, None, memory_bytes=8),  # n and m (9 bytes) do not fit together
        make.gpu(4, None, slots=(4, 6), memory_bytes=10, load_bandwidth=Fraction(2 * make.MB), load_overhead_us=7),
        make.gpu(5, None, slots=(2, 4), memory_bytes=6),  # n fits no slot
    )
    world = make.instance([Job(PAIR, 0), Job(ONE, 0)], MODELS, replace(make.cluster(), gpus=gpus))
    assert world.n_gpus == 6
    assert world.gpu_class.tolist() == [0, 1, 0, 2, 3, 4]
    assert world.class_gpu == (gpus[0], gpus[1], gpus[3], gpus[4], gpus[5])
    assert world.gpu_server.tolist() == [0, 1, 2, 3, 4, 5]
    assert [world.run_time(0, gpu) for gpu in range(6)] == [2, 2, 2, 2, 2, 2]
    assert [world.run_time(1, gpu) for gpu in range(6)] == [4, NEVER, 4, NEVER, 4, NEVER]
    assert [world.run_time(2, gpu) for gpu in range(6)] == [5, 6, 5, 5, 5, 5]
    assert world.eligible_gpus(1) == [0, 2, 4]
    assert [world.load_time(0, gpu) for gpu in range(6)] == [4, 4, 4, 4, 9, 4]
    assert [world.load_time(1, gpu) for gpu in range(6)] == [5, 5, 5, 5, 10, NEVER]  # ceil(5 / 2) + 7


def test_restrictions_make_classes_of_their_own() -> None:
    limits = Restrictions({"n": frozenset({0, 1})}, {"one": frozenset({2})})
    world = make.instance([Job(PAIR, 0), Job(ONE, 0)], MODELS, make.cluster(3), restrictions=limits)
    assert world.gpu_class.tolist() == [0, 0, 1]
    assert [world.load_time(1, gpu) for gpu in range(3)] == [5, 5, NEVER]
    assert world.eligible_gpus(1) == [0, 1]
    assert world.eligible_gpus(2) == [2]


def test_transfers_are_zero_only_on_the_same_gpu() -> None:
    gpus = (make.gpu(0, 0), make.gpu(1, 0), make.gpu(2))
    on = replace(make.cluster(1, make.network(latency_us=10, within=Link(1, None))), gpus=gpus)
    world = make.instance([Job(PAIR, 0)], MODELS, on)
    assert [[world.transfer_time(0, a, b) for b in range(3)] for a in range(3)] == [[0, 1, 13], [1, 0, 13], [13, 13, 0]]


def test_tables_follow_the_definitions_on_random_instances() -> None:
    rng = random.Random(11)
    for _ in range(200):
        world = make.random_instance(rng, 8)
        arcs = {(before, task, edge) for task in range(world.n_tasks) for before, edge in world.task_inputs(task)}
        assert set(zip(*(column.tolist() for column in world.edges()), strict=True)) == arcs
        back = {(task, after, edge) for task in range(world.n_tasks) for after, edge in world.task_outputs(task)}
        assert back == arcs
        for before, task, edge in arcs:
            job = world.jobs[world.task_job[task]]
            listed = {
                arc.source: arc.size_bytes
                for arc in job.workflow.tasks[job.workflow.position[world.task_name(task)]].inputs
            }
            size = listed[world.task_name(before)]
            for a, source in enumerate(world.cluster.gpus):
                for b, target in enumerate(world.cluster.gpus):
                    same = source.server == target.server
                    expected = 0 if a == b else world.cluster.network.transfer_us(size, source, target, same)
                    assert world.transfer_time(edge, a, b) == expected
        uses = {(task, model) for task in range(world.n_tasks) for model in world.task_needs(task)}
        assert set(zip(*(column.tolist() for column in world.model_uses()), strict=True)) == uses


def test_equal_workflows_are_one_whoever_built_them() -> None:
    def build(runtime: int) -> Workflow:
        return make.chain(make.task("a", runtime), name="w")

    world = make.instance([Job(build(2), 0), Job(build(3), 0), Job(build(2), 0)])
    assert world.job_workflow.tolist() == [0, 1, 0]
    assert world.run_us.tolist() == [[2], [3]]
    shared = build(2)
    assert (
        make.instance([Job(shared, 0)] * 2).workflows == make.instance([Job(build(2), 0), Job(build(2), 0)]).workflows
    )


def test_tables_are_read_only() -> None:
    world = make.instance([Job(ONE, 0)])
    with pytest.raises(ValueError, match="read-only"):
        world.run_us[0, 0] = 1


def refused(match: str, jobs: list[Job] | None = None, models: dict[str, int] | None = None, **options: object) -> None:
    with pytest.raises(InstanceError, match=match):
        make.instance([Job(PAIR, 0)] if jobs is None else jobs, MODELS if models is None else models, **options)  # type: ignore[arg-type]


def test_refused_windows_and_models() -> None:
    refused("holds no job", [])
    refused("release order", [Job(ONE, 1), Job(ONE, 0)])
    refused("pair: task a needs unknown model m", models={"n": 5})
    refused("job 1: its ingress is server 3", [Job(ONE, 0, ingress=0), Job(ONE, 0, ingress=3)])
    with pytest.raises(InstanceError, match="model names must differ"):
        Instance(make.cluster(), (MLModel("m", 1), MLModel("m", 2)), (Job(ONE, 0),))


def test_a_task_that_fits_nowhere_says_why() -> None:
    refused("pair/b can run on no GPU: it lists run times for A, the cluster has C", on=make.cluster(1, kind="C"))
    refused(
        r"pair/b can run on no GPU: its models \(m, n: 9 bytes\) fit no eligible GPU",
        on=make.cluster(1, memory_bytes=8),
    )
    refused(r"fit no eligible GPU", on=make.cluster(1, memory_bytes=10, slots=(6, 4)), models={"m": 5, "n": 5})
    refused("pair/a can run on no GPU: the restrictions leave none", restrictions=Restrictions({"m": frozenset()}))
    refused("pair/a can run on no GPU: the restr", restrictions=Restrictions(workflow_gpus={"pair": frozenset()}))


def test_refused_restrictions() -> None:
    refused("unknown model x", restrictions=Restrictions({"x": frozenset({0})}))
    refused("unknown model x", restrictions=Restrictions(max_replicas={"x": 1}))
    refused("m is limited to a GPU that the cluster lacks", restrictions=Restrictions({"m": frozenset({0, 1})}))
    refused("one is limited to a GPU that the", restrictions=Restrictions(workflow_gpus={"one": frozenset({-1})}))
    refused("at most -1 replicas of m", restrictions=Restrictions(max_replicas={"m": -1}))


def test_refused_initial_residencies() -> None:
    def at(*places: tuple[int, int, int | None]) -> tuple[InitialResidency, ...]:
        return tuple(InitialResidency(*place) for place in places)

    slotted = make.cluster(1, slots=(4, 6))
    refused("no model 0 or no GPU 1", initial=at((1, 0, None)))
    refused("no model 2 or no GPU 0", initial=at((0, 2, None)))
    refused("no model -1 or no GPU 0", initial=at((0, -1, None)))
    refused("named twice on s0/g0", initial=at((0, 0, None), (0, 0, None)))
    refused(
        "exceed its 10 bytes",
        models={"m": 4, "n": 5, "o": 6},
        initial=at((0, 1, None), (0, 2, None)),
    )
    refused("model o may not be on", models={"m": 4, "n": 5, "o": 11}, initial=at((0, 2, None)))
    refused("needs a slot exactly if", initial=at((0, 0, 0)))
    refused("needs a slot exactly if", on=slotted, initial=at((0, 0, None)))
    refused("n does not fit slot 0", on=slotted, initial=at((0, 1, 0)))
    refused("m does not fit slot 2", on=slotted, initial=at((0, 0, 2)))
    refused("named twice", on=slotted, initial=at((0, 0, 1), (0, 1, 1)))
    both = make.instance([Job(PAIR, 0)], MODELS, slotted, initial=at((0, 0, 0), (0, 1, 1)))
    assert len(both.initial) == 2
    pinned = Restrictions({"m": frozenset({1})})
    refused("m may not be on s0/g0", on=make.cluster(2), restrictions=pinned, initial=at((0, 0, None)))


@pytest.mark.parametrize("size", [LARGEST + 1, 10**300])
def test_numbers_that_would_leave_64_bits_are_refused(size: int) -> None:
    def single(runtime: int = 1, models: tuple[str, ...] = (), inputs: tuple[Edge, ...] = ()) -> Workflow:
        return Workflow("w", (Task("s", {"*": 1}), Task("t", {"*": runtime, "X": 1}, models, inputs)))

    refused("releases", [Job(ONE, size)])
    refused("run times", [Job(single(size), 0)])
    refused("critical paths", [Job(make.chain(make.task("t", size)), 0)])
    refused("deadline", [Job(ONE, 0, deadline_us=size)])
    refused("memory", on=make.cluster(1, memory_bytes=size))
    refused("transfer times", [Job(single(inputs=(Edge("s", size),)), 0)])
    refused("load times", on=make.cluster(1, load_overhead_us=size))
    refused("weights", models={"m": size, "n": 5})
    assert make.instance([Job(ONE, LARGEST)]).job_release_us.tolist() == [LARGEST]


def test_many_distinct_workflows_share_nothing_and_agree() -> None:
    # 300 workflows of their own run times and edge sizes against a two-kind cluster.
    kinds = replace(make.cluster(2), gpus=(make.gpu(0), make.gpu(1, None, kind="B")))
    jobs = [
        Job(make.chain(make.task("a", {"A": i + 1, "B": i + 2}), make.task("b", 1, after={"a": i}), name=f"w{i}"), i)
        for i in range(300)
    ]
    world = make.instance(jobs, None, kinds)
    even = np.arange(0, 600, 2)
    assert world.run_us[world.task_template[even]].tolist() == [[i + 1, i + 2] for i in range(300)]
    assert [world.transfer_time(edge, 0, 1) for edge in range(300)] == [i + 1 for i in range(300)]
