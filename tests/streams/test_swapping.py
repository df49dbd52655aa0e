"""Plans of requests by their orders: where models swap, compiled; anywhere else by the rules, step by step."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from experiments.benchmarks.swaps import drawn
from tests.night import by_day
from tests.streams import test_adapters, test_going_away
from tests.streams.swapping import best_order, random_swapping, tiny_swapping
from tests.streams.test_measured_engines import beside_loads, scarce
from tests.streams.worlds import (
    growing_beside_loads,
    random_cached_chats,
    random_chats,
    random_growing_chats,
    random_steps,
)
from truenorth.executor import parse_policy, replay, simulate
from truenorth.models import Instance, Objective
from truenorth.models.objective import timeline_value
from truenorth.models.restrictions import Restrictions
from truenorth.models.scenario import scenario_from
from truenorth.planner.answers.plan import uncut
from truenorth.solvers.compiled import random_state
from truenorth.solvers.result import Search
from truenorth.solvers.search import orders, queues
from truenorth.solvers.search.queues_kernel import KEEPS, Queues, anneal
from truenorth.solvers.search.serving import Decisions, Window, serve


def assert_as_by_the_rules(made: Queues, instance: Instance) -> None:
    """Assert that GPUs that swap start and end requests as the rules have it, step by step."""
    plan = made.plan
    assert instance.streams is not None
    queue = [plan.queue[gpu, :length].tolist() for gpu, length in enumerate(plan.length.tolist())]
    limits = [int(most) if most < made.requests.seats.max() else 0 for most in plan.limit]
    decided = Decisions(queue, plan.not_before.tolist(), limits, [False] * instance.n_gpus)
    gpus = [gpu for gpu, how in enumerate(plan.swaps.tolist()) if how != KEEPS]
    served = serve(Window(instance, instance.streams), decided, gpus, plan.gpu.tolist(), plan.end.tolist())
    assert served is not None
    for gpu, each in zip(gpus, served, strict=True):
        assert each.start == plan.start[queue[gpu]].tolist()
        assert each.first == plan.first[queue[gpu]].tolist()
        assert each.end == plan.end[queue[gpu]].tolist()


@pytest.mark.parametrize("seed", by_day(range(200), 24))
def test_what_is_compiled_is_what_the_rules_give(seed: int) -> None:
    rng = random.Random(seed)
    instance = random_swapping(rng, 25, overlap_loads=rng.random() < 0.7)
    timeline = simulate(instance, parse_policy(rng.choice(("turns:hold=20us", "least_tokens"))))
    made = queues.new_queues(instance, list(Objective)[seed % 7], swaps=True)
    assert made is not None
    assert queues.enqueue(made, instance, timeline)
    assert_as_by_the_rules(made, instance)
    state = random_state(seed)
    for moves in range(1, 9):
        hot = 0.3 * made.plan.total[0] / len(instance.jobs)
        anneal(made, state, moves, hot, queues.SWAPPING)
        assert_as_by_the_rules(made, instance)


def with_adapters(rng: random.Random) -> Instance:
    requests = sorted((rng.randint(0, 300), rng.choice(("", "a", "b", "c"))) for _ in range(20))
    return test_adapters.served(requests, rng.choice((125, 145, 170)), rng.randint(1, 4), rng.randint(1, 6))


WINDOWS: dict[str, Callable[[random.Random], Instance]] = {
    "adapters": with_adapters,
    "absences": test_going_away.drawn,
    "scarce KV": lambda rng: scarce(rng, 20),
    "KV beside loads": beside_loads,
    "caches": lambda rng: random_cached_chats(rng, 20),
    "caches and growing KV": lambda rng: random_growing_chats(rng, 15),
    "both beside loads": lambda rng: growing_beside_loads(rng, 15),
    "steps of jobs": lambda rng: random_steps(rng, 8, measured=True),
    "measured engines": lambda rng: random_chats(rng, 20, measured=True),
    "swaps": lambda rng: random_swapping(rng, 20),
}


# With 13, KV beside loads, a model leaves for KV that grows, and nothing begins afterwards.
@pytest.mark.parametrize("seed", by_day([13, *range(13), *range(14, 40)], 3))
@pytest.mark.parametrize("name", WINDOWS)
def test_orders_served_by_the_rules_make_plans_of_any_kind(name: str, seed: int) -> None:
    """Every plan that is offered is checked; replayed it is what it says."""
    instance, objective = WINDOWS[name](random.Random(seed)), list(Objective)[seed % 7]
    search = Search(instance, objective, 600.0)
    search.offer(uncut(instance, parse_policy("least_tokens"), 0, lambda: False))
    before = search.value
    orders.improve(search, seed, 6_000)
    assert search.timeline is not None
    assert search.value is not None
    assert before is not None
    assert search.value <= before
    assert timeline_value(objective, instance, simulate(instance, replay(instance, search.timeline))) <= search.value


def test_models_that_left_for_requests_that_wait_do_not_come_back_time_and_again() -> None:
    """KV that grows, and room for a model or for who was preempted: a plan in which both alternate never ends."""
    instance = beside_loads(random.Random(38))
    search = Search(instance, list(Objective)[38 % 7], 600.0)
    search.offer(simulate(instance, parse_policy("least_tokens")))
    assert orders.improve(search, 38, 8_000) is None


@pytest.mark.parametrize("seed", by_day(range(30), 2))
def test_tiny_windows_end_as_the_best_of_all_orders(seed: int) -> None:
    rng = random.Random(seed)
    instance, objective = tiny_swapping(rng), (Objective.MEAN_LATENCY, Objective.MEAN_SLOWDOWN)[seed % 2]
    search = Search(instance, objective, 600.0)
    search.offer(simulate(instance, parse_policy("turns:hold=20us")))
    queues.improve(search, seed, iterations=20_000)
    orders.improve(search, seed, iterations=40_000)
    assert search.value is not None
    assert search.value <= best_order(instance, objective)


@pytest.mark.parametrize("seed", [0, 3])
def test_plans_are_much_better_than_turns(seed: int) -> None:
    scenario = scenario_from(drawn(seed))
    instance, objective = scenario.instance, scenario.objective
    turns = simulate(instance, parse_policy("turns"))
    search = Search(instance, objective, 600.0)
    search.offer(turns)
    queues.improve(search, 0, iterations=30_000)
    assert search.value is not None
    assert search.value < 0.9 * timeline_value(objective, instance, turns)


def test_limits_of_an_operator_hold() -> None:
    """No model leaves, and no more GPUs hold one than may."""
    instance = random_swapping(random.Random(5), 20, 2)
    first = instance.models[0].name
    held = replace(instance, restrictions=Restrictions(max_replicas={first: 1}))
    search = Search(held, Objective.MEAN_LATENCY, 600.0)
    search.offer(simulate(held, parse_policy("least_tokens")))
    before = search.value
    assert orders.improve(search, 0, 6_000) is None
    assert search.value is not None
    assert before is not None
    assert search.value <= before
