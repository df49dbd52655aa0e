"""The verifier's programme over start orders, against what docs/certificate.md says that a start order is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from math import lcm

import numpy as np
import pytest

from tests.instances import chain, cluster, gpu, instance, network, random_instance, task
from tests.night import by_day
from truenorth.models import Cluster, InitialResidency, Instance, Job, Link, Objective
from truenorth.models.objective import charges
from truenorth.solvers.bounds.alone import LoneJobs
from truenorth.solvers.bounds.effort import Effort, TooLargeError
from truenorth.solvers.bounds.order_programme import prove
from truenorth.solvers.bounds.order_rests import Rate
from truenorth.solvers.bounds.part_sums import order_terms
from truenorth.solvers.exact import exhaustive, start_orders

SUMS = [Objective.MEAN_LATENCY, Objective.MEAN_SLOWDOWN, Objective.WEIGHTED_LATENCY]
FREE = Rate(np.zeros(1, np.int64), 0, 1)


def plenty() -> Effort:
    return Effort(1 << 60)


def least_cost(built: Instance, objective: Objective, scale: int) -> int:
    """Return what the cheapest start order costs, of all that there are."""
    charged, alone = charges(objective, built), LoneJobs(built)
    weights, due = [int(weight * scale) for weight in charged.job_weights], charged.due_us.tolist()
    head = [at for job in range(len(built.jobs)) for at in alone.times(job)[0]]
    there = {resident.model for resident in built.initial}
    needs = [frozenset(built.task_needs(t)) - there for t in range(built.n_tasks)]

    def gap(edge: int) -> int:
        pairs = [(a, b) for a in range(built.n_gpus) for b in range(built.n_gpus) if a != b]
        return min((built.transfer_time(edge, a, b) for a, b in pairs), default=0)

    def costs(ends: dict[int, int], place: dict[int, int], last: int) -> Iterator[int]:
        if len(ends) == built.n_tasks:
            done = [max(ends[t] for t in built.tasks_of(job)) for job in range(len(built.jobs))]
            yield sum(w * (c - d) for w, c, d in zip(weights, done, due, strict=True))
        for t in set(range(built.n_tasks)) - set(ends):
            if all(source in ends for source, _ in built.task_inputs(t)):
                for g in range(built.n_gpus):
                    here = [other for other in ends if place[other] == g]
                    used = needs[t].union(*(needs[other] for other in here)) if needs[t] else frozenset()
                    start = max(
                        last,
                        head[t],
                        sum(built.load_time(m, g) for m in used),
                        *(ends[other] for other in here),
                        *(ends[p] + (0 if place[p] == g else gap(edge)) for p, edge in built.task_inputs(t)),
                    )
                    yield from costs({**ends, t: start + built.run_time(t, g)}, {**place, t: g}, start)

    return min(costs({}, {}, 0))


def random_rate(rng: random.Random, most: int) -> Rate:
    top = most * rng.choice((0, 1, 1, 2))
    price = [rng.randint(0, top) if rng.random() < 0.8 else 0 for _ in range(rng.randint(1, 25))]
    return Rate(np.array(price, np.int64), rng.choice((0, 0, 1, 3)), rng.choice((1, 1, 2, 3, 7)))


@pytest.mark.parametrize("begin", by_day(range(0, 400, 50), 2))
def test_whatever_the_prices_it_proves_what_the_cheapest_order_costs_and_no_more(begin: int) -> None:
    compared = 0
    for seed in range(begin, begin + 50):
        rng = random.Random(seed)
        built = random_instance(rng, max_tasks=5)
        objective = rng.choice(SUMS)
        if not start_orders.applies(built, objective):
            continue
        weights = charges(objective, built).job_weights
        scale = lcm(*(weight.denominator for weight in weights)) * rng.choice((1, 3, 1000))
        rate = random_rate(rng, int(max(weights) * scale))
        terms = order_terms(built, objective, scale, rate, plenty())
        least = least_cost(built, objective, scale)
        for claim in (least // 2, max(0, least - 1), least, least + 1, 3 * least + 10):
            assert prove(terms, claim, plenty()) == min(claim, least)
        optimum = exhaustive.solve(built, objective).value
        assert optimum is not None
        assert Fraction(least, scale) <= optimum
        compared += 1
    assert compared >= 15


def test_a_gpu_may_wait() -> None:
    # A GPU waits for the short run that comes at 1, though one of 10 us is ready at 0: latencies 4, 1, 5 and 14.
    runs = [(10, 0), (4, 0), (4, 1), (1, 1)]
    jobs = [Job(chain(task("t", run), name=f"w{at}"), release) for at, (run, release) in enumerate(runs)]
    built = instance(jobs, on=cluster(2))
    terms = order_terms(built, Objective.MEAN_LATENCY, 4, FREE, plenty())
    assert prove(terms, 100, plenty()) == 4 + 1 + 5 + 14 == least_cost(built, Objective.MEAN_LATENCY, 4)


def test_outputs_take_their_time_between_gpus_and_models_are_loaded_once() -> None:
    # a runs from 2, once m is loaded, until 5. b needs n, of 4 us: behind a it waits for both loads, until 6; on the
    # other GPU for its input, 1 us of latency and 1 byte, until 7. So it ends at 8; loaded anywhere at first, at 7.
    workflow = chain(task("a", 3, ["m"]), task("b", 2, ["n"], after={"a": 1}))
    models, on = {"m": 2, "n": 4}, cluster(2)
    built = instance([Job(workflow, 0)], models, on)
    assert prove(order_terms(built, Objective.MEAN_LATENCY, 1, FREE, plenty()), 100, plenty()) == 8
    warm = instance([Job(workflow, 0)], models, on, initial=(InitialResidency(0, 1),))
    assert prove(order_terms(warm, Objective.MEAN_LATENCY, 1, FREE, plenty()), 100, plenty()) == 7


def test_within_a_server_outputs_may_be_sooner() -> None:
    # A fork of two runs of 9 us behind one of 1 us: the second waits for 3 us, within a server for 2.
    fork = chain(task("a", 1), task("b", 9, after={"a": 2}), task("c", 9, after={"a": 2}))
    apart = network(1, within=Link(2, None))
    for on, end in ((Cluster((gpu(0), gpu(1)), apart), 1 + 3 + 9), (Cluster((gpu(0, 0), gpu(1, 0)), apart), 1 + 2 + 9)):
        built = instance([Job(fork, 0)], on=on)
        assert prove(order_terms(built, Objective.MEAN_LATENCY, 1, FREE, plenty()), 100, plenty()) == end


def test_effort_ends_it() -> None:
    jobs = [Job(chain(task("t", 5), name=f"w{at}"), 0) for at in range(7)]
    terms = order_terms(instance(jobs, on=cluster(2)), Objective.MEAN_LATENCY, 7, FREE, plenty())
    with pytest.raises(TooLargeError, match="too many states"):
        prove(terms, 1000, Effort(1000))
    with pytest.raises(TooLargeError, match="time is short"):
        prove(terms, 1000, Effort(1 << 60, lambda: False))
    assert prove(terms, 1000, plenty()) == 5 + 5 + 10 + 10 + 15 + 15 + 20


@pytest.mark.parametrize(
    ("rate", "scale"),
    [
        (Rate(np.array([1 << 60, 1 << 60]), 0, 1), 1),
        (Rate(np.array([1]), 1 << 40, 1), 1),
        (Rate(np.array([1]), 0, 1), 1 << 59),
    ],
)
def test_numbers_beyond_64_bits_are_too_large(rate: Rate, scale: int) -> None:
    built = instance([Job(chain(task("t", 5)), 0)])
    with pytest.raises(TooLargeError):
        order_terms(built, Objective.MEAN_LATENCY, scale, rate, plenty())
