"""The solvers that are installed, on what is known."""

from __future__ import annotations

from experiments.exact import wrong_answers


def test_installed_solvers_answer_what_is_known() -> None:
    assert list(wrong_answers()) == []
