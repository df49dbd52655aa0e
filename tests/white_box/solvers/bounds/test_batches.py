"""Bounds where tasks come in batches, take shares of a GPU and hold memory: by hand, and against the oracle."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from experiments.benchmarks.bounds import least_ends
from tests.instances import chain, cluster, gpu, instance, random_instance, random_serving_instance, task
from tests.night import by_day
from truenorth.models import WHOLE, BatchClass, Instance, Job, Objective, Task
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.batch_work import BatchSize, BatchSizes, Work
from truenorth.solvers.bounds.certificate import closed_form_document, lagrangian_document
from truenorth.solvers.bounds.critical_path import earliest
from truenorth.solvers.bounds.lagrangian.ascent import Steps, ascend
from truenorth.solvers.bounds.lagrangian.batch_places import rank_bids
from truenorth.solvers.bounds.lagrangian.bidding import share_price
from truenorth.solvers.bounds.lagrangian.evaluation import Prices, exact_bound, no_prices, round_prices
from truenorth.solvers.bounds.lagrangian.improve import Priced
from truenorth.solvers.bounds.lagrangian.job_paths import PARTS
from truenorth.solvers.bounds.lagrangian.relaxation import Relaxation, fixed_parts, job_costs, relax
from truenorth.solvers.bounds.lagrangian.shapes import forest
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.exact import exhaustive
from truenorth.solvers.rounding import round_up

PAIRS = BatchClass("c", {"*": {1: 4, 2: 5}})
"""Alone 4 us, two together 5: each of two takes 2.5 us of a GPU."""


def members(batch: BatchClass, *releases: int, deadline_us: int | None = None, gpus: int = 1) -> Instance:
    """Return jobs of one task each, all of one class."""
    workflow = chain(Task.of_class("t", batch))
    return instance([Job(workflow, at, deadline_us=deadline_us) for at in releases], on=cluster(gpus))


def climb(
    built: Instance, objective: Objective, slot_us: int = 1, steps: int = 30, placed: bool = True
) -> Priced | None:
    """Return the Lagrangian bound at prices from a short ascent; None where there is no such bound."""
    costs = job_costs(built, objective)
    if costs is None or not len(costs.jobs):
        return None
    relaxation = relax(fixed_parts(built, costs, placed), slot_us, np.full(len(costs.jobs), 25))
    reached = ascend(relaxation, no_prices(relaxation), Steps(steps, 0.3, 0.01), lambda: True)
    prices = round_prices(Prices.split(reached.best, relaxation), relaxation)
    proved = exact_bound(relaxation, prices)
    assert proved is not None
    return Priced(round_up(built, objective, proved), relaxation, prices)


def relaxed(built: Instance, slot_us: int, window_us: int, placed: bool = True) -> Relaxation:
    """Return the relaxation of a mean latency."""
    costs = job_costs(built, Objective.MEAN_LATENCY)
    assert costs is not None
    return relax(fixed_parts(built, costs, placed), slot_us, np.full(len(costs.jobs), window_us))


def test_sizes_that_run_equally_long_are_one_and_none_is_larger_than_its_class() -> None:
    table = BatchClass("c", {"A": {1: 4, 2: 5, 4: 5, 8: 9}, "B": {1: 6}})
    on = replace(cluster(2), gpus=(gpu(0), gpu(1, kind="B")))
    built = instance([Job(chain(Task.of_class("t", table)), 0)] * 6, on=on)
    sizes = BatchSizes(built)
    assert sizes.on(0, 0) == [BatchSize(1, 1, 4), BatchSize(2, 4, 5), BatchSize(5, 6, 9)]
    assert sizes.on(0, 1) == [BatchSize(1, 1, 6)]
    # 4, 5 / 4 and 9 / 6 us: in parts of 1 / 12 us the rates are 12, 3 and 2, the least work 15.
    work = Work.of(built)
    assert (work.parts, work.runs[0], work.least) == (12, ((2, 9), (3, 5), (12, 4)), [15])


def test_mean_busy_time_counts_a_part_of_the_batch_and_a_run_alone() -> None:
    # Four tasks of 2.5 us work on one GPU: busy at 1.25, 3.75, 6.25 and 8.75 on average, each ends 4 / 2 later: mean 7.
    # The optimum is 5, 5, 10, 10.
    built = members(PAIRS, 0, 0, 0, 0)
    assert closed_form.METHODS["mean_busy_time"](built, Objective.MEAN_LATENCY) == 7
    assert exhaustive.solve(built, Objective.MEAN_LATENCY).value == Fraction(15, 2)


def test_energetic_counts_a_part_of_the_batch() -> None:
    # Four tasks of 2.5 us work: no plan ends before 10, and {2, 2} does. Due at 9, at least one is late.
    assert closed_form.METHODS["energetic"](members(PAIRS, 0, 0, 0, 0), Objective.MAKESPAN) == 10
    due = members(PAIRS, 0, 0, 0, 0, deadline_us=9)
    assert closed_form.METHODS["energetic"](due, Objective.LATE_JOBS) == 1


def test_fluid_takes_the_size_that_does_least_in_a_window() -> None:
    # Released at 0, due at 6, runs 4 alone and 5 in twos: in [1, 4) it does 3 alone, in twos 1 of the 3 us at 1/2 each.
    # Four jobs so need 6 of the 3 us there: one that is late saves 1.5, so two are.
    due = members(PAIRS, 0, 0, 0, 0, deadline_us=6)
    assert closed_form.METHODS["fluid"](due, Objective.LATE_JOBS) == 2
    assert exhaustive.solve(due, Objective.LATE_JOBS).value == 2


def test_a_batch_has_no_more_members_than_can_have_started() -> None:
    # Two classes, a task of each at 0 and at 50, 4 us alone and in twos. Nobody has company: 4 and 8, mean 6.
    one, other = (chain(Task.of_class("t", BatchClass(name, {"*": {1: 4, 2: 4}})), name=name) for name in "cd")
    built = instance([Job(workflow, at) for at in (0, 50) for workflow in (one, other)])
    assert relaxed(built, 1, 25).places.members[:, [0, 49, 50]].tolist() == [[1, 1, 2]] * 2
    found = climb(built, Objective.MEAN_LATENCY, steps=300)
    assert found is not None
    assert found.bound == 6
    # Where tasks do not bid, both pay the same. At 0 nobody has company, at 50 each may
    # believe in a batch of two, and both take 4: mean (4 + 8 + 4 + 4) / 4.
    assert [lane.starts_us for lane in forest(built, earliest(built), placed=False).lanes] == [(0, 50)]
    found = climb(built, Objective.MEAN_LATENCY, steps=300, placed=False)
    assert found is not None
    assert Fraction(19, 4) < found.bound <= 5


def test_a_larger_size_is_there_from_the_task_that_makes_it_up() -> None:
    built = members(BatchClass("c", {"*": {1: 4, 3: 6}}), 0, 7, 9)
    trees = forest(built, earliest(built), placed=False)
    assert (trees.shapes.run_us.tolist(), trees.shapes.from_us.tolist()) == ([4, 6], [0, 7])
    assert [lane.starts_us for lane in trees.lanes] == [(0,), (0, 7, 9)]


def test_those_who_would_pay_most_pay_for_a_batch() -> None:
    # Two at most, tasks come at 0, 0 and 2. In slots of 4 the first delay of the third lies in slots 0 and 1.
    built = members(BatchClass("c", {"*": {1: 4, 2: 5}}), 0, 0, 2)
    relaxation = relaxed(built, 4, 12)
    known = relaxation.data, relaxation.trees.shapes, relaxation.places, 4
    assert relaxation.places.members[1, :2].tolist() == [2, 2]
    delays, slots = int(relaxation.data.delays[0]), relaxation.slots
    bids, part = np.zeros((2, 3 * 2 * delays))
    pairs = [relaxation.places.first[job] + delays for job in range(3)]
    bids[pairs], bids[pairs[2]] = (6, 3, 1), 1
    top, total = np.zeros((2, slots, 2)), np.zeros((2, slots))
    rank_bids(*known, bids, top, total)
    assert (top[1, 0].tolist(), total[1, :3].tolist()) == ([6, 3], [9, 1, 0])
    share_price(*known, bids, top, total, part)
    # The third would pay less than both, and as much as the second takes nothing from anybody; in slot 1 it is alone.
    assert part[pairs].tolist() == [6 / 9, 3 / 9, 3 / 9]


def test_parts_that_add_up_to_more_are_scaled() -> None:
    built = members(BatchClass("c", {"*": {1: 4, 2: 5}}), 0, 0, 0)
    relaxation = relaxed(built, 4, 12)
    prices = Prices.zero(relaxation)
    pairs = [relaxation.places.first[job] + relaxation.data.delays[0] for job in range(3)]
    prices.parts[pairs] = 0.5, 0.75, 0.25
    assert round_prices(prices, relaxation).parts[pairs].tolist() == [PARTS * 2 // 5, PARTS * 3 // 5, PARTS // 5]


def test_bids_raise_the_bound_to_the_optimum() -> None:
    # One more every 9: four together take 13 for 4 x 10, but whoever waits for the fourth waits 27.
    releases = [9 * at for at in range(8)]
    built = members(BatchClass("c", {"*": {1: 10, 4: 13}}), *releases)
    reached = []
    for placed in (False, True):
        relaxation = relaxed(built, 1, 40, placed)
        reached.append(ascend(relaxation, no_prices(relaxation), Steps(600, 0.3, 0.01), lambda: True))
    alike, bids = reached
    least = float(Fraction(least_ends(built)[1] - sum(releases), 8) * relaxation.scale)
    assert alike.value < 0.97 * least
    assert 0.995 * least < bids.value < 1.000001 * least


@pytest.mark.parametrize("seed", range(4))
def test_bids_reach_the_programme_with_places_per_task(seed: int) -> None:
    # One class on one GPU, times in whole slots: the strong linear programme is exact there (PROBLEM.md, section 10).
    rng = random.Random(15_000 + seed)
    releases = sorted(rng.randrange(60) for _ in range(12))
    built = members(BatchClass("c", {"*": {1: 6, 2: 8, 3: 9, 4: 10}}), *releases)
    relaxation = relaxed(built, 1, 60)
    reached = ascend(relaxation, no_prices(relaxation), Steps(1000, 0.3, 0.002), lambda: True)
    least = float(Fraction(least_ends(built)[1] - sum(releases), 12) * relaxation.scale)
    assert 0.98 * least < reached.value < 1.000001 * least


def test_tampered_payments_prove_no_more_than_is_paid() -> None:
    built = members(PAIRS, 0, 0, 0, 1, 3)
    priced = climb(built, Objective.MEAN_LATENCY, steps=200)
    assert priced is not None
    sound = lagrangian_document(built, Objective.MEAN_LATENCY, priced)
    optimum = exhaustive.solve(built, Objective.MEAN_LATENCY).value
    assert optimum is not None
    paid = [(job, entry) for job, of_job in enumerate(sound["prices"]["places"]) for entry in range(len(of_job))]
    assert len(paid) >= 4
    refused, rng = 0, random.Random(0)
    for job, entry in paid * 8:
        document = _as_read(sound)
        parts = document["prices"]["places"][job][entry][3]
        at = rng.randrange(len(parts))
        parts[at] = rng.choice((0, parts[at] // 2, parts[at] + 1, PARTS))
        verdict = verify(built, document)
        refused += "for more than it costs" in (verdict.reason or "")
        assert verdict.lower_bound is None or verdict.lower_bound <= optimum
    assert refused > 4
    for junk in (
        [0, 1, 0, [PARTS + 1]],
        [0, 1, -1, [1]],
        [1, 1, 0, [1]],
        [0, 9, 0, [1]],
        [0, 1, 999, [1]],
        [0, 1, 0],
        1,
    ):
        document = _as_read(sound)
        document["prices"]["places"][0] = [junk]
        assert not verify(built, document).valid


@pytest.mark.parametrize("places", [None, [{"batch": 0, "gpu_class": 0, "fewest": 5}], [{}], []])
def test_places_of_other_batches_are_refused(places: object) -> None:
    priced = climb(members(PAIRS, 0, 0, 0), Objective.MEAN_LATENCY)
    assert priced is not None
    document = lagrangian_document(members(PAIRS, 0, 0, 0), Objective.MEAN_LATENCY, priced)
    assert verify(members(PAIRS, 0, 0, 0), document).valid
    document["parameters"]["places"] = places
    assert not verify(members(PAIRS, 0, 0, 0), document).valid


def test_working_memory_has_a_price() -> None:
    # Six tasks of share 0.1 that hold 5 of 10 bytes: two at a time, so 4, 4, 8, 8, 12, 12. Compute alone allows 4.
    holding = Task("t", {"*": 4}, share=WHOLE // 10, memory_bytes=5)
    built = instance([Job(chain(holding), 0)] * 6)
    found = climb(built, Objective.MEAN_LATENCY, steps=200)
    assert found is not None
    assert Fraction(15, 2) < found.bound <= 8
    assert verify(built, _as_read(lagrangian_document(built, Objective.MEAN_LATENCY, found))).lower_bound == found.bound


def test_batches_of_jobs_that_cost_nothing_are_known_to_the_verifier() -> None:
    # Two jobs have no deadline, and their batch nobody who pays; the third is due before it can end.
    late = Job(chain(task("t", 5), name="v"), 0, deadline_us=2)
    free = chain(Task.of_class("t", PAIRS))
    built = instance([Job(free, 0), Job(free, 0), late])
    priced = climb(built, Objective.WEIGHTED_TARDINESS)
    assert priced is not None
    document = _as_read(lagrangian_document(built, Objective.WEIGHTED_TARDINESS, priced))
    assert document["parameters"]["places"]
    assert verify(built, document).lower_bound == priced.bound


def _as_read(document: object) -> Any:
    return json.loads(json.dumps(document))


@pytest.mark.parametrize("seed", by_day(range(30), 5))
def test_no_bound_exceeds_the_optimum_and_the_verifier_finds_the_same(seed: int) -> None:
    rng = random.Random(11_000 + seed)
    built = random_serving_instance(rng, rng.choice((3, 4)), restricted=seed % 3 == 0)
    for objective in Objective:
        optimum = exhaustive.solve(built, objective).value
        documents = {}
        for name, method in closed_form.METHODS.items():
            value = method(built, objective)
            if value is not None:
                value = round_up(built, objective, value)
                documents[name] = value, closed_form_document(built, objective, name, value)
        # Every fifth as in a short time for many tasks, which do not bid then.
        priced = climb(built, objective, 1 + seed % 3, placed=seed % 5 > 0)
        if priced is not None:
            documents["lagrangian"] = priced.bound, lagrangian_document(built, objective, priced)
        for name, (value, document) in documents.items():
            verdict = verify(built, _as_read(document))
            assert (verdict.reason, verdict.lower_bound) == (None, value), (name, objective)
            assert optimum is None or value <= optimum, (name, objective)


@pytest.mark.parametrize("seed", by_day(range(12), 4))
def test_a_class_of_single_tasks_is_a_plain_task(seed: int) -> None:
    rng = random.Random(12_000 + seed)
    plain = random_instance(rng, 6)
    served = _replace_tasks(
        plain,
        lambda task: Task.of_class(
            task.name,
            BatchClass(f"{task.name} {sorted(task.runtime_us.items())} {task.models}", _single(task), task.models),
            task.inputs,
        ),
    )
    for objective in Objective:
        for method in closed_form.METHODS.values():
            assert method(served, objective) == method(plain, objective)
        as_class, as_task = climb(served, objective), climb(plain, objective)
        if as_class is not None and as_task is not None:
            assert as_class.bound == as_task.bound


def _single(task: Task) -> dict[str, dict[int, int]]:
    return {kind: {1: run_us} for kind, run_us in task.runtime_us.items()}


def _replace_tasks(built: Instance, change: Callable[[Task], Task]) -> Instance:
    """Return an instance with other tasks in place of its own."""
    changed = {id(w): replace(w, tasks=tuple(change(task) for task in w.tasks)) for w in built.workflows}
    ids = [id(workflow) for workflow in built.workflows]
    jobs = zip(built.jobs, built.job_workflow.tolist(), strict=True)
    return replace(built, jobs=tuple(replace(job, workflow=changed[ids[index]]) for job, index in jobs))


@pytest.mark.parametrize("seed", by_day(range(12), 4))
def test_shares_of_one_gpu_are_as_many_gpus(seed: int) -> None:
    # Tasks of share 1 / k on one GPU against whole ones on k, nothing to load and nothing to send.
    rng = random.Random(13_000 + seed)
    gpus = rng.choice((2, 4, 5))
    flows = [chain(*(task(f"t{i}", rng.randint(1, 9)) for i in range(rng.randint(1, 2))), name=f"w{w}") for w in "ab"]
    due = [rng.choice((None, rng.randint(4, 15))) for _ in range(8)]
    jobs = [Job(rng.choice(flows), at, deadline_us=due[at]) for at in range(8)]
    many = instance(jobs, on=cluster(gpus))
    one = replace(_replace_tasks(many, lambda task: replace(task, share=WHOLE // gpus)), cluster=cluster(1))
    for objective in Objective:
        for method in closed_form.METHODS.values():
            assert method(one, objective) == method(many, objective)


@pytest.mark.parametrize("seed", range(4))
def test_no_bound_exceeds_the_optimum_of_forty_tasks_of_one_class(seed: int) -> None:
    rng = random.Random(14_000 + seed)
    times = list(accumulate((rng.randint(3, 9), *(rng.randint(0, 3) for _ in range(5)))))
    table = {size: times[size - 1] for size in sorted({1, *rng.sample(range(2, 7), 3)})}
    releases = sorted(rng.randrange(120) for _ in range(40))
    built = members(BatchClass("c", {"*": table}), *releases)
    makespan, completions = least_ends(built)
    mean = Fraction(completions - sum(releases), len(releases))
    for objective, optimum in ((Objective.MAKESPAN, Fraction(makespan)), (Objective.MEAN_LATENCY, mean)):
        for name, method in closed_form.METHODS.items():
            value = method(built, objective)
            assert value is None or value <= optimum, name
        priced = climb(built, objective, 2, 100)
        assert priced is None or priced.bound <= optimum


@pytest.mark.parametrize("junk", [None, True, 0, -1, 1 << 70, "x", [], 2.5, 1, 7])
def test_other_parts_prove_no_more(junk: object) -> None:
    built = members(PAIRS, 0, 0, 0, 0)
    document = closed_form_document(built, Objective.MAKESPAN, "energetic", Fraction(10))
    assert document["parameters"]["parts"] == 2
    document["parameters"]["parts"] = junk
    verdict = verify(built, document)
    assert verdict.lower_bound is None or verdict.lower_bound <= 10


def test_very_long_runs_are_counted_in_fewer_parts() -> None:
    # 10^15 us and sevenths of them: sums of exact parts would outgrow 64 bits, rounded ones prove nearly as much.
    long = BatchClass("c", {"*": {1: 10**15, 7: 10**15 + 1}}, share=3_333)
    built = members(long, *[0] * 300)
    bound = closed_form.METHODS["energetic"](built, Objective.MAKESPAN)
    assert bound is not None
    assert 10**15 <= bound <= 300 * 10**15 * 3_333 / WHOLE / 7
    document = closed_form_document(built, Objective.MAKESPAN, "energetic", bound)
    assert verify(built, _as_read(document)).lower_bound == bound
