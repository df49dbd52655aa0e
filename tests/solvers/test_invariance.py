"""What must not change the proved optimum, and what must not worsen it."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.instances import random_instance
from truenorth.models import Cluster, InitialResidency, Instance, Objective
from truenorth.solvers.exact import exhaustive

OBJECTIVES = list(Objective)


def optimum(window: Instance, objective: Objective) -> Fraction:
    value = exhaustive.solve(window, objective).value
    assert value is not None
    return value


def drawn(seed: int) -> tuple[Instance, Objective]:
    return random_instance(random.Random(seed), max_tasks=4), OBJECTIVES[seed % len(OBJECTIVES)]


def rebuilt(window: Instance, cluster: Cluster, new_index: dict[int, int]) -> Instance:
    initial = tuple(InitialResidency(new_index[r.gpu], r.model, r.slot) for r in window.initial)
    return replace(window, cluster=cluster, initial=initial)


@pytest.mark.parametrize("seed", range(28))
def test_the_order_of_the_gpus_does_not_matter(seed: int) -> None:
    window, objective = drawn(seed)
    order = list(range(window.n_gpus))
    random.Random(seed).shuffle(order)
    shuffled = Cluster(tuple(window.cluster.gpus[old] for old in order), window.cluster.network)
    moved = rebuilt(window, shuffled, {old: new for new, old in enumerate(order)})
    assert optimum(moved, objective) == optimum(window, objective)


@pytest.mark.parametrize("seed", range(28))
def test_the_order_of_jobs_released_together_does_not_matter(seed: int) -> None:
    window, objective = drawn(seed)
    shuffled = list(window.jobs)
    random.Random(seed).shuffle(shuffled)
    shuffled.sort(key=lambda job: job.release_us)
    assert optimum(replace(window, jobs=tuple(shuffled)), objective) == optimum(window, objective)


@pytest.mark.parametrize("seed", range(28))
def test_another_gpu_or_more_memory_never_worsens_it(seed: int) -> None:
    window, objective = drawn(seed)
    before = optimum(window, objective)
    gpus, network = window.cluster.gpus, window.cluster.network
    if window.n_gpus < 3:  # the oracle grows with the GPUs
        extra = replace(gpus[seed % len(gpus)], id="extra", server=max(gpu.server for gpu in gpus) + 1)
        assert optimum(replace(window, cluster=Cluster((*gpus, extra), network)), objective) <= before
    roomier = tuple(gpu if gpu.slots else replace(gpu, memory_bytes=gpu.memory_bytes + 3) for gpu in gpus)
    assert optimum(replace(window, cluster=Cluster(roomier, network)), objective) <= before
