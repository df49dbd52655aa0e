"""Bounds where servers come and go: below every plan, verified, and aware of what is not there."""

from __future__ import annotations

import random

import pytest

from tests.instances import chain, cluster, gpu, instance, network, random_instance, random_serving_instance, task
from tests.night import by_day
from tests.random_instances import with_absences
from truenorth.models import Cluster, Job, Objective
from truenorth.models.cluster import FOREVER, Availability
from truenorth.solvers.bounds import closed_form, energetic, fluid
from truenorth.solvers.bounds.certificate import closed_form_document, lagrangian_document
from truenorth.solvers.bounds.lagrangian.improve import improve
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.exact import exhaustive
from truenorth.solvers.result import Search

OBJECTIVES = list(Objective)


@pytest.mark.parametrize("seed", by_day(range(14), 7))
def test_no_bound_lies_above_the_optimum_and_certificates_hold(seed: int) -> None:
    rng = random.Random(seed)
    draw = random_serving_instance if seed % 3 == 2 else random_instance
    built, objective = with_absences(rng, draw(rng, 4, restricted=seed % 4 == 3)), OBJECTIVES[seed % 7]
    best = exhaustive.solve(built, objective).value
    priced = improve(Search(built, objective, 0.3))
    documents = [] if priced is None else [(priced.bound, lagrangian_document(built, objective, priced))]
    for name, method in closed_form.METHODS.items():
        bound = method(built, objective)
        if bound is not None:
            documents.append((bound, closed_form_document(built, objective, name, bound)))
    assert documents
    for bound, document in documents:
        assert best is None or bound <= best
        verdict = verify(built, document)
        assert (verdict.valid, verdict.reason) == (True, None)


def test_late_jobs_count_what_is_there() -> None:
    # Three runs of 4 us due at 12 on one GPU: all in time if it stays, two if it is away from 5 to 8.
    jobs = [Job(chain(task("a", 4)), 0, deadline_us=12)] * 3
    for there, late in (([(0, FOREVER)], 0), ([(0, 5), (8, FOREVER)], 1)):
        built = instance(jobs, None, cluster(1, available=Availability.of(there)))
        proof = fluid.prove(built, Objective.LATE_JOBS)
        assert proof is not None
        assert proof.value == late == exhaustive.solve(built, Objective.LATE_JOBS).value
        assert verify(built, closed_form_document(built, Objective.LATE_JOBS, "fluid", proof.value)).valid


def test_the_last_end_waits_for_those_who_come_back() -> None:
    # 12 us of work: two GPUs do 8 of it by 4, the one that stays the rest by 8. But of four runs of 3 us the other GPU
    # does only one in time.
    there = Availability.of([(0, 4), (20, FOREVER)])
    both = Cluster((gpu(0), gpu(1, available=there)), network())
    built = instance([Job(chain(task("a", 3)), 0)] * 4, None, both)
    proof = energetic.prove(built, Objective.MAKESPAN)
    assert proof is not None
    assert proof.value == 8 < 9 == exhaustive.solve(built, Objective.MAKESPAN).value
    assert verify(built, closed_form_document(built, Objective.MAKESPAN, "energetic", proof.value)).valid
    assert not verify(built, closed_form_document(built, Objective.MAKESPAN, "energetic", proof.value + 1)).valid


def test_what_is_not_there_offers_nothing() -> None:
    # Two runs of 4 us, and 4 us there before an absence until 20: latencies 4 and 24, where 4 and 8 were else.
    absent = cluster(1, available=Availability.of([(0, 4), (20, FOREVER)]))
    built = instance([Job(chain(task("a", 4)), 0)] * 2, None, absent)
    priced = improve(Search(built, Objective.MEAN_LATENCY, 1.0))
    assert priced is not None
    assert 6 < priced.bound <= 14
    document = lagrangian_document(built, Objective.MEAN_LATENCY, priced)
    assert verify(built, document).valid
    document["lower_bound"] *= 1.2
    assert not verify(built, document).valid
