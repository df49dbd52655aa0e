"""Requests that preempt those of lower priority (rule E8): one iteration after the other, the checker, and by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from tests.night import by_day
from tests.streams.one_by_one import Sent, Served, serve_sent
from tests.streams.test_going_away import Log, noting, random_absences
from tests.streams.test_measured_engines import scarce
from tests.streams.test_urgency import urgent
from tests.streams.worlds import (
    POLICIES,
    as_served,
    chats,
    cluster,
    growing_beside_loads,
    plain_nodes,
    plain_requests,
    random_growing_chats,
)
from truenorth.executor import PolicyError, parse_policy, replay, simulate
from truenorth.executor.errors import StalledError
from truenorth.executor.noise import parse_noise
from truenorth.models import Instance, Objective, Timeline, Tokens, check, measure
from truenorth.models.features import missing
from truenorth.models.metrics import StreamMetrics
from truenorth.models.objective import timeline_value
from truenorth.models.restrictions import Restrictions
from truenorth.models.scenario import InputError, TimelineHeader, read_timeline, write_timeline
from truenorth.models.streams import StreamSpeed
from truenorth.planner.answers.plan import starts_for
from truenorth.solvers.bounds import closed_form

DRAWS = 10
"""Instances of a test; 50 of them are 500."""


def with_priorities(rng: random.Random, instance: Instance) -> Instance:
    """Return an instance whose jobs have a few priorities."""
    return urgent(instance, [rng.choice((0, 0, 1, 3)) for _ in instance.jobs])


def preempting_one_by_one(instance: Instance, timeline: Timeline, log: Log) -> list[Served]:
    """Return what one iteration after the other makes of requests that come to their nodes as a policy sent them."""
    queues: list[list[Sent]] = [[] for _ in instance.cluster.gpus]
    for now, task, gpu in log:
        queues[gpu].append((now, task))
    jobs = [instance.jobs[int(job)] for job in instance.task_job]
    requests = zip(plain_requests(instance, timeline.place), jobs, strict=True)
    nodes = [replace(node, preempts=True) for node in plain_nodes(instance)]
    return serve_sent(nodes, [replace(request, priority=job.priority) for request, job in requests], queues)


def drawn(rng: random.Random) -> Instance:
    """Return requests of a few priorities on nodes whose KV grows; some cache prefixes, some come and go."""
    count = rng.randint(2, 25)
    instance = rng.choice((scarce, random_growing_chats))(rng, count)
    return with_priorities(rng, random_absences(rng, instance) if rng.random() < 0.2 else instance)


@pytest.mark.parametrize("seed", by_day(range(50), 4))
def test_engine_checker_and_files_equal_one_iteration_after_the_other(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    preempted = 0
    for number in range(DRAWS):
        instance, log = drawn(rng), Log()
        timeline = simulate(instance, noting(f"{rng.choice(POLICIES).partition(':')[0]}:preempt=on", log), seed)
        slow = preempting_one_by_one(instance, timeline, log)
        assert slow == as_served(timeline), number
        assert check(instance, timeline) == [], number
        found, times = measure(instance, timeline), sum(each.preempted for each in slow)
        assert isinstance(found, StreamMetrics)
        assert (found.preemptions, len(timeline.preempted)) == (times, times), number
        write_timeline(tmp_path / "timeline.json", instance, timeline, TimelineHeader())
        again = read_timeline(tmp_path / "timeline.json", instance).timeline
        assert check(instance, again) == [], number
        assert measure(instance, again) == found, number
        preempted += times
    assert preempted > 0


@pytest.mark.parametrize("seed", by_day(range(50), 2))
def test_rules_hold_beside_loads_noise_and_turns(seed: int) -> None:
    rng = random.Random(seed)
    noise = parse_noise("run=lognormal:0.5,load=uniform:0.5")
    preempted = 0
    for number in range(DRAWS):
        instance = with_priorities(rng, growing_beside_loads(rng, rng.randint(2, 25)))
        name = rng.choice(("least_work", "round_robin", "turns"))
        policy = parse_policy(f"{name}:preempt=on")
        for spread in (None, noise):
            try:
                timeline = simulate(instance, policy, seed, spread)
            except StalledError:  # adapters of requests that wait to join again leave none of them its room
                with pytest.raises(StalledError):  # nor is it the option that does
                    simulate(instance, parse_policy(name), seed, spread)
                continue
            assert check(instance, timeline) == [], number
            preempted += len(timeline.preempted)
    assert preempted > 0


def test_adapters_of_preempted_requests_can_leave_none_of_them_its_room() -> None:
    """Rule R3 keeps an adapter from its request's start to its end, preempted or not: so nobody may go on.

    In this draw a GPU of 110 bytes holds a model of 44 and adapters of 5 and 8. The first to join again has 15 tokens
    of prompt and, under noise, 44 of answer: it needs 58 bytes, which its own models leave and all three do not (53).
    """
    rng, noise = random.Random(23), parse_noise("run=lognormal:0.5,load=uniform:0.5")
    for _ in range(2):
        instance = with_priorities(rng, growing_beside_loads(rng, rng.randint(2, 25)))
        name = rng.choice(("least_work", "round_robin", "turns"))
    with pytest.raises(StalledError, match="requests preempted on s0/g0 need more KV memory"):
        simulate(instance, parse_policy(name), 23, noise)


@pytest.mark.parametrize("seed", by_day(range(50), 2))
def test_no_bound_above_it_and_no_plan_made_of_it(seed: int) -> None:
    rng = random.Random(seed)
    for number in range(DRAWS):
        instance = with_priorities(rng, rng.choice((scarce, random_growing_chats))(rng, rng.randint(2, 8)))
        timeline = simulate(instance, parse_policy("least_requests:preempt=on"), seed)
        for objective in (Objective.MEAN_LATENCY, Objective.MEAN_SLOWDOWN, Objective.MAX_SLOWDOWN):
            value = timeline_value(objective, instance, timeline)
            methods = [name for name in closed_form.METHODS if not missing(instance, closed_form.SUPPORTS[name])]
            bounds = [closed_form.METHODS[method](instance, objective) for method in methods]
            assert any(bound is not None for bound in bounds)
            assert all(bound is None or bound <= value for bound in bounds), (number, objective)
        if timeline.preempted:
            with pytest.raises(PolicyError, match="a policy had requests preempted by their priority"):
                replay(instance, timeline)
            plan = next(iter(starts_for(instance, seed, [timeline])(lambda: 60.0)))
            assert not plan.preempted


PLAIN = StreamSpeed(Fraction(1_000_000), 10, 1, {1: 5}, 1, block=4)
"""1 us per prompt token, 10 tokens per iteration, steps of 5 us; blocks of four tokens of a byte each."""


def served(seats: int, blocks: int, asked: Sequence[tuple[int, int, int, int]]) -> tuple[Instance, Timeline]:
    """Return requests with release, prompt, answer and priority on a node with so many seats and blocks, as served."""
    speed = replace(PLAIN, seats=seats, step_us={1: 5, seats: 5})
    requests = [(release, Tokens(prompt, prompt, answer)) for release, prompt, answer, _ in asked]
    instance = urgent(chats(cluster(1, 4 * blocks), {"A": speed}, requests), [priority for *_, priority in asked])
    log = Log()
    timeline = simulate(instance, noting("least_tokens:preempt=on", log))
    assert check(instance, timeline) == []
    assert preempting_one_by_one(instance, timeline, log) == as_served(timeline)
    return instance, timeline


def test_a_seat_is_taken_by_hand() -> None:
    """One seat. The first has three tokens at 14, where the second, released at 10, joins: [14, 18), [18, 23).

    Then the first computes 4 + 2 tokens, [23, 29), and decodes seven more, until 64. One of equal priority waits.
    """
    instance, timeline = served(1, 9, [(0, 4, 10, 0), (10, 4, 2, 1)])
    assert as_served(timeline) == [Served(0, 4, 64), Served(14, 18, 23)]
    assert [each[:4] for each in timeline.preempted] == [(0, 0, 14, 23)]
    found = measure(instance, timeline)
    assert isinstance(found, StreamMetrics)
    assert (found.preemptions, found.recomputed_tokens) == (1, 6)
    assert as_served(served(1, 9, [(0, 4, 10, 1), (10, 4, 2, 1)])[1]) == [Served(0, 4, 49), Served(49, 53, 58)]


def test_the_lowest_leaves_of_equals_the_last_that_joined_and_nobody_in_vain() -> None:
    """Three seats, which those of priorities 1, 0 and 0 take at 0; the first chunk of 9 tokens lasts until 9.

    The one of priority 2 takes that of the last of the two lowest. With five blocks, of which each has one, or two from
    its fifth token on, one of priority 1 and four blocks could not join if both left: all stay.
    """
    asked = [(0, 3, 20, 1), (0, 3, 20, 0), (0, 3, 20, 0), (10, 3, 2, 2)]
    assert [each.task for each in served(3, 30, asked)[1].preempted] == [2]
    instance, timeline = served(4, 5, [(0, 3, 3, 1), (0, 3, 2, 0), (0, 3, 2, 0), (10, 16, 2, 1)])
    assert timeline.preempted == ()
    assert timeline.start_us.tolist() == [0, 0, 0, 19]
    assert instance.n_tasks == 4


def test_where_memory_is_short_the_lowest_leaves_though_another_joined_last() -> None:
    """Three blocks, of which the first has two from 4 on, and the second, whose prompt it decodes beside, one.

    At 13 the second wants its second block. It would leave were it not more urgent.
    """
    _, timeline = served(2, 3, [(0, 4, 8, 0), (1, 4, 4, 1)])
    assert [each[:4] for each in timeline.preempted] == [(0, 0, 13, 28)]
    assert as_served(timeline)[1] == Served(4, 13, 28)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"from_us": 9}, ""),
        ({"from_us": 15}, "E8 job 0 task answer: is preempted between two boundaries (found 15, allowed 23)"),
        ({"to_us": 24}, "S4 job 0 task answer: ends at another time (found 64, allowed 65)"),
        ({"to_us": 30, "again": 3}, "S4 job 0 task answer: ends at another time (found 64, allowed 71)"),
        ({"to_us": 18}, "E8 job 0 task answer: no seat is free (found 2, allowed 1)"),
        ({"from_us": 23}, "E8 job 0 task answer: "),
        ({"gpu": 1}, "E8 job 0 task answer: is preempted on s1/g0, which does not serve it (found 14, allowed never)"),
        ({"task": 1}, "E8 job 1 task answer: is preempted, but does not run"),
    ],
)
def test_the_checker_takes_preemptions_again(changed: dict[str, int], said: str) -> None:
    speed = {"A": PLAIN}
    instance = chats(cluster(2, 36), speed, [(0, Tokens(4, 4, 10)), (10, Tokens(4, 4, 2))])
    instance = replace(urgent(instance, [0, 1]), restrictions=Restrictions(workflow_gpus={"chat": frozenset({0})}))
    timeline = simulate(instance, parse_policy("least_tokens:preempt=on"))
    assert check(instance, timeline) == []
    assert timeline.served is not None
    leave = replace(timeline.served, preempted=(timeline.preempted[0]._replace(**changed),))
    found = [str(violation) for violation in check(instance, replace(timeline, served=leave))]
    assert found
    assert any(each.startswith(said) for each in found), found


def test_a_file_says_both_ends_of_a_preemption(tmp_path: Path) -> None:
    instance, timeline = served(1, 9, [(0, 4, 10, 0), (10, 4, 2, 1)])
    path = tmp_path / "timeline.json"
    write_timeline(path, instance, timeline, TimelineHeader())
    assert '"preempted": [{"gpu": "s0/g0", "from_us": 14, "order": 1, "to_us": 23, "again": 3}]' in path.read_text()
    path.write_text(path.read_text().replace(', "again": 3', ""))
    with pytest.raises(InputError, match=r"tasks\[0\]\.preempted\[0\]: has one of to_us and again; allowed are both"):
        read_timeline(path, instance)


def test_kv_that_is_reserved_is_refused() -> None:
    instance = chats(cluster(1), {"A": replace(PLAIN, block=0)}, [(0, Tokens(4, 4, 2))])
    with pytest.raises(PolicyError, match="KV of requests is reserved on s0/g0; allowed is on where all KV grows"):
        simulate(instance, parse_policy("least_tokens:preempt=on"))
