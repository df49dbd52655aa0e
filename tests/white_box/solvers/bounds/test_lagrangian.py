import random
from fractions import Fraction

import numpy as np
import pytest

from tests import instances as make
from tests.night import by_day
from truenorth.models import Cluster, InitialResidency, Instance, Job, Objective
from truenorth.models.instance import InstanceError
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.lagrangian.ascent import Steps, ascend
from truenorth.solvers.bounds.lagrangian.evaluation import Evaluation, Prices, exact_bound, round_prices
from truenorth.solvers.bounds.lagrangian.improve import improve, refine
from truenorth.solvers.bounds.lagrangian.job_paths import PARTS
from truenorth.solvers.bounds.lagrangian.relaxation import fixed_parts, job_costs, relax
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.clock import Clock
from truenorth.solvers.exact import exhaustive
from truenorth.solvers.result import Search
from truenorth.solvers.rounding import round_up

SUMS = [objective for objective in Objective if objective.is_sum]


def best_bound(instance: Instance, objective: Objective, finest_us: int = 1, seconds: float = 1.0) -> Fraction:
    search = Search(instance, objective, seconds)
    improve(search, finest_us=finest_us)
    assert search.bound is not None
    assert search.bound_method == "lagrangian"
    return search.bound


def test_two_tasks_on_one_gpu_queue() -> None:
    # Run times 4 and 4 on one GPU: latencies 4 and 8, mean 6. The bound before raising lies above 5.5.
    workflow = make.chain(make.task("a", 4))
    assert best_bound(make.instance([Job(workflow, 0)] * 2), Objective.MEAN_LATENCY) == 6


def test_a_cold_gpu_loads_before_it_runs() -> None:
    # Load 0 to 6, run 6 to 8. Warm: run 0 to 2.
    workflow = make.chain(make.task("a", 2, ["m"]))
    assert best_bound(make.instance([Job(workflow, 0)], {"m": 6}), Objective.MEAN_LATENCY) == 8
    warm = make.instance([Job(workflow, 0)], {"m": 6}, initial=(InitialResidency(0, 0),))
    assert best_bound(warm, Objective.MEAN_LATENCY) == 2


def test_one_copy_engine_loads_two_models_in_turn() -> None:
    # Two models of 5 bytes fit together, but load in turn: 0 to 5 and 5 to 10. Ends 6 and 11, mean 8.5. Apart they
    # would end at 6; the relaxation mixes the two orders and still sees that not both loads end at 5.
    jobs = [Job(make.chain(make.task("a", 1, [m]), name=m), 0) for m in ("m", "n")]
    assert 6 < best_bound(make.instance(jobs, {"m": 5, "n": 5}), Objective.MEAN_LATENCY) <= Fraction(17, 2)


def test_models_that_do_not_fit_together_swap() -> None:
    # Jobs of m and n in turn, every 4 us, run time 2, loads of 6 us. On a GPU of 12 both stay: after the loads, 0 to 6
    # and 6 to 12, the queue empties. On a GPU of 10 every change of model is a swap. Half a copy of each fits, so
    # the relaxation sees little of it, but prices on memory do tell the two apart.
    work = [make.chain(make.task("a", 2, [m]), name=m) for m in ("m", "n")]
    jobs = [Job(work[i % 2], 4 * i) for i in range(8)]
    tight = make.instance(jobs, {"m": 6, "n": 6})
    roomy = make.instance(jobs, {"m": 6, "n": 6}, on=make.cluster(1, memory_bytes=12))
    assert best_bound(roomy, Objective.MEAN_LATENCY) < best_bound(tight, Objective.MEAN_LATENCY)


def test_loads_block_compute_without_overlap() -> None:
    # One GPU of 12 bytes, m of 2 bytes, n of 8: load m 0 to 2, run a 2 to 10; with overlap n loads meanwhile, 2 to 10,
    # and b runs to 12: mean 11. Without it the engine is busy 2 + 8 + 8 + 2 = 20 us: a ends at 10 and b at 20, mean 15.
    jobs = [Job(make.chain(make.task("t", run, [m]), name=m), 0) for m, run in (("m", 8), ("n", 2))]
    on = make.cluster(1, memory_bytes=12)
    overlapping = make.instance(jobs, {"m": 2, "n": 8}, on=on)
    serial = make.instance(jobs, {"m": 2, "n": 8}, on=on, overlap_loads=False)
    assert best_bound(overlapping, Objective.MEAN_LATENCY) <= 11
    assert 11 < best_bound(serial, Objective.MEAN_LATENCY) <= 15


def test_joins_are_priced_per_slot() -> None:
    # One GPU: b(3) and c(3) after a(2), then d(1) after both: 2 + 3 + 3 + 1 = 9, though the longest path is 6. With
    # half of b before half of c and the other way round, the relaxation lets d start after 7 instead of 8.
    workflow = make.chain(
        make.task("a", 2),
        make.task("b", 3, after={"a": 0}),
        make.task("c", 3, after={"a": 0}),
        make.task("d", 1, after={"b": 0, "c": 0}),
    )
    one = make.instance([Job(workflow, 0)])
    assert closed_form.METHODS["critical_path"](one, Objective.MEAN_LATENCY) == 6
    assert 8 <= best_bound(one, Objective.MEAN_LATENCY) <= 9


def test_several_last_tasks_end_the_job_together() -> None:
    # One GPU, a(3) and b(4) without precedence: the job ends at 7; its longest path is 4.
    workflow = make.chain(make.task("a", 3), make.task("b", 4))
    assert 6 <= best_bound(make.instance([Job(workflow, 0)]), Objective.MEAN_LATENCY) <= 7


def test_late_jobs_of_a_burst() -> None:
    # One GPU, four tasks of 4 us, due at 9: two are late.
    workflow = make.chain(make.task("a", 4))
    burst = [Job(workflow, 0, deadline_us=9)] * 4
    assert best_bound(make.instance(burst), Objective.LATE_JOBS) == 2


def test_kinds_that_cannot_run_a_task_do_not_help() -> None:
    # Three tasks of 4 us that only kind A runs, one A and one B: latencies 4, 8, 12, mean 8.
    two = Cluster((make.gpu(0, kind="A"), make.gpu(1, kind="B")), make.network())
    workflow = make.chain(make.task("a", {"A": 4}))
    assert best_bound(make.instance([Job(workflow, 0)] * 3, on=two), Objective.MEAN_LATENCY) == 8


def test_objectives_that_are_maxima_are_left_to_others() -> None:
    one = make.instance([Job(make.chain(make.task("a", 4)), 0)])
    for objective in (Objective.MAKESPAN, Objective.MAX_SLOWDOWN):
        search = Search(one, objective, 1.0)
        assert improve(search) is None
        assert search.bound is None


def test_nothing_counts_without_deadlines() -> None:
    one = make.instance([Job(make.chain(make.task("a", 4)), 0)])
    assert improve(Search(one, Objective.LATE_JOBS, 1.0)) is None


def test_a_stop_ends_the_search_with_its_bound() -> None:
    clock = Clock(600.0)
    jobs = [Job(make.chain(make.task("a", 400_000)), 100_000 * i) for i in range(30)]
    search = Search(make.instance(jobs), Objective.MEAN_LATENCY, clock, lambda _: clock.set())
    priced = improve(search)
    assert priced is not None
    assert search.clock.elapsed_s < 600
    assert search.bound == priced.bound


def _drawn(seed: int) -> Instance:
    rng = random.Random(seed)
    return make.random_instance(rng, 5, restricted=rng.random() < 0.3)


@pytest.mark.parametrize("seed", by_day(range(30), 8))
def test_no_bound_exceeds_the_optimum(seed: int) -> None:
    instance = _drawn(seed)
    rng = random.Random(seed)
    for objective in Objective:
        optimum = exhaustive.solve(instance, objective).value
        if optimum is None:
            continue
        for method in closed_form.METHODS.values():
            value = method(instance, objective)
            assert value is None or round_up(instance, objective, value) <= optimum
        costs = job_costs(instance, objective)
        if costs is None or not len(costs.jobs):
            continue
        window = np.full(len(costs.jobs), rng.choice((0, 4, 40)))
        relaxation = relax(fixed_parts(instance, costs), rng.randint(1, 4), window)
        steps = Steps(rng.choice((2, 20, 120)), 0.3, 0.01)
        climb = ascend(relaxation, np.zeros(Prices.size(relaxation)), steps, lambda: True)
        bound = exact_bound(relaxation, round_prices(Prices.split(climb.best, relaxation), relaxation))
        assert bound is not None
        assert round_up(instance, objective, bound) <= optimum


@pytest.mark.parametrize("seed", by_day(range(20), 6))
def test_any_prices_are_valid(seed: int) -> None:
    instance = _drawn(seed)
    rng = np.random.default_rng(seed)
    for objective in SUMS:
        costs = job_costs(instance, objective)
        optimum = exhaustive.solve(instance, objective).value
        if optimum is None or costs is None or not len(costs.jobs):
            continue
        relaxation = relax(fixed_parts(instance, costs), int(rng.integers(1, 5)), np.full(len(costs.jobs), 20))
        drawn = rng.exponential(relaxation.usual_price * 0.2, Prices.size(relaxation)) * (
            rng.random(Prices.size(relaxation)) < 0.2
        )
        bound = exact_bound(relaxation, round_prices(Prices.split(drawn, relaxation), relaxation))
        assert bound is not None
        assert bound <= optimum


def test_the_ascent_and_the_proof_agree_on_the_value() -> None:
    # The same kernels in floats and in whole numbers: apart by rounding only.
    instance = _drawn(3)
    costs = job_costs(instance, Objective.MEAN_LATENCY)
    assert costs is not None
    relaxation = relax(fixed_parts(instance, costs), 2, np.full(len(costs.jobs), 30))
    drawn = np.random.default_rng(3).exponential(relaxation.usual_price * 0.2, Prices.size(relaxation))
    prices = round_prices(Prices.split(drawn, relaxation), relaxation)
    rows = prices.compute, prices.copy, prices.memory, prices.uses, prices.extra, prices.parts / PARTS
    floating = Evaluation(relaxation).value(Prices(*(row.astype(float) for row in rows)))
    exact = exact_bound(relaxation, prices)
    assert exact is not None
    assert floating / relaxation.scale == pytest.approx(float(exact), rel=1e-9)


def test_finer_slots_start_no_lower_than_the_coarse_ones_ended() -> None:
    # Prices that are constant over a coarse slot mean the same on two fine ones, where starts are known better.
    workflow = make.chain(make.task("a", 40, ["m"]), make.task("b", 30, ["n"], after={"a": 0}))
    instance = make.instance([Job(workflow, 13 * i) for i in range(6)], {"m": 6, "n": 7}, on=make.cluster(2))
    costs = job_costs(instance, Objective.MEAN_SLOWDOWN)
    assert costs is not None
    fixed, window = fixed_parts(instance, costs), np.full(len(costs.jobs), 1000)
    coarse, fine = relax(fixed, 8, window), relax(fixed, 4, window)
    climb = ascend(coarse, np.zeros(Prices.size(coarse)), Steps(200, 0.1, 0.005), lambda: True)
    start = refine(climb.best, coarse, fine)
    before = exact_bound(coarse, round_prices(Prices.split(climb.best, coarse), coarse))
    after = exact_bound(fine, round_prices(Prices.split(start, fine), fine))
    assert before is not None
    assert after is not None
    assert float(after) >= float(before) - 1e-6
    assert float(before) > 1.5


def test_prices_too_large_to_add_up_prove_nothing() -> None:
    instance = make.instance([Job(make.chain(make.task("a", 4)), 0)])
    costs = job_costs(instance, Objective.MEAN_LATENCY)
    assert costs is not None
    relaxation = relax(fixed_parts(instance, costs), 1, np.array([10]))
    prices = round_prices(Prices.split(np.full(Prices.size(relaxation), 2.0**59), relaxation), relaxation)
    assert exact_bound(relaxation, prices) is None


def test_impossible_draws_are_refused_by_the_instance() -> None:
    with pytest.raises(InstanceError):
        make.instance([Job(make.chain(make.task("a", 1, ["m"])), 0)], {"m": 11})


def test_the_verifier_shares_the_reading_of_every_rule() -> None:
    assert verify(make.instance([Job(make.chain(make.task("a", 4)), 0)]), {}).reason == "schema_version is missing"


def test_run_times_of_microseconds_and_of_hours_in_one_window() -> None:
    # Released five hours apart, every job runs alone: slowdown 1. The weights of the long jobs round down to nothing.
    short, long = make.chain(make.task("a", 1)), make.chain(make.task("b", 18_000_000_000), name="v")
    jobs = [Job(short if i % 2 else long, 18_000_000_000 * i) for i in range(12)]
    bound = best_bound(make.instance(jobs), Objective.MEAN_SLOWDOWN)
    assert Fraction(49, 100) < bound <= 1


def test_late_jobs_at_the_scale_of_milliseconds() -> None:
    # One GPU, four tasks of 400 ms, due at 900 ms: two are late.
    burst = [Job(make.chain(make.task("a", 400_000)), 0, deadline_us=900_000)] * 4
    assert best_bound(make.instance(burst), Objective.LATE_JOBS) == 2
