"""Certificates whose bound is a sum over parts: what is accepted is true, whatever stands in the file."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from tests.instances import chain, cluster, gpu, instance, network, random_instance, task
from tests.night import by_day
from tests.white_box.solvers.bounds.test_certificate import JUNK, _places, certified
from tests.white_box.solvers.test_start_orders import SUMS as ORDERED
from tests.white_box.solvers.test_start_orders import early_prices
from truenorth.models import Cluster, Instance, Job, Objective, scenario_hash
from truenorth.models.objective import reported_bound
from truenorth.solvers.bounds import closed_form, part_sums
from truenorth.solvers.bounds.certificate import closed_form_document, parts_document
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.exact import exhaustive, parts, start_orders
from truenorth.solvers.result import Search
from truenorth.solvers.search.dispatch import greedy
from truenorth.solvers.tuning import Tuning

SUMS = [objective for objective in Objective if objective.is_sum]


def apart() -> Instance:
    """Return jobs of 4, 4 and 2 us on one GPU at 0, 1 and 20: latencies 4, 7 and 2 at least."""
    runs = [(4, 0), (4, 1), (2, 20)]
    return instance([Job(chain(task("t", run), name=f"w{run}"), release) for run, release in runs])


def by_hand() -> dict[str, Any]:
    """Return a certificate of these: in the first part 11 us of latency for two jobs, in the second the path."""
    orders = {
        "first_job": 0,
        "method": "start_orders",
        "parameters": {"scale": 2, "least": 11, "slot_us": 2, "first_slot": 1},
        "prices": {"compute": [1, 1]},
        "otherwise": {"method": "critical_path", "parameters": {}, "prices": {}},
    }
    path = {"first_job": 2, "method": "critical_path", "parameters": {}, "prices": {}}
    return parts_document(apart(), Objective.MEAN_LATENCY, Fraction(13, 3), [orders, path])


def edited(document: dict[str, Any], *path: Any) -> dict[str, Any]:
    """Return a copy with another value at a path, whose last entry it is."""
    changed = copy.deepcopy(document)
    inside: Any = changed
    for key in path[:-2]:
        inside = inside[key]
    inside[path[-2]] = path[-1]
    return changed


def test_parts_add_up_in_their_shares() -> None:
    verdict = verify(apart(), json.loads(json.dumps(by_hand())))
    assert verdict.valid
    assert verdict.lower_bound == Fraction(4 + 7 + 2, 3) == exhaustive.solve(apart(), Objective.MEAN_LATENCY).value
    assert verdict.how == "2 parts: 1 by start_orders, 1 by critical_path"


def test_of_start_orders_no_more_counts_than_is_so() -> None:
    claimed = edited(by_hand(), "parameters", "parts", 0, "parameters", "least", 1 << 59)
    assert verify(apart(), claimed).lower_bound == Fraction(13, 3)
    less = edited(by_hand(), "parameters", "parts", 0, "parameters", "least", 9)
    verdict = verify(apart(), less)
    assert not verdict.valid
    assert verdict.lower_bound == Fraction(9 + 2, 3)


def test_what_is_too_large_counts_what_is_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_sums, "MOST_EFFORT", 0)
    verdict = verify(apart(), by_hand())
    assert verdict.lower_bound == Fraction(4 + 4 + 2, 3)
    assert verdict.how == "2 parts: 1 by critical_path (start orders: too many states), 1 by critical_path"
    assert (
        verdict.reason
        == f"claims {13e-6 / 3}, but only {reported_bound(Objective.MEAN_LATENCY, Fraction(10, 3))} is proved"
    )
    alone = by_hand()
    del alone["parameters"]["parts"][0]["otherwise"]
    assert verify(apart(), alone).lower_bound == Fraction(2, 3)


PARTS = by_hand()["parameters"]["parts"]
REFUSED = [
    ([], "parts must be a list of 1 to 3"),
    (PARTS * 2, "parts must be a list of 1 to 3"),
    (PARTS[1:], "first_job must be 0 in the first part, and larger in every next one"),
    (PARTS[::-1], "first_job must be 0 in the first part, and larger in every next one"),
    ([PARTS[0], PARTS[0]], "first_job must be 0 in the first part, and larger in every next one"),
    ([PARTS[0], PARTS[1] | {"first_job": 3}], "first_job must be a whole number from 0 to 2"),
    ([PARTS[0], PARTS[1] | {"first_job": 1.0}], "first_job must be a whole number from 0 to 2"),
    ([PARTS[0], PARTS[1] | {"method": "parts"}], "part from job 2: method is none that proves a part"),
    ([PARTS[0], PARTS[1] | {"method": "fluid"}], "part from job 2: fluid does not bound mean_latency"),
    ([PARTS[0], 3], "first_job is missing"),
]


@pytest.mark.parametrize(("listed", "reason"), REFUSED)
def test_parts_that_are_none_are_refused(listed: list[Any], reason: str) -> None:
    assert verify(apart(), edited(by_hand(), "parameters", "parts", listed)).reason == reason


HOSTILE = [
    ("parameters", "scale", 0, "scale must be a whole number from 1 to 1152921504606846976"),
    ("parameters", "least", 1 << 61, "least must be a whole number from 0 to 1152921504606846976"),
    ("parameters", "slot_us", 1 << 61, "slot_us is too large for so many slots"),
    ("parameters", "first_slot", -1, f"first_slot must be a whole number from 0 to {1 << 62}"),
    ("prices", "compute", [1, -1], "compute must be a whole number from 0 to 1152921504606846976"),
    ("prices", "compute", {}, "compute must be a list"),
]


@pytest.mark.parametrize(("where", "key", "value", "reason"), HOSTILE)
def test_start_orders_that_are_none_are_refused(where: str, key: str, value: Any, reason: str) -> None:
    changed = edited(by_hand(), "parameters", "parts", 0, where, key, value)
    assert verify(apart(), changed).reason == f"part from job 0: {reason}"


@pytest.mark.parametrize(
    ("key", "value"),
    [("first_slot", 1 << 59), ("slot_us", 1 << 58), ("scale", 1 << 60)],
)
def test_huge_numbers_prove_nothing_and_take_no_time(key: str, value: int) -> None:
    verdict = verify(apart(), edited(by_hand(), "parameters", "parts", 0, "parameters", key, value))
    assert verdict.lower_bound is not None
    assert verdict.lower_bound <= Fraction(13, 3)


def test_start_orders_are_refused_where_they_bound_nothing() -> None:
    two_kinds = replace(apart(), cluster=Cluster((gpu(0), gpu(1, kind="B")), network()))
    said = verify(two_kinds, by_hand() | {"scenario_hash": scenario_hash(two_kinds)}).reason
    assert (
        said == "part from job 0: start orders are proved on GPUs of one class only, always there, one task at a time"
    )
    assert (
        verify(apart(), by_hand() | {"objective": "late_jobs"}).reason
        == "part from job 0: start orders do not bound late_jobs"
    )


def test_a_maximum_is_no_sum_over_parts() -> None:
    assert verify(apart(), by_hand() | {"objective": "makespan"}).reason == "makespan is no sum over parts"


def random_parts(rng: random.Random, built: Instance, objective: Objective) -> dict[str, Any]:
    """Return a certificate with cuts, methods and prices drawn at random, that claims what it may or too much."""
    count = len(built.jobs)
    firsts = [0, *sorted(rng.sample(range(1, count), rng.randint(0, count - 1)))]
    listed = []
    for first, end in zip(firsts, [*firsts[1:], count], strict=True):
        part = replace(built, jobs=built.jobs[first:end])
        best, method = closed_form.best(part, objective)
        written = closed_form_document(part, objective, method, best)
        priced = certified(part, objective, rng.randint(1, 3), 5) if rng.random() < 0.3 else None
        if priced is not None:
            written = priced[0]
        proof = {key: written[key] for key in ("method", "parameters", "prices")}
        if rng.random() < 0.7 and start_orders.applies(part, objective):
            scale = rng.choice((1, 60, 5040))
            orders = {"scale": scale, "least": rng.choice((1, 20 * scale, 1 << 50)), "slot_us": rng.randint(1, 4)}
            compute = [rng.randint(0, scale) for _ in range(rng.randint(0, 20))]
            proof = {
                "method": "start_orders",
                "parameters": orders | {"first_slot": rng.randint(0, 3)},
                "prices": {"compute": compute},
                "otherwise": proof,
            }
        listed.append({"first_job": first} | proof)
    return parts_document(built, objective, Fraction(0), listed)


@pytest.mark.parametrize("begin", by_day(range(0, 120, 30), 1))
@pytest.mark.parametrize("objective", SUMS)
def test_no_sum_over_parts_exceeds_the_optimum(objective: Objective, begin: int) -> None:
    ordered = 0
    for seed in range(begin, begin + 30):
        rng = random.Random(40_000 + seed)
        built = random_instance(rng, max_tasks=5, restricted=rng.random() < 0.3)
        best = exhaustive.solve(built, objective).value
        verdict = verify(built, random_parts(rng, built, objective))
        assert verdict.valid, verdict.reason
        assert verdict.lower_bound is not None
        assert best is None or verdict.lower_bound <= best
        ordered += "start_orders" in str(verdict.how)
    assert ordered >= 5 or objective in (Objective.LATE_JOBS, Objective.WEIGHTED_TARDINESS)


def test_no_edit_raises_and_none_claims_more_than_is_true() -> None:
    document, optimum = json.loads(json.dumps(by_hand())), Fraction(13, 3)
    edits = 0
    for place in list(_places(document)):
        for junk in [*JUNK, 1, 2, 5, 12, 1 << 60]:
            verdict = verify(apart(), edited(document, *place, junk))
            edits += 1
            assert verdict.lower_bound is None or verdict.lower_bound <= optimum or place[0] == "objective"
            assert verdict.valid or verdict.reason
    assert edits > 300


def test_what_is_written_is_proved_again() -> None:
    # As in `test_parts`: 200 us lie between two groups of jobs, of which each is proved by start orders.
    runs = [(10, 0), (4, 0), (4, 1), (1, 1)]
    jobs = [
        Job(chain(task("t", run), name=f"w{at}"), begin + release)
        for begin in (0, 200)
        for at, (run, release) in enumerate(runs)
    ]
    built = instance(jobs, on=cluster(2))
    search, plan = Search(built, Objective.MEAN_LATENCY, 900, writes=True), greedy(built, Objective.MEAN_LATENCY)
    assert plan is not None
    search.offer(plan)
    parts.improve(search, early_prices(built, Objective.MEAN_LATENCY), 900)
    assert search.written is not None
    bound, document = search.written
    assert bound == search.value == 6
    verdict = verify(built, json.loads(json.dumps(document)))
    assert verdict.valid
    assert verdict.lower_bound == 6
    assert verdict.how == "2 parts: 2 by start_orders"
    first, second = document["parameters"]["parts"]
    assert (first["first_job"], second["first_job"]) == (0, 4)
    assert first["otherwise"]["method"] in closed_form.METHODS


@pytest.mark.parametrize("objective", ORDERED)
def test_whatever_is_written_is_proved_again(objective: Objective) -> None:
    tuning = Tuning("cuts at every release", cut_loss=1e9)
    written = 0
    for seed in range(12):
        built = random_instance(random.Random(7000 + seed), max_tasks=5)
        plan = greedy(built, objective)
        if plan is None or not start_orders.applies(built, objective):
            continue
        search = Search(built, objective, 900, tuning=tuning, writes=True)
        search.offer(plan)
        parts.improve(search, early_prices(built, objective), 900)
        if search.written is not None:
            written += 1
            verdict = verify(built, json.loads(json.dumps(search.written[1])))
            assert verdict.valid, verdict.reason
            assert verdict.lower_bound == search.written[0]
            assert search.value is not None
            assert search.written[0] <= search.value
    assert written
