"""What the answer hangs on: one model larger or slower at a time, derived by hand."""

from __future__ import annotations

import pytest

import truenorth as tn
from tests.planner.answers.servers.scenarios import scenario
from truenorth.models import ServiceLevels
from truenorth.planner.show.servers_words import strain_in_words


@pytest.mark.parametrize(("spare", "servers_asked"), [(0, 1), (1, 2)])
def test_each_model_is_made_larger_and_slower_in_turn(spare: int, servers_asked: int) -> None:
    # The job of a loads 1 GB in 1 s and runs 2 s: 3 s; that of b, released when it has ended, loads 4 GB in 4 s and
    # runs 0.5 s: 4.5 s, the greatest latency. 20 % more: 4.5 + 0.8 for the load of b, 4.5 + 0.1 for its run; what is
    # more of a's lets b wait: 0.2 s longer for the load, 0.4 s for the run. The limit is 5 s.
    window = scenario(
        {"wa": {"models": ["a"], "runtime": "2 s"}, "wb": {"models": ["b"], "runtime": "500 ms"}},
        [(0, "wa", 10_000), (3000, "wb", 10_000)],
        {"a": "1 GB", "b": "4 GB"},
        options={"overlap_loads": False},
    )
    level = ServiceLevels.parse("p100 latency <= 5 s")
    answer = tn.servers(window, level, policies=("jit",), spare=spare, time_limit=60)
    assert [row.mix for row in answer.policies] == [(servers_asked,)]
    found = [(each.model, each.figure, each.met, each.share_of_limit) for each in answer.strains]
    assert found == [
        ("b", "size", False, 53 / 50),
        ("a", "run time", True, 49 / 50),
        ("a", "size", True, 47 / 50),
        ("b", "run time", True, 46 / 50),
    ]
    assert (
        strain_in_words(answer.record())
        == "Most sensitive assumption: the size of b; with 20 % more the target is missed"
    )
