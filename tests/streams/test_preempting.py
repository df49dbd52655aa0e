"""Requests of higher priority that preempt (rule E8): one iteration after the other, the checker, files, and by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.night import by_day
from tests.streams.one_by_one import Sent, Served, serve_sent
from tests.streams.test_going_away import Log, noting, random_absences
from tests.streams.test_measured_engines import scarce
from tests.streams.test_urgency import urgent
from tests.streams.worlds import POLICIES, as_served, plain_nodes, plain_requests, random_growing_chats
from truenorth.executor import simulate
from truenorth.models import Instance, Timeline, check

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
def test_engine_equals_one_iteration_after_the_other(seed: int) -> None:
    rng = random.Random(seed)
    preempted = 0
    for number in range(DRAWS):
        instance, log = drawn(rng), Log()
        timeline = simulate(instance, noting(f"{rng.choice(POLICIES).partition(':')[0]}:preempt=on", log), seed)
        slow = preempting_one_by_one(instance, timeline, log)
        assert slow == as_served(timeline), number
        assert timeline.served is not None
        assert check(instance, timeline) == [], number
        assert len(timeline.served.preempted) == sum(each.preempted for each in slow), number
        preempted += len(timeline.served.preempted)
    assert preempted > 0
