"""Large neighbourhoods: parts are cut and spliced without a scar, and repairs find what each neighbourhood holds."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from experiments import authors
from models import Cluster, Instance, Job, Objective, Placement, Residency, Timeline, check, timeline_value
from solvers.result import Search
from solvers.search.dispatch import greedy
from solvers.search.lns import Parameters, improve
from solvers.search.lns_cut import Cut, cut_out
from solvers.search.lns_neighbourhoods import NEIGHBOURHOODS, Neighbourhood, few_gpus, order, residencies, time_window
from solvers.search.lns_part import Standing
from tests.instances import chain, cluster, instance, random_instance, task

GB = 1_000_000_000


def cuts(of: Instance, size: int, margin_us: int, seed: int) -> list[Cut]:
    """Return a part per neighbourhood around a random task of a dispatched plan."""
    rng = random.Random(seed)
    timeline = greedy(of, Objective.MEAN_LATENCY)
    if timeline is None:
        return []
    plan = Standing.of(of, timeline)
    freedoms = [free(plan, size, rng.randrange(of.n_tasks), rng) for free in NEIGHBOURHOODS]
    return [cut_out(plan, freedom.gpus, margin_us) for freedom in freedoms]


@pytest.mark.parametrize("seed", range(60))
def test_what_the_plan_does_in_a_part_fits_back_into_it(seed: int) -> None:
    of = random_instance(random.Random(seed), 8)
    for cut in cuts(of, 2, seed % 3, seed):
        assert check(cut.part, cut.known()) == []
        spliced = cut.splice(cut.known())
        assert check(of, spliced) == []
        assert (spliced.start_us == cut.plan.timeline.start_us).all()


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", range(6))
def test_repairs_are_feasible_and_never_worse(seed: int, objective: Objective) -> None:
    of = random_instance(random.Random(300 + seed), 9)
    timeline = greedy(of, objective)
    if timeline is None:
        return
    search = Search(of, objective, 60.0)
    search.offer(timeline)
    improve(search, seed, 1, repairs=8, parameters=Parameters(first_size=2, least_size=2, most_size=4))
    assert search.value is not None
    assert search.value <= timeline_value(objective, of, timeline)


@pytest.mark.parametrize("slots", [(), (4 * GB, 6 * GB)])
@pytest.mark.parametrize("overlap", [True, False])
def test_parts_of_a_plan_that_swaps_models_all_the_time(slots: tuple[int, ...], overlap: bool) -> None:
    # Room for two models of eight: nearly every border cuts through a load or a residency that is needed later.
    of = authors.instance(authors.poisson(4, 30, 1), 3)
    gpus = tuple(replace(gpu, memory_bytes=10 * GB, slots=slots) for gpu in of.cluster.gpus)
    of = replace(of, cluster=Cluster(gpus, of.cluster.network), overlap_loads=overlap)
    handed_over = found = 0
    for seed in range(12):
        for cut in cuts(of, 8, 300_000, seed):
            assert check(cut.part, cut.known()) == []
            spliced = cut.splice(cut.known())
            assert check(of, spliced) == []
            assert (spliced.start_us == cut.plan.timeline.start_us).all()
            handed_over += sum(stay.owed for stay in cut.stays)
            found += sum(stay.found for stay in cut.stays)
    assert handed_over > 100
    assert found > 100
    search = Search(of, Objective.MEAN_SLOWDOWN, 60.0)
    timeline = greedy(of, Objective.MEAN_SLOWDOWN)
    assert timeline is not None
    search.offer(timeline)
    improve(search, 0, 1, repairs=40, parameters=Parameters(first_size=8, most_size=8))
    improve(search, 0, 1, repairs=10, parameters=Parameters((time_window,), first_size=12, most_size=12))
    assert search.value is not None
    assert search.value < timeline_value(Objective.MEAN_SLOWDOWN, of, timeline)


def test_borders_find_a_model_and_hand_it_over() -> None:
    # One load [0, 5) serves three runs. Around the one in the middle the model is there at 9, and owed at 13.
    of = instance([Job(chain(task("t", 4, ["m"])), 0)] * 3, {"m": 5})
    runs = [Placement(0, 0, 5, 9), Placement(1, 0, 9, 13), Placement(2, 0, 13, 17)]
    plan = Standing.of(of, Timeline.build(3, runs, [Residency(0, 0, 0, 5)]))
    cut = cut_out(plan, {1: (0,)}, 0)
    assert cut.tasks == (1, -1)
    assert [(resident.model, resident.gpu) for resident in cut.part.initial] == [(0, 0)]
    assert cut.part.task_needs(1) == (0,)
    assert (cut.borders.opens_us[0], cut.borders.closes_us[0], cut.borders.handover_us[0]) == (9, 13, 13)
    assert cut.counts == (True, False)


@pytest.mark.parametrize(
    ("free", "value"),
    [
        (residencies, Fraction(21, 2)),
        (order, Fraction(11, 2)),
        (few_gpus, Fraction(11, 2)),
        (time_window, Fraction(11, 2)),
    ],
)
def test_each_neighbourhood_finds_its_best(free: Neighbourhood, value: Fraction) -> None:
    # A run of 5 with m, loaded in [2, 7), is on GPU 0 at [7, 12); a run of 1 without a model follows at [12, 13).
    # Residencies: load [0, 5), runs [5, 10) and [10, 11): 21. Order: [0, 1) first, then [5, 10): 11. GPUs: the same,
    # for nothing is gained by the other GPU.
    of = instance([Job(chain(task("a", 5, ["m"])), 0), Job(chain(task("b", 1)), 0)], {"m": 5}, cluster(2))
    runs = [Placement(0, 0, 7, 12), Placement(1, 0, 12, 13)]
    search = Search(of, Objective.MEAN_LATENCY, 60.0)
    search.offer(Timeline.build(2, runs, [Residency(0, 0, 2, 7)]))
    improve(search, 0, 1, repairs=1, parameters=Parameters(neighbourhoods=(free,)))
    assert search.value == value


def test_equal_seeds_give_equal_plans() -> None:
    of = authors.instance(authors.poisson(4, 30, 3))
    timeline = greedy(of, Objective.MEAN_SLOWDOWN)
    assert timeline is not None
    values = []
    for seed in (1, 1):
        search = Search(of, Objective.MEAN_SLOWDOWN, 60.0)
        search.offer(timeline)
        improve(search, seed, 1, repairs=6, parameters=Parameters(first_size=8, most_size=8, repair_s=60.0))
        values.append(search.value)
    assert values[0] == values[1]


def test_restrictions_that_tie_a_part_to_the_rest_are_left_alone() -> None:
    of = random_instance(random.Random(0))
    search = Search(replace(of, restrictions=replace(of.restrictions, no_swaps=True)), Objective.MAKESPAN, 1.0)
    timeline = greedy(search.instance, Objective.MAKESPAN)
    if timeline is not None:
        search.offer(timeline)
    assert improve(search) == []
