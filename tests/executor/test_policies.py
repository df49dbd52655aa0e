"""JIT, HEFT, hash, static and the released Compass: timelines derived by hand.

GPUs have 10 bytes and load one byte per microsecond; a transfer takes 1 us plus 1 us per byte.
"""

from __future__ import annotations

import tracemalloc

import pytest

from tests.executor.scripted import loads, runs
from tests.instances import chain, cluster, instance, task
from truenorth.executor import PolicyError, instance_for, parse_policy, simulate, twin_instance
from truenorth.models import InitialResidency, Instance, Job, Restrictions, check


def test_jit_takes_the_least_wait_and_load() -> None:
    # x (4 bytes) is on g1. Waits there: 0, 3, then 6 against a load of 4 on g0.
    jobs = [Job(chain(task("t", 3, ["x"])), 0) for _ in range(3)]
    on = instance(jobs, {"x": 4}, cluster(2), initial=(InitialResidency(1, 0),))
    timeline = simulate(on, parse_policy("jit:period=0us"))
    assert runs(timeline) == [(1, 0, 3), (1, 3, 6), (0, 4, 7)]


def test_jit_may_send_roots_by_hash() -> None:
    # crc32 of "0/a" is odd (4085470497), so a goes to g1; b follows to where nothing waits, the ingress g0.
    on = instance([Job(chain(task("a", 1), task("b", 1, after={"a": 0})), 0, ingress=0)], on=cluster(2))
    assert simulate(on, parse_policy("jit:roots=hash")).place.tolist() == [1, 0]
    assert simulate(on, parse_policy("jit")).place.tolist() == [0, 0]


def test_jit_places_a_task_when_its_last_predecessor_ends() -> None:
    # a: g0 [0, 2), b: g1 [0, 5). At 5 both GPUs are idle: the join goes to g0, where b's output (1 byte) is at 7.
    joined = chain(task("a", 2), task("b", 5), task("j", 1, after={"a": 1, "b": 1}))
    assert runs(simulate(instance([Job(joined, 0, ingress=0)], on=cluster(2)), parse_policy("jit:period=0us"))) == [
        (0, 0, 2),
        (1, 0, 5),
        (0, 7, 8),
    ]


def test_heft_is_blind_to_load_and_locality() -> None:
    # Two equal jobs arrive at g0 and stay, although g1 is idle and x is there: load [0, 4), runs [4, 9), [9, 14).
    jobs = [Job(chain(task("t", 5, ["x"])), 0, ingress=0) for _ in range(2)]
    on = instance(jobs, {"x": 4}, cluster(2), initial=(InitialResidency(1, 0),))
    assert runs(simulate(on, parse_policy("heft"))) == [(0, 4, 9), (0, 9, 14)]


def test_heft_spreads_the_tasks_of_one_job() -> None:
    # Ranks 5 and 4: the longer first, on g0; then g1 is available earlier.
    on = instance([Job(chain(task("a", 4), task("b", 5)), 0, ingress=0)], on=cluster(2))
    assert runs(simulate(on, parse_policy("heft"))) == [(1, 0, 4), (0, 0, 5)]


def test_hash_is_the_crc32_of_job_and_task() -> None:
    # crc32 of "0/a" 4085470497, of "0/b" 1787430043, of "1/a" 4064362262, of "1/b" 1799909036; modulo 3.
    work = chain(task("a", 1), task("b", 1))
    timeline = simulate(instance([Job(work, 0), Job(work, 0)], on=cluster(3)), parse_policy("hash"))
    assert timeline.place.tolist() == [0, 1, 2, 2]


def chain_of_jobs(count: int) -> Instance:
    """Return equal jobs of two tasks, one every 400 us, for two GPUs."""
    work = chain(task("a", 2), task("b", 3, after={"a": 0}))
    return instance([Job(work, 400 * job) for job in range(count)], on=cluster(2))


@pytest.mark.parametrize("policy", ["hash", "heft", "compass-released"])
def test_what_is_kept_does_not_grow_with_the_trace(policy: str) -> None:
    # Nobody reads the published view here; its log is taken in all the same.
    tracemalloc.start()
    peaks = []
    for jobs in (400, 1_600):
        on = chain_of_jobs(jobs)
        made = parse_policy(policy)()
        simulate(on, lambda made=made: made)  # type: ignore[misc]
        held = tracemalloc.take_snapshot().filter_traces((tracemalloc.Filter(True, "*executor/policies/*"),))
        peaks.append(sum(trace.size for trace in held.traces))
    tracemalloc.stop()
    assert peaks[1] <= peaks[0] + 20_000


def test_static_pins_by_demand_and_never_swaps() -> None:
    # a and b have 6 of 10 bytes, so each GPU holds one: a (demand 9) goes first, to g0, b (demand 3) to g1. Loads start
    # with the first release, at 2, and every task runs where its model is, however long it waits.
    a, b = chain(task("t", 9, ["a"]), name="wa"), chain(task("t", 3, ["b"]), name="wb")
    on = instance([Job(a, 2), Job(a, 2), Job(b, 2)], {"a": 6, "b": 6}, cluster(2))
    timeline = simulate(on, parse_policy("static:period=0us"))
    assert loads(on, timeline) == [("a", 0, 2, 8, None), ("b", 1, 2, 8, None)]
    assert runs(timeline) == [(0, 8, 17), (0, 17, 26), (1, 8, 11)]


def test_static_gives_room_that_is_left_to_the_greatest_demand_per_copy() -> None:
    # Three GPUs, one model each: a (demand 9), b (3); the third GPU takes a second copy of a.
    a, b = chain(task("t", 9, ["a"]), name="wa"), chain(task("t", 3, ["b"]), name="wb")
    on = instance([Job(a, 0), Job(a, 0), Job(b, 0)], {"a": 6, "b": 6}, cluster(3))
    timeline = simulate(on, parse_policy("static:period=0us"))
    assert [(model, gpu) for model, gpu, *_ in loads(on, timeline)] == [("a", 0), ("b", 1), ("a", 2)]
    assert timeline.place.tolist() == [0, 2, 1]


def test_static_falls_back_on_filling_up() -> None:
    # Balanced, a (5 bytes) would take g0, b (5) g1, and c (4), d (4) would share them: 9 bytes each, no room for e (2
    # bytes)... so the fullest GPU first: a and b on g0, c, d and e on g1.
    sizes = {"a": 5, "b": 5, "c": 4, "d": 4, "e": 2}
    work = [chain(task("t", 2, [name]), name=name) for name in sizes]
    on = instance([Job(each, 0) for each in work], sizes, cluster(2))
    timeline = simulate(on, parse_policy("static"))
    assert {(model, gpu) for model, gpu, *_ in loads(on, timeline)} == {
        ("a", 0),
        ("b", 0),
        ("c", 1),
        ("d", 1),
        ("e", 1),
    }


def test_static_refuses_what_does_not_fit_at_once() -> None:
    work = [chain(task("t", 2, [name]), name=name) for name in "abc"]
    on = instance([Job(each, 0) for each in work], dict.fromkeys("abc", 6), cluster(2))
    with pytest.raises(PolicyError, match="static swaps nothing, and c fit no eligible GPU"):
        simulate(on, parse_policy("static"))


def test_static_keeps_to_the_replicas() -> None:
    a = chain(task("t", 9, ["a"]))
    on = instance([Job(a, 0)], {"a": 6}, cluster(3), restrictions=Restrictions(max_replicas={"a": 2}, no_swaps=True))
    timeline = simulate(on, parse_policy("static"))
    assert [gpu for _, gpu, *_ in loads(on, timeline)] == [0, 1]
    assert check(on, timeline) == []


def shared(count: int = 1, initial: tuple[InitialResidency, ...] = ()) -> tuple[Job, Job]:
    """Return two jobs whose workflows share the model m."""
    return Job(chain(task("t", 1, ["m"]), name="w"), 0), Job(chain(task("t", 1, ["m"]), name="v"), 0)


def test_twin_instance_gives_each_workflow_its_own_models() -> None:
    on = instance(shared(), {"m": 4, "k": 1}, initial=(InitialResidency(0, 0),))
    twin = twin_instance(on)
    assert [(model.name, model.weight_bytes) for model in twin.models] == [("w/m", 4), ("v/m", 4), ("k", 1)]
    assert twin.initial == (InitialResidency(0, 0),)
    assert twin.needs == ((0,), (1,))
    assert twin_instance(twin) is twin


def test_released_loads_a_shared_model_twice() -> None:
    # One GPU: w/m [0, 4), run [4, 5), then v/m [5, 9), run [9, 10); 8 of 10 bytes.
    policy = parse_policy("compass-released")
    on = instance_for(instance(shared(), {"m": 4}), policy)
    timeline = simulate(on, policy)
    assert runs(timeline) == [(0, 4, 5), (0, 9, 10)]
    assert loads(on, timeline) == [("w/m", 0, 0, 4, None), ("v/m", 0, 5, 9, None)]
    assert timeline.realised
    assert check(on, timeline) == []
    with pytest.raises(PolicyError, match="instance_for"):
        simulate(instance(shared(), {"m": 4}), policy)


def test_released_writes_back_before_it_loads() -> None:
    # m (4 bytes) and n (5) are evicted, oldest first, until x (8) fits: 4 + 5 + 8 us in a row, the GPU idle.
    work = chain(task("x", 1, ["x"]), task("m", 1, ["m"], {"x": 0}), task("n", 1, ["n"], {"x": 0}))
    on = instance([Job(work, 0)], {"x": 8, "m": 4, "n": 5}, initial=(InitialResidency(0, 1), InitialResidency(0, 2)))
    on = twin_instance(on)
    timeline = simulate(on, parse_policy("compass-released"))
    assert runs(timeline)[0] == (0, 17, 18)
    assert loads(on, timeline)[0] == ("w/x", 0, 0, 17, 18)
    assert check(on, timeline) == []


def test_released_does_not_count_the_running_task() -> None:
    # At 5 the task on g0 has 95 us to go, but the queue is empty: g0 again. Corrected, it goes to g1.
    jobs = [Job(chain(task("t", 100), name="v"), 0), Job(chain(task("t", 1)), 5, ingress=1)]
    on = instance(jobs, on=cluster(2))
    assert simulate(on, parse_policy("compass-released")).place.tolist() == [0, 0]
    assert simulate(on, parse_policy("compass-released:remaining=on")).place.tolist() == [0, 1]


@pytest.mark.parametrize(("ingress", "where"), [(0, 0), (1, 1)])
def test_released_sees_its_own_queue_stale_and_others_fresh(ingress: int, where: int) -> None:
    # g0 runs a task and has 9 us in its queue since 5. At 8 with 10 us of staleness, server 0 sees its own queue empty
    # and takes g0; server 1 sees it as it is and takes g1.
    work = chain(task("t", 100), name="v")
    jobs = [
        Job(work, 0, ingress=0),
        Job(chain(task("t", 9), name="u"), 5, ingress=0),
        Job(chain(task("t", 1)), 8, ingress=ingress),
    ]
    timeline = simulate(instance(jobs, on=cluster(2)), parse_policy("compass-released:staleness=10us"))
    assert timeline.place.tolist() == [0, 0, where]


def test_released_adjusts_when_the_predecessor_starts() -> None:
    # g0 runs a [0, 9) and then b, whose successor c (2 us) is planned behind it. When b starts, at 9, b itself is still
    # in the load: 5 us, more than 1.5 x 2, so c goes to the idle g1: 14 + transfer 1. Read otherwise c stayed.
    work = chain(task("b", 5), task("c", 2, after={"b": 0}))
    jobs = [Job(chain(task("t", 9), name="v"), 0, ingress=1), Job(work, 1, ingress=1)]
    on = instance(jobs, on=cluster(2))
    assert runs(simulate(on, parse_policy("compass-released:staleness=0us"))) == [(0, 0, 9), (0, 9, 14), (0, 14, 16)]
    adjusted = simulate(on, parse_policy("compass-released:staleness=0us,adjust=on"))
    assert runs(adjusted) == [(0, 0, 9), (0, 9, 14), (1, 15, 17)]


def test_static_takes_workflows_alike_in_all_but_run_times_for_one() -> None:
    # A catalogue with three workflows of a, of 2, 3 and 4 us, tells nothing of how many will come: the mean demand of a
    # is 3, that of b 4. Most demand first: b on g0, a on g1; the third GPU goes to b, 4 per copy against 3.
    a = [chain(task("t", run, ["a"]), name=f"wa{run}") for run in (2, 3, 4)]
    b = chain(task("t", 4, ["b"]), name="wb")
    on = instance([*(Job(each, 0) for each in a), Job(b, 0)], {"a": 6, "b": 6}, cluster(3))
    timeline = simulate(on, parse_policy("static:period=0us"))
    assert [(model, gpu) for model, gpu, *_ in loads(on, timeline)] == [("b", 0), ("a", 1), ("b", 2)]


def test_static_pins_what_the_catalogue_lists_whether_or_not_it_comes() -> None:
    # Demand a 9, b 3, c 6: a on g0, c on g1, b on g2, although no job asks for b or c. Whoever says what will come
    # gives all of the room to a.
    work = [chain(task("t", run, [name]), name=f"w{name}") for name, run in (("a", 9), ("b", 3), ("c", 6))]
    on = instance([Job(work[0], 0)], dict.fromkeys("abc", 6), cluster(3), catalogue=tuple(work))
    timeline = simulate(on, parse_policy("static"))
    assert [(model, gpu) for model, gpu, *_ in loads(on, timeline)] == [("a", 0), ("c", 1), ("b", 2)]
    named = simulate(on, parse_policy("static:workflows=wa"))
    assert [(model, gpu) for model, gpu, *_ in loads(on, named)] == [("a", 0), ("a", 1), ("a", 2)]
    both = simulate(on, parse_policy("static:workflows=wa+wb"))
    assert [(model, gpu) for model, gpu, *_ in loads(on, both)] == [("a", 0), ("b", 1), ("a", 2)]


@pytest.mark.parametrize(
    ("policy", "catalogue", "said"),
    [
        ("static", "", "must have a catalogue"),
        ("static:workflows=wx", "ab", r"the catalogue has no 'wx'"),
        ("static:workflows=wb", "ab", "no eligible GPU was given all of a beforehand"),
    ],
)
def test_static_says_what_it_was_not_told(policy: str, catalogue: str, said: str) -> None:
    work = {name: chain(task("t", 2, [name]), name=f"w{name}") for name in "ab"}
    known = tuple(work[name] for name in catalogue)
    on = instance([Job(work["a"], 0)], {"a": 6, "b": 6}, cluster(2), catalogue=known)
    with pytest.raises(PolicyError, match=said):
        simulate(on, parse_policy(policy))


def test_static_leaves_out_what_the_cluster_cannot_run() -> None:
    # The catalogue lists a workflow for another kind of GPU: no job can ask for it here.
    work, elsewhere = chain(task("t", 2, ["a"])), chain(task("t", {"B": 2}, ["b"]), name="elsewhere")
    on = instance([Job(work, 0)], {"a": 6, "b": 6}, cluster(1), catalogue=(elsewhere, work))
    timeline = simulate(on, parse_policy("static"))
    assert [model for model, *_ in loads(on, timeline)] == ["a"]


def test_a_sticky_task_does_not_wait_for_models_that_never_meet() -> None:
    # a is on g0, b on g1, and the task needs both: nobody brings them together while it waits. So it takes g0 at once,
    # where b (6 bytes) comes in by 6, and runs in [6, 8).
    on = instance(
        [Job(chain(task("t", 2, ["a", "b"])), 0, ingress=0)],
        {"a": 4, "b": 6},
        cluster(2),
        initial=(InitialResidency(0, 0), InitialResidency(1, 1)),
    )
    assert runs(simulate(on, parse_policy("dally:tau=inf"))) == [(0, 6, 8)]
