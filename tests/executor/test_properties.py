"""What holds for every online policy on random instances."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import ClassVar

import pytest

from tests.executor.forked import forked
from tests.instances import random_instance, random_serving_instance
from tests.night import by_day
from tests.normal_form import loose_ends
from truenorth.executor import PolicyError, QueuePolicy, Site, instance_for, parse_noise, parse_policy, simulate
from truenorth.executor.simulation import past
from truenorth.models import Instance, InstanceError, Job, Timeline, Workflow, check
from truenorth.models.branches import paths_of

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
    "ahead",
    "ahead:price=0.5,window=1",
    "heft",
    "hash",
    "static",
    "lru",
    "lru:keep_alive=5us,period=3us",
    "dally",
    "dally:tau=3us",
    "dally:tau=inf",
    "hadar",
    "hadar:window=4us,windows=5",
    "rltune",
    "rltune:reload=2,balance=1,room=3,period=2us",
    "clockwork",
    "deferred",
    "deferred:due=2,period=2us",
)
BATCHING = (*POLICIES, "jit:batch=delay:3us", "compass:batch=off", "hash:batch=delay:2us,enqueue=last")
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
    for seed in range(30):
        made = run(random_instance(random.Random(seed), max_tasks=9), policy, seed)
        if made is not None:
            on, timeline = made
            assert check(on, timeline) == []
            assert "keep_alive" in policy or loose_ends(on, timeline) == []
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


BRANCHES = "one of several paths"
KINDS = ("as written", "one per request", "run times of their own", BRANCHES)
"""How jobs ask for work: for workflows of a catalogue, each for one of its own in it, as in a file made from a log, for
one of the catalogue with run times of the job's own, as where estimates are told, or for a path of one."""
BATCHES = "batches, shares and memory"
"""As written, of instances whose GPUs serve several tasks at a time."""


@cache
def futures(kind: str, seeds: range) -> Sequence[tuple[int, Instance, Instance, int]]:
    """Return seeds, two instances of one catalogue, and the time before which they are alike.

    The first jobs are kept, the rest is drawn anew from the catalogue, no earlier than before. Every policy runs on the
    same draws, which take as long as the policies do.
    """
    drawn = []
    for seed in seeds:
        rng = random.Random(seed)
        on = (random_serving_instance if kind == BATCHES else random_instance)(rng, 12)
        catalogue = on.workflows if kind == BATCHES else on.catalogue
        possible = [workflow for workflow in catalogue if runs_on(on, workflow)]
        if kind == "one per request":
            possible = [own(f"request {k}", rng.choice(possible), rng) for k in range(len(on.jobs) + 4)]
        if kind == BRANCHES:
            possible = [forked(rng, workflow) for workflow in possible]
        catalogue = tuple(possible) if kind in ("one per request", BRANCHES) else catalogue
        asked = asked_for(kind, possible, rng)
        jobs = [Job(next(asked), each.release_us, ingress=each.ingress) for each in on.jobs]
        kept = rng.randint(1, len(jobs))
        release = jobs[kept - 1].release_us + rng.randint(0, 5)
        others = [
            Job(next(asked), release + 2 * k, ingress=rng.choice(on.jobs).ingress) for k in range(rng.randint(0, 3))
        ]
        rest = on.overlap_loads, on.initial, on.restrictions, catalogue
        first, second = (Instance(on.cluster, on.models, tuple(j), *rest) for j in (jobs, [*jobs[:kept], *others]))
        before = min([each.release_us for each in (*jobs[kept:], *others)], default=10**9)
        drawn.append((seed, first, second, before))
    return drawn


def asked_for(kind: str, possible: Sequence[Workflow], rng: random.Random) -> Iterator[Workflow]:
    """Yield what jobs ask for."""
    while True:
        workflow = rng.choice(paths_of(rng.choice(possible)))
        yield own(workflow.name, workflow, rng) if kind == "run times of their own" else workflow


def runs_on(on: Instance, workflow: Workflow) -> bool:
    """Say whether a workflow can run on the cluster of an instance."""
    try:
        Instance(on.cluster, on.models, (Job(workflow, 0),), restrictions=on.restrictions)
    except InstanceError:
        return False
    return True


def own(name: str, workflow: Workflow, rng: random.Random) -> Workflow:
    """Return a workflow with run times that are drawn anew."""
    tasks = (replace(task, runtime_us={kind: rng.randint(1, 9) for kind in task.runtime_us}) for task in workflow.tasks)
    return Workflow(name, tuple(tasks))


def compare_pasts(
    kind: str, seeds: range, run_one: Callable[[Instance, int], tuple[Instance, Timeline] | None]
) -> tuple[int, list[int]]:
    """Return how many draws were compared, and the seeds of those whose past depends on the future.

    `run_one` is given an instance and a seed, and returns the instance that ran and its timeline, None if refused.
    """
    compared, differ = 0, []
    for seed, on, changed, before in futures(kind, seeds):
        first, second = run_one(on, seed), run_one(changed, seed)
        if first is not None and second is not None:
            compared += 1
            same = past(*first, before) == past(*second, before)
        else:
            same = first is second
        if not same:
            differ.append(seed)
    return compared, differ


@pytest.mark.parametrize("kind", by_day(KINDS, 2))
@pytest.mark.parametrize("policy", POLICIES)
def test_the_past_does_not_depend_on_the_future(policy: str, kind: str) -> None:
    # Nothing that is done before the first release that differs may change, with noise (odd seeds) or without.
    compared, differ = compare_pasts(kind, range(20), lambda on, seed: run(on, policy, seed, noisy=seed % 2 == 1))
    assert differ == []
    assert compared == 20 if policy != "static" else compared > 10


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("policy", BATCHING)
def test_the_past_does_not_depend_on_the_future_where_tasks_run_together(policy: str, noisy: bool) -> None:
    compared, differ = compare_pasts(BATCHES, range(15), lambda on, seed: run(on, policy, seed, noisy))
    assert differ == []
    assert compared == 15 if policy != "static" else compared > 5


def public(site: Site) -> dict[str, object]:
    """Return everything that a policy can read of a site, in whichever of its classes it is declared."""
    assert not hasattr(site, "__dict__")
    names = {name for kind in type(site).__mro__ for name in getattr(kind, "__slots__", ())}
    return {name: getattr(site, name) for name in sorted(names) if name[0] != "_" and name != "listener"}


class Snoop(QueuePolicy):
    """Notes all that a policy is given to see at the start and at every release."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, str]] = []
        Snoop.last = self

    last: ClassVar[Snoop]

    def note(self, site: Site, at_us: int) -> None:
        memory = [memory.residents for memory in site.memory]
        self.seen.append((at_us, repr({**public(site), "state": [], "memory": memory})))

    def begin(self, site: Site) -> None:
        super().begin(site)
        self.note(site, -1)

    def released(self, job: int) -> None:
        self.note(self.site, self.site.now)
        super().released(job)

    def runnable(self, task: int, server: int) -> None:
        self.place(task, self.site.eligible_gpus(task)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_policy_sees_does_not_depend_on_the_future(kind: str) -> None:
    for seed, on, changed, before in futures(kind, range(20)):
        seen = []
        for instance in (on, changed):
            simulate(instance, Snoop, seed)
            seen.append([(at_us, what) for at_us, what in Snoop.last.seen if at_us < before])
        assert seen[0] == seen[1]
        assert seen[0]
