from fractions import Fraction

import pytest

from tests import instances as make
from truenorth.models import GPU, Cluster, InitialResidency, Instance, Job, Link, Network, Objective
from truenorth.solvers.bounds import closed_form, critical_path, energetic, mean_busy_time

SINGLE = make.chain(make.task("a", 4))


def test_critical_path_waits_for_the_cold_load() -> None:
    # 3 bytes load in 3 us from time 0; the job released at 1 starts at 3 and ends at 3 + 4 = 7, latency 6.
    workflow = make.chain(make.task("a", 4, ["m"]))
    cold = make.instance([Job(workflow, 1)], {"m": 3})
    assert critical_path.bound(cold, Objective.MEAN_LATENCY) == 6
    warm = make.instance([Job(workflow, 1)], {"m": 3}, initial=(InitialResidency(0, 0),))
    assert critical_path.bound(warm, Objective.MEAN_LATENCY) == 4


def test_two_models_load_one_after_the_other() -> None:
    # Both models of the task go through one copy engine: 3 + 4 us, then the run of 2.
    workflow = make.chain(make.task("a", 2, ["m", "n"]))
    assert critical_path.bound(make.instance([Job(workflow, 0)], {"m": 3, "n": 4}), Objective.MAKESPAN) == 9


def test_critical_path_pays_a_transfer_that_no_placement_avoids() -> None:
    # a runs only on kind A, b only on kind B: 2 + (1 us latency + 3 bytes at 1 byte/us) + 5.
    two = Cluster((make.gpu(0, kind="A"), make.gpu(1, kind="B")), make.network())
    workflow = make.chain(make.task("a", {"A": 2}), make.task("b", {"B": 5}, after={"a": 3}))
    assert critical_path.bound(make.instance([Job(workflow, 0)], on=two), Objective.MAKESPAN) == 11
    # With a second kind that runs both, slowly, the path stays on it: min(2 + 4 + 5, 3 + 6) = 9.
    either = make.chain(make.task("a", {"A": 2, "B": 3}), make.task("b", {"A": 6, "B": 5}, after={"a": 3}))
    assert critical_path.bound(make.instance([Job(either, 0)], on=two), Objective.MAKESPAN) == 8


def test_transfer_between_classes_takes_the_cheaper_of_within_and_between() -> None:
    def on(*servers: int) -> Instance:
        gpus = (
            GPU(f"s{servers[0]}/g0", servers[0], "A", 10, Fraction(10**6)),
            GPU(f"s{servers[1]}/g1", servers[1], "B", 10, Fraction(10**6)),
        )
        workflow = make.chain(make.task("a", {"A": 2}), make.task("b", {"B": 5}, after={"a": 0}))
        return make.instance([Job(workflow, 0)], on=Cluster(gpus, Network(Link(9), Link(1))))

    assert critical_path.bound(on(0, 0), Objective.MAKESPAN) == 2 + 1 + 5
    assert critical_path.bound(on(0, 1), Objective.MAKESPAN) == 2 + 9 + 5


def test_mean_busy_time_is_the_optimum_of_single_tasks_on_one_gpu() -> None:
    # One GPU, run times 4, 4, 4 at 0: latencies 4, 8, 12, mean 8. Preempted by rank the busy times are 2, 6, 10,
    # and each end lies 4 / 2 after its mean busy time: the bound is exact.
    three = make.instance([Job(SINGLE, 0)] * 3)
    assert mean_busy_time.bound(three, Objective.MEAN_LATENCY) == 8


def test_mean_busy_time_of_two_gpus() -> None:
    # Two GPUs, four tasks of 4 us at 0: latencies 4, 4, 8, 8, mean 6. Fast machine: each task takes 2 us, busy
    # times 1, 3, 5, 7, plus 2 each: mean 4 + 2 = 6, exact again. SRPT alone gives (2 + 4 + 6 + 8) / 4 = 5.
    four = make.instance([Job(SINGLE, 0)] * 4, on=make.cluster(2))
    assert mean_busy_time.bound(four, Objective.MEAN_LATENCY) == 6


def test_weights_order_the_fast_machine() -> None:
    # Run times 4 (weight 1) and 2 (weight 2), one GPU: the short one first: 2 * 2 + 1 * 6 = 10, over weight 3.
    jobs = [Job(SINGLE, 0, Fraction(1)), Job(make.chain(make.task("b", 2), name="v"), 0, Fraction(2))]
    assert mean_busy_time.bound(make.instance(jobs), Objective.WEIGHTED_LATENCY) == Fraction(10, 3)


def test_shortest_remaining_work_preempts() -> None:
    # One GPU: 10 us released at 0, 2 us released at 1. Preempted: ends 3 and 12, latencies 2 and 12, mean 7; busy
    # times give (0.1 * (0.5 + (144 - 9) / 2) + 5) for the long job and 3 for the short: 11.8 + 3 - 1 = 13.8 < 14.
    jobs = [Job(make.chain(make.task("a", 10)), 0), Job(make.chain(make.task("b", 2), name="v"), 1)]
    assert mean_busy_time.bound(make.instance(jobs), Objective.MEAN_LATENCY) == 7


def test_mean_busy_time_counts_the_tail_of_a_chain() -> None:
    # One job a(4) then b(2) on one GPU ends at 6 = M + sum p (tail + p / 2) / W = 3 + (4 * (2 + 2) + 2 * 1) / 6.
    workflow = make.chain(make.task("a", 4), make.task("b", 2, after={"a": 0}))
    assert mean_busy_time.bound(make.instance([Job(workflow, 0)]), Objective.MEAN_LATENCY) == 6


def test_sums_only() -> None:
    one = make.instance([Job(SINGLE, 0)])
    assert mean_busy_time.bound(one, Objective.MAKESPAN) is None
    assert energetic.bound(one, Objective.MEAN_LATENCY) is None


def test_energetic_makespan_is_the_work_over_the_gpus() -> None:
    # Five tasks of 4 us on two GPUs: at least 20 / 2 = 10 (the optimum is 12).
    five = make.instance([Job(SINGLE, 0)] * 5, on=make.cluster(2))
    assert energetic.bound(five, Objective.MAKESPAN) == 10


def test_energetic_confines_work_to_the_kind_that_can_do_it() -> None:
    # Three tasks of 4 us that only the one GPU of kind A can run: 12, though two GPUs stand there.
    two = Cluster((make.gpu(0, kind="A"), make.gpu(1, kind="B")), make.network())
    only_a = make.chain(make.task("a", {"A": 4}))
    assert energetic.bound(make.instance([Job(only_a, 0)] * 3, on=two), Objective.MAKESPAN) == 12


def test_energetic_largest_slowdown_of_equal_tasks() -> None:
    # Three tasks of 4 us on one GPU: the last ends at 12, slowdown 3; every slowdown below 11/4 leaves less than
    # 12 us for all three, and ends are whole, so the refuted slowdowns reach up to 3.
    three = make.instance([Job(SINGLE, 0)] * 3)
    found = energetic.bound(three, Objective.MAX_SLOWDOWN)
    assert found is not None
    assert Fraction(299, 100) < found <= 3


def test_energetic_counts_the_jobs_that_do_not_fit_before_their_deadlines() -> None:
    # One GPU, four tasks of 4 us at 0, all due at 9: two fit, two are late. The same again from 100 on.
    burst = [Job(SINGLE, 0, deadline_us=9)] * 4
    assert energetic.bound(make.instance(burst), Objective.LATE_JOBS) == 2
    later = [Job(SINGLE, 100, deadline_us=9)] * 4
    assert energetic.bound(make.instance(burst + later), Objective.LATE_JOBS) == 4
    # A deadline below the run time is missed by everyone, whatever the others do.
    hopeless = [Job(SINGLE, 100, deadline_us=3)]
    assert energetic.bound(make.instance(burst + hopeless), Objective.LATE_JOBS) == 3


def test_energetic_tardiness_of_the_latest_job() -> None:
    # One GPU, three tasks of 4 us due at 4, weights 2: the last one ends at 12, 8 us late. (Optimum: 2 * (4 + 8).)
    jobs = [Job(SINGLE, 0, Fraction(2), 4)] * 3
    assert energetic.bound(make.instance(jobs), Objective.WEIGHTED_TARDINESS) == 16


@pytest.mark.parametrize("objective", list(Objective))
def test_the_best_closed_form_is_the_highest(objective: Objective) -> None:
    five = make.instance([Job(SINGLE, 0, deadline_us=5)] * 5, on=make.cluster(2))
    value, name = closed_form.best(five, objective)
    values = [method(five, objective) for method in closed_form.METHODS.values()]
    assert value == max(v for v in values if v is not None)
    assert closed_form.METHODS[name](five, objective) == value
