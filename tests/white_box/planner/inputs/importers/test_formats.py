"""GenTD26, Azure LLM and tables: releases, run times and clusters, derived by hand."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

import truenorth as tn
from tests.planner.inputs.importers.small import AZURE, GENTD26, UPDATES, table, written
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import InputError, load_scenario
from truenorth.planner.inputs.importers.trace import Imported
from truenorth.planner.show.inputs import summary_rows

HOUR = ("2024-12-06 00:00:00", "2024-12-06 01:00:00")


def jobs(made: Imported) -> list[tuple[int, str]]:
    workload = made.workload
    return [(int(r), workload.workflows[w].name) for r, w in zip(workload.release_us, workload.workflow, strict=True)]


def test_gentd26_keeps_what_succeeded_in_release_order(tmp_path: Path) -> None:
    made = tn.import_trace("gentd26", [written(tmp_path, GENTD26)])
    # Time zero is the first request, at 23:59:59.
    assert jobs(made) == [
        (0, "M0001 30 s"),
        (1_000_000, "M0006 25 s"),
        (6_000_000, "M0001 25 s"),
        (9_000_000, "M0002 14.5 s"),
        (61_000_000, "M0002 9 s"),
    ]
    assert made.tally.read == 7
    assert made.tally.left_out == {"predict_status FAILED": 1, "predict_status PENDING": 1}
    assert not made.tally.refused


def test_gentd26_can_count_failed_requests(tmp_path: Path) -> None:
    made = tn.import_trace("gentd26:status=finished", [written(tmp_path, GENTD26)])
    # The failed one stands before the other of the same second, and stays there.
    assert jobs(made)[3:5] == [(9_000_000, "M0002 14 s"), (9_000_000, "M0002 14.5 s")]
    assert made.tally.left_out == {"predict_status PENDING": 1}


def test_a_window_of_moments_counts_from_its_start_and_excludes_its_end(tmp_path: Path) -> None:
    log = written(tmp_path, GENTD26)
    made = tn.import_trace("gentd26", [log], window=("2024-12-06 00:00:00", "2024-12-06T00:01:00"))
    assert jobs(made) == [(0, "M0006 25 s"), (5_000_000, "M0001 25 s"), (8_000_000, "M0002 14.5 s")]
    # The same window in seconds since the first request.
    assert jobs(tn.import_trace("gentd26", [log], window=("1 s", "61 s"))) == jobs(made)


def test_gentd26_has_the_documented_cluster(tmp_path: Path) -> None:
    made = tn.import_trace("gentd26", [written(tmp_path, GENTD26, "log.csv.gz")])
    assert made.target.words == "2 GPUs of 24 GB, models of 6.5 GB, a load takes 8.454 s"
    assert any("8.454 s" in note for note in made.notes)


def test_the_load_time_is_the_median_of_the_updates_that_are_given(tmp_path: Path) -> None:
    files = [written(tmp_path, UPDATES, "updates.csv"), written(tmp_path, GENTD26)]
    made = tn.import_trace("gentd26", files)
    assert made.target.load_us("M0001") == 5_500_000
    assert made.tally.read == 7  # updates are no requests
    assert any("5.5 s, the median of 4 updates in updates.csv" in note for note in made.notes)
    scenario = load_scenario(made.save(tmp_path / "scenario.yaml")[0])
    assert scenario.instance.load_time(0, 0) == 5_500_000  # exactly, although 6.5 GB / 5.5 s is no finite decimal


def test_updates_alone_are_no_trace(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a log of updates; allowed is a request trace beside it"):
        tn.import_trace("gentd26", [written(tmp_path, UPDATES)])


def test_azure_tokens_become_run_times(tmp_path: Path) -> None:
    made = tn.import_trace("azure-llm:start=10ms,prefill=100us,decode=30ms", [written(tmp_path, AZURE, "chat.csv")])
    # 10 ms + 4808 x 0.1 ms + 9 x 30 ms = 760.8 ms; 10 + 100 x 0.1 + 0 = 20 ms, also without a generated token.
    # The seventh decimal rounds half up: .0319606 - .9799600 is 52000.6 us, .0319604 is 52000.4 us.
    assert jobs(made) == [(0, "chat 0.7608 s"), (52_000, "chat 0.02 s"), (52_001, "chat 0.02 s")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "(Llama2-70B on eight H100, measured by the authors of Splitwise)"),
        (
            "start=10ms,prefill=1us,decode=2ms",
            "0.01 s + 0.000001 s x context + 0.002 s x (generated - 1) (rates as asked for)",
        ),
        (
            "decode=2ms",
            "(start and prefill: Llama2-70B on eight H100, measured by the authors of Splitwise; the rest as asked",
        ),
    ],
)
def test_rates_say_whose_they_are(tmp_path: Path, options: str, said: str) -> None:
    made = tn.import_trace(f"azure-llm:{options}", [written(tmp_path, AZURE)])
    text = made.save(tmp_path / "made.yaml")[0].read_text()
    assert said in text
    assert ("measured by" in text) == ("start=" not in options)


def test_rates_of_one_request_are_refused_for_several(tmp_path: Path) -> None:
    log = written(tmp_path, AZURE)
    for options in ("concurrency=16", "concurrency=16,decode=40ms"):
        with pytest.raises(
            QuestionError, match="allowed is with prefill= and decode= as measured beside 15 others, or"
        ):
            tn.import_trace(f"azure-llm:{options}", [log])
    beside = tn.import_trace("azure-llm:concurrency=16,prefill=1ms,decode=40ms", [log])
    assert "16 requests at a time on a GPU; prefill and decode are taken to be those beside 15 others" in beside.notes


def test_azure_requests_share_a_gpu_in_batches_and_hold_their_cache(tmp_path: Path) -> None:
    options = "start=10ms,prefill=100us,decode=30ms,concurrency=4,kv=10B,batch=3,crowding=0.5"
    made = tn.import_trace(f"azure-llm:{options}", [written(tmp_path, AZURE, "chat.csv")])
    # By size: 10 ms + b x 480.8 ms + 9 x 30 ms x (1 + (b - 1) / 2); the two short ones differ by a token of cache.
    assert [name for _, name in jobs(made)] == ["chat 0.7608 s", "chat 0.02 s", "chat 0.02 s #2"]
    instance = load_scenario(made.save(tmp_path / "scenario.yaml")[0]).instance
    tasks = [job.workflow.tasks[0] for job in instance.jobs]
    assert [(task.share, task.memory_bytes) for task in tasks] == [(2500, 48_180), (2500, 1000), (2500, 1010)]
    tables = [dict(task.batch.times_on("8xH100")) for task in tasks if task.batch is not None]
    assert tables[0] == {1: 760_800, 2: 1_376_600, 3: 1_992_400}
    assert tables[1] == tables[2] == {1: 20_000, 2: 30_000, 3: 40_000}
    # The slowest stays; the two others become one class, with the larger of everything.
    few = tn.import_trace(f"azure-llm:{options}", [written(tmp_path, AZURE, "chat.csv")], runtime_classes="1")
    (quick, slow) = (workflow.tasks[0] for workflow in few.workload.workflows)
    assert [(task.memory_bytes, dict(task.batch.times_on("8xH100"))) for task in (quick, slow) if task.batch] == [
        (1010, tables[1]),
        (48_180, tables[0]),
    ]
    assert few.workload.mapping.endswith(
        "only requests with equal figures form batches, which few classes make more of"
    )
    # Work counts by its share: (760.8 + 2 x 20 ms) x 1/4, within 52.001 ms, on 40 GPUs.
    assert few.summary.fluid_load == pytest.approx(800.8 / 4 / (52.001 * 40), rel=1e-4)
    assert summary_rows(few)["work"] == "0.2002 GPU-seconds: run times, each times its share of a GPU"


def test_a_table_may_say_what_requests_share(tmp_path: Path) -> None:
    log = written(tmp_path, "release,model,runtime,part,held,pair\n0,a,2,0.25,100,3\n1,a,2,1,0,2\n")
    made = tn.import_trace("table:share=part,memory=held,batch=2:pair", [log])
    instance = load_scenario(made.save(tmp_path / "scenario.yaml")[0]).instance
    tasks = [job.workflow.tasks[0] for job in instance.jobs]
    assert [(task.share, task.memory_bytes) for task in tasks] == [(2500, 100), (10_000, 0)]
    assert [batch.runtime_us["*"] for batch in instance.batches] == [
        {1: 2_000_000, 2: us} for us in (3 * 10**6, 2 * 10**6)
    ]
    assert tn.import_trace("table:share=part", [log]).scenario.instance.batches == ()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0,a,2,1.2,0,3", "part: '1.2' is no share; allowed is a decimal above 0 and at most 1, of up to four places"),
        ("0,a,2,0.12345,0,3", "part: '0.12345' is no share"),
        ("0,a,2,1,-1,3", "held: '-1' is no whole number in range"),
        ("0,a,2,1,0,1", "pair: '1' is less than a smaller batch takes; allowed is a time that does not fall"),
    ],
)
def test_a_table_of_shares_is_checked(tmp_path: Path, row: str, message: str) -> None:
    log = written(tmp_path, f"release,model,runtime,part,held,pair\n{row}\n")
    with pytest.raises(InputError, match=message):
        tn.import_trace("table:share=part,memory=held,batch=2:pair", [log])


def test_azure_files_are_services_unless_they_share_a_model(tmp_path: Path) -> None:
    files = [written(tmp_path, AZURE, name) for name in ("chat.csv.gz", "code.csv")]
    assert set(tn.import_trace("azure-llm", files).summary.model_requests) == {"chat", "code"}
    assert set(tn.import_trace("azure-llm:model=llama", files).summary.model_requests) == {"llama"}


def test_a_table_names_its_columns_and_unit(tmp_path: Path) -> None:
    text = "id,when,which,took,due\n1,7,a,2.5,100\n2,3,b,1,9\n"
    made = tn.import_trace(
        "table:release=when,model=which,runtime=took,deadline=due,unit=ms", [written(tmp_path, text)]
    )
    # The zero is the log's own, not its first release.
    assert jobs(made) == [(3_000, "b 0.001 s"), (7_000, "a 0.0025 s")]
    instance = load_scenario(made.save(tmp_path / "scenario.yaml")[0]).instance
    assert [job.deadline_us for job in instance.jobs] == [9_000, 100_000]


def test_an_empty_deadline_is_none(tmp_path: Path) -> None:
    log = written(tmp_path, "release,model,runtime,due\n0,a,1,\n1,a,1, \n2,a,1,0.5\n3,a,1,0\n")
    made = tn.import_trace("table:deadline=due", [log])
    assert made.workload.deadline_us is not None
    assert made.workload.deadline_us.tolist() == [-1, -1, 500_000, 0]
    instance = load_scenario(made.save(tmp_path / "scenario.yaml")[0]).instance
    assert [job.deadline_us for job in instance.jobs] == [None, None, 500_000, 0]
    for text in ("-1", "-0.000001", "soon"):
        bad = written(tmp_path, f"release,model,runtime,due\n0,a,1,{text}\n", "bad.csv")
        with pytest.raises(
            InputError, match=rf"bad.csv:2: due: '{text}' is no time in range; allowed is nothing, or a"
        ):
            tn.import_trace("table:deadline=due", [bad])


def test_a_file_named_twice_would_count_twice(tmp_path: Path) -> None:
    log = written(tmp_path, table("0,a,1"))
    with pytest.raises(InputError, match=r"log\.csv: file: is named twice; allowed is each file once"):
        tn.import_trace("table", [log, tmp_path / "." / "log.csv"])
    other = written(tmp_path, table("0,a,1"), "other.csv")
    assert tn.import_trace("table", [log, other]).tally.read == 2


@pytest.mark.parametrize(
    ("factor", "releases"),
    [
        ("1", [0, 1_000_000, 3_000_001]),
        ("2", [0, 500_000, 1_500_001]),  # 1,500,000.5 rounds half up
        ("0.5", [0, 2_000_000, 6_000_002]),
        ("3", [0, 333_333, 1_000_000]),
    ],
)
def test_a_rate_factor_divides_releases(tmp_path: Path, factor: str, releases: list[int]) -> None:
    log = written(tmp_path, table("0,a,1", "1,a,1", "3.000001,a,1"))
    made = tn.import_trace("table", [log], rate_factor=Fraction(factor))
    assert made.workload.release_us.tolist() == releases


def test_the_window_is_cut_before_the_rate_is_scaled(tmp_path: Path) -> None:
    log = written(tmp_path, table("1,a,1", "2,b,1", "3,c,1", "4,d,1"))
    made = tn.import_trace("table", [log], window=("2 s", "4 s"), rate_factor=Fraction(10))
    assert jobs(made) == [(0, "b 1 s"), (100_000, "c 1 s")]
    assert made.summary.length_us == 200_000


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"format_text": "Slurm"}, "unknown format 'Slurm'; table reads what Slurm writes; allowed are gentd26"),
        ({"format_text": "gentd62"}, "unknown format 'gentd62'; did you mean 'gentd26'"),
        ({"format_text": "table:colour=red"}, "unknown option 'colour'"),
        ({"format_text": "azure-llm:decode=2 days"}, "option decode: '2 days' is no time"),
        ({"format_text": "azure-llm:decode=2 h"}, "out of range; allowed is 0 s to 60 s"),
        ({"window": ("5 s", "5 s")}, "is an empty window"),
        ({"window": ("-5 s", "15 s")}, "window: '-5 s' lies before time zero; allowed is a start from there on"),
        ({"window": ("5 s", "1e10 s")}, r"window: '1e10 s' is too late; allowed is up to 1e\+09 s from zero"),
        ({"window": ("2024-12-06", "2024-12-07")}, "is no time; allowed is a number with a unit such as '3600 s'$"),
        ({"window": ("soon", "later")}, "'soon' is no time"),
        ({"rate_factor": Fraction(0)}, "rate_factor: 0 is out of range"),
        ({"runtime_classes": "0"}, "'0' is no number of classes; allowed is auto, exact, or a number"),
        ({"runtime_classes": "many"}, "'many' is no number of classes; allowed is auto, exact, or a number"),
    ],
)
def test_what_cannot_be_asked(tmp_path: Path, call: dict[str, object], message: str) -> None:
    log = written(tmp_path, table("0,a,1"))
    with pytest.raises(QuestionError, match=message):
        tn.import_trace(**({"format_text": "table", "files": [log]} | call))  # type: ignore[arg-type]


def test_moments_and_times_do_not_mix(tmp_path: Path) -> None:
    log = written(tmp_path, GENTD26)
    with pytest.raises(QuestionError, match="mixes a time with a moment"):
        tn.import_trace("gentd26", [log], window=("0 s", "2024-12-06 00:00:00"))
    with pytest.raises(InputError, match="they lie from 0 s to 61 s; allowed is a window with a release"):
        tn.import_trace("gentd26", [log], window=("1 h", "2 h"))
    with pytest.raises(InputError, match="they lie from 2024-12-05T23:59:59 to 2024-12-06T00:01:00"):
        tn.import_trace("gentd26", [log], window=("2024-12-07 00:00", "2024-12-08 00:00"))
