"""What is no log is refused by line, or counted; nothing ends in a traceback."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import truenorth as tn
from tests.command import BAD_INPUT, app, run
from tests.planner.inputs.importers.small import AZURE, GENTD26, table, written
from truenorth.models.scenario import InputError, load_scenario
from truenorth.planner.inputs.estimate.table import Wanted, read_table
from truenorth.planner.inputs.importers import csv_files
from truenorth.planner.inputs.importers.csv_files import LONGEST_ROW

GOOD = "0,a,1"


@pytest.mark.parametrize(
    ("row", "line", "message"),
    [
        ("x,a,1", 3, "release: 'x' is no time in range; allowed is a plain number of s from 0 s to 1e+09 s"),
        ("-1,a,1", 3, "release: '-1' is no time in range"),
        ("nan,a,1", 3, "release: 'nan' is no time in range"),
        ("inf,a,1", 3, "release: 'inf' is no time in range"),
        ("1e99,a,1", 3, "release: '1e99' is no time in range"),
        (f"{'9' * 4000},a,1", 3, "is no time in range"),
        (",a,1", 3, "release: '' is no time in range"),
        ("0,a,0", 3, "runtime: '0' is no time in range"),
        ("0,a,-5", 3, "runtime: '-5' is no time in range"),
        ("0,a,1\x00", 3, r"runtime: '1\x00' is no time in range"),
        ("0,,1", 3, "model: '' is no name; allowed is 1 to 150 printable characters"),
        ("0,a\x00b,1", 3, "is no name"),
        (f"0,{'m' * 151},1", 3, "is no name"),
        ("0,a", 3, "row: has 2 fields; allowed are 3 fields of CSV"),
        ("0,a,1,2", 3, "row: has 4 fields"),
        ('0,"a,1', 3, "is not CSV: unexpected end of data (a quote has no end); allowed are 3"),
        ('0,"a"b,1', 3, "row: is not CSV: ',' expected after '\"'"),
        ("\n\n0,a", 5, "row: has 2 fields"),  # blank lines are lines
    ],
)
def test_a_malformed_row_is_refused_by_line_or_counted(tmp_path: Path, row: str, line: int, message: str) -> None:
    log = written(tmp_path, table(GOOD, row, GOOD))
    with pytest.raises(InputError) as refused:
        tn.import_trace("table", [log])
    assert str(refused.value).startswith(f"{log}:{line}: ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    made = tn.import_trace("table", [log], skip_malformed=True)
    assert len(made.workload.release_us) == 2
    assert sum(made.tally.refused.values()) == 1
    assert made.tally.read == 3


def test_malformed_rows_are_counted_by_reason_once_each(tmp_path: Path) -> None:
    log = written(tmp_path, table("x,a,1", "y,,0", "0,a,0", "0", GOOD))
    made = tn.import_trace("table", [log], skip_malformed=True)
    assert made.tally.refused == {
        "release: is no time in range": 2,
        "runtime: is no time in range": 1,
        "row: has too few or many fields": 1,
    }
    assert made.tally.read == 5


def test_the_first_malformed_row_is_the_one_named(tmp_path: Path) -> None:
    log = written(tmp_path, table(GOOD, "0,a,0", "x,a,1", "0"))
    with pytest.raises(InputError, match=r"log\.csv:3: runtime"):
        tn.import_trace("table", [log])


def test_a_row_with_line_breaks_is_one_row(tmp_path: Path) -> None:
    head = "release,model,runtime,note\n"
    log = written(tmp_path, head + '0,a,1,"x\n"\n1,a,1,y\n2,a,1,"say ""z""\n7,a,1,within\n3,a,5,q"\n4,a,0,w\n')
    made = tn.import_trace("table", [log], skip_malformed=True)
    # The rows at 0 and 2 s go on behind line breaks; no later line of theirs is a job.
    assert made.workload.release_us.tolist() == [0, 1_000_000, 2_000_000]
    assert (made.tally.read, made.tally.refused.total()) == (4, 1)
    with pytest.raises(InputError, match=r"log.csv:8: runtime: '0' is no time in range"):
        tn.import_trace("table", [log])


def test_a_stray_quote_spoils_its_own_row_alone(tmp_path: Path) -> None:
    head = "release,model,runtime,note\n"
    # What follows up to the next quote is no row together with what stands before: b" is no end of a field.
    log = written(tmp_path, head + '0,a,1,"x\n1,a,1,y\n2,a,1,"b" c\n3,a,1,5" wide\n4,a,1,"z\n5,a,1,w\n')
    made = tn.import_trace("table", [log], skip_malformed=True)
    assert made.workload.release_us.tolist() == [1_000_000, 3_000_000, 5_000_000]
    assert (made.tally.read, made.tally.refused.total()) == (6, 3)


def test_a_row_with_a_line_break_may_end_in_the_next_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "CHUNK_ROWS", 2)
    log = written(tmp_path, 'release,model,runtime,note\n0,a,1,x\n2,a,1,"z\n3,a,5,q"\n4,a,1,"w\n5,a,1,v\n6,a\n')
    made = tn.import_trace("table", [log], skip_malformed=True)
    assert made.workload.release_us.tolist() == [0, 2_000_000, 5_000_000]
    assert (made.tally.read, made.tally.refused.total()) == (5, 2)
    with pytest.raises(InputError, match=r"log.csv:7: row: has 2 fields"):
        tn.import_trace("table", [written(tmp_path, log.read_text().replace('"', ""))])


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("N/A", ["2026-01-01 00:00:01", "2026-01-01 00:00:02"]),
        ("", ["2026-01-01 00:00:01", "2026-01-01 00:00:02"]),
        ("-1", ["1700000000", "1700000001"]),
        ("1e99", ["5", "6"]),
    ],
)
def test_a_malformed_first_row_says_nothing_of_the_clock(tmp_path: Path, first: str, later: list[str]) -> None:
    log = written(tmp_path, table(*(f"{release},a,1" for release in (first, *later))))
    made = tn.import_trace("table", [log], skip_malformed=True)
    assert np.diff(made.workload.release_us).tolist() == [1_000_000]
    assert made.tally.refused.total() == 1
    with pytest.raises(InputError, match=r"log.csv:2: release: "):
        tn.import_trace("table", [log])


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (("2026-03-29 01:30:00,a,1", "2026-03-29 03:30:00+02:00,a,1"), "'2026-03-29 03:30:00.02:00' has a zone, other"),
        (
            ("2026-03-29T01:30:00Z,a,1", "2026-03-29 03:30:00,a,1"),
            "'2026-03-29 03:30:00' has no zone, other",
        ),
    ],
)
def test_dates_with_and_without_a_zone_do_not_mix(tmp_path: Path, rows: tuple[str, str], said: str) -> None:
    log = written(tmp_path, table(*rows))
    with pytest.raises(InputError, match=f"log.csv:3: release: {said}.* allowed is a zone in all dates or in none"):
        tn.import_trace("table", [log])
    made = tn.import_trace("table", [log], skip_malformed=True)
    assert (len(made.workload.release_us), made.tally.refused.total()) == (1, 1)
    # Nor do files of an import.
    files = [written(tmp_path, table(row), f"{place}.csv") for place, row in enumerate(rows)]
    with pytest.raises(InputError, match=r"1.csv:2: release: "):
        tn.import_trace("table", files)
    zones = table("2026-03-29 01:30:00+01:00,a,1", "2026-03-29T03:30:00-0130,a,1", "2026-03-29T01:30:00Z,a,1")
    assert tn.import_trace("table", [written(tmp_path, zones)]).workload.release_us.tolist() == [
        0,
        3_600_000_000,
        16_200_000_000,
    ]


def test_a_row_that_failed_may_be_malformed(tmp_path: Path) -> None:
    # The pending request of the log has neither a model nor a run time, which is no reason to refuse it.
    assert tn.import_trace("gentd26", [written(tmp_path, GENTD26)]).tally.left_out["predict_status PENDING"] == 1


@pytest.mark.parametrize("moment", ["now", "2024", "2024-13-01 00:00:00", "1969-12-31 23:59:59", "2300-01-01 00:00:00"])
def test_what_is_no_moment(tmp_path: Path, moment: str) -> None:
    with pytest.raises(InputError, match=r"log.csv:3: TIMESTAMP: .* is no date and time in range"):
        tn.import_trace("azure-llm", [written(tmp_path, AZURE.replace("2023-11-16 18:17:04.0319606", moment))])


@pytest.mark.parametrize("tokens", ["-1", "1.5", "10000001", "1_000", "", "\u0663"])
def test_what_is_no_number_of_tokens(tmp_path: Path, tokens: str) -> None:
    with pytest.raises(InputError, match=r"log.csv:2: ContextTokens: .* is no whole number in range"):
        tn.import_trace("azure-llm", [written(tmp_path, AZURE.replace("4808", tokens))])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "file: is empty; allowed is CSV with a header"),
        (b"\n", "file: is empty"),
        (b"release,model,runtime\n", "file: has no rows; allowed is at least one row below the header"),
        (b"release,model,runtime\n\n\n", "file: has no rows"),
        (b"release,model\n0,a\n", "header: has no column 'runtime'"),
        (b"release,model,runtime,model\n0,a,1,b\n", "header: column 'model' occurs twice"),
        (b'"release,model,runtime\n0,a,1\n', "header: unexpected end of data"),
        (table(GOOD).encode("utf-16"), "file: is UTF-16; allowed is UTF-8: convert the file, for instance with iconv"),
        (gzip.compress(("\ufeff" + table(GOOD)).encode("utf-16-be"), mtime=0), "file: is UTF-16"),
        ("r\u00e9lease,model,runtime\n".encode("latin-1"), "header: is not UTF-8"),
        (bytes(range(256)) * 40, "header: "),
        (b"release,model,runtime\n0,\xff\xfe,1\n", r"model: '\udcff\udcfe' is not UTF-8"),
        (b"release,model,runtime\n0," + b"a" * LONGEST_ROW + b",1\n", ":2: row: is longer than 1048576 characters"),
        (gzip.compress(table(GOOD).encode(), mtime=0)[:-9], "file: is damaged: Compressed file ended"),
        (gzip.compress(table(GOOD).encode(), mtime=0)[:-4] + b"\0\0\0\0", "file: is damaged: Incorrect length"),
        (b"\x1f\x8bnot really", "file: is damaged"),
    ],
)
def test_what_is_no_log_is_refused_even_where_rows_are_skipped(tmp_path: Path, data: bytes, message: str) -> None:
    log = tmp_path / "log.csv"
    log.write_bytes(data)
    with pytest.raises(InputError) as refused:
        tn.import_trace("table", [log], skip_malformed="model: " not in message)
    assert message in str(refused.value)


def test_what_is_read_must_be_utf_8_and_nothing_else(tmp_path: Path) -> None:
    text = "release,model,runtime,note\n0,a,1,caf\u00e9\n1,caf\u00e9,1,-\n2,caf\u00e9,1,-\n"
    latin = written(tmp_path, text.encode("latin-1"))
    remedy = "allowed is UTF-8: convert the file, for instance with iconv -f LATIN1 -t UTF-8"
    with pytest.raises(InputError) as refused:
        tn.import_trace("table", [latin])
    assert str(refused.value) == rf"{latin}:3: model: 'caf\udce9' is not UTF-8; {remedy}"
    made = tn.import_trace("table", [latin], skip_malformed=True)
    assert made.tally.refused == {"model: is not UTF-8": 2}
    assert made.summary.model_requests == {"a": 1}
    with pytest.raises(InputError, match=r"log\.csv:3: model: 'caf.udce9' is not UTF-8"):
        read_table(latin, Wanted(("model",), "runtime"))
    converted = written(tmp_path, text, "utf.csv")
    assert tn.import_trace("table", [converted]).summary.model_requests == {"caf\u00e9": 2, "a": 1}


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        tn.import_trace("table", [tmp_path / "none.csv"])
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        tn.import_trace("table", [tmp_path])


def test_a_log_of_which_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rows: no row is left"):
        tn.import_trace("table", [written(tmp_path, table("x,a,1"))], skip_malformed=True)


def test_quotes_and_a_byte_order_mark_are_csv(tmp_path: Path) -> None:
    log = written(tmp_path, "\ufeff" + table('0,"a, ""b""",1', "1,\u00e4 \u4e2d: #,2"))
    made = tn.import_trace("table", [log])
    assert sorted(made.summary.model_requests) == ['a, "b"', "\u00e4 \u4e2d: #"]
    scenario = load_scenario(made.save(tmp_path / "scenario.yaml")[0])
    assert [job.workflow.name for job in scenario.instance.jobs] == ['a, "b" 1 s', "\u00e4 \u4e2d: # 2 s"]


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(_TEXT, _TEXT, _TEXT).map(",".join) | _TEXT | st.just(GOOD), max_size=8))
def test_whatever_stands_in_a_log_it_becomes_a_scenario_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, rows: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    made = tn.import_trace("table", [written(folder, table(GOOD, *rows))], skip_malformed=True)
    assert made.tally.read == len(made.workload.release_us) + sum(made.tally.refused.values())
    scenario = load_scenario(made.save(folder / "scenario.yaml")[0])
    assert len(scenario.instance.jobs) == len(made.workload.release_us)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=300))
def test_binary_files_are_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    log = tmp_path_factory.mktemp("log") / "log.csv"
    log.write_bytes(data)
    for name in ("table", "gentd26", "azure-llm"):
        with pytest.raises(InputError) as refused:
            tn.import_trace(name, [log], skip_malformed=True)
        assert "\n" not in str(refused.value)


def test_the_command_says_it_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = written(tmp_path, table(GOOD, "0,a,zero"))
    assert run(app, ["import", "table", str(log), "--json"]) == BAD_INPUT
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"truenorth: error: {log}:3: runtime: 'zero' is no time in range; allowed is a plain number of s from 1e-06 s "
        "to 1e+09 s\n"
    )
