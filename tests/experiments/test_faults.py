"""Faults at random moments cost no job but those that were on them, and change no output."""

from __future__ import annotations

import pytest

from experiments.faults import forks, run_with_faults


@pytest.mark.parametrize("policy", ["plan", "jit", "srpt"])
def test_nobody_loses_a_job_that_was_on_no_fault(policy: str) -> None:
    on, faults = forks(5, 3), 0
    for seed in range(4):
        outcome = run_with_faults(on, policy, seed)
        assert (outcome.undeserved, outcome.wrong) == (0, 0)
        assert outcome.lost <= outcome.faults
        faults += outcome.faults
    assert faults
