"""Limits are kept: a few of the questions of ``python -m experiments limits``, and what it calls a fault."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from experiments.checks.limits import CommandEnd, ask, problems
from experiments.random_scenarios import random_scenario


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [12, 1, 23])
def test_limits_are_kept(tmp_path: Path, seed: int) -> None:
    assert ask(seed, tmp_path)[1] == []


def test_scenarios_go_from_a_microsecond_to_years_and_have_every_section() -> None:
    drawn = [random_scenario(random.Random(seed)) for seed in range(200)]
    sections = set().union(*drawn)
    assert {"batches", "slo", "options", "restrictions"} <= sections
    tasks = [len(workflow["tasks"]) for document in drawn for workflow in document["workflows"].values()]
    assert min(tasks) == 1
    assert max(tasks) > 300
    assert {len(document["cluster"]["groups"]) for document in drawn} == {1, 2, 3, 4}


LATE = '{"runtime_s": 35.0, "within_time_limit": true}'
HONEST = '{"runtime_s": 35.0, "within_time_limit": false}'


@pytest.mark.parametrize(
    ("ended", "found"),
    [
        (CommandEnd(0, HONEST, "", 9.0), []),
        (CommandEnd(0, HONEST, "", 38.0), ["took 38.0 s for a limit of 4 s"]),
        (CommandEnd(0, LATE, "", 9.0), ["within_time_limit is false, and says true"]),
        (CommandEnd(1, "", "Traceback\nMemoryError\n", 2.0), ["ends with 1: ['MemoryError']"]),
        (CommandEnd(-9, "", "", 9.0), ["ends with -9: []"]),
        (CommandEnd(2, "", "truenorth: error: one line\n", 1.0), []),
        (CommandEnd(2, "", "one\ntwo\n", 1.0), ["refuses in more than a line: 'one\\ntwo\\n'"]),
    ],
)
def test_what_is_a_fault(ended: CommandEnd, found: list[str]) -> None:
    assert problems(ended, "plan", 4) == found
