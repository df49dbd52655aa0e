"""Refutations, against what docs/certificate.md says that a start order in time is, and against the oracle."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import pytest

from tests.instances import chain, cluster, gpu, instance, network, random_instance, task
from tests.night import by_day
from truenorth.models import NEVER, Cluster, Instance, Job, Objective, Placement, Timeline, scenario_hash
from truenorth.models.objective import reported_bound, timeline_value
from truenorth.solvers.bounds import refutation
from truenorth.solvers.bounds.alone import LoneJobs
from truenorth.solvers.bounds.effort import Effort, TooLargeError
from truenorth.solvers.bounds.refutation import OBJECTIVES, Refutation, applies, refute
from truenorth.solvers.bounds.refuted_terms import DueWindows, Energies
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.exact import exhaustive
from truenorth.solvers.exact.refute import improve as refute_plan
from truenorth.solvers.result import Search

Site = tuple[int, int, frozenset[int]]
"""Of a GPU: when it is free, how long it has loaded (and run), and what it holds."""


def plenty() -> Effort:
    return Effort(1 << 60)


def is_in_time(built: Instance, due_us: dict[int, int]) -> bool:
    """Say whether some start order ends every task in time, of all that there are."""
    alone, gpus, tasks = LoneJobs(built), range(built.n_gpus), [t for job in due_us for t in built.tasks_of(job)]
    kind, weight = built.gpu_class.tolist(), built.weight_bytes.tolist()
    head = {t: at for job in due_us for t, at in zip(built.tasks_of(job), alone.times(job)[0], strict=True)}
    last = {t: due_us[int(built.task_job[t])] - alone.tail[built.task_template[t]] for t in tasks}
    held = [{there.model for there in built.initial if kind[there.gpu] == kind[g]} for g in gpus]
    rooms = [sum(built.cluster.gpus[g].slots) or built.cluster.gpus[g].memory_bytes for g in gpus]

    def gap(edge: int, a: int, b: int) -> int:
        pairs = [(g, h) for g in gpus for h in gpus if g != h and (kind[g], kind[h]) == (a, b)]
        return min(built.transfer_time(edge, g, h) for g, h in pairs)

    def grow(started: dict[int, tuple[int, int]], of: tuple[Site, ...], now: int) -> Iterator[bool]:
        if len(started) == len(tasks):
            yield True
        for t in set(tasks) - set(started):
            inputs = list(built.task_inputs(t))
            if any(p not in started for p, _ in inputs):
                continue
            for g in gpus:
                run = int(built.run_us[built.task_template[t], kind[g]])
                if run == NEVER:
                    continue
                free, busy, kept = of[g]
                needs = frozenset(built.task_needs(t)) - held[g]
                for count in range(len(kept - needs) + 1):
                    for more in combinations(sorted(kept - needs), count):
                        holds = needs | set(more)
                        if sum(weight[m] for m in holds) > rooms[g]:
                            continue
                        loads = busy + sum(built.load_time(m, g) for m in holds - kept)
                        sent = [
                            started[p][0] + (0 if started[p][1] == g else gap(edge, kind[started[p][1]], kind[g]))
                            for p, edge in inputs
                        ]
                        start = max(now, free, head[t], loads, *sent)
                        if start + run <= last[t]:
                            after = start + run, loads + (0 if built.overlap_loads else run), frozenset(holds)
                            here = (*of[:g], after, *of[g + 1 :])
                            yield from grow({**started, t: (start + run, g)}, here, start)

    return any(grow({}, ((0, 0, frozenset()),) * built.n_gpus, 0))


def weights_of(rng: random.Random, built: Instance) -> list[list[int]]:
    return [[rng.randint(0, 5) for _ in built.class_gpu] for _ in range(rng.choice((0, 0, 1, 2)))]


@pytest.mark.parametrize("begin", by_day(range(0, 200, 50), 2))
def test_it_refutes_what_no_start_order_meets_and_nothing_else(begin: int) -> None:
    compared = refuted = 0
    for seed in range(begin, begin + 50):
        rng = random.Random(seed)
        built = random_instance(rng, max_tasks=4)
        if not applies(built, Objective.MAKESPAN):
            continue
        alone = LoneJobs(built)
        ends = [max(alone.times(job)[1]) for job in range(len(built.jobs))]
        for _ in range(3):
            due_us = {job: end + rng.choice((0, 1, 2, 4, 8)) for job, end in enumerate(ends) if rng.random() < 0.9}
            if due_us:
                windows = DueWindows.of(built, alone, due_us)
                rows = [[1] * len(built.class_gpu), *weights_of(rng, built)]
                found = Refutation(windows, Energies.of(windows, rows), plenty()).holds()
                assert found == (not is_in_time(built, due_us)), (seed, due_us)
                compared, refuted = compared + 1, refuted + found
    assert compared > 80
    assert 15 < refuted < compared - 15


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_optimum_lies_below_what_is_refuted(objective: Objective) -> None:
    met = 0
    for seed in range(50):
        rng = random.Random(seed)
        built = random_instance(rng, max_tasks=3)
        plan = exhaustive.solve(built, objective).timeline if applies(built, objective) else None
        if plan is None:
            continue
        optimum = timeline_value(objective, built, plan)
        for more in (Fraction(1, 3), 1, 2):
            assert not refute(built, objective, optimum + more, weights_of(rng, built), plenty()), (seed, more)
        met += bool(optimum) and refute(built, objective, optimum, weights_of(rng, built), plenty())
    assert met > 5


def test_tasks_that_need_nothing_but_a_gpu_are_started_in_one_order() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        kinds = ["A", "B", "A"][: rng.randint(1, 3)]
        release_us = sorted(rng.choice((0, 0, rng.randint(0, 6))) for _ in range(5))
        runs = [{kind: rng.randint(1, 9) for kind in "AB"} for _ in release_us]
        jobs = [Job(chain(task("t", run)), at) for at, run in zip(release_us, runs, strict=True)]
        on = Cluster(tuple(gpu(index, kind=kind) for index, kind in enumerate(kinds)), network())
        # Nobody is due before the others: on each GPU the order of release is best.
        optimum = min(
            max(makespan([(at, run) for at, run, g in zip(release_us, runs, where, strict=True) if g == h], kind)
                for h, kind in enumerate(kinds))
            for where in product(range(len(kinds)), repeat=len(jobs))
        )  # fmt: skip
        built = instance(jobs, on=on)
        for weights in ([], weights_of(rng, built)):
            assert refute(built, Objective.MAKESPAN, Fraction(optimum), weights, plenty())
            assert not refute(built, Objective.MAKESPAN, Fraction(optimum + 1), weights, plenty())


def makespan(tasks: list[tuple[int, dict[str, int]]], kind: str) -> int:
    end_us = 0
    for release_us, run_us in tasks:
        end_us = max(end_us, release_us) + run_us[kind]
    return end_us


# By hand


def paging(overlap: bool = False) -> Instance:
    """Three tasks of 10 us on a GPU that holds two of three models, each loaded in 3 us: a and b, b and c, a and c."""
    jobs = [Job(chain(task(needs, 10, tuple(needs)), name=needs), 0) for needs in ("ab", "bc", "ac")]
    on = cluster(memory_bytes=2, load_bandwidth=Fraction(10**6, 3))
    return instance(jobs, dict.fromkeys("abc", 1), on, overlap_loads=overlap)


def test_models_that_do_not_fit_together_are_loaded_anew() -> None:
    # Two loads, then one for each of the next two tasks: 3 x 10 + 4 x 3 = 42.
    assert refute(paging(), Objective.MAKESPAN, Fraction(42), [], plenty())
    assert not refute(paging(), Objective.MAKESPAN, Fraction(43), [], plenty())
    # Beside runs only the first two loads are waited for, as if there were room for the others.
    assert refute(paging(overlap=True), Objective.MAKESPAN, Fraction(36), [], plenty())
    assert not refute(paging(overlap=True), Objective.MAKESPAN, Fraction(37), [], plenty())


def test_each_model_may_load_fastest_on_a_kind_of_its_own() -> None:
    # 10 bytes take 11 us on A and 10 us on B, 100 bytes 20 and 100: 20 + 1 on A and 10 + 11 on B, both until 21.
    few, many = task("few", {"A": 50, "B": 11}, ["few"]), task("many", {"A": 1, "B": 50}, ["many"])
    a = gpu(0, memory_bytes=110, load_bandwidth=Fraction(10**7), load_overhead_us=10)
    on = Cluster((a, gpu(1, kind="B", memory_bytes=110)), network())
    built = instance([Job(chain(few), 0), Job(chain(many), 0)], {"few": 10, "many": 100}, on, overlap_loads=False)
    assert refute(built, Objective.MAKESPAN, Fraction(21), [], plenty())
    assert not refute(built, Objective.MAKESPAN, Fraction(22), [], plenty())


def test_a_weight_per_kind_shows_at_once_what_no_single_kind_does(monkeypatch: pytest.MonkeyPatch) -> None:
    # Three tasks take 4 us on A and 8 us on B each: with a us on A counting twice, 24 of 3 V. Alike: 12 of 2 V.
    jobs = [Job(chain(task("t", {"A": 4, "B": 8})), 0) for _ in range(3)]
    built = instance(jobs, on=Cluster((gpu(0, kind="A"), gpu(1, kind="B")), network()))
    monkeypatch.setattr(Refutation, "_grow", None)
    assert refute(built, Objective.MAKESPAN, Fraction(8), [[2, 1]], plenty())
    with pytest.raises(TypeError):
        refute(built, Objective.MAKESPAN, Fraction(8), [], plenty())


def test_so_few_are_late_only_if_all_others_are_on_time() -> None:
    # Five tasks of 10 us on one GPU, due at 25: two are on time. The sixth is late even alone.
    jobs = [Job(chain(task("t", 10)), 0, deadline_us=25) for _ in range(5)]
    jobs += [Job(chain(task("t", 10)), 0, deadline_us=9), Job(chain(task("t", 10)), 0)]
    assert refute(instance(jobs), Objective.LATE_JOBS, Fraction(4), [], plenty())
    assert refute(instance(jobs), Objective.LATE_JOBS, Fraction(7, 2), [], plenty())
    assert not refute(instance(jobs), Objective.LATE_JOBS, Fraction(5), [], plenty())
    assert not refute(instance(jobs), Objective.LATE_JOBS, Fraction(100), [], plenty())


def test_late_jobs_that_weigh_less_are_given_up_whichever_they_are() -> None:
    # Due at 25 as above: of 1, 1, 2, 4 and 8 the lightest three are late, 4 in all, beside 3 that are late even alone.
    jobs = [Job(chain(task("t", 10)), 0, Fraction(weight), 25) for weight in (1, 2, 8, 1, 4)]
    jobs += [Job(chain(task("t", 10)), 0, Fraction(3), 9), Job(chain(task("t", 10)), 0)]
    assert refute(instance(jobs), Objective.LATE_JOBS, Fraction(7), [], plenty())
    assert refute(instance(jobs), Objective.LATE_JOBS, Fraction(13, 2), [], plenty())
    assert not refute(instance(jobs), Objective.LATE_JOBS, Fraction(15, 2), [], plenty())


def test_slowdowns_are_refuted_below_a_fraction() -> None:
    # Tasks of 3 us and 4 us: the first ends at 3, the other at 7 = 7/4 of 4; the other way 4/4 and 7/3.
    jobs = [Job(chain(task("t", 3), name="a"), 0), Job(chain(task("t", 4), name="b"), 0)]
    assert refute(instance(jobs), Objective.MAX_SLOWDOWN, Fraction(7, 4), [], plenty())
    assert not refute(instance(jobs), Objective.MAX_SLOWDOWN, Fraction(7001, 4000), [], plenty())


# Certificates


def by_hand(least: int = 42, **changes: Any) -> dict[str, Any]:
    critical_path = {"method": "critical_path", "parameters": {}, "prices": {}}
    return {
        "schema_version": 1,
        "scenario_hash": scenario_hash(paging()),
        "objective": "makespan",
        "method": "refutation",
        "lower_bound": reported_bound(Objective.MAKESPAN, Fraction(least)),
        "parameters": {"least": least, "scale": 1},
        "prices": {"weights": [[3]]},
        "otherwise": critical_path,
    } | changes


def test_what_is_refuted_is_proved() -> None:
    verdict = verify(paging(), by_hand())
    assert (verdict.valid, verdict.lower_bound, verdict.how) == (True, Fraction(42), "refutation")
    # Between two whole numbers no makespan lies.
    verdict = verify(paging(), by_hand(parameters={"least": 83, "scale": 2}))
    assert (verdict.valid, verdict.lower_bound) == (True, Fraction(42))


def test_what_is_not_refuted_counts_what_is_said_otherwise() -> None:
    # Alone a task ends after two loads of 3 us and its run of 10 us.
    verdict = verify(paging(), by_hand(43))
    assert not verdict.valid
    assert verdict.lower_bound == 16
    assert verdict.how == "critical_path (refutation: a start order is in time)"
    claim = reported_bound(Objective.MAKESPAN, Fraction(16))
    assert verify(paging(), by_hand(43, lower_bound=claim)).valid
    bare = by_hand(43, lower_bound=claim)
    del bare["otherwise"]
    assert verify(paging(), bare).lower_bound == 0


def test_effort_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refutation, "MOST_EFFORT", 500_010)
    verdict = verify(paging(), by_hand())
    assert (verdict.valid, verdict.how) == (False, "critical_path (refutation: too many states)")


def test_states_beyond_memory_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refutation, "_MOST_CELLS", 10)
    with pytest.raises(TooLargeError, match="too many states"):
        refute(paging(), Objective.MAKESPAN, Fraction(42), [], plenty())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"parameters": {"least": 0, "scale": 1}}, "least must be a whole number from 1"),
        ({"parameters": {"least": 42, "scale": 0}}, "scale must be a whole number from 1"),
        ({"parameters": {"least": 42.0, "scale": 1}}, "least must be a whole number"),
        ({"parameters": {"least": True, "scale": 1}}, "least must be a whole number"),
        ({"parameters": {"least": 42}}, "scale is missing"),
        ({"parameters": []}, "scale is missing"),
        ({"prices": {}}, "weights is missing"),
        ({"prices": {"weights": [[1, 1]]}}, "weights must be a list of 1"),
        ({"prices": {"weights": [[-1]]}}, "weights must be a whole number"),
        ({"prices": {"weights": [[1]] * 65}}, "weights must be a list of at most 64"),
        ({"objective": "mean_latency"}, "refutation is for maxima and late jobs"),
        ({"parameters": {"least": 43, "scale": 1}, "otherwise": {"method": "refutation"}}, "parameters is missing"),
        ({"parameters": {"least": 43, "scale": 1}, "otherwise": 7}, "method is missing"),
    ],
)
def test_what_is_no_refutation_is_refused(change: dict[str, Any], reason: str) -> None:
    verdict = verify(paging(), by_hand() | change)
    assert not verdict.valid
    assert reason in str(verdict.reason)


def test_a_refutation_cannot_be_proved_by_another() -> None:
    inner = {key: by_hand(43)[key] for key in ("method", "parameters", "prices")}
    verdict = verify(paging(), by_hand(43, otherwise=inner))
    assert (verdict.valid, verdict.reason) == (False, "method is none that proves a part")


def test_huge_numbers_prove_nothing_and_take_no_time() -> None:
    verdict = verify(paging(), by_hand(parameters={"least": 1 << 60, "scale": 1}))
    assert (verdict.valid, verdict.how) == (False, "critical_path (refutation: times are too large)")
    verdict = verify(
        paging(), by_hand(objective="max_slowdown", parameters={"least": 1 << 60, "scale": 1}, lower_bound=2)
    )
    assert (verdict.valid, verdict.how) == (False, "critical_path (refutation: times are too large)")
    verdict = verify(paging(), by_hand(parameters={"least": 1, "scale": 1 << 60}, lower_bound=0))
    assert (verdict.valid, verdict.lower_bound) == (True, Fraction(1))


def test_no_edit_raises_and_none_claims_more_than_is_true() -> None:
    rng, honest = random.Random(0), by_hand()
    for _ in range(300):
        document = copy.deepcopy(honest)
        where = rng.choice((document, document["parameters"], document["prices"]))
        key = rng.choice(list(where))
        where[key] = rng.choice((None, -1, 0, 1, 41, 43, 1 << 61, 1.5, "x", [], [[]], {}, [[0]], [[1 << 20]], True))
        verdict = verify(paging(), document)
        assert verdict.lower_bound is None or verdict.lower_bound <= 42
        if verdict.valid:
            assert Fraction(document["lower_bound"]) <= Fraction(42, 10**6)


# What is written


@pytest.mark.parametrize("objective", [Objective.MAKESPAN, Objective.MAX_SLOWDOWN])
def test_whatever_is_written_is_proved_again(objective: Objective) -> None:
    met = written = 0
    for seed in range(40):
        built = random_instance(random.Random(seed), max_tasks=3)
        plan = exhaustive.solve(built, objective).timeline
        if plan is None:
            continue
        search = Search(built, objective, 1e9, writes=True)
        search.offer(plan)
        refute_plan(search, 1e9)
        if search.written is not None:
            verdict = verify(built, json.loads(json.dumps(search.written[1])))
            assert (verdict.valid, verdict.lower_bound, verdict.how) == (True, search.written[0], "refutation"), seed
            assert search.bound == search.written[0]
            written, met = written + 1, met + search.proved
    assert written
    assert met


def test_a_late_job_is_refuted_though_no_formula_knows_of_it() -> None:
    jobs = [replace(job, deadline_us=41) for job in paging().jobs]
    built = replace(paging(), jobs=tuple(jobs))
    search = Search(built, Objective.LATE_JOBS, 1e9, writes=True)
    plan = exhaustive.solve(built, Objective.LATE_JOBS).timeline
    assert plan is not None
    search.offer(plan)
    refute_plan(search, 1e9)
    assert (search.value, search.bound, search.bound_method) == (Fraction(1), Fraction(1), "refutation")


def test_where_a_plan_is_not_the_best_the_highest_value_that_can_be_is_refuted() -> None:
    jobs = [Job(chain(task("t", 10 + each), name=f"w{each}"), 0) for each in range(8)]
    built = instance(jobs, on=cluster(2))
    search = Search(built, Objective.MAKESPAN, 1e9, writes=True)
    # 10 + 12 + 14 + 16 and 11 + 13 + 15 + 17: the halves of 108 are 54.
    ends_us, placements = [0, 0], list[Placement]()
    for each in range(8):
        start_us = ends_us[each % 2]
        ends_us[each % 2] = start_us + 10 + each
        placements.append(Placement(each, each % 2, start_us, ends_us[each % 2]))
    search.offer(Timeline.build(8, placements, ()))
    assert search.value == 56
    refute_plan(search, 1e9)
    # Energetic reasoning has proved that: nothing is left to refute.
    assert (search.bound, search.written) == (None, None)
