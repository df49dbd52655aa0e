"""The solvers that are installed, on what is known."""

from __future__ import annotations

import pytest

from experiments.benchmarks.exact import FORKS, ask_plainly, fork, wrong_answers


@pytest.mark.nightly
def test_installed_solvers_answer_what_is_known() -> None:
    assert list(wrong_answers(seeds=3)) == []


def test_the_seeds_that_met_the_rule_not_last() -> None:
    # Seeds of OR-Tools 9.14 that were wrong of these forks while intervals ended apart: 2,108,461 of 2,083,500 us, say.
    for draw, subsolver, seeds in ((103, "objective_lb_search", (0, 5, 14)), (110, "max_lp", (1, 7, 18, 19))):
        for seed in seeds:
            answer = ask_plainly(fork(draw), subsolver, seed)
            assert answer.bound <= FORKS[draw], (draw, seed)
