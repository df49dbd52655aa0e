"""JSON Lines are a table whose keys are columns, with the same values and the same manners as CSV."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truenorth as tn
from tests.planner.inputs.importers.outcomes import jobs
from tests.planner.inputs.importers.small import written
from truenorth.models.scenario import InputError
from truenorth.planner.inputs.importers import json_files

OPTIONS = "table:release=at,model=model,runtime=took,deadline=due,unit=ms"
GOOD = [
    {"at": 0.5, "model": "a", "took": 1.0005, "note": {"any": [1]}},
    {"at": "1e1", "model": "b", "took": 3, "due": 20},
    {"took": 7, "model": "a", "at": 12, "due": None},
]


def log(folder: Path, *rows: object) -> Path:
    return written(
        folder, "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), "log.jsonl"
    )


def test_keys_are_columns(tmp_path: Path) -> None:
    made = tn.import_trace(OPTIONS, [log(tmp_path, GOOD[0], "", *GOOD[1:])])
    # 1.0005 ms are 1000.5 us, which round half up.
    assert jobs(made) == [(500, "a 0.001001 s"), (10_000, "b 0.003 s"), (12_000, "a 0.007 s")]
    assert made.workload.deadline_us is not None
    assert made.workload.deadline_us.tolist() == [-1, 20_000, -1]
    assert made.tally.notes == ["log.jsonl holds JSON Lines"]
    assert made.tally.read == 3


def test_dates_and_chunks_are_read_as_in_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_files, "CHUNK_ROWS", 1)
    rows = [{"release": f"2026-01-01T00:00:0{second}Z", "model": "a", "runtime": 1} for second in (3, 1, 2)]
    made = tn.import_trace("table", [log(tmp_path, *rows)])
    assert made.workload.release_us.tolist() == [0, 1_000_000, 2_000_000]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"at": 1,', "file: "),
        ("[1]", "row: a list stands here; allowed is an object"),
        ({"at": 1, "model": "a"}, "row: has no key 'took'; its keys: 'at', 'model'; allowed is an object with at"),
        ({"at": 1, "model": "a", "took": [1]}, "took: a list stands here; allowed is text, a number or null"),
        ({"at": True, "model": "a", "took": 1}, "at: "),
        ({"at": 1, "model": None, "took": 1}, "model: '' is no name"),
        ({"at": 1, "model": "a", "took": 0}, "took: '0' is no time in range"),
        ('{"at": 1, "at": 2, "model": "a", "took": 1}', "at: duplicate key"),
        ("at,model,took", "file: "),
    ],
)
def test_a_malformed_line_is_refused_by_line_or_counted(tmp_path: Path, row: object, message: str) -> None:
    path = log(tmp_path, GOOD[0], "", row, GOOD[1])
    with pytest.raises(InputError) as refused:
        tn.import_trace(OPTIONS, [path])
    assert str(refused.value).startswith(f"{path}:3: {message}")
    made = tn.import_trace(OPTIONS, [path], skip_malformed=True)
    assert (len(made.workload.release_us), made.tally.read, made.tally.refused.total()) == (2, 3, 1)
