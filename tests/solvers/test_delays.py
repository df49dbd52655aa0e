"""Time between steps (rule E5): solvers, bounds and certificates against the oracle on random tiny draws."""

from __future__ import annotations

import random

import pytest

from tests.instances import chain, cluster, instance, random_instance, random_serving_instance, task, with_delays
from tests.night import by_day
from truenorth.models import Edge, Instance, Job, Objective, Task
from truenorth.models.cluster import FOREVER, Availability
from truenorth.models.feasibility import check
from truenorth.models.features import Feature, missing
from truenorth.models.formulations.milp import SUPPORTS as OF_MILP
from truenorth.models.instance import UnsupportedInstanceError
from truenorth.models.objective import timeline_value
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.certificate import closed_form_document, lagrangian_document
from truenorth.solvers.bounds.lagrangian import improve as lagrangian
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.exact import cp_sat, exhaustive, milp
from truenorth.solvers.reductions import ticks_of
from truenorth.solvers.result import Search
from truenorth.solvers.search import annealing
from truenorth.solvers.supports import supports

OBJECTIVES = list(Objective)


def drawn(seed: int) -> Instance:
    """Return a tiny random instance in which time passes on some edge."""
    rng = random.Random(seed)
    while True:
        make = random_serving_instance if seed % 5 == 4 else random_instance
        built = with_delays(rng, make(rng, 5, restricted=seed % 2 == 1))
        if built.delay_us.any():
            return built


@pytest.mark.parametrize("seed", by_day(range(400), 15))
def test_everything_agrees_with_the_oracle(seed: int) -> None:
    built, objective = drawn(seed), OBJECTIVES[seed % len(OBJECTIVES)]
    exact = exhaustive.solve(built, objective)
    joint = cp_sat.solve(built, objective, 20, workers=1)
    assert (joint.status, joint.value) == (exact.status, exact.value)
    if seed % 4 == 0 and not missing(built, OF_MILP):
        twin = milp.solve(built, objective, 20, workers=1)
        assert (twin.status, twin.value) == (exact.status, exact.value)
    if exact.value is None:
        return
    assert exact.timeline is not None
    least = timeline_value(objective, built, exact.timeline)
    for method, bound in closed_form.METHODS.items():
        proved = None if missing(built, closed_form.SUPPORTS[method]) else bound(built, objective)
        if proved is not None:
            assert proved <= least, method
            verdict = verify(built, closed_form_document(built, objective, method, proved))
            assert verdict.valid, (method, verdict.reason)
            assert verdict.lower_bound is not None
            assert verdict.lower_bound <= least, method
    search = Search(built, objective, 60.0)
    annealing.improve(search.on_twin(), seed, 60)
    if search.timeline is not None:
        assert not check(built, search.timeline)
        assert timeline_value(objective, built, search.timeline) >= least


@pytest.mark.parametrize("seed", by_day(range(200), 6))
def test_prices_prove_no_more_than_the_optimum(seed: int) -> None:
    built, objective = drawn(1_000 + seed), (Objective.MEAN_LATENCY, Objective.MEAN_SLOWDOWN)[seed % 2]
    joint = cp_sat.solve(built, objective, 20, workers=1)
    priced = lagrangian.improve(Search(built, objective, 60.0), 0.3)
    if joint.timeline is None or priced is None:
        return
    least = timeline_value(objective, built, joint.timeline)
    verdict = verify(built, lagrangian_document(built, objective, priced))
    assert verdict.valid, verdict.reason
    assert verdict.lower_bound is not None
    assert priced.bound <= verdict.lower_bound <= least


def agent(call_us: int, delay_us: int, again_us: int) -> Job:
    """Return a call, a tool that runs outside of the cluster, and another call."""
    again = Task("again", {"*": again_us}, inputs=(Edge("call", 0, delay_us=delay_us),))
    return Job(chain(task("call", call_us), again), 0)


def test_windows_in_coarser_units_keep_their_delays() -> None:
    # All times are multiples of 10 us: 30, 50 and 40, and 20 of the job's own; with 25 they are of 5 alone.
    own = Job(agent(30, 50, 40).workflow, 0, delays_us={"again": 20})
    ticks = ticks_of(instance([agent(30, 50, 40), own]), Objective.MAKESPAN)
    assert ticks is not None
    assert (ticks.tick_us, ticks.twin.delay_us.tolist()) == (10, [5, 2])
    finer = ticks_of(instance([agent(30, 25, 40)]), Objective.MAKESPAN)
    assert finer is not None
    assert finer.tick_us == 5


def test_where_a_gpu_comes_back_a_delay_is_refused() -> None:
    """Its twin has a GPU for every visit, between which an output would have to travel."""
    there = Availability.of([(0, 10), (20, FOREVER)])
    on = cluster(1, available=there)
    with pytest.raises(UnsupportedInstanceError, match="no support for time between steps"):
        Search(instance([agent(3, 30, 4)], on=on), Objective.MAKESPAN, 5.0).on_twin()
    once = cluster(1, available=Availability.of([(5, FOREVER)]))
    assert cp_sat.solve(instance([agent(3, 30, 4)], on=once), Objective.MAKESPAN, 5, workers=1).value == 42


def test_methods_that_would_leave_delays_out_are_not_asked() -> None:
    refusing = {name for name, supported in supports().items() if Feature.DELAYS not in supported}
    assert refusing == {
        "`arc-flow`", "`consecutive batches`", "`parts`", "`refutation`", "`start-orders`", "beams",
    }  # fmt: skip
