"""Numbers of any size in certificates: the verifier never wraps, and windows of no length prove nothing."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from tests.instances import chain, cluster, instance, task
from tests.white_box.solvers.bounds.test_certificate import certified, queue
from truenorth.models import BatchClass, InitialResidency, Instance, Job, Objective, Task, scenario_hash
from truenorth.solvers.bounds import fluid
from truenorth.solvers.bounds.certified import LARGEST_PRICE, LATEST
from truenorth.solvers.bounds.verify import Verdict, verify
from truenorth.solvers.budget import Budget
from truenorth.solvers.portfolio import solve


def _one_job_on_many_gpus() -> Instance:
    """Return one task of 1 s whose model is resident on one of 64 GPUs: its optimum is 1 s."""
    workflow = chain(task("t", 1_000_000, ["m"]))
    on = cluster(64, memory_bytes=10_000_000)
    return instance([Job(workflow, 0)], {"m": 1_000_000}, on, initial=(InitialResidency(0, 0),))


def _priced(of: Instance, uses: list[int], **changes: Any) -> Verdict:
    """Return the verdict on prices that tasks pay to the model, and nothing else."""
    free = [[0] * len(uses)]
    document = {
        "schema_version": 1,
        "scenario_hash": scenario_hash(of),
        "objective": "mean_latency",
        "method": "lagrangian",
        "lower_bound": 1.0,
        "parameters": {
            "slot_us": 1_000_000,
            "scale": 1,
            "delays": [2],
            "priced_precedences": [[]],
            "memory_rows": [],
            "model_uses": [{"model": 0, "gpu_class": 0}],
        }
        | changes,
        "prices": {"compute": free, "copy": free, "memory": [], "model_uses": [uses], "precedences": [[]]},
    }
    return verify(of, document)


@pytest.mark.parametrize("price", [24_000_000_000, 1 << 57, LARGEST_PRICE])
def test_a_price_times_many_gpus_does_not_wrap(price: int) -> None:
    # From the third second on tasks would pay the model, and none is left to run then. So 64 GPUs take in the price
    # of seven slots each, and the one job pays nothing: the sum is its 1 s less all of that.
    verdict = _priced(_one_job_on_many_gpus(), [0, 0, 0, *[price] * 7])
    assert verdict.lower_bound == 10**6 - 64 * 7 * price * 10**6
    assert not verdict.valid


def test_nor_does_a_price_of_nothing() -> None:
    assert _priced(_one_job_on_many_gpus(), [0] * 10) == Verdict(True, Fraction(10**6), None)


@pytest.mark.parametrize("bits", [1, 33, 60, 120])
def test_finer_prices_prove_the_same(bits: int) -> None:
    """The value is linear in scale and prices together, whatever their size; only weights are rounded, down."""
    built = queue()
    found = certified(built, Objective.MEAN_LATENCY)
    assert found is not None
    document, bound = found
    document["parameters"]["scale"] <<= bits
    for kind, rows in document["prices"].items():
        document["prices"][kind] = [[price << bits for price in row] for row in rows]
    verdict = verify(built, document)
    assert verdict.valid
    assert verdict.lower_bound == bound


def test_slots_of_years_are_verified() -> None:
    years = 1 << 48
    built = instance([Job(chain(task("a", 3 * years), task("b", 2 * years, after={"a": 0})), 0)] * 2)
    found = certified(built, Objective.MEAN_LATENCY, slot_us=years)
    assert found is not None
    assert found[0]["parameters"]["slot_us"] == years
    verdict = verify(built, found[0])
    assert verdict.valid
    assert verdict.lower_bound == found[1]


def test_slots_that_outlast_every_instant_are_refused() -> None:
    of = _one_job_on_many_gpus()
    assert _priced(of, [0] * 10, slot_us=LATEST // 12).lower_bound == 10**6
    refused = _priced(of, [0] * 10, slot_us=LATEST // 12 + 1)
    assert (refused.valid, refused.lower_bound) == (False, None)
    assert refused.reason == "slot_us is too large for so many slots"


def test_forty_tasks_that_may_wait_for_each_other_and_a_join() -> None:
    """Batches of two can start at 0 already, so that 40 tasks take 40 us on one GPU, or 20 batches of 3 us 60."""
    batch = BatchClass("c", {"*": {1: 1, 2: 3}})
    sources = [Task.of_class(f"t{i}", batch) for i in range(40)]
    built = instance([Job(chain(*sources, task("join", 1, after={f"t{i}": 0 for i in range(40)})), 0)])
    found = certified(built, Objective.MEAN_LATENCY)
    assert found is not None
    verdict = verify(built, found[0])
    assert verdict.valid
    assert verdict.lower_bound == found[1] <= 41


def _due_at_release(at_us: int) -> Instance:
    return instance([Job(chain(task("t", 1, ["m"])), at_us, deadline_us=0)], {"m": 1})


@pytest.mark.parametrize("at_us", [0, 5])
def test_what_is_due_when_it_is_released_is_late(at_us: int) -> None:
    built = _due_at_release(at_us)
    result = solve(built, Objective.LATE_JOBS, Budget(5))
    assert result.value == result.lower_bound == 1


def test_a_window_of_no_length_proves_nothing() -> None:
    """All jobs are released and due at 0. Of a trace too long to look everywhere, [0, 1) has room for one of them."""
    one = _due_at_release(0)
    assert fluid.bound(one, Objective.LATE_JOBS) == 0
    assert fluid.least_gpus(one, fluid.due_us(one), 0) == (1, None)
    many = replace(one, jobs=one.jobs * (fluid.SHORT_TRACE + 1))
    assert fluid.bound(many, Objective.LATE_JOBS) == fluid.SHORT_TRACE
