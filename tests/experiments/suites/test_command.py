"""The command: what it keeps between runs, its table, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.bench import ask, read, write
from experiments.suites import __main__ as command
from experiments.suites import case
from experiments.suites.case import Case, SuiteRow

CLOSED = SuiteRow("pcmax", "a", 20.0, 10, 10, 10, 10, "OPTIMAL", "arc-flow", 0.5, 0.4)
OPEN = SuiteRow("pcmax", "b", 20.0, 105, 95, 99, 100, "FEASIBLE", "energetic", 20.0, 31.0)
UNKNOWN = SuiteRow("tool-switching", "c", 20.0, 7, 3, None, None, "FEASIBLE", "cp-sat", 20.0, 31.0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record which cases are planned, in place of planning them."""
    names: list[str] = []

    def planned(case: Case, time_limit_s: float, workers: int) -> SuiteRow:
        names.append(case.name)
        return SuiteRow(case.suite, case.name, time_limit_s, 7, 6, None, 8, "FEASIBLE", "", 1.0, 1.0)

    monkeypatch.setattr(case, "planned", planned)
    monkeypatch.setattr(command, "warm_up", lambda parts=(): None)
    return names


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    write(tmp_path / "results.csv", [CLOSED, OPEN, UNKNOWN])
    assert read(tmp_path / "results.csv", SuiteRow) == [CLOSED, OPEN, UNKNOWN]


def test_finished_cases_are_not_planned_again(tmp_path: Path, asked: list[str]) -> None:
    arguments = ["heft", "triplets", "--time-limit", "5", "-o", str(tmp_path)]
    ask(command.suites, arguments)
    assert (asked[0], len(asked)) == ("canonical graph", 8)
    (tmp_path / "results.csv").write_text("".join((tmp_path / "results.csv").read_text().splitlines(True)[:-1]))
    ask(command.suites, arguments)
    assert asked[8:] == ["249 items, seed 1"]
    ask(command.suites, ["heft", "--time-limit", "6", "-o", str(tmp_path)])
    assert asked[9:] == ["canonical graph"]
    assert (tmp_path / "results.md").read_text().count("canonical graph") == 1


@pytest.mark.parametrize(
    ("value", "bound", "lower", "upper", "verdict"),
    [
        (100, 100, 100, 100, "equal"),
        (100, 90, 95, 100, "equal"),
        (105, 90, 95, 100, "+5.00%"),
        (98, 90, 95, 100, "better"),
        (94, 90, 95, 100, "below a published bound"),
        (110, 101, 100, 100, "refutes the known value"),
        (110, 101, None, None, "nothing known"),
        (None, 90, 95, 100, "no plan"),
    ],
)
def test_verdicts(value: int | None, bound: int, lower: int | None, upper: int | None, verdict: str) -> None:
    assert replace(OPEN, value=value, bound=bound, known_lower=lower, known_upper=upper).verdict == verdict


def test_a_table_and_its_summary() -> None:
    assert case.markdown([CLOSED, OPEN, UNKNOWN]).splitlines() == [
        "- pcmax: 2 cases, 1 proved, 1 of 2 at the best known value, worst +5.00%, 20.5 s",
        "- tool-switching: 1 case, 0 proved, 0 of 0 at the best known value, 20.0 s",
        "",
        "| suite | instance | value | bound | best known | verdict | status | time s | CPU s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| pcmax | a | 10 | 10 | 10 | equal | OPTIMAL | 0.5 | 0.4 |",
        "| pcmax | b | 105 | 95 | 99 to 100 | +5.00% | FEASIBLE | 20.0 | 31.0 |",
        "| tool-switching | c | 7 | 3 | - | nothing known | FEASIBLE | 20.0 | 31.0 |",
    ]


def test_a_long_suite_shows_only_what_is_open_or_different() -> None:
    many = [replace(CLOSED, instance=str(number)) for number in range(case.MOST_SHOWN)]
    assert case.shown([*many, OPEN]) == [OPEN]
    assert case.shown(many) == many


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hefd"], "invalid Suite value: 'hefd'"),
        (["asynchow", "--data", "nowhere"], "nowhere/asynchow/async_first_900.jsonl.gz: file: is not there"),
        (["tool-switching", "--ipmtc", "nowhere"], "nowhere"),
    ],
)
def test_refusals(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: list[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        ask(command.suites, [*arguments, "-o", str(tmp_path)])
    out, err = capsys.readouterr()
    assert (out, message in err.splitlines()[-1], asked) == ("", True, [])


def test_a_results_file_of_another_table_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results.csv").write_text("policy,value\nhash,1\n")
    with pytest.raises(SystemExit, match=r"^2$"):
        ask(command.suites, ["heft", "-o", str(tmp_path)])
    assert "results.csv:1: header: is another table's" in capsys.readouterr().err
    write(tmp_path / "results.csv", [CLOSED])
    damaged = (tmp_path / "results.csv").read_text().replace("0.5", "soon")
    (tmp_path / "results.csv").write_text(damaged)
    with pytest.raises(SystemExit, match=r"^2$"):
        ask(command.suites, ["heft", "-o", str(tmp_path)])
    assert "results.csv:2: time_s: Input should be a valid number" in capsys.readouterr().err
