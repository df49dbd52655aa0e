"""What the online policies decide, as hashes of timelines: what makes them faster must change nothing.

Renew with ``RENEW=1`` only where decisions were meant to change.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from experiments.authors import at_load, batched, with_slower
from tests.executor.forked import forked
from tests.executor.test_properties import BATCHING, NOISE
from tests.instances import random_instance, random_serving_instance
from tests.random_instances import with_absences
from truenorth.executor import instance_for, parse_policy, simulate
from truenorth.executor.errors import PolicyError
from truenorth.models import Instance, InstanceError, Job
from truenorth.models.branches import paths_of

RECORDED = Path(__file__).parent / "decisions.json"


def crowded(rng: random.Random, few: Instance) -> Instance:
    """Return an instance of the same workflows with three times the GPUs and thirty jobs, many of them at once."""
    gpus = few.cluster.gpus
    more = [
        replace(own, id=f"s{own.server + 9 * k}/g{index}", server=own.server + 9 * k)
        for k in range(3)
        for index, own in enumerate(gpus)
    ]
    releases = sorted(rng.randint(0, 40) for _ in range(30))
    of_jobs = [rng.choice(few.jobs) for _ in releases]
    jobs = tuple(replace(job, release_us=at) for job, at in zip(of_jobs, releases, strict=True))
    return replace(few, cluster=replace(few.cluster, gpus=tuple(more)), jobs=jobs)


def branching(rng: random.Random) -> Instance:
    """Return a random instance whose jobs take one of several paths."""
    on = random_instance(rng, 12)
    catalogue = tuple(forked(rng, workflow) for workflow in on.catalogue)
    jobs = tuple(Job(rng.choice(paths_of(rng.choice(catalogue))), job.release_us) for job in on.jobs)
    return replace(on, jobs=jobs, catalogue=catalogue)


KINDS: Mapping[str, Callable[[random.Random], Instance]] = {
    "crowded": lambda rng: crowded(rng, random_instance(rng, 9)),
    "crowded, batches and shares": lambda rng: crowded(rng, random_serving_instance(rng, 9)),
    "crowded, GPUs come and go": lambda rng: with_absences(rng, crowded(rng, random_instance(rng, 9))),
    "branches": branching,
}


def drawn(kind: str, count: int) -> Iterator[tuple[int, Instance]]:
    """Yield seeds and instances of a kind, without those whose draw contradicts itself."""
    for seed in range(count):
        try:
            yield seed, KINDS[kind](random.Random(seed))
        except (InstanceError, ValueError):
            continue


@cache
def workloads(kind: str) -> tuple[tuple[int, Instance], ...]:
    """Return instances of a kind with the seeds of their noise (odd ones have some)."""
    if kind == "authors":
        plain = at_load(0.9, 12, 60, seed=3)
        return tuple((0, on) for on in (plain, with_slower(plain, 4), batched(plain)))
    return tuple(drawn(kind, 12))


def decisions(policy: str) -> dict[str, str]:
    """Return, per kind of workload, the hash of all that a policy does, refusals included."""
    parsed, found = parse_policy(policy), {}
    for kind in ("authors", *KINDS):
        digest = hashlib.sha256()
        for seed, given in workloads(kind):
            on = instance_for(given, parsed)
            try:
                made = simulate(on, parsed, seed, NOISE if seed % 2 else None)
            except PolicyError as refused:
                digest.update(str(refused).encode())
                continue
            what = made.place.tolist(), made.start_us.tolist(), made.end_us.tolist(), made.residencies
            digest.update(repr(what).encode())
        found[kind] = digest.hexdigest()[:16]
    return found


@pytest.mark.parametrize("policy", BATCHING)
def test_decisions_are_as_recorded(policy: str) -> None:
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    decided = decisions(policy)
    if os.environ.get("RENEW"):
        RECORDED.write_text(json.dumps({**recorded, policy: decided}, indent=1, sort_keys=True) + "\n")
    else:
        assert decided == recorded[policy]
