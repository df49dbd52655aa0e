"""Uncertain paths on the engine: what policies see and when, what they count, and that no path shows too early.

GPUs have 10 bytes and load one byte per microsecond; a transfer takes 1 us plus 1 us per byte.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.executor.forked import HALF, forked
from tests.executor.scripted import runs
from tests.executor.test_properties import POLICIES, public, run
from tests.instances import chain, cluster, instance, random_instance, task
from tests.models.test_branches import FORKED, job
from truenorth.executor import QueuePolicy, Site, parse_policy, replay, simulate
from truenorth.executor.device import VirtualDevice
from truenorth.executor.knowledge import WorkflowTables
from truenorth.executor.policies.planning import MeanTransfers, rank_order
from truenorth.executor.policy import Policy
from truenorth.models import Instance, Job, Timeline, Workflow, check
from truenorth.models.branches import deciders, open_paths, paths_of
from truenorth.models.workload import Branch


def branching(rng: random.Random) -> tuple[Instance, Instance, int]:
    """Return an instance with branches, the same with another path of one job, and that job."""
    while True:
        on = random_instance(rng, 12)
        whole = [forked(rng, workflow) for workflow in on.workflows]
        jobs = [
            replace(j, workflow=rng.choice(paths_of(whole[w]))) for j, w in zip(on.jobs, on.job_workflow, strict=True)
        ]
        possible = [index for index, j in enumerate(jobs) if j.workflow.of is not None]
        if possible:
            changed = rng.choice(possible)
            other = [*jobs]
            of = jobs[changed].workflow.of
            assert of is not None
            other[changed] = replace(
                jobs[changed], workflow=next(p for p in paths_of(of) if p != jobs[changed].workflow)
            )
            first, second = (replace(on, jobs=tuple(made), catalogue=tuple(whole)) for made in (jobs, other))
            return first, second, changed


def shows_at(on: Instance, timeline: Timeline, changed: int) -> int:
    """Return when the path of a job shows."""
    of = on.jobs[changed].workflow.of
    assert of is not None
    names = {of.tasks[position].name for position in deciders(of)}
    ends = [int(timeline.end_us[task]) for task in on.tasks_of(changed) if on.task_name(task) in names]
    return min(ends, default=on.jobs[changed].release_us)


def done(on: Instance, timeline: Timeline, before_us: int) -> set[tuple[object, ...]]:
    """Return every start before a time, of runs and of loads."""
    starts: set[tuple[object, ...]] = set()
    for ran in np.flatnonzero(timeline.start_us < before_us).tolist():
        place = int(timeline.place[ran]), int(timeline.start_us[ran])
        starts.add((int(on.task_job[ran]), on.task_name(ran), *place))
    loads = (r for r in timeline.residencies if r.load_start_us < before_us)
    return starts | {(on.models[r.model].name, r.gpu, r.slot, r.load_start_us) for r in loads}


@pytest.mark.parametrize("policy", POLICIES)
def test_every_rule_is_kept_and_no_path_changes_what_happens_before_it_shows(policy: str) -> None:
    compared = 0
    for seed in range(15):
        *both, changed = branching(random.Random(seed))
        made = [run(on, policy, seed) for on in both]
        assert (made[0] is None) == (made[1] is None)
        ran = [pair for pair in made if pair is not None]
        if ran:
            assert [check(*pair) for pair in ran] == [[], []]
            until = min(shows_at(*pair, changed) for pair in ran)
            assert done(*ran[0], until) == done(*ran[1], until)
            compared += 1
    assert compared == 15 if policy != "static" else compared > 7


class Snoop(QueuePolicy):
    """Notes all that it is given to see at every call up to the decision."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        Snoop.last = self.seen

    last: list[str]

    def released(self, job: int) -> None:
        self.seen.append(repr({**public(self.site), "memory": [], "state": []}))
        super().released(job)

    def decided(self, job: int, dropped: object) -> None:
        self.seen.append(f"decided {job}")

    def runnable(self, task: int, server: int) -> None:
        self.place(task, 0)


def test_nothing_that_is_seen_tells_the_path_before_the_task_before_it_ends() -> None:
    seen = []
    for branch in (0, 1):
        simulate(instance([job(branch), Job(chain(task("x", 1)), 1)], catalogue=(FORKED,)), Snoop)
        seen.append(Snoop.last)
    assert seen[0] == seen[1]
    assert seen[0][-1] == "decided 0"


def test_the_path_that_shows_is_run_and_its_join_waits_for_nothing_else() -> None:
    on = instance([job(0), job(1, release_us=20)])
    timeline = simulate(on, parse_policy("srpt"))
    assert runs(timeline) == [(0, 0, 2), (0, 2, 7), (0, 7, 8), (0, 20, 22), (0, 22, 23), (0, 23, 24)]
    assert runs(simulate(on, replay(on, timeline))) == runs(timeline)


def test_a_branch_may_be_empty_and_its_join_then_runs_when_that_shows() -> None:
    # j comes after a alone, which is left out; nothing else brings j about.
    skipping = Workflow("w", (task("d", 2), task("a", 5, after={"d": 0}), task("j", 1, after={"a": 0})), (
        Branch(HALF, ("a",)), Branch(HALF, ()),
    ))  # fmt: skip
    for policy in ("jit", "compass", "srpt", "hash", "hadar", "lru", "dally"):
        timeline = simulate(instance([Job(paths_of(skipping)[1], 0)]), parse_policy(policy))
        assert runs(timeline) == [(0, 0, 2), (0, 2, 3)]


def site_of(on: Instance) -> Site:
    """Return the site at the release of the first job of an open instance."""
    site = Site(on, VirtualDevice(), Policy())
    site.release(on.jobs[0], WorkflowTables.of(on, 0), 0)
    return site


def test_ranks_are_expected_where_branches_follow() -> None:
    # On one GPU: a 5, b 1, d 2 + (5 + 1) / 2 = 5, below c with 6, but before a; by the longest path d had 7.
    tasks = (task("d", 2), task("c", 6), task("a", 5, after={"d": 0}), task("b", 1, after={"d": 0}))
    whole = Workflow("w", tasks, (Branch(HALF, ("a",)), Branch(HALF, ("b",))))
    opened = open_paths(instance([Job(paths_of(whole)[0], 0)]))
    assert opened is not None
    site = site_of(opened.instance)
    assert rank_order(site, 0, MeanTransfers(site)) == [1, 0, 2, 3]
    plain = site_of(instance([Job(Workflow("w", tasks), 0)]))
    assert rank_order(plain, 0, MeanTransfers(plain)) == [0, 1, 2, 3]


def test_compass_lets_a_task_of_a_branch_keep_its_worker_as_long_as_it_is_likely() -> None:
    # Ranks: d 10 + 8 / 2, e 9, a 8, f 7, c 3. d takes g0 [0, 10), e and f g1 [0, 16), a g0 at 10, where it is expected
    # to keep c waiting until 10 + 4. If it were certain, c would go to g1: 16 < 18.
    tasks = (task("d", 10), task("a", 8, after={"d": 0}), task("e", 9), task("f", 7), task("c", 3))
    whole = Workflow("w", tasks, (Branch(HALF, ("a",)), Branch(HALF, ())))
    for workflow, gpu in ((paths_of(whole)[0], 0), (Workflow("w", tasks), 1)):
        on = instance([Job(workflow, 0, ingress=0)], on=cluster(2))
        assert int(simulate(on, parse_policy("compass:adjust=off")).place[4]) == gpu


def test_srpt_counts_work_as_it_is_likely_until_the_path_shows() -> None:
    # A GPU is busy until 3. Forked jobs have 2 + 3/4 x 5 + 1/4 x 1 + 1 = 7 us left (rounded 4 + 0), another has 6.5.
    one = chain(task("t", 3), name="v")
    short, long = chain(task("t", 6), name="s"), chain(task("t", 8), name="l")
    for other, first in ((short, True), (long, False)):
        on = instance([Job(one, 0), job(0, release_us=1), Job(other, 2)])
        timeline = simulate(on, parse_policy("srpt:order=latency"))
        assert (int(timeline.start_us[4]) == 3) == first
