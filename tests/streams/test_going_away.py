"""Nodes that go while they serve: who is cut, who is sent back, and what is reported of it, by hand and by draw."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from tests.streams.one_by_one import Sent, Served, serve_sent
from tests.streams.test_measured_engines import scarce
from tests.streams.worlds import as_served, plain_nodes, plain_requests, random_chats, random_steps
from truenorth.executor import PolicyError, parse_policy, replay, simulate
from truenorth.executor.errors import StalledError
from truenorth.executor.policies.gateways import Gateway
from truenorth.executor.policy import Policy
from truenorth.models import Cluster, Instance, Timeline, check, measure
from truenorth.models.cluster import FOREVER, Availability, Interval
from truenorth.models.metrics import StreamMetrics
from truenorth.models.scenario.plan_file import TimelineHeader, read_timeline, write_timeline
from truenorth.models.streams import StreamSpeed

POLICIES = ("round_robin", "least_requests", "least_tokens", "least_tokens:known=yes", "prefix_affinity")
DRAWS = int(os.environ.get("DRAWS", "250"))
"""DRAWS=2000 is for the night."""
PLAIN = StreamSpeed(Fraction(1_000_000), 10, 4, {1: 5, 4: 5})
"""1 us per prompt token, 10 tokens per iteration, steps of 5 us."""
Log = list[tuple[int, int, int]]


def going(on: Cluster, *there: list[Interval], drain_us: int = 0) -> Cluster:
    """Return GPUs that are there in these intervals."""
    gpus = zip(on.gpus, there, strict=True)
    return replace(on, gpus=tuple(replace(gpu, available=Availability.of(own), drain_us=drain_us) for gpu, own in gpus))


def noting(name: str, log: Log) -> Callable[[], Policy]:
    """Return a policy that notes when which request comes to which node."""

    def make() -> Policy:
        policy = parse_policy(name)()
        assert isinstance(policy, Gateway)
        enqueue = policy.enqueue

        def noted(task: int, gpu: int) -> None:
            log.append((policy.site.now, task, gpu))
            enqueue(task, gpu)

        policy.enqueue = noted  # type: ignore[method-assign]
        return policy

    return make


def served_one_by_one(instance: Instance, timeline: Timeline, log: Log) -> list[Served]:
    """Return what one iteration after the other makes of requests that come to their nodes when a policy sent them."""
    queues: list[list[Sent]] = [[] for _ in instance.cluster.gpus]
    for now, task, gpu in log:
        queues[gpu].append((now, task))
    # How long inputs travel is in the log, for every run anew.
    requests = plain_requests(instance, timeline)
    there = [replace(request, after=[(before, 0) for before, _ in request.after]) for request in requests]
    return serve_sent(plain_nodes(instance), there, queues)


def random_absences(rng: random.Random, instance: Instance) -> Instance:
    """Return the instance on GPUs that come and go, the first of them in the end for good."""
    longest = int(instance.job_release_us[-1]) + 200
    drain = rng.choice((0, 0, 5, 40, 300))
    gpus = []
    for index, gpu in enumerate(instance.cluster.gpus):
        times = sorted(rng.sample(range(1, longest), 2 * rng.randint(0, 3)))
        ends = [0, *times, FOREVER]
        if index and rng.random() < 0.3:
            ends[-1] = longest + rng.randint(1, 100)
        own = Availability.of(zip(ends[::2], ends[1::2], strict=True))
        gpus.append(replace(gpu, available=own, drain_us=drain))
    return replace(instance, cluster=replace(instance.cluster, gpus=tuple(gpus)))


def drawn(rng: random.Random) -> Instance:
    """Return requests of one sort or another, on GPUs that come and go."""
    measured = rng.random() < 0.5
    plain = rng.choice(
        (
            lambda: random_chats(rng, rng.randint(1, 25), measured=measured),
            lambda: random_steps(rng, rng.randint(1, 8), measured),
            lambda: scarce(rng, rng.randint(2, 20)),
        )
    )()
    return random_absences(rng, plain)


def test_draws_equal_one_iteration_after_the_other(tmp_path: Path) -> None:
    """Engine, checker, metrics and files say what one iteration after the other does; many draws cut somebody."""
    cutting = served = 0
    for seed in range(DRAWS):
        rng = random.Random(seed)
        instance, log, name = drawn(rng), Log(), rng.choice(POLICIES)
        try:
            timeline = simulate(instance, noting(name, log), seed)
        except StalledError:  # tied to a GPU that has gone for good
            continue
        slow = served_one_by_one(instance, timeline, log)
        assert slow == as_served(timeline), seed
        assert check(instance, timeline) == [], seed
        found = measure(instance, timeline)
        assert isinstance(found, StreamMetrics)
        assert found.cut == sum(len(each.cut) for each in slow), seed
        assert found.preemptions == sum(each.preempted for each in slow), seed
        served, cutting = served + 1, cutting + (found.cut > 0)
        if found.cut:
            write_timeline(tmp_path / "timeline.json", instance, timeline, TimelineHeader())
            again = read_timeline(tmp_path / "timeline.json", instance).timeline
            assert as_served(again) == slow, seed
            assert check(instance, again) == [], seed
            with pytest.raises(PolicyError, match="no plan to carry out"):
                replay(instance, timeline)
        else:
            assert as_served(simulate(instance, replay(instance, timeline), seed)) == slow, seed
    assert served > DRAWS * 3 // 4
    assert cutting > DRAWS // 4
