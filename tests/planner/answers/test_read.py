"""What a person gives is read alike at the command, in Python calls and in sweeps, and refused in the same words."""

from __future__ import annotations

from typing import Any

import pytest

import truenorth as tn
from truenorth.planner.command.cli import app
from truenorth.planner.command.manners import run

SCENARIO = "experiments/scenarios/paper_small.yaml"
WRONG = [
    ("plan", "method", "magic", "'magic' is unknown; allowed are auto, cp-sat, milp, search"),
    ("plan", "iterations", "0", "'0' is no such number; allowed is a whole number from 1"),
    ("plan", "seed", "many", "'many' is no such number; allowed is a whole number from 0 to 2147483647"),
    ("plan", "time_limit", "0", "'0' is no time limit; write seconds, at least 0.1, or a time: 10 s, 2 min"),
    ("bound", "time_limit", "7 parsecs", "'7 parsecs' is no time limit; write seconds, at least 0.1, or a time: 10 s,"),
    ("compare", "warmup", "1.5", "'1.5' is no share; allowed is a number of at least 0 and below 1, such as 0.1"),
    ("servers", "rate", "fast", "'fast' is no number; allowed is one such as 1.5"),
    ("servers", "max", "0", "'0' is no such number; allowed is a whole number from 1 to 100000"),
    ("servers", "slo", "p99 slowness <= 2", "'p99 slowness <= 2' is no service level; allowed are, for instance,"),
]


@pytest.mark.parametrize(("verb", "name", "text", "problem"), WRONG, ids=lambda word: str(word)[:20])
def test_what_is_wrong_is_said_in_the_same_words(
    verb: str, name: str, text: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(app, [verb, SCENARIO, f"--{name.replace('_', '-')}", text]) == 2
    assert f"truenorth: error: --{name.replace('_', '-')}: {problem}" in capsys.readouterr().err
    call: Any = getattr(tn, verb)
    with pytest.raises(tn.QuestionError) as of_call:
        call(SCENARIO, **{name: text})
    assert str(of_call.value).startswith(f"{name}: {problem}")
    with pytest.raises(tn.InputError) as of_sweep:
        tn.whatif(SCENARIO, {name: [text]}, verb=verb)
    assert of_sweep.value.problem.startswith(problem)
