"""Nodes that go while they serve: who is cut, who is sent back, and what is reported of it, by hand and by draw."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.streams.one_by_one import Sent, Served, serve_sent
from tests.streams.test_measured_engines import beside_loads, scarce
from tests.streams.worlds import (
    POLICIES,
    as_served,
    chats,
    cluster,
    plain_nodes,
    plain_requests,
    random_chats,
    random_steps,
)
from truenorth.executor import PolicyError, parse_policy, replay, simulate
from truenorth.executor.errors import StalledError
from truenorth.executor.noise import parse_noise
from truenorth.executor.policies.gateways import Gateway
from truenorth.executor.policy import Policy
from truenorth.models import Cluster, Instance, Objective, Timeline, Tokens, check, measure
from truenorth.models.cluster import FOREVER, Availability, Interval
from truenorth.models.features import missing
from truenorth.models.identity import scenario_hash
from truenorth.models.metrics import StreamMetrics
from truenorth.models.objective import timeline_value
from truenorth.models.scenario import InputError, TimelineHeader, load_scenario, read_timeline, write_timeline
from truenorth.models.streams import StreamSpeed
from truenorth.models.timeline import CutRun
from truenorth.planner.answers.plan import solve, starts_for
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.budget import Budget

DRAWS = int(os.environ.get("DRAWS", "120"))
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
    requests = plain_requests(instance, timeline.place)
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


def test_models_leave_with_their_node() -> None:
    """Loads, evictions and KV beside them: the checker goes through all of it, noise on answers included."""
    noise = parse_noise("run=lognormal:0.5,load=uniform:0.5")
    cutting = 0
    for seed in range(80):
        rng = random.Random(seed)
        instance = random_absences(rng, beside_loads(rng))
        for spread in (None, noise):
            timeline = simulate(instance, parse_policy(rng.choice(POLICIES)), seed, spread)
            assert check(instance, timeline) == [], seed
            assert measure(instance, timeline).compute_busy <= 1
            cutting += len(timeline.cuts) > 0
    assert cutting > 20


def test_a_cut_by_hand() -> None:
    # [0, 20): two chunks, first token at 20, the next at 25, 30, ..., 50, when node 0 goes and 3 are missing. Node 1
    # computes all anew: [50, 70) the prompt, then 9 steps until 115. What was sent at 20 stays sent.
    on = going(cluster(2), [(0, 50)], [(30, FOREVER)])
    instance = chats(on, {"A": PLAIN}, [(0, Tokens(20, 20, 10))])
    timeline = simulate(instance, parse_policy("least_requests"))
    assert as_served(timeline) == [Served(50, 20, 115, cut=[(0, 0, 50)])]
    assert check(instance, timeline) == []
    found = measure(instance, timeline)
    assert isinstance(found, StreamMetrics)
    assert (found.cut, found.mean_latency_s, found.mean_first_token_s) == (1, 115e-6, 20e-6)
    assert found.mean_time_per_token_s == pytest.approx(95e-6 / 9)
    # Both runs kept their node busy: [0, 50) of [0, 50), and [50, 115) of [30, 115).
    assert found.compute_busy == pytest.approx(115 / 135)
    assert found.gpus_used == 2
    # With 7 tokens it ends as its node goes; had the node gone 2 us before, the last step would be lost.
    in_time = chats(on, {"A": PLAIN}, [(0, Tokens(20, 20, 7))])
    assert as_served(simulate(in_time, parse_policy("least_requests"))) == [Served(0, 20, 50)]
    sooner = chats(going(cluster(2), [(0, 48)], [(30, FOREVER)]), {"A": PLAIN}, [(0, Tokens(20, 20, 7))])
    assert as_served(simulate(sooner, parse_policy("least_requests"))) == [Served(48, 20, 98, cut=[(0, 0, 48)])]


ONE = replace(PLAIN, seats=1, step_us={1: 5})
"""One request at a time: one of 10 and 5 tokens takes 10 + 4 x 5 = 30 us."""
RELEASES = (50, 50, 55, 70, 155, 158, 159, 165)
ROLLING = [(0, 100), (150, FOREVER)], [(0, 200), (250, FOREVER)]


def rolling(drain_us: int) -> Instance:
    """Return requests on two nodes that are started anew, one after the other."""
    on = going(cluster(2), *ROLLING, drain_us=drain_us)
    return chats(on, {"A": ONE}, [(release, Tokens(10, 10, 5)) for release in RELEASES])


def test_a_rolling_restart_by_hand() -> None:
    # In turn to nodes 0 and 1. Without a drain the third waits behind the first and joins node 0 at 80, is cut at 100,
    # and waits on node 1 for the fourth. The last joins node 1 at 188 and is cut at 200.
    at_once = rolling(0)
    timeline = simulate(at_once, parse_policy("round_robin"))
    ends = [(50, 60, 80), (50, 60, 80), (110, 90, 140), (80, 90, 110), (155, 165, 185), (158, 168, 188)]
    ends += [(185, 195, 215), (215, 198, 245)]
    served = [Served(*each) for each in ends]
    served[2].cut, served[7].cut = [(0, 80, 100)], [(1, 188, 200)]
    assert as_served(timeline) == served
    assert check(at_once, timeline) == []
    # Node 0 drains from 60 on: the third goes to node 1 before the fourth. Node 1 from 160 on: the last goes to node 0.
    drained = rolling(40)
    timeline = simulate(drained, parse_policy("round_robin"))
    ends[2], ends[3], ends[7] = (80, 90, 110), (110, 120, 140), (215, 225, 245)
    assert as_served(timeline) == [Served(*each) for each in ends]
    assert check(drained, timeline) == []
    assert timeline.place.tolist() == [0, 1, 1, 1, 0, 1, 0, 0]


def test_a_plan_may_not_be_cut(tmp_path: Path) -> None:
    instance = chats(going(cluster(2), [(0, 50)], [(30, FOREVER)]), {"A": PLAIN}, [(0, Tokens(20, 20, 10))])
    timeline = simulate(instance, parse_policy("least_requests"))
    assert timeline.served is not None
    whole = replace(timeline.served, cut=(), order=None, first_us=np.array([20]))
    plan = replace(timeline, place=np.array([0]), start_us=np.array([0]), end_us=np.array([65]), served=whole)
    said = "E3 job 0 task answer: has not ended when s0/g0 goes (found 65, allowed 50)"
    assert [str(violation) for violation in check(instance, plan)] == [said]
    with pytest.raises(PolicyError, match="no plan to carry out: 1 runs of requests were cut"):
        replay(instance, timeline)
    write_timeline(tmp_path / "plan.json", instance, timeline, TimelineHeader(status="FEASIBLE"))
    with pytest.raises(InputError, match=r"tasks\[0\]\.attempts: stands in a plan, in which no request may be cut"):
        read_timeline(tmp_path / "plan.json", instance)
    made = solve(instance, Objective.MEAN_LATENCY, Budget(2))
    assert made.timeline is not None
    # On node 1, from when it comes.
    assert (as_served(made.timeline), made.timeline.cuts) == ([Served(30, 50, 95)], ())
    given = solve(instance, Objective.MEAN_LATENCY, Budget(2), starts=[timeline])
    assert given.timeline is not None
    assert as_served(given.timeline) == [Served(30, 50, 95)]


def test_a_plan_that_overruns_cannot_be_carried_out() -> None:
    instance = chats(going(cluster(1), [(0, 50)]), {"A": PLAIN}, [(0, Tokens(20, 20, 7))])
    plan = simulate(instance, parse_policy("round_robin"))
    late = next(seed for seed in range(20) if parse_noise("run=uniform:0.5").run.draw(7, f"{seed} run 0") > 7)  # type: ignore[union-attr]
    with pytest.raises(PolicyError, match="GPU 0 went while it served task 0"):
        simulate(instance, replay(instance, plan), late, parse_noise("run=uniform:0.5"))


@pytest.mark.parametrize(
    ("cut", "found"),
    [
        ((0, 0, 49), "E3 job 0 task answer: is cut, but not as s0/g0 goes (found 49, allowed 50)"),
        ((1, 30, 50), "E3 job 0 task answer: is cut, but not as s1/g0 goes (found 50, allowed never)"),
        ((0, 55, 60), "E3 job 0 task answer: joins while s0/g0 is away (found 55, allowed while it is there)"),
        ((0, 5, 50), "S3 job 0 task answer: first token at another time (found 20, allowed 25)"),
    ],
)
def test_the_checker_takes_cut_runs_again(cut: tuple[int, int, int], found: str) -> None:
    instance = chats(going(cluster(2), [(0, 50)], [(30, FOREVER)]), {"A": PLAIN}, [(0, Tokens(20, 20, 10))])
    timeline = simulate(instance, parse_policy("least_requests"))
    assert timeline.served is not None
    other = replace(timeline, served=replace(timeline.served, cut=(CutRun(0, *cut, 0),)))
    assert found in [str(violation) for violation in check(instance, other)]


def test_no_request_joins_a_node_that_drains() -> None:
    instance = chats(going(cluster(1), [(0, 100), (150, FOREVER)], drain_us=40), {"A": ONE}, [(55, Tokens(10, 10, 3))])
    timeline = simulate(instance, parse_policy("round_robin"))
    assert as_served(timeline) == [Served(55, 65, 75)]
    assert timeline.served is not None
    served = replace(timeline.served, first_us=np.array([70]))
    late = replace(timeline, start_us=np.array([60]), end_us=np.array([80]), served=served)
    said = "E3 job 0 task answer: joins while s0/g0 drains (found 60, allowed before 60)"
    assert [str(violation) for violation in check(instance, late)] == [said]
    # Released at 60 it waits until the node is back.
    waits = chats(instance.cluster, {"A": ONE}, [(60, Tokens(10, 10, 3))])
    assert as_served(simulate(waits, parse_policy("round_robin"))) == [Served(150, 160, 170)]


DRAINING = """
cluster:
  groups:
    - {count: 2, DRAINgpu: {kind: H100, memory: 78 GB, load_bandwidth: 50 GB/s}}
  away: {s0: [[100 s, 110 s]], s1: [[150 s, 160 s]]}
  network: {bandwidth: 10 GB/s}
models: {chat: {weights: 16 GB}}
streams:
  chat: {models: [chat], prefill: 8000 /s, chunk: 2048, concurrency: 64, step: {1: 12.5 ms, 64: 40 ms}}
workflows:
  chat: {tasks: {answer: {stream: chat, prompt: 1000, output_tokens: 600}}}
workload:
  jobs: [{release: 10 s, workflow: chat}]
"""


def test_an_idle_node_that_goes_late_enough_serves(tmp_path: Path) -> None:
    # 16 GB at 50 GB/s take 0.32 s, 1000 tokens at 8000 /s 0.125 s, 599 steps of 12.5 ms 7.4875 s. At worst, with 63
    # others beside it, it could take longer than the node stays: that keeps it from no node any more (107.9 s before).
    hashes = {}
    for drain in ("", "drain: 60 s, ", "drain: 0 s, "):
        (tmp_path / "scenario.yaml").write_text(DRAINING.replace("DRAIN", drain), encoding="utf-8")
        scenario = load_scenario(tmp_path / "scenario.yaml")
        timeline = simulate(scenario.instance, parse_policy("least_tokens"))
        assert measure(scenario.instance, timeline).mean_latency_s == 7.9325
        hashes[drain] = scenario_hash(scenario.instance)
    assert hashes[""] == hashes["drain: 0 s, "] != hashes["drain: 60 s, "]
    stays = DRAINING.replace("DRAIN", "drain: 60 s, ").replace(
        "  away: {s0: [[100 s, 110 s]], s1: [[150 s, 160 s]]}\n", ""
    )
    (tmp_path / "stays.yaml").write_text(stays, encoding="utf-8")
    (tmp_path / "plain.yaml").write_text(stays.replace("drain: 60 s, ", ""), encoding="utf-8")
    alike = [scenario_hash(load_scenario(tmp_path / name).instance) for name in ("stays.yaml", "plain.yaml")]
    assert alike[0] == alike[1]


def test_no_bound_above_what_happens_and_no_plan_with_cuts() -> None:
    """Formulas hold for runs that are cut as well: these only take more of the GPUs."""
    for seed in range(30):
        rng = random.Random(seed)
        instance = random_absences(rng, random_chats(rng, 8, measured=seed % 2 == 0))
        timeline = simulate(instance, parse_policy("least_requests"), seed)
        for objective in (Objective.MEAN_LATENCY, Objective.MEAN_SLOWDOWN, Objective.MAX_SLOWDOWN):
            value = timeline_value(objective, instance, timeline)
            methods = [name for name in closed_form.METHODS if not missing(instance, closed_form.SUPPORTS[name])]
            assert methods == ["critical_path", "stream_prices"]
            bounds = [closed_form.METHODS[method](instance, objective) for method in methods]
            assert all(bound is None or bound <= value for bound in bounds), (seed, objective)
        plan = next(iter(starts_for(instance, seed, [timeline])(lambda: 60.0)))
        assert check(instance, plan) == []
        assert plan.cuts == ()
        assert as_served(simulate(instance, replay(instance, plan), seed)) == as_served(plan)
