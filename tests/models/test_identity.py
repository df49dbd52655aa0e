"""The hash of an instance: the same for the same instance, another for every change that a plan would feel."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from tests import instances as make
from truenorth.models import InitialResidency, Instance, Job, Link, MLModel, Network, Restrictions, Task, scenario_hash
from truenorth.models.identity import canonical


def build(runtime_us: int = 5, edge_bytes: int = 3, input_bytes: int = 0) -> Instance:
    first = make.task("a", 2, ["m"], input_bytes=input_bytes)
    workflow = make.chain(first, make.task("b", runtime_us, after={"a": edge_bytes}))
    return make.instance([Job(workflow, 0), Job(workflow, 7, Fraction(1, 2), 20)], {"m": 4, "n": 5}, make.cluster(2))


def test_equal_instances_have_equal_hashes() -> None:
    assert build() == build()
    assert scenario_hash(build()) == scenario_hash(build())


def test_the_hash_is_the_same_on_every_machine_and_in_every_release() -> None:
    # Plans on disk carry it: if this changes, they no longer belong to their scenarios.
    assert scenario_hash(build()) == "c38f4891c797ccdcd36dce4f532a23d9c0691d1375b875e914ea83500206ca41"


def test_workflows_count_by_content() -> None:
    apart = build()
    twin = replace(apart.jobs[1], workflow=build().jobs[1].workflow)
    assert scenario_hash(replace(apart, jobs=(apart.jobs[0], twin))) == scenario_hash(apart)


def test_the_order_in_which_kinds_are_listed_does_not_count() -> None:
    def listed(kinds: dict[str, int]) -> str:
        return scenario_hash(make.instance([Job(make.chain(Task("t", kinds)), 0)]))

    assert listed({"A": 1, "B": 2}) == listed({"B": 2, "A": 1})


def with_gpu(**changes: object) -> Callable[[Instance], Instance]:
    def change(world: Instance) -> Instance:
        gpus = (replace(world.cluster.gpus[0], **changes), *world.cluster.gpus[1:])  # type: ignore[arg-type]
        return replace(world, cluster=replace(world.cluster, gpus=gpus))

    return change


def with_network(network: Network) -> Callable[[Instance], Instance]:
    return lambda world: replace(world, cluster=replace(world.cluster, network=network))


def with_job(**changes: object) -> Callable[[Instance], Instance]:
    return lambda world: replace(world, jobs=(world.jobs[0], replace(world.jobs[1], **changes)))  # type: ignore[arg-type]


def with_restrictions(restrictions: Restrictions) -> Callable[[Instance], Instance]:
    return lambda world: replace(world, restrictions=restrictions)


LINK = Link(1, Fraction(make.MB))


@pytest.mark.parametrize(
    "change",
    [
        lambda _: build(runtime_us=6),
        lambda _: build(edge_bytes=4),
        lambda world: replace(world, jobs=world.jobs[:1]),
        lambda world: replace(world, overlap_loads=False),
        lambda world: replace(world, models=(world.models[0], MLModel("n", 6))),
        lambda world: replace(world, models=(world.models[0], MLModel("o", 5))),
        lambda world: replace(world, initial=(InitialResidency(0, 0),)),
        with_gpu(id="other"),
        with_gpu(server=5),
        with_gpu(kind="B"),
        with_gpu(memory_bytes=11),
        with_gpu(slots=(4, 6)),
        with_gpu(load_bandwidth=Fraction(make.MB) / 3),
        with_gpu(load_overhead_us=1),
        with_network(Network(LINK, LINK, staged=True)),
        with_network(Network(Link(2, Fraction(make.MB)), LINK)),
        with_network(Network(LINK, Link(1, None))),
        with_job(release_us=8),
        with_job(weight=Fraction(1, 3)),
        with_job(deadline_us=None),
        with_job(deadline_us=21),
        with_job(ingress=1),
        lambda _: build(input_bytes=1),
        with_restrictions(Restrictions({"n": frozenset({0})})),
        with_restrictions(Restrictions(workflow_gpus={"w": frozenset({0})})),
        with_restrictions(Restrictions(max_replicas={"m": 1})),
        with_restrictions(Restrictions(no_swaps=True)),
    ],
)
def test_whatever_a_plan_would_feel_counts(change: Callable[[Instance], Instance]) -> None:
    assert scenario_hash(change(build())) != scenario_hash(build())


def test_it_is_plain_json_without_floats() -> None:
    text = json.dumps(canonical(replace(build(), initial=(InitialResidency(1, 0),))))
    assert json.loads(text, parse_float=pytest.fail) == canonical(replace(build(), initial=(InitialResidency(1, 0),)))
