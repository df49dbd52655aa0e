# ruff: noqa: E501 (a message is one line)
"""Traces: every row is read exactly, the window is half-open, and a bad row is named by its line."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.scenario.small import JOBS, changed, loaded, refused
from truenorth.models import Instance
from truenorth.models.scenario import InputError
from truenorth.models.scenario.arrivals import Arrival, read_trace
from truenorth.models.scenario.quantities import MAX_TIME_US
from truenorth.models.units import QuantityError, microseconds, parse_time


def trace(folder: Path, text: str | bytes, window: tuple[int, int] | None = None) -> list[Arrival]:
    path = folder / "arrivals.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(read_trace(path, ["qa", "qb"], 2, window).arrivals)


def releases(folder: Path, text: str, window: tuple[int, int] | None = None) -> list[int]:
    return [arrival.release_us for arrival in trace(folder, text, window)]


@pytest.mark.parametrize(
    ("column", "text", "expected"),
    [
        ("time_ms", "333.3333", 333_333),
        ("time_ms", "0.0005", 1),
        ("time_ms", "0.00049999999999999999999999999999", 0),
        ("time_ms", "7", 7_000),
        ("time_ms", "7.", 7_000),
        ("time_ms", ".5", 500),
        ("time_ms", " 1e3 ", 1_000_000),
        ("time_s", "1.2345675", 1_234_568),
        ("time_us", "12.5", 13),
        ("time_us", "1000000000000000", MAX_TIME_US),
    ],
)
def test_times_are_exact(tmp_path: Path, column: str, text: str, expected: int) -> None:
    assert releases(tmp_path, f"{column},workflow\n{text},qa\n") == [expected]


@given(st.from_regex(r"\A[0-9]{0,12}(\.[0-9]{0,12})?([eE][+-]?[0-9])?\Z"), st.sampled_from(["us", "ms", "s"]))
def test_short_way_to_a_time_agrees_with_its_definition(text: str, unit: str) -> None:
    try:
        expected = parse_time(f"{text} {unit}")
    except QuantityError:
        with pytest.raises(QuantityError):
            microseconds(text, unit)
    else:
        assert microseconds(text, unit) == expected


def test_optional_columns_in_any_order(tmp_path: Path) -> None:
    text = "ingress,weight,workflow,deadline_s,time_ms\n,,qa,,0\ns1,2.5,qb,1.5,0\n\n1,0,qa,0.25,3\n"
    assert trace(tmp_path, text) == [
        Arrival(0, "qa"),
        Arrival(0, "qb", 1_500_000, Fraction(5, 2), 1),
        Arrival(3_000, "qa", 250_000, Fraction(0), 1),
    ]


def test_window_is_half_open_and_counts_from_its_start(tmp_path: Path) -> None:
    text = "time_us,workflow\n" + "".join(f"{time},qa\n" for time in (9, 10, 10, 19, 20))
    assert releases(tmp_path, text) == [9, 10, 10, 19, 20]
    assert releases(tmp_path, text, (10, 20)) == [0, 0, 9]


def test_byte_order_mark_quotes_and_windows_line_ends(tmp_path: Path) -> None:
    text = '\ufefftime_us, workflow\r\n"1","qa"\r\n2,qb'
    assert [(a.release_us, a.workflow) for a in trace(tmp_path, text)] == [(1, "qa"), (2, "qb")]


HEAD = "time_ms,workflow"
COLUMNS = "time_ms, time_s, time_us, workflow, deadline_ms, deadline_s, deadline_us, weight, ingress, path, priority, line, label"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: header: has no column of time_ms, time_s, time_us; allowed is exactly one of them"),
        ("time_ms\n1\n", "1: header: has no column of workflow; allowed is exactly one of them"),
        ("time_ms,time_s,workflow\n", "1: header: has time_ms and time_s of time_ms, time_s, time_us; allowed is exactly one of them"),
        (f"{HEAD},wieght\n", f"1: header: unknown column 'wieght'; did you mean 'weight'? allowed are {COLUMNS}"),
        (f"{HEAD},workflow\n", "1: header: column 'workflow' occurs twice; allowed is once"),
        (f"{HEAD}\n", "1: file: has no rows; allowed is at least one arrival"),
        (f"{HEAD}\n0,qa\n5\n", "3: row: has 1 fields; allowed are 2"),
        (f"{HEAD}\n0,qa\n5,qa,\n", "3: row: has 3 fields; allowed are 2"),
        (f"{HEAD}\n0,qa\nx,qa\n", "3: time_ms: 'x' is no time; allowed is a plain number of ms"),
        (f"{HEAD}\n0,qa\nnan,qa\n", "3: time_ms: 'nan' is no time; allowed is a plain number of ms"),
        (f"{HEAD}\n0,qa\n5 ms,qa\n", "3: time_ms: '5 ms' is no time; allowed is a plain number of ms"),
        (f"{HEAD}\n-1,qa\n", "2: time_ms: '-1' is out of range; allowed is 0 to 1000000000000000 us"),
        (f"{HEAD}\n1e13,qa\n", "2: time_ms: '1e13' is out of range; allowed is 0 to 1000000000000000 us"),
        (f"{HEAD}\n0,qa\n\n5,qa\n4.9,qa\n", "5: time_ms: '4.9' is earlier than the row before; allowed are rows sorted by time"),
        (f"{HEAD}\n0,qc\n", "2: workflow: unknown workflow 'qc'; allowed are qa, qb"),
        (f"{HEAD}\n0,q\0a\n", "2: workflow: unknown workflow 'q\\x00a'; did you mean 'qa'? allowed are qa, qb"),
        (f'{HEAD}\n0,qa\n1,"q\n\na"\n', "3: workflow: unknown workflow 'q\\n\\na'; did you mean 'qa'? allowed are qa, qb"),
        (f'{HEAD}\n0,"qa\n', "2: row: unexpected end of data; allowed is CSV"),
        (f"{HEAD}\n0,{'a' * 70_000}\n", "2: row: is longer than 65536 characters; allowed are shorter lines"),
        (f"{HEAD},weight\n0,qa,-1\n", "2: weight: '-1' is no such number; allowed is 0, or a number from 1e-9 to 1e9"),
        (f"{HEAD},deadline_ms\n0,qa,-1\n", "2: deadline_ms: '-1' is out of range; allowed is 0 to 1000000000000000 us"),
        (f"{HEAD},deadline_ms\n0,qa,soon\n", "2: deadline_ms: 'soon' is no time; allowed is a plain number"),
        (f"{HEAD},ingress\n0,qa,s2\n", "2: ingress: unknown server 's2'; allowed are s0 to s1"),
        (f"{HEAD},ingress\n0,qa,x\n", "2: ingress: 'x' is no server; allowed is a server such as s0"),
        (f"{HEAD},line\n0,qa,2\n1,qa,x\n", "3: line: 'x' is no line; allowed is its number, from 0"),
        (HEAD.encode() + b"\n0,qa\n1,q\xff\n", "3: workflow: is not UTF-8 text; allowed is UTF-8"),
        (HEAD.encode() + b"\xff\n0,qa\n", "1: header: is not UTF-8 text; allowed is UTF-8"),
    ],
)  # fmt: skip
def test_bad_row(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        trace(tmp_path, text)
    assert str(caught.value) == f"{tmp_path}/arrivals.csv:{message}"


def test_rows_outside_the_window_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"arrivals.csv:4: time_us: 'x' is no time"):
        trace(tmp_path, "time_us,workflow\n1,qa\n5,qa\nx,qa\n", (0, 2))


def test_last_of_many_rows(tmp_path: Path) -> None:
    text = "time_us,workflow\n" + "".join(f"{time},qa\n" for time in range(100_000)) + "x,qa\n"
    with pytest.raises(InputError, match=r"arrivals.csv:100002: time_us: 'x' is no time"):
        trace(tmp_path, text, (0, 10))


def instance(folder: Path, window: str = "") -> Instance:
    return loaded(folder, changed(JOBS, f"  trace: {{file: arrivals.csv{window}}}\n")).instance


def test_trace_of_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "arrivals.csv").write_text("time_s,workflow,deadline_ms\n0,qa,\n1,qa,800\n2,qa,\n3,qa,\n")
    assert [job.release_us for job in instance(tmp_path).jobs] == [0, 1_000_000, 2_000_000, 3_000_000]
    jobs = instance(tmp_path, ", window: [1 s, 3 s]").jobs
    assert [(job.release_us, job.deadline_us) for job in jobs] == [(0, 800_000), (1_000_000, None)]


def test_window_without_arrivals_and_missing_file(tmp_path: Path) -> None:
    (tmp_path / "arrivals.csv").write_text("time_s,workflow\n1,qa\n2,qa\n")
    text = changed(JOBS, "  trace:\n    file: arrivals.csv\n    window: [3 s, 4 s]\n")
    assert refused(tmp_path, text) == (
        "scenario.yaml:17: workload.trace.window: is an empty window: the 2 arrivals of arrivals.csv "
        "lie from 1000000 us to 2000000 us; allowed is a window with an arrival"
    )
    assert refused(tmp_path, text.replace("arrivals.csv", "none.csv")) == (
        "scenario.yaml:16: workload.trace.file: none.csv cannot be read: No such file or directory; "
        "allowed is a readable CSV file"
    )
