"""Tool switching: files, both readings of the first filling, and plans against enumeration."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.suites.case import Bracket, FirstFilling
from experiments.suites.tool_switching import BEST_ORDERS, DRAWS, ToolSwitching, cases, drawn, read
from tests.experiments.suites.plans import proved
from truenorth.models.scenario import InputError

FILE = """\
2 3 4 2

15

5 6 7
1 0 0
1 1 0
0 1 0
0 0 1
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "instance.txt"
    path.write_text(text)
    return path


def test_a_file_is_read(tmp_path: Path) -> None:
    instance = read(written(tmp_path, FILE))
    assert instance == ToolSwitching(2, 2, 15, [5, 6, 7], [frozenset({0, 1}), frozenset({1, 2}), frozenset({3})])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2 3 4 2", "2 3 4", "instance.txt:1: machines, jobs, tools, capacity: allowed are 4 whole numbers from 1"),
        ("15", "15 1", "instance.txt:3: switching time: allowed are 1 whole numbers"),
        ("15", "0", "instance.txt:3: switching time"),
        ("15", "1.5", "instance.txt:3: number: '1.5' stands here; allowed are whole numbers from 0"),
        ("15", "9" * 5000, "stands here; allowed are whole numbers from 0"),
        ("5 6 7", "5 6", "instance.txt:5: processing times: allowed are 3 whole numbers"),
        ("0 1 0", "0 2 0", "instance.txt:8: tool 3: allowed are 3 whole numbers from 0 to 1"),
        ("0 0 1\n", "", "instance.txt:8: tool 4: the file ends before this row"),
        ("0 0 1\n", "0 0 1\n1 1 1\n", "instance.txt:10: rows: allowed are the 4 of the tools, and no more"),
        ("0 0 1", "1 0 1", "instance.txt:1: job 1: needs 3 tools; allowed are at most the 2 that a magazine holds"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = written(tmp_path, FILE.replace(old, new, 1))
    with pytest.raises(InputError) as refused:
        read(path)
    assert message in str(refused.value)


def test_a_file_of_bytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "instance.txt"
    path.write_bytes(b"2 3 4 2\n\xff\n")
    with pytest.raises(InputError, match=r"instance.txt:2: file: is not UTF-8 text"):
        read(path)


def test_one_machine_and_one_place() -> None:
    # Two jobs of 3 and 4 with a tool each, and room for one: two loads of 5, or one if the first is free.
    instance = ToolSwitching(1, 1, 5, [3, 4], [frozenset({0}), frozenset({1})])
    assert proved(instance.case("by hand", False)) == 2 * 5 + 7
    assert proved(instance.case("by hand", True)) == 5 + 7


def test_a_magazine_that_is_never_full() -> None:
    # A machine each, a tool each, room for three: paid 5 + 4, free 4. Subtracting a full magazine's 15 would be wrong.
    instance = ToolSwitching(2, 3, 5, [3, 4], [frozenset({0}), frozenset({1})])
    assert proved(instance.case("by hand", False)) == 9
    assert proved(instance.case("by hand", True)) == 4


def test_a_job_without_tools() -> None:
    # The jobs with a tool share a machine and its load, 5 + 3 + 3; the other machine does 9 without waiting.
    instance = ToolSwitching(2, 1, 5, [3, 3, 9], [frozenset({0}), frozenset({0}), frozenset()])
    assert proved(instance.case("by hand", False)) == 11
    assert proved(instance.case("by hand", True)) == 9


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("free_filling", [False, True])
def test_plans_are_what_enumeration_finds(seed: int, free_filling: bool) -> None:
    case = drawn(2, 5, 8, 3, 7, seed).case("draw", free_filling)
    assert case.known is not None
    assert proved(case) == case.known.upper


def test_draws_and_files_come_in_the_readings_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, FILE)
    both = [case.name for case in cases(FirstFilling.BOTH, [tmp_path])]
    assert both == ["instance, filling paid", "instance, filling free"]
    assert [case.name for case in cases(FirstFilling.FREE, [path])] == ["instance, filling free"]
    assert [case.offset_us for case in cases(FirstFilling.BOTH, [path])] == [0, 2 * 15]
    assert (
        next(cases(FirstFilling.PAID, [])).name == "2 machines, 6 jobs, 4 of 10 tools, switch 15, seed 1, filling paid"
    )


def test_what_is_known_of_larger_draws() -> None:
    # Processing times add up to 551, loads of 20 tools to 300: 851 on two machines, so 426 at least. If the first
    # filling is free, both magazines together can hold all 20 tools, so 276 at least.
    draw = (2, 15, 20, 10, 15, 1)
    instance = drawn(*draw)
    assert (sum(instance.times), len(frozenset().union(*instance.needs))) == (551, 20)
    assert instance.known(False, BEST_ORDERS[draw]) == Bracket(426, 565)
    assert instance.known(True, BEST_ORDERS[draw]) == Bracket(276, 415)
    assert instance.known(True) is None


@pytest.mark.parametrize("draw", BEST_ORDERS)
def test_known_orders_hold_every_job_once(draw: tuple[int, ...]) -> None:
    machines, jobs, *_ = draw
    assert draw in DRAWS
    assert len(BEST_ORDERS[draw]) == machines
    assert sorted(job for order in BEST_ORDERS[draw] for job in order) == list(range(jobs))
