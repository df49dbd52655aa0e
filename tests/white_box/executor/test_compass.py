"""Compass: ranks, planning, doubled loads, the stale view and the adjustment, each derived by hand.

GPUs have 10 bytes and load one byte per microsecond; a transfer takes 1 us plus 1 us per byte.
"""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product

import pytest

from tests.executor.scripted import loads, runs
from tests.instances import chain, cluster, gpu, instance, network, task
from truenorth.executor import parse_policy, simulate
from truenorth.executor.device import VirtualDevice
from truenorth.executor.knowledge import WorkflowTables
from truenorth.executor.policies.planning import MeanTransfers, mean_run, rank_order
from truenorth.executor.policy import Policy
from truenorth.executor.site import Site
from truenorth.models import Cluster, InitialResidency, Instance, Job, Link, Workflow

DIAMOND = chain(
    task("a", 2),
    task("b", 3, after={"a": 2}),
    task("c", 5, after={"a": 0}),
    task("d", 1, after={"b": 4, "c": 1}),
)


def two_kinds() -> Cluster:
    """Return g0 of kind A and g1 of kind B."""
    return Cluster((gpu(0), gpu(1, kind="B")), network())


def site_of(on: Instance) -> Site:
    """Return the site at the release of the first job."""
    site = Site(on, VirtualDevice(), Policy())
    site.release(on.jobs[0], WorkflowTables.of(on, 0), 0)
    return site


def test_rank_order_counts_transfers() -> None:
    # rank(d) = 1; b: 3 + 5 + 1 = 9; c: 5 + 2 + 1 = 8; a: 2 + max(3 + 9, 1 + 8) = 14. By run times alone c came first.
    site = site_of(instance([Job(DIAMOND, 0)], on=cluster(2)))
    assert rank_order(site, 0, MeanTransfers(site)) == [0, 1, 2, 3]
    alone = site_of(instance([Job(DIAMOND, 0)], on=cluster(1)))  # no transfers: b 4, c 6
    assert rank_order(alone, 0, MeanTransfers(alone)) == [0, 2, 1, 3]


def test_ranks_take_means_over_workers_and_pairs() -> None:
    # Kinds A, A, B: t runs 2, 2, 8 us, mean 4; u runs on A only. Servers {g0, g1} (within: 3 us) and {g2} (between:
    # 9 us): of 6 ordered pairs 2 are within, so the mean transfer is (2 x 3 + 4 x 9) / 6 = 7.
    chained = chain(task("t", {"A": 2, "B": 8}), task("u", {"A": 5}, after={"t": 0}))
    servers = (gpu(0, 0), gpu(1, 0), gpu(2, 1, kind="B"))
    gpus = tuple(type(g)(f"s{g.server}/g{i}", g.server, g.kind, 10, Fraction(10**6)) for i, g in enumerate(servers))
    on = instance([Job(chained, 0)], on=Cluster(gpus, network(9, None, Link(3))))
    site = site_of(on)
    assert [mean_run(site, row) for row in site.run_us] == [Fraction(4), Fraction(5)]
    assert MeanTransfers(site).of(0) == 7


def test_planning_takes_the_earliest_start() -> None:
    # a: g0 (tie), finish 2. b: g0 at 2, g1 at 2 + 3: g0, finish 5. c: g0 at 5, g1 at 2 + 1 = 3: g1, finish 8.
    # d: g0 at max(5, 8 + 2) = 10, g1 at max(8, 5 + 5) = 10: a tie, so g0.
    timeline = simulate(instance([Job(DIAMOND, 0, ingress=0)], on=cluster(2)), parse_policy("compass"))
    assert runs(timeline) == [(0, 0, 2), (0, 2, 5), (1, 3, 8), (0, 10, 11)]


def test_kinds_take_the_earliest_finish() -> None:
    # g0 is free at once but takes 9 us; g1 is busy for 2 us and takes 3: finish 9 against 5.
    first, second = chain(task("t", {"B": 2}), name="v"), chain(task("t", {"A": 9, "B": 3}))
    on = instance([Job(first, 0), Job(second, 0)], on=two_kinds())
    assert runs(simulate(on, parse_policy("compass:period=0us"))) == [(1, 0, 2), (1, 2, 5)]


@pytest.mark.parametrize(
    ("busy", "run", "load"),
    [(3, (1, 7, 8), ("x", 1, 3, 7, None)), (5, (0, 4, 5), ("x", 0, 0, 4, None))],
)
def test_load_counts_twice_if_something_must_be_evicted(
    busy: int, run: tuple[int, int, int], load: tuple[str, int, int, int, None]
) -> None:
    # x has 4 bytes; on g0, m leaves only 3 free, so TD = 8 there and 4 on g1, which is busy. busy = 3: start 3 + 4 = 7
    # beats 8. busy = 5: 9 does not, and g0 evicts m and starts at 4 in truth. (At face value g0 won both times.)
    jobs = [Job(chain(task("t", {"B": busy}), name="v"), 0), Job(chain(task("t", 1, ["x"])), 0)]
    on = instance(jobs, {"m": 7, "x": 4}, two_kinds(), initial=(InitialResidency(0, 0),))
    timeline = simulate(on, parse_policy("compass:period=0us,prefetch=0"))
    assert runs(timeline)[1] == run
    assert loads(on, timeline) == [load]


def test_missing_models_add_up() -> None:
    # The task needs x (4 bytes) and y (3). g0 holds y but is busy for 4: start 4 + 4 = 8 there, 0 + 4 + 3 = 7 on g1.
    first, second = chain(task("t", {"A": 4}), name="v"), chain(task("t", 1, ["x", "y"]))
    on = instance([Job(first, 0), Job(second, 0)], {"x": 4, "y": 3}, two_kinds(), initial=(InitialResidency(0, 1),))
    assert runs(simulate(on, parse_policy("compass:period=0us")))[1] == (1, 7, 8)


@pytest.mark.parametrize(
    ("first", "second", "where"),
    [(5, 9, 0), (5, 10, 1), (9, 10, 1), (10, 10, 0), (10, 19, 0), (10, 20, 1)],
)
def test_others_are_seen_as_of_the_latest_multiple_of_the_period(first: int, second: int, where: int) -> None:
    # g1 is busy until 30, and the job of 100 us goes to g0. Server 1 plans the short one: it learns of g0's load only
    # at the first multiple of 10 us after the release, and what happens at a multiple belongs to the next one.
    busy, long, short = chain(task("t", {"B": 30}), name="u"), chain(task("t", 100), name="v"), chain(task("t", 1))
    jobs = [Job(busy, 0, ingress=1), Job(long, first, ingress=0), Job(short, second, ingress=1)]
    timeline = simulate(instance(jobs, on=two_kinds()), parse_policy("compass:period=10us"))
    assert timeline.place.tolist() == [1, 0, where]


def test_the_own_row_is_fresh() -> None:
    # As above within the first period, but server 0 plans both and knows its own load.
    long, short = chain(task("t", 100), name="v"), chain(task("t", 1))
    jobs = [Job(long, 5, ingress=0), Job(short, 6, ingress=0)]
    timeline = simulate(instance(jobs, on=cluster(2)), parse_policy("compass:period=10us"))
    assert timeline.place.tolist() == [0, 1]


@pytest.mark.parametrize(("remaining", "where"), [("on", 0), ("off", 1)])
def test_the_running_task_counts_with_its_remaining_time(remaining: str, where: int) -> None:
    # At 8, g0 (run [0, 10)) and g1 (run [5, 10)) are both busy. Remaining: 2 and 2, a tie. Full: 10 and 5.
    jobs = [Job(chain(task("t", {"A": 10}), name="v"), 0), Job(chain(task("t", {"B": 5}), name="u"), 5)]
    on = instance([*jobs, Job(chain(task("t", 1)), 8)], on=two_kinds())
    timeline = simulate(on, parse_policy(f"compass:period=0us,remaining={remaining}"))
    assert int(timeline.place[2]) == where


CHAIN = chain(task("a", 10), task("b", 4, after={"a": 0}))


@pytest.mark.parametrize(
    ("busy", "options", "run"),
    [
        (6, "adjust=on", (0, 16, 20)),
        (7, "adjust=on", (1, 11, 15)),
        (7, "adjust=off", (0, 17, 21)),
        (7, "adjust=on,threshold=2", (0, 17, 21)),
    ],
)
def test_adjustment_moves_a_task_beyond_the_threshold(busy: int, options: str, run: tuple[int, int, int]) -> None:
    # a runs on g0 [0, 10) and b (4 us) is planned behind it. Another task of 6 or 7 us queues on g0 at 1. When a ends,
    # the wait of 6 = 1.5 x 4 is tolerated; 7 is not: g0 7 + 0, g1 0 + transfer 1, so b starts on g1 at 11.
    on = instance([Job(CHAIN, 0, ingress=0), Job(chain(task("t", {"A": busy}), name="v"), 1)], on=two_kinds())
    timeline = simulate(on, parse_policy(f"compass:period=0us,{options}"))
    assert runs(timeline)[1] == run


def test_adjustment_leaves_joins_where_they_are() -> None:
    # a on g0 and b on g1, both [0, 10); the join is planned on g0 (tie at 11). A task of 50 us queued on g0 at 1 runs
    # [10, 60): the wait is far beyond 1.5 x 2, but a join stays.
    joined = chain(task("a", 10), task("b", 10), task("j", 2, after={"a": 0, "b": 0}))
    on = instance([Job(joined, 0, ingress=0), Job(chain(task("t", {"A": 50}), name="v"), 1)], on=two_kinds())
    timeline = simulate(on, parse_policy("compass:period=0us,adjust=on"))
    assert runs(timeline) == [(0, 0, 10), (1, 0, 10), (0, 60, 62), (0, 10, 60)]


def test_nothing_is_reserved_by_a_plan() -> None:
    # Job 1 plans a and b on g0, 10 + 4 us; only a has arrived when job 2 (at 1) sees g0: wait 9, and nothing of b.
    # g1 has 12 us of its own to run since 0, so job 2 goes to g0; had b counted (13), it went to g1 (11).
    other = chain(task("t", {"B": 12}), name="u")
    on = instance([Job(CHAIN, 0), Job(other, 0), Job(chain(task("t", 1), name="v"), 1)], on=two_kinds())
    timeline = simulate(on, parse_policy("compass:period=0us"))
    assert int(timeline.place[3]) == 0


@pytest.mark.parametrize(("ingress", "policy"), list(product((0, 1, 2), ("compass", "jit", "heft", "srpt", "static"))))
def test_equal_workers_leave_a_task_at_the_ingress_server(ingress: int, policy: str) -> None:
    # Three idle servers that all hold m: the first task stays where the job arrives, whatever the draw of others.
    resident = tuple(InitialResidency(gpu, 0) for gpu in range(3))
    jobs = [Job(chain(task("t", 1, ["m"])), 10 * release, ingress=ingress) for release in range(2)]
    timeline = simulate(instance(jobs, {"m": 4}, cluster(3), initial=resident), parse_policy(policy))
    assert timeline.place.tolist() == [ingress, ingress]


def test_equal_workers_elsewhere_count_by_their_number() -> None:
    # The job arrives at g2, which is busy with a task of kind C until 9: g0 and g1 are equal.
    kinds = Cluster((gpu(0), gpu(1), gpu(2, kind="C")), network())
    jobs = [Job(chain(task("t", {"C": 9}), name="v"), 0), Job(chain(task("t", 1)), 0, ingress=2)]
    assert simulate(instance(jobs, on=kinds), parse_policy("compass:period=0us")).place.tolist() == [2, 0]


def random_workflow(rng: random.Random, size: int) -> Workflow:
    tasks = [
        task(f"t{i}", rng.randint(1, 9), after={f"t{j}": rng.randint(0, 5) for j in range(i) if rng.random() < 0.4})
        for i in range(size)
    ]
    return chain(*tasks)


@pytest.mark.parametrize("seed", range(20))
def test_placement_equals_that_of_a_plain_loop(seed: int) -> None:
    # No models, one job: worker by worker, without arrays.
    rng = random.Random(seed)
    workflow, count = random_workflow(rng, 7), rng.randint(1, 3)
    ingress = rng.randrange(count)
    on = instance([Job(workflow, 0, ingress=ingress)], on=cluster(count))
    site = site_of(on)
    available = [0] * count
    where: dict[int, int] = {}
    finish: dict[int, int] = {}
    for t in rank_order(site, 0, MeanTransfers(site)):
        starts = []
        for w in range(count):
            arrivals = [finish[p] + on.transfer_time(edge, where[p], w) for p, edge in on.task_inputs(t)]
            starts.append(max([available[w], *arrivals]))
        where[t] = min(range(count), key=lambda w: (starts[w], w != ingress, w))
        finish[t] = available[where[t]] = starts[where[t]] + on.run_time(t, where[t])
    timeline = simulate(on, parse_policy("compass:adjust=off"))
    assert timeline.place.tolist() == [where[t] for t in range(7)]
