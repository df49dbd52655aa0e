"""The commands by which replays and trials repeat themselves say every option that was given."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from truenorth.planner.questions.devices import ReplayQuestion, TrialQuestion


def test_flags_stand_alone_and_only_if_they_are_asked_for() -> None:
    asked = ReplayQuestion("jit", seed=7, samples=Path("a b.json"), check_outputs=True, limit_s=2.5, runner="synthetic")
    assert shlex.join(asked.typed()) == (
        "--device cpu --runner synthetic --limit 2.5 --samples 'a b.json' --check-outputs --seed 7"
    )
    assert "--check-outputs" not in replace(asked, check_outputs=False).typed()


def test_a_trial_says_its_limits_and_its_seed() -> None:
    asked = TrialQuestion(("jit", "srpt"), repeats=3, time_limit_s=5.0, seed=4, limit_s=9.0, count_faults=True)
    assert shlex.join(asked.typed()) == (
        "--policies jit,srpt --repeats 3 --device cpu --limit 9 --count-faults --time-limit 5 --seed 4"
    )
