"""Batches, shares and memory of tasks in the engine and under the policies: timelines derived by hand.

GPUs have 10 bytes and load one byte per microsecond; a transfer takes 1 us plus 1 us per byte.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.executor.scripted import Script, loads, runs
from tests.executor.test_properties import BATCHING
from tests.instances import chain, cluster, gpu, instance, network, random_serving_instance, task
from tests.night import by_day
from truenorth.executor import IllegalActionError, PolicyError, Site, instance_for, parse_noise, parse_policy, simulate
from truenorth.models import BatchClass, Cluster, InitialResidency, Job, Task, check, measure
from truenorth.models.workload import WHOLE

PAIRS = BatchClass("pairs", {"*": {1: 4, 2: 6}})
"""Two tasks together take 6 us, one 4."""


def shared(run: int, share: float, memory: int = 0, models: tuple[str, ...] = ()) -> Task:
    """Return a task that takes a share of a GPU and holds memory."""
    return Task("t", {"*": run}, models, (), int(share * WHOLE), memory)


def of(*tasks: Task) -> list[Job]:
    """Return a job per task, all released at 0."""
    return [Job(chain(each, name=f"w{index}"), 0) for index, each in enumerate(tasks)]


def pairs(*releases: int) -> list[Job]:
    """Return jobs of one task of the class `PAIRS`."""
    return [Job(chain(Task.of_class("t", PAIRS)), release) for release in releases]


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ("greedy", [(0, 0, 4), (0, 4, 10), (0, 4, 10), (0, 10, 14)]),
        ("off", [(0, 0, 4), (0, 4, 8), (0, 8, 12), (0, 12, 16)]),
        ("delay:2us", [(0, 1, 7), (0, 1, 7), (0, 7, 13), (0, 7, 13)]),
        ("delay:9us", [(0, 1, 7), (0, 1, 7), (0, 7, 13), (0, 7, 13)]),
    ],
)
def test_a_task_in_turn_takes_along_its_class(batch: str, expected: list[tuple[int, int, int]]) -> None:
    # Greedy: the first starts alone at 0; at 4 two of three that wait go together, then the last. With a delay the
    # first waits until it is full, at 1.
    on = instance(pairs(0, 1, 2, 3))
    timeline = simulate(on, parse_policy(f"jit:batch={batch}"))
    assert runs(timeline) == expected
    assert check(on, timeline) == []
    assert measure(on, timeline).batches == len({start for _, start, _ in expected})


@pytest.mark.parametrize("policy", ["srpt", "dally", "rltune"])
def test_a_central_queue_takes_along_what_waits_of_the_class(policy: str) -> None:
    # Two GPUs. The first takes the blocker of 6 us, the second, at 1, a task of the class alone; at 5 two of the three
    # that wait follow together, and the last one takes the GPU that has been idle by then no earlier than 6.
    on = instance([Job(chain(task("b", 6), name="b"), 0), *pairs(1, 2, 3, 4)], on=cluster(2))
    starts = sorted(simulate(on, parse_policy(policy)).start_us.tolist())
    assert starts == [0, 1, 5, 5, 6]


def test_a_delay_ends_and_holds_up_the_queue() -> None:
    # Nobody joins the first task: it starts when it has been ready for 3 us. The plain task behind it waits.
    on = instance([*pairs(0), Job(chain(task("p", 2), name="v"), 1)])
    assert runs(simulate(on, parse_policy("jit:batch=delay:3us"))) == [(0, 3, 7), (0, 7, 9)]


def test_other_classes_are_skipped_and_the_table_decides_what_is_full() -> None:
    # Behind the blocker [0, 5): pair, plain, pair, pair. The pair in turn takes the next one along, past the plain one.
    jobs = [Job(chain(task("b", 5), name="b"), 0), *pairs(1), Job(chain(task("p", 2), name="v"), 1), *pairs(1, 1)]
    timeline = simulate(instance(jobs), parse_policy("jit"))
    assert runs(timeline) == [(0, 0, 5), (0, 5, 11), (0, 11, 13), (0, 5, 11), (0, 13, 17)]


def test_shares_run_side_by_side_and_a_head_that_does_not_fit_blocks() -> None:
    # 0.5 and 0.25 run together; 0.5 needs the first to end at 4, and the 0.25 behind it waits for it.
    on = instance(of(shared(4, 0.5), shared(9, 0.25), shared(3, 0.5), shared(1, 0.25)))
    timeline = simulate(on, parse_policy("jit"))
    assert runs(timeline) == [(0, 0, 4), (0, 0, 9), (0, 4, 7), (0, 4, 5)]
    assert check(on, timeline) == []


def test_memory_of_tasks_makes_models_leave_and_limits_batches() -> None:
    # m (5 bytes) is there and used by nobody: the first task holds 6, so m leaves at its start, and the second, which
    # would hold 6 more, waits though half of the compute is free.
    on = instance(of(shared(4, 0.5, 6), shared(4, 0.5, 6)), {"m": 5}, initial=(InitialResidency(0, 0),))
    timeline = simulate(on, parse_policy("jit"))
    assert runs(timeline) == [(0, 0, 4), (0, 4, 8)]
    assert [stay.end_us for stay in timeline.residencies] == [0]
    # Four bytes each: two of three fit beside each other, though the table goes up to three.
    threes = BatchClass("threes", {"*": {1: 4, 3: 6}}, memory_bytes=4)
    on = instance([Job(chain(Task.of_class("t", threes)), 0) for _ in range(3)])
    assert runs(simulate(on, parse_policy("jit"))) == [(0, 0, 6), (0, 0, 6), (0, 6, 10)]


def test_a_load_waits_for_memory_that_a_running_task_holds() -> None:
    # The first holds 8 of 10 bytes until 4; only then can x (4 bytes) come in: [4, 8).
    on = instance(of(shared(4, 0.5, 8), shared(1, 0.5, 0, ("x",))), {"x": 4})
    timeline = simulate(on, parse_policy("jit"))
    assert runs(timeline) == [(0, 0, 4), (0, 8, 9)]
    assert loads(on, timeline) == [("x", 0, 4, 8, None)]


def test_two_batches_of_one_class_start_apart() -> None:
    # Half a GPU per batch, two tasks at most: the third task of the instant starts 1 us later.
    halves = BatchClass("halves", {"*": {1: 4, 2: 4}}, share=WHOLE // 2)
    on = instance([Job(chain(Task.of_class("t", halves)), 0) for _ in range(3)])
    timeline = simulate(on, parse_policy("jit"))
    assert sorted(timeline.start_us.tolist()) == [0, 0, 1]
    assert check(on, timeline) == []


def test_compass_counts_shares_of_what_waits() -> None:
    # Server 0 runs a task of 10 us at half of it: 5 us of work until all of it is free. Server 1 has 6 us of its own. A
    # task that takes a whole GPU goes to server 0, where it would have gone to server 1 had the full 10 us counted.
    kinds = Cluster((gpu(0), gpu(1, kind="B")), network())
    half = Task("h", {"A": 10}, (), (), WHOLE // 2)
    jobs = [
        Job(chain(half, name="half"), 0),
        Job(chain(task("o", {"B": 6}), name="other"), 0),
        Job(chain(task("t", 1)), 0, ingress=1),
    ]
    timeline = simulate(instance(jobs, on=kinds), parse_policy("compass:period=0us"))
    assert timeline.place.tolist() == [0, 1, 0]


REFUSED: dict[str, list[tuple[int, Callable[[Site], None]]]] = {
    "T3b task 0: a batch of 3 is too large": [(0, lambda site: site.start(0, 1, 2))],
    "T3b task 0: task 3 is on another GPU or of another batch class": [(0, lambda site: site.start(0, 3))],
    "T3b task 0: a task is named twice": [(0, lambda site: site.start(0, 0))],
    "T1 task 0: has no GPU yet, or has started": [(0, lambda site: site.start(0)), (1, lambda site: site.start(1, 0))],
}


@pytest.mark.parametrize("message", REFUSED)
def test_the_site_refuses_batches_that_are_none(message: str) -> None:
    on = instance([*pairs(0, 0, 0), Job(chain(task("p", 2), name="v"), 0)])
    place = [(0, lambda site, t=t: site.assign(t, 0)) for t in range(4)]
    with pytest.raises(IllegalActionError, match=message):
        simulate(on, lambda: Script(*place, *REFUSED[message]))


@pytest.mark.parametrize("policy", BATCHING)
@pytest.mark.parametrize("noise", by_day(["run=uniform:0.9,load=lognormal:0.7", None], 1))
def test_every_policy_serves_batches_shares_and_memory(policy: str, noise: str | None) -> None:
    batched = 0
    for seed in range(12):
        parsed = parse_policy(policy)
        on = instance_for(random_serving_instance(random.Random(seed), max_tasks=9), parsed)
        try:
            timeline = simulate(on, parsed, seed, None if noise is None else parse_noise(noise))
        except PolicyError as error:
            if "swaps nothing" in str(error):
                continue  # a static placement does not exist
            raise
        assert check(on, timeline) == []
        batched += (measure(on, timeline).mean_batch_size or 0) > 1
    assert policy.startswith(("static", "compass-released")) or "off" in policy or batched
