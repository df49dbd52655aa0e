"""What policies say that they know of run times, against what they do when they are told wrong ones."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.executor.scripted import runs
from tests.instances import chain, cluster, instance, task
from truenorth.executor import POLICIES, Knows, instance_for, parse_policy, simulate
from truenorth.models import Instance, Job
from truenorth.models.features import Feature

WINDOWS = 12
PLANS_A_JOB = ("compass", "compass-released", "heft")
"""Who places all tasks of a job by what each of them takes, and lets them queue in the order in which they came."""


def window(seed: int, gpus: int, size: int, told: int | None = None) -> Instance:
    """Return ten jobs of two tasks at once and one behind them, each with a model of three, on GPUs of one kind.

    Run times are those of another seed if some are told in place of those that hold.
    """
    draw, times = random.Random(seed), random.Random(seed if told is None else told)
    jobs, release_us = [], 0
    for _ in range(10):
        release_us += draw.randint(0, 20)
        a, b = (task(name, times.randint(1, 40), [draw.choice("xyz")]) for name in "ab")
        c = task("c", times.randint(1, 40), [draw.choice("xyz")], after={"a": 1, "b": 1})
        jobs.append(Job(chain(a, b, c), release_us))
    return instance(jobs, dict.fromkeys("xyz", size), cluster(gpus))


def acts_on_times(text: str, gpus: int) -> bool:
    """Say whether a policy that is told other run times than hold ever acts otherwise for that."""
    made = parse_policy(text)
    size = 3 if text == "static" else 4  # of 10 bytes: whoever swaps has to
    for seed in range(WINDOWS):
        truth = instance_for(window(seed, gpus, size), made)
        told = replace(instance_for(window(seed, gpus, size, 1_000 + seed), made), catalogue=truth.catalogue)
        rightly, wrongly = simulate(truth, made, seed), simulate(told, made, seed, truth=truth)
        if (runs(rightly), rightly.residencies) != (runs(wrongly), wrongly.residencies):
            return True
    return False


@pytest.mark.parametrize("policy", [name for name, of in POLICIES.items() if Feature.SLOTS in of.supports])
def test_a_policy_knows_what_it_says(policy: str) -> None:
    # Who knows nothing of run times acts on what is told nowhere. On one GPU, where nothing is to be placed, who knows
    # waits alone keeps the order of arrival, whatever is told; who orders tasks by their run times does not.
    knows = parse_policy(policy).knows
    assert acts_on_times(policy, gpus=3) == (knows is not Knows.NOTHING)
    assert acts_on_times(policy, gpus=1) == (knows is Knows.RUN_TIMES and policy not in PLANS_A_JOB)
