"""What is noted of own decisions: counted on once, and off again, whatever becomes of a task."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.executor.forked import forked
from tests.instances import random_instance
from tests.random_instances import with_absences
from truenorth.executor import QueuePolicy, parse_policy, simulate
from truenorth.executor.policies.decided import OwnDecisions
from truenorth.models import Job
from truenorth.models.branches import paths_of


def test_a_plan_counts_until_the_next_publication_and_anew_once_it_is_sent() -> None:
    own = OwnDecisions([0, 1], apart=True)
    own.decide(task=7, gpu=1, server=0, work_us=5, leaves=False)
    assert (own.coming[0].tolist(), own.coming[1].tolist()) == ([0, 5], [0, 0])
    own.publish()
    assert own.coming[0].tolist() == [0, 0]
    # Its predecessor has ended on server 1, which sends it on its way; it queues up; that is published.
    own.decide(7, 1, server=1, work_us=5, leaves=True)
    own.publish()
    assert own.coming[1].tolist() == [0, 5]
    own.settle(7)
    assert (own.coming[1].tolist(), own.queued[1].tolist()) == ([0, 0], [0, 5])
    own.publish()
    assert own.queued[1].tolist() == [0, 0]


def test_who_decides_anew_knows_at_once_and_others_by_the_next_publication() -> None:
    own = OwnDecisions([0, 1, 2], apart=True)
    own.decide(7, 1, server=0, work_us=5, leaves=True)
    own.decide(7, 2, server=0, work_us=6, leaves=True)
    assert own.coming[0].tolist() == [0, 0, 6]
    own.decide(7, 1, server=2, work_us=5, leaves=True)  # server 0 still thinks that it is on g2
    assert (own.coming[0] + own.queued[0]).tolist() == [0, 0, 6]
    assert own.coming[2].tolist() == [0, 5, 0]
    own.publish()
    assert (own.coming[0] + own.queued[0]).tolist() == [0, 0, 0]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("policy", ["compass:period=3us", "jit:period=5us", "heft", "compass:period=0us"])
def test_nothing_is_left_once_everything_has_run(policy: str, seed: int) -> None:
    # Also where paths are uncertain and GPUs come and go: what is counted on is counted off again.
    rng = random.Random(seed)
    on = random_instance(rng, 12)
    if seed % 2:
        catalogue = tuple(forked(rng, workflow) for workflow in on.catalogue)
        jobs = tuple(Job(rng.choice(paths_of(rng.choice(catalogue))), job.release_us) for job in on.jobs)
        on = replace(on, jobs=jobs, catalogue=catalogue)
    else:
        on = with_absences(rng, on)
    made = parse_policy(policy)()
    assert isinstance(made, QueuePolicy)
    simulate(on, lambda: made, seed)
    made.view.advance()
    assert made._own is not None
    made._own.publish()
    assert not made._own._open
    assert not any(row.any() for row in (*made._own.coming.values(), *made._own.queued.values()))
