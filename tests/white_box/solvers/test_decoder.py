"""The list decoder: hand-derived timelines, and the checker on thousands of random ones."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tests.instances import chain, cluster, gpu, instance, network, random_instance, task
from tests.night import by_day
from tests.normal_form import loose_ends
from truenorth.models import (
    InitialResidency,
    Instance,
    Job,
    Link,
    Objective,
    Restrictions,
    Timeline,
    check,
    timeline_value,
)
from truenorth.solvers.search.decoder import Decisions, Decoder


def decode_timeline(of: Instance, decisions: Decisions) -> Timeline | None:
    return Decoder(of, Objective.MEAN_LATENCY).timeline(decisions)


def decoded(of: Instance, order: list[int], gpus: list[int]) -> Timeline:
    timeline = decode_timeline(of, Decisions(np.array(order), np.array(gpus)))
    assert timeline is not None
    assert check(of, timeline) == []
    return timeline


def single(name: str, runtime_us: int, *models: str, release_us: int = 0) -> Job:
    return Job(chain(task(name, runtime_us, models), name=name), release_us)


def random_decisions(rng: random.Random, of: Instance) -> Decisions:
    """Draw a topological order and eligible GPUs."""
    order: list[int] = []
    while len(order) < of.n_tasks:
        ready = [t for t in range(of.n_tasks) if t not in order and all(s in order for s, _ in of.task_inputs(t))]
        order.append(rng.choice(ready))
    return Decisions(np.array(order), np.array([rng.choice(of.eligible_gpus(t)) for t in range(of.n_tasks)]))


def test_load_starts_before_the_release() -> None:
    # A load of 5 bytes takes 5 us from time 0, so the model is ready when the job arrives at 7.
    timeline = decoded(instance([single("a", 3, "m", release_us=7)], {"m": 5}), [0], [0])
    assert timeline.start_us.tolist() == [7]
    assert [(r.load_start_us, r.ready_us, r.end_us) for r in timeline.residencies] == [(0, 5, None)]


def test_second_load_overlaps_the_first_run() -> None:
    # m: load [0, 5), run [5, 8); n: load [5, 9) beside it, run [9, 11).
    of = instance([single("a", 3, "m"), single("b", 2, "n")], {"m": 5, "n": 4})
    assert decoded(of, [0, 1], [0, 0]).start_us.tolist() == [5, 9]


def test_load_waits_for_compute_without_overlap() -> None:
    # As above, but n loads [8, 12) after the run of m.
    of = instance([single("a", 3, "m"), single("b", 2, "n")], {"m": 5, "n": 4}, overlap_loads=False)
    assert decoded(of, [0, 1], [0, 0]).start_us.tolist() == [5, 12]


def test_load_uses_an_earlier_gap_of_compute_without_overlap() -> None:
    # m: load [0, 2), run [10, 13) after its release. n fits the gap: load [2, 6), run [13, 15).
    jobs = [single("b", 2, "n", release_us=5), single("a", 3, "m", release_us=10)]
    of = instance(jobs, {"m": 2, "n": 4}, overlap_loads=False)
    timeline = decoded(of, [1, 0], [0, 0])
    assert timeline.start_us.tolist() == [13, 10]
    assert sorted(r.load_start_us for r in timeline.residencies) == [0, 2]


def test_evicts_the_model_needed_furthest_ahead() -> None:
    # 10 bytes hold two of three models of 5. Order m n k m n: k must replace n (used last), then n replaces k or m.
    # m [5, 6), n loads [5, 10) runs [10, 11), k loads [11, 16) in place of n, runs [16, 17), m hits [17, 18),
    # n loads from 17 (k's last use) to 22.
    of = instance([single(str(i), 1, m) for i, m in enumerate("mnkmn")], {"m": 5, "n": 5, "k": 5})
    timeline = decoded(of, [0, 1, 2, 3, 4], [0] * 5)
    assert timeline.start_us.tolist() == [5, 10, 16, 17, 22]
    assert len(timeline.residencies) == 4


def test_evicts_the_model_idle_for_longest() -> None:
    # The same, but k replaces m, idle since 6: it loads when the copy engine is free, [10, 15), and m replaces n at 15.
    of = instance([single(str(i), 1, m) for i, m in enumerate("mnkmn")], {"m": 5, "n": 5, "k": 5})
    decoder = Decoder(of, Objective.MEAN_LATENCY, idle_first=True)
    timeline = decoder.timeline(Decisions(np.arange(5), np.zeros(5, np.int64)))
    assert timeline is not None
    assert check(of, timeline) == []
    assert timeline.start_us.tolist() == [5, 10, 15, 20, 25]
    assert len(timeline.residencies) == 5


def test_evicts_no_more_than_it_must() -> None:
    # 2 + 7 bytes of 10 are held; 8 are needed. The small model is needed furthest ahead, but the large one must go
    # anyway, and then the small one may stay: 2 + 8 = 10.
    of = instance([single(str(i), 1, m) for i, m in enumerate("slxls")], {"s": 2, "l": 7, "x": 8})
    timeline = decoded(of, [0, 1, 2, 3, 4], [0] * 5)
    assert sum(r.model == 0 for r in timeline.residencies) == 1


def test_task_with_two_models_keeps_both() -> None:
    # m is resident; the second task needs m and k, so k replaces n although n is needed sooner again than m.
    jobs = [single("a", 1, "m"), single("b", 1, "n"), single("c", 1, "m", "k"), single("d", 1, "n")]
    of = instance(jobs, {"m": 5, "n": 5, "k": 5})
    assert decoded(of, [0, 1, 2, 3], [0] * 4).start_us.tolist() == [5, 10, 16, 22]


def test_slots_are_rearranged_when_a_small_model_holds_the_large_slot() -> None:
    # Initially s (2 bytes) sits in the slot of 6. The task needs s and l (6 bytes): s must leave and come back in the
    # slot of 3. l loads [0, 6), s [6, 8), run at 8.
    on = cluster(slots=(6, 3), memory_bytes=9)
    of = instance([single("a", 1, "s", "l")], {"s": 2, "l": 6}, on, initial=(InitialResidency(0, 0, 0),))
    timeline = decoded(of, [0], [0])
    assert timeline.start_us.tolist() == [8]
    assert {(r.model, r.slot) for r in timeline.residencies} == {(0, 1), (1, 0)}


def test_transfer_between_and_within_servers() -> None:
    # 3 bytes: between servers 1 + 3 = 4 us, within one 0 + 3 / 3 = 1 us, on the same GPU nothing.
    within = Link(0, Fraction(3_000_000))
    on = type(cluster())((gpu(0, 0), gpu(1, 0), gpu(0, 1)), network(within=within))
    of = instance([Job(chain(task("a", 2), task("b", 1, after={"a": 3})), 0)], on=on)
    assert [int(decoded(of, [0, 1], [0, other]).start_us[1]) for other in (0, 1, 2)] == [2, 3, 6]


def test_replicas_move_instead_of_multiplying() -> None:
    # One copy of m at a time: it is on GPU 0 until 6, so GPU 1 loads it [6, 11).
    limit = Restrictions(max_replicas={"m": 1})
    of = instance([single("a", 1, "m"), single("b", 1, "m")], {"m": 5}, cluster(2), restrictions=limit)
    assert decoded(of, [0, 1], [0, 1]).start_us.tolist() == [5, 11]


def test_a_model_whose_replica_moves_stays_until_the_other_load_begins() -> None:
    # m on GPU 0: load [0, 2), run [2, 3). GPU 1 loads n [0, 8) first, then takes the only replica of m, [8, 10).
    limit = Restrictions(max_replicas={"m": 1})
    jobs = [single("a", 1, "m"), single("b", 1, "n"), single("c", 1, "m")]
    of = instance(jobs, {"m": 2, "n": 8}, cluster(2), restrictions=limit)
    timeline = decoded(of, [0, 1, 2], [0, 1, 1])
    ends = {(r.gpu, r.model): (r.load_start_us, r.end_us) for r in timeline.residencies}
    assert ends == {(0, 0): (0, 8), (1, 0): (8, None), (1, 1): (0, None)}


def test_a_model_in_the_wrong_slot_stays_until_that_slot_is_taken() -> None:
    # s sits in the slot of 6 and is used in [0, 1). The last task needs s and l (6 bytes), so s must come back in the
    # slot of 3. Without overlap l loads only once x has run, [7, 13), and s thereafter: until 7 s may stay.
    jobs = [single("a", 1, "s"), single("x", 6), single("b", 1, "s", "l")]
    on = cluster(slots=(6, 3), memory_bytes=9)
    of = instance(jobs, {"s": 2, "l": 6}, on, initial=(InitialResidency(0, 0, 0),), overlap_loads=False)
    timeline = decoded(of, [0, 1, 2], [0, 0, 0])
    assert [(r.model, r.slot, r.load_start_us, r.end_us) for r in timeline.residencies] == [
        (0, 0, 0, 7),
        (1, 0, 7, None),
        (0, 1, 13, None),
    ]


def test_random_decisions_under_limited_replicas_keep_the_normal_form() -> None:
    rng = random.Random("replicas")
    for _ in range(400):
        of = random_instance(rng, 16)
        limits = Restrictions(max_replicas={model.name: rng.randint(1, 2) for model in of.models})
        limited = replace(of, restrictions=limits)
        timeline = decode_timeline(limited, random_decisions(rng, limited))
        assert timeline is not None
        assert check(limited, timeline) == []
        assert loose_ends(limited, timeline) == []


def test_no_plan_where_swaps_are_forbidden_and_memory_is_full() -> None:
    of = instance(
        [single("a", 1, "m"), single("b", 1, "n")], {"m": 6, "n": 6}, restrictions=Restrictions(no_swaps=True)
    )
    assert decode_timeline(of, Decisions(np.array([0, 1]), np.array([0, 0]))) is None


def test_unused_initial_residency_is_left_out() -> None:
    of = instance([single("a", 1, "m")], {"m": 6, "n": 6}, initial=(InitialResidency(0, 1),))
    timeline = decoded(of, [0], [0])
    assert [(r.model, r.load_start_us) for r in timeline.residencies] == [(0, 0)]


@pytest.mark.parametrize("part", by_day(range(5), 1))
@pytest.mark.parametrize("restricted", [False, True])
def test_random_decisions_pass_the_checker(restricted: bool, part: int) -> None:
    rng = random.Random(f"decoder {restricted} {part}")
    without_plan = 0
    for _ in range(300):
        of = random_instance(rng, rng.choice((4, 7, 10)), restricted)
        timeline = decode_timeline(of, random_decisions(rng, of))
        if timeline is None:
            assert of.restrictions.no_swaps
            without_plan += 1
        else:
            assert check(of, timeline) == []
            assert loose_ends(of, timeline) == []
    assert without_plan <= (30 if restricted else 0)


def test_decoding_again_is_no_later() -> None:
    # The order by start of a decoded timeline keeps every GPU's sequence, so the decode repeats itself.
    rng = random.Random("again")
    for _ in range(300):
        of = random_instance(rng, 8)
        first = decode_timeline(of, random_decisions(rng, of))
        assert first is not None
        second = decode_timeline(of, Decoder(of, Objective.MEAN_LATENCY).encode(first))
        assert second is not None
        assert (second.end_us <= first.end_us).all()


@pytest.mark.parametrize("objective", [o for o in Objective if o.is_sum and o is not Objective.LATE_JOBS])
def test_cost_is_the_objective(objective: Objective) -> None:
    rng = random.Random(objective.value)
    for _ in range(100):
        of = random_instance(rng, 8)
        decisions, decoder = random_decisions(rng, of), Decoder(of, objective)
        timeline = decoder.timeline(decisions)
        assert timeline is not None
        assert decoder.cost(decisions) == pytest.approx(float(timeline_value(objective, of, timeline)))


@pytest.mark.parametrize("objective", [Objective.MAKESPAN, Objective.MAX_SLOWDOWN, Objective.LATE_JOBS])
def test_smoothing_never_overrules_the_objective(objective: Objective) -> None:
    # The added linear part stays below the smallest difference that counts here.
    rng = random.Random(objective.value)
    for _ in range(100):
        of = random_instance(rng, 8)
        decisions, decoder = random_decisions(rng, of), Decoder(of, objective)
        timeline = decoder.timeline(decisions)
        assert timeline is not None
        value = float(timeline_value(objective, of, timeline))
        assert value <= decoder.cost(decisions) + 1e-9 <= value * 1.01 + 0.5
