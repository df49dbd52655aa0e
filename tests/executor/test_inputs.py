"""Input bytes of jobs that name their ingress: what the policies count and the engine charges, derived by hand.

GPUs have 10 bytes and load one byte per microsecond; a transfer takes 1 us plus 1 us per byte.
"""

from __future__ import annotations

import pytest

from tests.executor.scripted import runs
from tests.instances import chain, cluster, instance, task
from truenorth.executor import parse_policy, replay, simulate
from truenorth.models import InitialResidency, Instance, Job, check


def held_elsewhere(input_bytes: int, ingress: int | None = 0, jobs: int = 1) -> Instance:
    """Return jobs of 2 us whose model x (4 bytes) is on g1; their input lies at g0 where they name it."""
    work = chain(task("t", 2, ["x"], input_bytes=input_bytes))
    held = (InitialResidency(1, 0),)
    return instance([Job(work, 0, ingress=ingress)] * jobs, {"x": 4}, cluster(2), initial=held)


@pytest.mark.parametrize("policy", ["compass", "srpt", "hadar", "compass-released:shared=on"])
def test_a_load_is_weighed_against_the_travel_of_the_input(policy: str) -> None:
    # To g1 2 bytes travel 3 us, less than the load of 4; 5 bytes travel 6 us, and x is loaded at the ingress instead.
    assert runs(simulate(held_elsewhere(2), parse_policy(policy))) == [(1, 3, 5)]
    assert runs(simulate(held_elsewhere(5), parse_policy(policy))) == [(0, 4, 6)]


@pytest.mark.parametrize("policy", ["compass", "srpt", "hadar", "jit:period=0us", "lru", "dally", "rltune"])
def test_a_drawn_ingress_costs_nothing(policy: str) -> None:
    assert runs(simulate(held_elsewhere(5, ingress=None), parse_policy(policy))) == [(1, 0, 2)]


@pytest.mark.parametrize("policy", ["jit:period=0us", "lru", "dally"])
def test_the_engine_charges_whoever_does_not_count_it(policy: str) -> None:
    assert runs(simulate(held_elsewhere(5), parse_policy(policy))) == [(1, 6, 8)]


def test_heft_stays_at_the_ingress_for_any_input() -> None:
    # Two heads of one job: all is idle to HEFT, so the second goes to g1 unless its input takes as long as the first.
    def heads(input_bytes: int) -> Instance:
        both = chain(task("a", 4, input_bytes=input_bytes), task("b", 4, input_bytes=input_bytes))
        return instance([Job(both, 0, ingress=0)], None, cluster(2))

    assert runs(simulate(heads(2), parse_policy("heft"))) == [(0, 0, 4), (1, 3, 7)]
    assert runs(simulate(heads(3), parse_policy("heft"))) == [(0, 0, 4), (0, 4, 8)]


def test_a_plan_is_carried_out_as_it_was_made() -> None:
    on = held_elsewhere(2, jobs=3)
    made = simulate(on, parse_policy("compass"))
    again = simulate(on, replay(on, made))
    assert (again.start_us == made.start_us).all()
    assert check(on, again) == []
