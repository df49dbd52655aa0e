"""Histories and requests from files: what is read, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from truenorth.models.scenario import InputError
from truenorth.planner.inputs.estimate.run import EstimateOptions, estimate, score
from truenorth.planner.inputs.estimate.rungs import Estimate
from truenorth.planner.inputs.estimate.table import Naming, Wanted, columns_of, read_table, roles

HEADER = "submitted,model,batch,status,runtime_s\n"
GOOD = HEADER + "2024-11-15 10:00:05,opt,4.0,ok,2.5\n2024-11-15 10:00:00,nli,1,ok,0.5\n"


@pytest.fixture
def history(tmp_path: Path) -> Path:
    path = tmp_path / "history.csv"
    path.write_text(GOOD)
    return path


def test_columns_times_and_run_times_are_read(history: Path) -> None:
    table = read_table(history, Wanted(("model", "batch"), "runtime_s", "submitted"))
    assert table.tasks.text("batch").tolist() == ["4", "1"]
    assert table.runtime_us is not None
    assert table.runtime_us.tolist() == [2_500_000, 500_000]
    assert (table.tasks.asked_us[0] - table.tasks.asked_us[1]) == 5_000_000
    assert table.line.tolist() == [2, 3]


@pytest.mark.parametrize("first", ["", "-1.5", "soon"])
def test_numbers_count_as_times_whatever_the_first_row_holds(first: str, tmp_path: Path) -> None:
    path = tmp_path / "history.csv"
    path.write_text(f"submitted,model,runtime_s\n{first},opt,1\n2,opt,1\n3.5,opt,1\n")
    table = read_table(path, Wanted(("model",), "runtime_s", "submitted"), skip_malformed=True)
    assert table.tasks.asked_us.tolist() == [2_000_000, 3_500_000]
    with pytest.raises(InputError, match=r"history.csv:2: submitted: .* is no time in range"):
        read_table(path, Wanted(("model",), "runtime_s", "submitted"))


def test_a_key_that_would_stand_twice_in_the_estimates_is_refused(tmp_path: Path) -> None:
    history, requests = tmp_path / "history.csv", tmp_path / "requests.csv"
    history.write_text("model,line,source,runtime_s\nopt,x,a,1\n")
    requests.write_text("model,line,source\nopt,x,a\n")
    with pytest.raises(InputError, match=r"requests.csv:1: header: column 'line' would stand twice"):
        estimate(history, requests, Naming())
    assert estimate(history, requests, Naming(key=("model",))).found[0].p50_us == 1_000_000


def test_parquet_says_the_same(history: Path, tmp_path: Path) -> None:
    path = tmp_path / "history.parquet"
    pd.read_csv(history).to_parquet(path)
    wanted = Wanted(("model", "batch"), "runtime_s", "submitted")
    one, two = read_table(history, wanted), read_table(path, wanted)
    assert columns_of(path) == columns_of(history)
    assert one.tasks.text("batch").tolist() == two.tasks.text("batch").tolist()
    assert np.array_equal(one.tasks.asked_us, two.tasks.asked_us)
    assert one.runtime_us is not None
    assert two.runtime_us is not None
    assert one.runtime_us.tolist() == two.runtime_us.tolist()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2024-11-15 10:00:09,opt,4,ok,fast\n", "history.csv:4: runtime_s: 'fast' is no time"),
        ("2024-11-15 10:00:09,opt,4,ok,0\n", "history.csv:4: runtime_s: '0' is no time in range"),
        ("2024-11-15 10:00:09,opt,4,ok,\n", "history.csv:4: runtime_s: '' is no time"),
        ("yesterday,opt,4,ok,1\n", "history.csv:4: submitted: 'yesterday' is no date"),
        ("2024-11-15 10:00:09,opt,4\n", "history.csv:4: row: has 3 fields"),
    ],
)
def test_a_malformed_row_is_refused_with_its_line_or_counted(history: Path, row: str, message: str) -> None:
    history.write_text(GOOD + row)
    wanted = Wanted(("model",), "runtime_s", "submitted")
    with pytest.raises(InputError) as error:
        read_table(history, wanted)
    assert message in str(error.value)
    table = read_table(history, wanted, skip_malformed=True)
    assert len(table.tasks) == 2
    assert table.tally.refused.total() == 1


def test_rows_that_are_not_wanted_are_left_out_unread(history: Path) -> None:
    history.write_text(GOOD + "2024-11-15 10:00:09,opt,4,failed,never\n")
    table = read_table(history, Wanted(("model",), "runtime_s", only=(("status", "ok"),)))
    assert len(table.tasks) == 2
    assert dict(table.tally.left_out) == {"status is not ok": 1}
    with pytest.raises(InputError, match=r"history.csv:1: file: no row is left \(3 status is not done\)"):
        read_table(history, Wanted(("model",), "runtime_s", only=(("status", "done"),)))


@pytest.mark.parametrize(
    ("text", "naming", "message"),
    [
        (GOOD, Naming(key=("modle",)), "history.csv:1: header: has no column 'modle' (key); did you mean 'model'?"),
        (GOOD, Naming(runtime="seconds"), "history.csv:1: header: has no column 'seconds' (runtime)"),
        (GOOD, Naming(time="when"), "history.csv:1: header: has no column 'when' (time)"),
        (GOOD, Naming(text=("notes",)), "history.csv:1: header: has no column 'notes' (text)"),
        (GOOD, Naming(only=(("state", "ok"),)), "history.csv:1: header: has no column 'state' (only)"),
        (GOOD, Naming(key=("status",)), "requests.csv:1: header: has no column 'status' (key)"),
        (GOOD.replace("runtime_s", "took"), Naming(), "history.csv:1: header: has no column of runtime_s, runtime_ms"),
        ("runtime_s,user\n1,a\n", Naming(), "history.csv:1: header: shares no column with"),
        (HEADER, Naming(), "history.csv:1: file: has no rows"),
        ("", Naming(), "history.csv:1: file: is empty"),
    ],
)
def test_columns_that_are_missing_are_named_with_the_option(
    history: Path, tmp_path: Path, text: str, naming: Naming, message: str
) -> None:
    history.write_text(text)
    requests = tmp_path / "requests.csv"
    requests.write_text("model,batch\nopt,4\n")
    with pytest.raises(InputError) as error:
        estimate(history, requests, naming)
    assert message in str(error.value)


def test_a_key_begins_with_the_model_and_ends_with_the_other_shared_columns() -> None:
    header = ["runtime_ms", "user", "task", "model", "batch", "when", "host"]
    meaning = roles(Path("h"), header, Path("r"), ["model", "task", "batch", "user", "when"], Naming(time="when"))
    assert meaning.columns.key == ("model", "task", "user", "batch")
    assert meaning.columns.features == ("user", "task", "model", "batch")
    assert meaning.runtime == "runtime_ms"
    assert not meaning.compared


def test_what_sources_say_is_read_relative_to_the_table(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    code = 'AutoModel.from_pretrained("{name}")\nTrainingArguments(per_device_train_batch_size={batch}, fp16=True)\n'
    for file, name, batch in (("a", "bert-base-uncased", 8), ("b", "t5-small", 16), ("c", "bert-base-uncased", 8)):
        (tmp_path / "jobs" / f"{file}.py").write_text(code.format(name=name, batch=batch))
    history, requests = tmp_path / "history.csv", tmp_path / "requests.csv"
    rows = "".join(f"jobs/a.py,{100 + i}\njobs/b.py,{10 + i}\n" for i in range(6))
    history.write_text("script,runtime_s\n" + rows)
    requests.write_text("script\njobs/c.py\n")
    naming = Naming(source="script", key=("source_model", "source_batch_size", "source_precision"))
    made = estimate(history, requests, naming, EstimateOptions(cache=tmp_path / "cache.json"))
    # The six runs of a.py, whose model, batch and precision c.py has, 100 to 105 s; the third and fourth lie around
    # the median: the geometric mean of 102 and 103.
    assert made.found[0].p50_us / 1e6 == pytest.approx((102 * 103) ** 0.5, abs=1e-6)
    assert made.found[0].source == "exact key"
    assert made.found[0].neighbours == ("bert-base-uncased / 8 / fp16",)
    assert (tmp_path / "cache.json").exists()
    requests.write_text("script\njobs/c.py\njobs/gone.py\n")
    with pytest.raises(InputError, match=r"requests.csv:3: source: .*gone.py: cannot be read"):
        estimate(history, requests, naming)


def test_scores_by_hand() -> None:
    # Told 2, 4, 6 s; true 2, 5, 12 s: relative errors 0, 0.2, 0.5. Mean truth 19/3: squares around it 52.67, errors 37.
    # The ranks agree. Intervals reach from half to twice the median, so that all three are held.
    told = [Estimate(s * 500_000, s * 1_000_000, s * 2_000_000, "default") for s in (2, 4, 6, 7)]
    found = score(told, np.array([2e6, 5e6, 12e6, np.nan]))
    assert found is not None
    assert (found.cases, found.width, found.covered, found.below, found.above) == (3, 4.0, 1.0, 0.0, 0.0)
    assert found.median_error == pytest.approx(0.2)
    assert found.r2 == pytest.approx(1 - 37 / (158 / 3))
    assert found.spearman == pytest.approx(1.0)
    assert score(told, np.full(4, np.nan)) is None
