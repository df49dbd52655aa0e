"""``python -m experiments`` lists every experiment with a sentence, runs one by its name, and names those there are."""

from __future__ import annotations

import pytest

from experiments.__main__ import experiments, listing, main


def test_a_list_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "benchmarks: how fast, how good, how far" in lines
    assert "  engine_speed     Tasks per CPU second of the engine, and how its memory grows with the jobs." in lines
    assert "  league           Every policy beside plan and bound on every workload, ten replications." in lines
    assert len(listing().splitlines()) == len(experiments()) + 5
    assert all(each.sentence.endswith(".") for each in experiments().values())


@pytest.mark.parametrize("name", experiments())
def test_each_is_asked_by_its_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main([name, "--help"])
    except SystemExit as end:
        code = end.code
    assert code in (0, None)
    assert "usage:" in (said := capsys.readouterr().out.lower())
    assert name in said or name == "library"


def test_another_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gap"]) == 2
    assert capsys.readouterr().err.startswith("no experiment is named gap; write one of batches, bounds, ")
