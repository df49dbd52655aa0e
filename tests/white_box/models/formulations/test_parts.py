"""The solver-free parts of the formulations: windows, whole-number objectives, equal GPUs, normal form."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from tests.instances import chain, cluster, gpu, instance, network, random_instance, task
from truenorth.models import (
    Cluster,
    InitialResidency,
    Job,
    Objective,
    Placement,
    Residency,
    check,
    completion_us,
    objective_value,
)
from truenorth.models.formulations.choices import interchangeable_gpus, renumber
from truenorth.models.formulations.normal_form import Chain, normal_form
from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.formulations.windows import horizon_us, time_windows
from truenorth.models.instance import Restrictions
from truenorth.solvers.exact import exhaustive


def test_earliest_start_counts_release_loads_and_inputs() -> None:
    # a needs m (load 4) and runs 3: [5, 8) as released at 5. b needs m and n (loads 4 + 5 = 9) after a: 9.
    built = instance([Job(chain(task("a", 3, ["m"]), task("b", 2, ["m", "n"], {"a": 1})), 5)], {"m": 4, "n": 5})
    scaled = ScaledObjective.of(Objective.MAKESPAN, built, 100)
    windows = time_windows(built, scaled, None, 100)
    assert windows.earliest_start_us.tolist() == [[5], [9]]
    assert windows.completion_lower_us.tolist() == [11]
    # b ends by 100; a must leave 2 us for it.
    assert windows.latest_end_us.tolist() == [[98], [100]]


def test_initial_models_need_no_load_in_windows() -> None:
    built = instance([Job(chain(task("a", 3, ["m"])), 0)], {"m": 4}, cluster(2), initial=(InitialResidency(1, 0),))
    windows = time_windows(built, ScaledObjective.of(Objective.MAKESPAN, built, 50), 5, 50)
    # On GPU 0 it would end at 7, later than 5.
    assert windows.possible.tolist() == [[False, True]]


def test_a_known_value_leaves_each_job_what_the_others_cannot_do_without() -> None:
    built = instance([Job(chain(task("a", 2)), 0), Job(chain(task("a", 6), name="v"), 0)])
    scaled = ScaledObjective.of(Objective.MEAN_LATENCY, built, 8)
    windows = time_windows(built, scaled, scaled.floor(Fraction(5)), 8)
    # Latencies add up to at most 10; alone they are 2 and 6: so at most 10 - 6 = 4 and 10 - 2 = 8.
    assert windows.completion_upper_us.tolist() == [4, 8]


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", range(6))
def test_an_optimum_lies_inside_the_windows_of_its_value(seed: int, objective: Objective) -> None:
    built = random_instance(random.Random(seed))
    best = exhaustive.solve(built, objective)
    assert best.timeline is not None
    assert best.value is not None
    horizon = horizon_us(built)
    scaled = ScaledObjective.of(objective, built, horizon)
    windows = time_windows(built, scaled, scaled.floor(best.value), horizon)
    tasks = np.arange(built.n_tasks)
    assert np.all(windows.earliest_start_us[tasks, best.timeline.place] <= best.timeline.start_us)
    assert np.all(best.timeline.end_us <= windows.latest_end_us[tasks, best.timeline.place])
    assert np.all(completion_us(built, best.timeline) <= windows.completion_upper_us)


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", range(4))
def test_scaled_values_never_exceed_the_true_ones(seed: int, objective: Objective) -> None:
    rng = random.Random(seed)
    runs = [rng.randint(1, 10**7) for _ in range(5)]
    built = instance(
        [
            Job(chain(task("a", run), name=f"w{k}"), 0, Fraction(rng.randint(1, 10**9), 10**9), rng.randint(1, 10**7))
            for k, run in enumerate(runs)
        ]
    )
    scaled = ScaledObjective.of(objective, built, 10**8)
    done = np.array([run + rng.randint(0, 10**7) for run in runs], np.int64)
    true = objective_value(objective, built, done)
    bound = scaled.true_bound(scaled.combine(scaled.terms(built, done)))
    assert bound <= true
    assert true - bound <= true * Fraction(2, 10**7)
    value = scaled.combine(scaled.terms(built, done))
    assert scaled.least(built, true, 10**8) <= value <= scaled.floor(true)


def test_small_weights_are_exact() -> None:
    workflows = [chain(task("a", 4), name="v"), chain(task("a", 6), name="w")]
    built = instance([Job(workflows[0], 0, Fraction(1, 2)), Job(workflows[1], 0, Fraction(3, 4))])
    # Mean slowdown: 1 / (2 x 4) and 1 / (2 x 6), times 24.
    slowdown = ScaledObjective.of(Objective.MEAN_SLOWDOWN, built, 100)
    assert (*slowdown.weights, slowdown.factor) == (3, 2, Fraction(24))
    # Weighted latency: 1/2 and 3/4 over 5/4 are 2/5 and 3/5, times 5.
    weighted = ScaledObjective.of(Objective.WEIGHTED_LATENCY, built, 100)
    assert (*weighted.weights, weighted.factor) == (2, 3, Fraction(5))


def test_equal_gpus_need_equal_neighbours_contents_and_limits() -> None:
    work = [Job(chain(task("a", 1, ["m"]), task("b", 1, after={"a": 1})), 0)]

    def groups(on: Cluster, **options: object) -> tuple[tuple[int, ...], ...]:
        return interchangeable_gpus(instance(work, {"m": 4}, on, **options))

    inner = network(within=network().between)
    fast_inside = network(latency_us=5, within=network().between)
    assert groups(cluster(3)) == ((0, 1, 2),)
    assert groups(cluster(3), initial=(InitialResidency(1, 0),)) == ((0, 2),)
    assert groups(cluster(3), restrictions=Restrictions({"m": frozenset({2})})) == ((0, 1),)
    # Two GPUs in server 0 and one in server 1: alike if the network does not tell servers apart.
    shared = (gpu(0, 0), gpu(1, 0, id="s0/g1"), gpu(2))
    assert groups(Cluster(shared, inner)) == ((0, 1, 2),)
    assert groups(Cluster(shared, fast_inside)) == ((0, 1),)


def test_renumbering_orders_gpus_by_their_first_task() -> None:
    built = instance([Job(chain(task("a", 3, ["m"])), 0) for _ in range(3)], {"m": 4}, cluster(3))
    runs = [Placement(0, 2, 4, 7), Placement(1, 0, 4, 7), Placement(2, 2, 7, 10)]
    plan = normal_form(built, runs, [Chain(0, 2, 0, False, 10), Chain(0, 0, 0, False, 7)])
    moved = renumber(plan, interchangeable_gpus(built))
    assert moved.place.tolist() == [0, 1, 0]
    assert [residency.gpu for residency in moved.residencies] == [0, 1]
    assert check(built, moved) == []


def test_normal_form_evicts_only_what_a_load_displaces() -> None:
    # Memory 10: m (4) and n (4) stay together; k (6) displaces n, which is not loaded again, and m is still needed.
    built = instance([Job(chain(task("a", 1)), 0)], {"m": 4, "n": 4, "k": 6})
    chains = [Chain(0, 0, 0, False, 30), Chain(1, 0, 4, False, 10), Chain(2, 0, 20, False, 30)]
    plan = normal_form(built, [Placement(0, 0, 0, 1)], chains)
    assert plan.residencies == (Residency(0, 0, 0, 4), Residency(1, 0, 4, 8, 20), Residency(2, 0, 20, 26))


def test_normal_form_drops_a_load_of_what_is_still_there() -> None:
    built = instance([Job(chain(task("a", 1)), 0)], {"m": 4})
    plan = normal_form(built, [Placement(0, 0, 0, 1)], [Chain(0, 0, 0, False, 8), Chain(0, 0, 20, False, 30)])
    assert plan.residencies == (Residency(0, 0, 0, 4),)


def test_normal_form_moves_a_replica() -> None:
    built = instance([Job(chain(task("a", 1)), 0)], {"m": 4}, cluster(2), restrictions=Restrictions({}, {}, {"m": 1}))
    plan = normal_form(built, [Placement(0, 0, 0, 1)], [Chain(0, 0, 0, False, 8), Chain(0, 1, 9, False, 30)])
    assert plan.residencies == (Residency(0, 0, 0, 4, 9), Residency(0, 1, 9, 13))
