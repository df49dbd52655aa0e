"""What holds for every online policy on random instances."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from executor import PolicyError, instance_for, parse_noise, parse_policy, simulate
from models import Instance, Timeline, check
from tests.instances import random_instance

POLICIES = (
    "compass",
    "compass:adjust=off,prefetch=0,evict=fifo,period=4us,enqueue=last",
    "compass:remaining=off,period=0us,lookahead=1,prefetch=3,threshold=0",
    "compass-released",
    "compass-released:adjust=on,staleness=2us,remaining=on,shared=on",
    "jit",
    "jit:period=0us",
    "srpt",
    "srpt:order=latency,period=3us,enqueue=last",
    "heft",
    "hash",
    "static",
)
NOISE = parse_noise("run=uniform:0.9,load=lognormal:0.7")


def run(on: Instance, policy: str, seed: int, noisy: bool = False) -> tuple[Instance, Timeline] | None:
    """Return the instance and the timeline, or None if a static placement does not exist."""
    parsed = parse_policy(policy)
    on = instance_for(on, parsed)
    try:
        return on, simulate(on, parsed, seed, NOISE if noisy else None)
    except PolicyError as error:
        if policy == "static" and "swaps nothing" in str(error):
            return None
        raise


@pytest.mark.parametrize("policy", POLICIES)
def test_every_timeline_keeps_the_rules(policy: str) -> None:
    for seed in range(60):
        made = run(random_instance(random.Random(seed), max_tasks=9), policy, seed)
        if made is not None:
            on, timeline = made
            assert check(on, timeline) == []
            assert timeline.realised == policy.startswith("compass-released")
            first = min((r.load_start_us for r in timeline.residencies if not r.initial), default=on.jobs[0].release_us)
            assert first >= on.jobs[0].release_us


@pytest.mark.parametrize("policy", POLICIES)
def test_noise_breaks_no_rule_and_is_set_by_the_seed(policy: str) -> None:
    for seed in range(30):
        drawn = random_instance(random.Random(seed), max_tasks=9)
        made, again = run(drawn, policy, seed, noisy=True), run(drawn, policy, seed, noisy=True)
        if made is not None and again is not None:
            assert made[1].realised
            assert check(*made) == []
            assert (made[1].end_us == again[1].end_us).all()
            assert made[1].residencies == again[1].residencies


def actions(on: Instance, timeline: Timeline, before_us: int, tasks: int) -> list[tuple[object, ...]]:
    """Return everything that was done before a time, with the ends known by then."""
    done: list[tuple[object, ...]] = []
    for task in np.flatnonzero(timeline.start_us < before_us).tolist():
        assert task < tasks, "a task ran before its job was released"
        ran_until = int(timeline.end_us[task]) if timeline.end_us[task] < before_us else None
        done.append((task, int(timeline.gpu[task]), int(timeline.start_us[task]), ran_until))
    for r in timeline.residencies:
        if r.load_start_us < before_us:
            end = r.end_us if r.end_us is not None and r.end_us < before_us else None
            ready = r.ready_us if r.ready_us < before_us else None
            done.append((on.models[r.model].name, r.gpu, r.slot, r.load_start_us, ready, end))
    return done


def futures() -> Iterator[tuple[int, Instance, Instance, int, int]]:
    """Yield a seed, two instances, the time before which they are alike, and their common tasks.

    The first jobs are kept, the rest is drawn anew from the same workflows, no earlier than before.
    """
    for seed in range(120):
        rng = random.Random(seed)
        on = random_instance(rng, max_tasks=12)
        kept = rng.randint(1, len(on.jobs))
        known = {id(job.workflow): job.workflow for job in on.jobs[:kept]}
        if {id(job.workflow) for job in on.jobs} != set(known):
            continue  # a workflow that is met only later belongs to what is known beforehand
        release = on.jobs[kept - 1].release_us + rng.randint(0, 5)
        others = [type(on.jobs[0])(rng.choice(list(known.values())), release + 2 * k) for k in range(rng.randint(0, 3))]
        changed = Instance(
            on.cluster, on.models, (*on.jobs[:kept], *others), on.overlap_loads, on.initial, on.restrictions
        )
        before = min([job.release_us for job in (*on.jobs[kept:], *others)], default=10**9)
        yield seed, on, changed, before, int(on.job_first_task[kept])


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_past_does_not_depend_on_the_future(policy: str, noisy: bool) -> None:
    # Nothing that is done before the first release that differs may change.
    compared = 0
    for seed, on, changed, before, tasks in futures():
        first, second = run(on, policy, seed, noisy), run(changed, policy, seed, noisy)
        assert (first is None) == (second is None)
        if first is not None and second is not None:
            assert actions(*first, before, tasks) == actions(*second, before, tasks)
            compared += 1
    assert compared > 20
