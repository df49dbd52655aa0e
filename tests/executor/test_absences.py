"""GPUs that come and go under the engine: decisions by hand, every policy on random instances, and plans replayed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.executor.scripted import Script, loads, runs
from tests.instances import chain, cluster, gpu, instance, network, random_instance, random_serving_instance, task
from tests.random_instances import with_absences
from truenorth.executor import POLICIES, IllegalActionError, PolicyError, Site, parse_policy, replay, simulate
from truenorth.executor.noise import parse_noise
from truenorth.models import Cluster, Instance, Job, Objective, check
from truenorth.models.cluster import FOREVER, Availability
from truenorth.models.features import Feature
from truenorth.solvers.exact import exhaustive

ONLINE = [
    name
    for name, of in POLICIES.items()
    if name != "compass-released" and {Feature.ABSENCES, Feature.SLOTS} <= of.supports
]


def there(*intervals: tuple[int, int]) -> Availability:
    return Availability.of(intervals)


def two(*intervals: tuple[int, int]) -> Cluster:
    """Return a GPU that stays, and one that is there in these intervals."""
    return Cluster((gpu(0), gpu(1, available=there(*intervals))), network())


def single(releases: list[int], run_us: int, on: Cluster, model: bool = False) -> Instance:
    work = chain(task("t", run_us, ["m"] if model else []))
    return instance([Job(work, release) for release in releases], {"m": 4} if model else None, on)


def test_what_has_not_started_returns_and_what_waits_is_placed_when_a_gpu_comes() -> None:
    # The only GPU takes one run of 4 us before it goes at 6; the second task waits until it is back.
    on = cluster(1, available=there((0, 6), (20, FOREVER)))
    assert runs(simulate(single([0, 0], 4, on), parse_policy("jit"))) == [(0, 0, 4), (0, 20, 24)]
    # A second GPU that comes at 2 takes it then; nobody waits for it before.
    assert runs(simulate(single([0, 0], 4, two((2, FOREVER))), parse_policy("jit"))) == [(0, 0, 4), (0, 4, 8)]
    assert runs(simulate(single([0, 3], 4, two((2, FOREVER))), parse_policy("jit"))) == [(0, 0, 4), (1, 3, 7)]


def test_memory_is_empty_when_a_gpu_comes_back() -> None:
    on = cluster(1, available=there((0, 9), (20, FOREVER)))
    built = single([0, 8], 3, on, model=True)
    timeline = simulate(built, parse_policy("jit"))
    assert runs(timeline) == [(0, 4, 7), (0, 24, 27)]
    assert loads(built, timeline) == [("m", 0, 0, 4, 9), ("m", 0, 20, 24, None)]


def test_a_run_that_cannot_end_in_time_goes_elsewhere() -> None:
    # At 5 the first GPU is free, and goes at 8: too soon for 4 us, though not for 3.
    on = Cluster((gpu(0, available=there((0, 8))), gpu(1)), network())
    assert runs(simulate(single([0, 0, 5], 4, on), parse_policy("srpt")))[2] == (1, 5, 9)
    assert runs(simulate(single([0, 0, 5], 3, on), parse_policy("srpt")))[2] == (0, 5, 8)


def test_the_engine_refuses_what_breaks_a1() -> None:
    def act(at_us: int, action: Any) -> None:
        simulate(single([0, 0], 4, two((3, 9)), model=True), lambda: Script((at_us, action), (30, lambda site: None)))

    def started(site: Site) -> None:
        site.assign(0, 1)
        site.load(1, 0)
        site.wake(8)

    with pytest.raises(IllegalActionError, match="T1 task 0: GPU 1 is not eligible; allowed are 0"):
        act(2, lambda site: site.assign(0, 1))
    with pytest.raises(IllegalActionError, match="A1 model 0: would be ready at 10 us, and GPU 1 goes at 9 us"):
        act(6, lambda site: site.load(1, 0))
    with pytest.raises(IllegalActionError, match="A1 model 0: would be ready at 14 us, and GPU 1 is not there"):
        act(10, lambda site: site.load(1, 0))
    late = Script((3, started), (8, lambda site: site.start(0)))
    with pytest.raises(IllegalActionError, match="A1 task 0: would end at 12 us, and GPU 1 goes at 9 us"):
        simulate(single([0, 0], 4, two((3, 9)), model=True), lambda: late)


def test_a_task_that_fits_no_interval_is_told() -> None:
    on = cluster(1, available=there((0, 3), (5, 8)))
    with pytest.raises(PolicyError, match="1 tasks were never started, and nothing more will happen"):
        simulate(single([0], 4, on), parse_policy("jit"))


def test_who_overruns_keeps_its_models() -> None:
    on = cluster(1, available=there((0, 9), (10, FOREVER)))
    built = single([0, 0], 4, on, model=True)
    noise = parse_noise("run=uniform:0.5")
    ran = [simulate(built, parse_policy("jit"), seed=seed, noise=noise) for seed in range(12)]
    assert all(check(built, timeline) == [] for timeline in ran)
    late = [timeline for timeline in ran if (timeline.residencies[0].end_us or 0) > 9]
    assert late
    for timeline in late:  # the second load begins when the run has ended, though the GPU is to be back at 10
        first, second = timeline.residencies
        assert first.end_us == timeline.end_us.min() > 9
        assert second.load_start_us == max(10, int(timeline.end_us.min()))


def drawn(seed: int) -> Instance:
    """Return an instance in which every task fits some interval, a GPU that never goes."""
    rng = random.Random(seed)
    plain = (random_serving_instance if seed % 3 == 2 else random_instance)(rng, 8)
    absent = with_absences(rng, plain)
    for spare in plain.cluster.gpus:
        last = gpu(9, **{name: getattr(spare, name) for name in ("kind", "memory_bytes", "slots", "load_bandwidth")})
        if all(
            absent.run_time(task, index) >= 0
            for index, own in enumerate(plain.cluster.gpus)
            if own is spare
            for task in range(absent.n_tasks)
        ):
            on = Cluster((*absent.cluster.gpus, last), absent.cluster.network)
            return Instance(
                on, plain.models, plain.jobs, plain.overlap_loads, absent.initial, catalogue=plain.catalogue
            )
    return drawn(seed + 1000)


@pytest.mark.parametrize(
    "name", [*ONLINE, "lru:keep_alive=3us", "dally:tau=inf", "compass:batch=greedy", "hadar:windows=3"]
)
def test_every_policy_does_every_job_by_the_rules(name: str) -> None:
    done = 0
    noise = parse_noise("run=lognormal:0.5,load=uniform:0.5")
    for seed in range(16):
        built = drawn(seed)
        try:
            ran = [simulate(built, parse_policy(name), seed=seed, noise=given) for given in (None, noise)]
        except PolicyError:
            if name != "static":  # whose pins do not fit at once, or lie on GPUs that go for good
                raise
            continue
        assert [check(built, timeline) for timeline in ran] == [[], []]
        done += 1
    assert done > 3


@pytest.mark.parametrize("name", ["srpt", "compass", "hadar"])
def test_absences_that_are_still_to_come_change_nothing_before(name: str) -> None:
    releases = [0, 1, 2, 6, 7, 14]
    late = [
        simulate(single(releases, 3, two((2, 12), *more), model=True), parse_policy(name)) for more in ((), ((15, 30),))
    ]
    before = [[run for run in runs(timeline) if run[1] < 15] for timeline in late]
    assert before[0][:3] == before[1][:3]


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_is_replayed_as_it_stands(seed: int) -> None:
    rng = random.Random(seed)
    draw = random_serving_instance if seed % 3 == 2 else random_instance
    built = with_absences(rng, draw(rng, 4, restricted=seed % 4 == 3))
    plan = exhaustive.solve(built, list(Objective)[seed % 7]).timeline
    if plan is None:
        return
    timeline = simulate(built, replay(built, plan))
    assert check(built, timeline) == []
    assert (timeline.start_us <= plan.start_us).all()


def test_those_who_cannot_say_so() -> None:
    with pytest.raises(PolicyError, match="compass-released knows no servers that come and go"):
        simulate(single([0], 4, two((2, 9))), parse_policy("compass-released:shared=on"))
