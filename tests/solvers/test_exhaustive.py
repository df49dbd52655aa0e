"""The oracle: hand-derived optima and agreement with CP-SAT."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.instances import chain, cluster, instance, random_instance, task
from tests.models.formulations.cases import CASES, Case
from truenorth.models import BatchClass, InitialResidency, Job, Objective, Restrictions, Task
from truenorth.models.cluster import FOREVER, Availability
from truenorth.models.objective import Status
from truenorth.solvers.exact import cp_sat, exhaustive


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_optimum_derived_by_hand(case: Case) -> None:
    result = exhaustive.solve(case.instance, case.objective)
    assert result.value == case.optimum
    assert result.status is (Status.INFEASIBLE if case.optimum is None else Status.OPTIMAL)


@pytest.mark.parametrize("seed", range(70))
def test_agrees_with_cp_sat(seed: int) -> None:
    built = random_instance(random.Random(1000 + seed), restricted=seed % 2 == 1)
    objective = list(Objective)[seed % len(Objective)]
    exact, joint = exhaustive.solve(built, objective), cp_sat.solve(built, objective, 20, workers=1)
    assert (joint.status, joint.value) == (exact.status, exact.value)


def test_a_model_is_free_for_another_gpu_once_its_own_has_gone() -> None:
    # One replica, never swapped. One task runs from 0 to 8 where the model is; the GPU goes at 9, and only then may the
    # other one load: 9 to 12, and run until 20. If it loads from 0 on, the tasks end at 11 and 19.
    first = replace(cluster(2).gpus[0], available=Availability.of([(0, 9)]))
    on = replace(cluster(2), gpus=(first, cluster(2).gpus[1]))
    limits = Restrictions(max_replicas={"m": 1}, no_swaps=True)
    jobs = [Job(chain(task("t", 8, ["m"])), 0)] * 2
    built = instance(jobs, {"m": 3}, on, initial=(InitialResidency(0, 0),), restrictions=limits)
    assert exhaustive.solve(built, Objective.MEAN_LATENCY).value == 14


def test_batches_of_one_class_begin_a_microsecond_apart() -> None:
    # Together 9 us each; alone 4 us, beside each other on halves of the GPU, the second from 1 on.
    batch = BatchClass("c", {"*": {1: 4, 2: 9}}, share=5_000)
    built = instance([Job(chain(Task.of_class("t", batch)), 0)] * 2)
    result = exhaustive.solve(built, Objective.MAKESPAN)
    assert result.value == 5
    assert result.timeline is not None
    assert sorted(result.timeline.start_us.tolist()) == [0, 1]


def test_a_gpu_that_comes_back_has_forgotten_its_models() -> None:
    # There from 0 to 5 and from 8 on: the load of 3 us and one run of 2 until 5, then both again until 13.
    there = Availability.of([(0, 5), (8, FOREVER)])
    on = replace(cluster(), gpus=(replace(cluster().gpus[0], available=there),))
    built = instance([Job(chain(task("t", 2, ["m"])), 0)] * 2, {"m": 3}, on)
    result = exhaustive.solve(built, Objective.MAKESPAN)
    assert result.value == 13
    assert result.timeline is not None
    assert [(r.load_start_us, r.end_us) for r in result.timeline.residencies] == [(0, 5), (8, None)]
