"""What who decides knows of its own decisions before they are published, each derived by hand.

Servers hold one GPU each; a transfer takes 1 us plus 1 us per byte.
"""

from __future__ import annotations

import pytest

from tests.executor.scripted import runs
from tests.instances import chain, cluster, instance, task
from truenorth.executor import parse_policy, simulate
from truenorth.models import Instance, Job


def at_once(*ingress: int) -> Instance:
    """Return jobs of 1 s that come in at 0, each at a server, for four GPUs."""
    return instance([Job(chain(task("t", 1_000_000)), 0, ingress=server) for server in ingress], on=cluster(4))


@pytest.mark.parametrize("policy", ["jit", "compass"])
def test_jobs_at_one_instant_go_to_one_gpu_each(policy: str) -> None:
    # Four jobs of 1 s for four GPUs, all decided by server 0: nothing is published yet, but it knows where it sent the
    # others. So each starts at once.
    timeline = simulate(at_once(0, 0, 0, 0), parse_policy(policy))
    assert timeline.place.tolist() == [0, 1, 2, 3]
    assert set(timeline.end_us.tolist()) == {1_000_000}


@pytest.mark.parametrize("policy", ["jit", "compass"])
def test_without_the_option_only_what_is_published_counts(policy: str) -> None:
    # Server 0 sees its own GPU busy with the first job, and the others idle, whatever it has sent there: all go to g1.
    timeline = simulate(at_once(0, 0, 0, 0), parse_policy(f"{policy}:own_decisions=off"))
    assert timeline.place.tolist() == [0, 1, 1, 1]


def test_jit_is_one_dispatcher_and_compass_decides_by_server() -> None:
    # Servers 0 and 1 get two jobs each. One dispatcher knows all four. By server: 0 takes g0 and g1; 1 sees its own g1
    # taken, not g0, and sends its second job to g2, for it knows of the one on g0.
    on = at_once(0, 0, 1, 1)
    assert simulate(on, parse_policy("jit")).place.tolist() == [0, 1, 2, 3]
    assert simulate(on, parse_policy("compass")).place.tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize(("own", "where"), [("on", 2), ("off", 1)])
def test_what_is_on_its_way_counts_until_a_publication_contains_it(own: str, where: int) -> None:
    # g0 is busy until 100. The job of 10 has 20 bytes to bring: sent to g1 at 10, it queues there at 31 only, so that
    # what is published every 1 us shows g1 idle at 20. Who sent it knows better: g2 is idle, g1 has 10 to do.
    long, sent, short = chain(task("t", 100), name="u"), chain(task("t", 10, input_bytes=20)), chain(task("t", 1))
    jobs = [Job(long, 0, ingress=0), Job(sent, 10, ingress=0), Job(short, 20, ingress=0)]
    timeline = simulate(instance(jobs, on=cluster(3)), parse_policy(f"jit:period=1us,own_decisions={own}"))
    assert timeline.place.tolist() == [0, 1, where]


@pytest.mark.parametrize(("release_us", "where"), [(3, 2), (5, 1)])
def test_what_is_published_counts_once(release_us: int, where: int) -> None:
    # Published every 4 us. Server 0 sends 100 us to g0 and 10 us to g1, server 2 has 12 us on g2. At 3 server 0 knows
    # of its 10 us and sees g2 idle: g2. At 5, g1 has 6 to do and g2 8, as published at 4: g1 (10 more, twice, would
    # make 16).
    long, ten, twelve = (chain(task("t", us), name=f"w{us}") for us in (100, 10, 12))
    jobs = [Job(long, 0, ingress=0), Job(ten, 0, ingress=0), Job(twelve, 0, ingress=2)]
    on = instance([*jobs, Job(chain(task("t", 1)), release_us, ingress=0)], on=cluster(3))
    assert simulate(on, parse_policy("compass:period=4us")).place.tolist() == [0, 1, 2, where]


def test_successors_of_one_end_are_not_sent_to_one_gpu() -> None:
    # b and c can both start once a has ended, at 2. b stays on g0, c goes to g1 and is there at 3: 1 us of transfer.
    work = chain(task("a", 2), task("b", 5, after={"a": 0}), task("c", 5, after={"a": 0}))
    timeline = simulate(instance([Job(work, 0, ingress=0)], on=cluster(2)), parse_policy("jit"))
    assert runs(timeline) == [(0, 0, 2), (0, 2, 7), (1, 3, 8)]
