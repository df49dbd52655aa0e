"""Faults of every kind cost no job but the one that was on them, change no output, and leave nothing behind."""

from __future__ import annotations

import os
import signal

import pytest

from experiments.benchmarks.devices.heads import WRITERS, descendants, end_heads, fill_disks, left_behind
from experiments.benchmarks.devices.injection import KEEPS, KINDS, forks, injection

STUCK = {"hang", "spin"}
ENDS = STUCK | {"kill", "segmentation", "exit", "assert"}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_nobody_loses_a_job_that_was_on_no_fault(kind: str) -> None:
    """One run by each policy: a fault that ends a process does so once; three kinds cost no job.

    Where something is stuck its limit is waited for, and is short.
    """
    with injection(forks(5, 2), limit_s=1.0 if kind in STUCK else 3.0) as made:
        found = made.inject(kind, 4)
        family = [each for child in descendants(os.getpid()) for each in descendants(child)]
    assert (found.undeserved, found.wrong) == (0, 0)
    assert found.lost + found.spared == (0 if kind in KEEPS else found.struck)
    assert found.again == (found.struck if kind in ENDS else 0)
    assert kind == "transfer" or found.struck == 4  # a run may have no transfer
    assert left_behind(os.listdir("/dev/shm"), family) == 0  # noqa: S108


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_head_that_is_ended_leaves_nobody_behind(number: signal.Signals) -> None:
    assert end_heads(number, 1) == {"runs": 1, "well": 1, "left": 0}


@pytest.mark.nightly
@pytest.mark.parametrize("verb", WRITERS)
def test_a_full_disk_takes_nothing_away_from_what_was_measured(verb: str) -> None:
    assert fill_disks(verb, 2) == {"runs": 2, "well": 2, "left": 0}
