"""Local search over batches, shares and memory of tasks: every decoded timeline checked, and optima known otherwise."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from tests.instances import chain, cluster, instance, random_serving_instance, task
from tests.white_box.solvers.test_decoder import random_decisions
from truenorth.models import WHOLE, BatchClass, Instance, Job, Objective, Task, Timeline, check, timeline_value
from truenorth.models.timeline import batch_leaders
from truenorth.solvers.exact.exhaustive import solve
from truenorth.solvers.result import Search
from truenorth.solvers.search.annealing import improve
from truenorth.solvers.search.decoder import Decisions, Decoder
from truenorth.solvers.search.dispatch import greedy_decisions


def annealed(of: Instance, objective: Objective, moves: int) -> Search:
    search = Search(of, objective, 600.0)
    improve(search, 0, moves)
    return search


def decoded(of: Instance, order: Sequence[int], gpus: Sequence[int], joins: Sequence[int]) -> Timeline:
    decisions = Decisions(np.array(order), np.array(gpus), np.array(joins))
    timeline = Decoder(of, Objective.MEAN_LATENCY).timeline(decisions)
    assert timeline is not None
    assert check(of, timeline) == []
    return timeline


def of_class(batch: BatchClass, releases: Sequence[int], **options: object) -> Instance:
    """Return one job of one task per release."""
    workflow = chain(Task.of_class("t", batch))
    return instance([Job(workflow, release) for release in releases], **options)  # type: ignore[arg-type]


def alone(runtime_us: int, share: int = WHOLE, memory_bytes: int = 0, *models: str, release_us: int = 0) -> Job:
    made = Task("t", {"*": runtime_us}, tuple(models), (), share, memory_bytes)
    return Job(chain(made, name=f"w{runtime_us}.{share}.{memory_bytes}.{models}"), release_us)


def test_a_batch_waits_for_its_last_member_and_runs_for_its_size() -> None:
    # 0 and 1 together: from 3 on for 6. Size 3 takes the time of 4, the next that is listed: from 5 to 13.
    batch = BatchClass("c", {"*": {1: 4, 2: 6, 4: 8}})
    timeline = decoded(of_class(batch, [0, 3, 5]), [0, 1, 2], [0, 0, 0], [0, 1, 0])
    assert timeline.start_us.tolist() == [3, 3, 9]
    assert timeline.end_us.tolist() == [9, 9, 13]
    timeline = decoded(of_class(batch, [0, 3, 5]), [0, 1, 2], [0, 0, 0], [0, 1, 1])
    assert (timeline.start_us.tolist(), timeline.end_us.tolist()) == ([5, 5, 5], [13, 13, 13])


def test_a_full_batch_takes_no_more() -> None:
    batch = BatchClass("c", {"*": {1: 4, 2: 5}})
    timeline = decoded(of_class(batch, [0, 0, 0]), [0, 1, 2], [0, 0, 0], [0, 1, 1])
    assert timeline.start_us.tolist() == [0, 0, 5]


def test_a_task_does_not_join_its_own_predecessor() -> None:
    batch = BatchClass("c", {"*": {1: 4, 2: 5}})
    first, second = Task.of_class("a", batch), task("b", 4, after={"a": 0})
    workflow = chain(first, Task.of_class("b", batch, second.inputs))
    timeline = decoded(instance([Job(workflow, 0)]), [0, 1], [0, 0], [0, 1])
    assert timeline.start_us.tolist() == [0, 4]


def test_shares_run_side_by_side_and_a_third_waits() -> None:
    # Halves: two at once; the third starts when the first of them ends.
    of = instance([alone(4, 5000), alone(6, 5000), alone(5, 5000)])
    assert decoded(of, [0, 1, 2], [0] * 3, [0] * 3).start_us.tolist() == [0, 0, 4]


def test_two_batches_of_one_class_side_by_side_start_apart() -> None:
    of = of_class(BatchClass("c", {"*": {1: 4}}, share=5000), [0, 0])
    assert decoded(of, [0, 1], [0, 0], [0, 1]).start_us.tolist() == [0, 1]


def test_memory_of_tasks_limits_how_many_run() -> None:
    # 10 bytes, 4 each: two at once although shares would let four.
    of = instance([alone(4, 2500, 4) for _ in range(3)])
    assert decoded(of, [0, 1, 2], [0] * 3, [0] * 3).start_us.tolist() == [0, 0, 4]


def test_a_model_leaves_at_the_start_of_the_run_that_takes_its_room() -> None:
    # m (6 of 10 bytes) loads [0, 6), runs [6, 9). The next task holds 5: m leaves when it starts, at 9.
    of = instance([alone(3, WHOLE, 0, "m"), alone(2, WHOLE, 5)], {"m": 6})
    timeline = decoded(of, [0, 1], [0, 0], [0, 0])
    assert timeline.start_us.tolist() == [6, 9]
    assert [r.end_us for r in timeline.residencies] == [9]


def test_a_load_waits_for_the_memory_of_a_run() -> None:
    # The first task holds 8 of 10 bytes in [0, 7); m needs 5, so it loads [7, 12).
    of = instance([alone(7, WHOLE, 8), alone(3, WHOLE, 0, "m")], {"m": 5})
    assert decoded(of, [0, 1], [0, 0], [0, 0]).start_us.tolist() == [0, 12]


@pytest.mark.parametrize("restricted", [False, True])
def test_every_decoded_timeline_is_feasible_and_decodes_again(restricted: bool) -> None:
    rng = random.Random(f"serving {restricted}")
    decoded_ones, worse = 0, 0
    for _ in range(120):
        of = random_serving_instance(rng, rng.choice((5, 12, 24)), restricted)
        drawn = random_decisions(rng, of)
        joins = np.array([rng.choice((0, 1, 1)) for _ in range(of.n_tasks)])
        decoder = Decoder(of, Objective.MEAN_LATENCY)
        timeline = decoder.timeline(Decisions(drawn.order, drawn.gpu, joins))
        if timeline is None:
            continue  # a restriction left a model no room
        decoded_ones += 1
        assert check(of, timeline) == []
        again = decoder.timeline(decoder.encode(timeline))
        assert again is not None
        assert check(of, again) == []
        before, after = (timeline_value(Objective.MEAN_LATENCY, of, found) for found in (timeline, again))
        worse += after > before
    assert decoded_ones > 100
    assert worse <= 5  # other loads, in the order of starts


@pytest.mark.parametrize("objective", list(Objective))
def test_close_to_the_optimum_of_tiny_instances(objective: Objective) -> None:
    rng = random.Random(f"serving {objective.value}")
    optimal = 0
    for _ in range(12):
        of = random_serving_instance(rng, 4)
        best, found = solve(of, objective).value, annealed(of, objective, 1500)
        assert found.timeline is not None
        assert found.value is not None
        assert best is not None
        assert check(of, found.timeline) == []
        assert found.value >= best
        optimal += found.value == best
    assert optimal >= 10


def test_dispatch_batches_what_waits() -> None:
    # Four at once cost 5 and one costs 4, so the rule that fills batches beats the one that does not.
    of = of_class(BatchClass("c", {"*": {1: 4, 4: 5}}), [0] * 8)
    decoder = Decoder(of, Objective.MEAN_LATENCY)
    timeline = decoder.timeline(greedy_decisions(decoder)[0])
    assert timeline is not None
    assert np.unique(batch_leaders(of, timeline)).size == 2
    assert timeline_value(Objective.MEAN_LATENCY, of, timeline) == pytest.approx(7.5)


def least_latency_and_makespan(releases: Sequence[int], times: Sequence[int]) -> tuple[int, int]:
    """Return the least sum of latencies and the least makespan of one class on one GPU; `times` by size from 1.

    Batches are runs of consecutive releases: from the pairs (time free, sum) of the first i tasks follow those of
    the first i + b; a pair that is no better in either entry than another one is dropped.
    """
    states: list[list[tuple[int, int]]] = [[(0, 0)]] + [[] for _ in releases]
    for done, here in enumerate(states):
        kept: list[tuple[int, int]] = []
        for free, total in sorted(here):
            if not kept or total < kept[-1][1]:
                kept.append((free, total))
        states[done] = kept
        for size in range(1, min(len(times), len(releases) - done) + 1):
            for free, total in kept:
                end = max(free, releases[done + size - 1]) + times[size - 1]
                states[done + size].append((end, total + size * end))
    return min(total for _, total in states[-1]) - sum(releases), min(free for free, _ in states[-1])


def test_the_programme_of_batches_by_hand() -> None:
    # Releases 0 and 1, times 4 and 5: together 1 to 6 gives 6 + 5 = 11; apart 4 and 8 gives 4 + 7 = 11, ending at 8.
    assert least_latency_and_makespan([0, 1], [4, 5]) == (11, 6)


@pytest.mark.parametrize("seed", range(4))
def test_one_class_on_one_gpu_comes_close_to_the_dynamic_programme(seed: int) -> None:
    rng = random.Random(f"one class {seed}")
    times = [rng.randint(20, 60)]
    for _ in range(rng.choice((3, 7))):
        times.append(times[-1] + rng.randint(0, 20))
    releases = sorted(rng.randint(0, 1000) for _ in range(40))
    of = of_class(BatchClass("c", {"*": dict(enumerate(times, 1))}), releases)
    latency, makespan = least_latency_and_makespan(releases, times)
    for objective, optimum in ((Objective.MAKESPAN, makespan), (Objective.MEAN_LATENCY, Fraction(latency, 40))):
        found = annealed(of, objective, 60_000).value
        assert found is not None
        assert optimum <= found <= optimum * Fraction(104, 100)


def test_shares_of_one_gpu_are_as_good_as_so_many_gpus() -> None:
    # Quarters on one GPU are four GPUs.
    rng = random.Random("quarters")
    drawn = [(rng.randint(1, 40), rng.randint(0, 60)) for _ in range(30)]
    quarters = instance([alone(length, 2500, release_us=at) for length, at in sorted(drawn, key=lambda row: row[1])])
    four = instance(
        [alone(length, release_us=at) for length, at in sorted(drawn, key=lambda row: row[1])], on=cluster(4)
    )
    side_by_side, apart = (annealed(of, Objective.MEAN_LATENCY, 40_000).value for of in (quarters, four))
    assert side_by_side is not None
    assert apart is not None
    assert float(side_by_side) == pytest.approx(float(apart), rel=0.005)


def test_equal_seeds_give_equal_plans() -> None:
    of = of_class(BatchClass("c", {"*": {1: 40, 4: 70}}), [7 * at for at in range(60)], on=cluster(2))
    first, second = annealed(of, Objective.MEAN_LATENCY, 4000), annealed(of, Objective.MEAN_LATENCY, 4000)
    assert first.timeline is not None
    assert second.timeline is not None
    assert (first.timeline.start_us == second.timeline.start_us).all()
