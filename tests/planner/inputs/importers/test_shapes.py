"""Logs as the tools that wrote them leave them: each shape becomes the jobs that its rows say, or is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truenorth as tn
from tests.planner.inputs.importers.outcomes import jobs
from tests.planner.inputs.importers.small import written
from truenorth.models.scenario import InputError
from truenorth.planner.inputs.importers.catalogued import Catalogued
from truenorth.planner.inputs.importers.trace import Imported

CATALOGUE = """\
kinds: {H100: {memory: 80 GB, load_bandwidth: 50 GB/s}}
models:
  llm:
    weights: 16 GB
    aliases: [org/llm]
    stream: {models: [llm], prefill: {H100: 8000 /s}, chunk: {H100: 2048}, concurrency: {H100: 64},
             step: {H100: {1: 12.5 ms, 64: 40 ms}}, kv_per_token: {H100: 160 KB}}
"""


def tokens(folder: Path, text: str, options: str = "", name: str = "log.jsonl") -> Imported:
    catalogue = Catalogued.load(written(folder, CATALOGUE, "catalogue.yaml"))
    log = written(folder, text, name)
    return tn.import_trace(f"tokens{':' * bool(options)}{options}", [log], catalogue=catalogue)


def releases(made: Imported) -> list[float]:
    return [us / 1e6 for us in made.workload.release_us.tolist()]


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


JMETER = (
    "timeStamp,elapsed,label,responseCode,success,failureMessage,Latency\r\n"
    "1712500000123,512,chat,200,true,,410\r\n"
    '1712500001623,30000,chat,504,false,"timed out\r\nafter 30 s, ""chat""",0\r\n'
    "1712500000623,80,embed,200,TRUE,,70\r\n"
)


@pytest.mark.parametrize("name", ["results.jtl", "results.jtl.gz"])
def test_jmeter(tmp_path: Path, name: str) -> None:
    made = tn.import_trace("table", [written(tmp_path, "\ufeff" + JMETER, name)])
    assert jobs(made) == [(0, "chat 0.512 s"), (500_000, "embed 0.08 s")]
    assert made.tally.left_out == {"success false": 1}
    # With options of one's own, too, and as far as one wants to know.
    own = "table:release=timeStamp,runtime=elapsed,model=label,unit=ms"
    assert jobs(tn.import_trace(own, [tmp_path / name])) == jobs(made)
    assert len(jobs(tn.import_trace(own + ",status=", [tmp_path / name]))) == 3
    chosen = tn.import_trace("table:status=responseCode,success=504", [tmp_path / name])
    assert jobs(chosen) == [(0, "chat 30 s")]


SACCT = """\
JobID|JobName|State|Submit|Start|End|Elapsed|AllocTRES|
1|train|COMPLETED|2025-06-05T10:00:00|2025-06-05T10:00:10|2025-06-06T11:00:20|1-01:00:10|billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,node=1|
1.batch|batch|COMPLETED|2025-06-05T10:00:00|2025-06-05T10:00:10|2025-06-06T11:00:20|1-01:00:10|cpu=8,gres/gpu=2|
2|infer|FAILED|2025-06-05T10:01:00|2025-06-05T10:01:05|2025-06-05T10:02:05|00:01:00|cpu=8,gres/gpu=1|
3|infer|CANCELLED by 1000|2025-06-05T10:02:00|Unknown|Unknown|00:00:00||
4|cpu|COMPLETED|2025-06-05T10:03:00|2025-06-05T10:03:00|2025-06-05T10:04:00|00:01:00|cpu=64,mem=8G|
5|infer|RUNNING|2025-06-05T10:04:00|2025-06-05T10:04:00|Unknown|00:05:00|gres/gpu=1|
"""


def test_sacct(tmp_path: Path) -> None:
    log = written(tmp_path, SACCT, "sacct.txt")
    made = tn.import_trace("table", [log])
    assert jobs(made) == [(0, "train 90010 s x 2"), (60_000_000, "infer 60 s")]
    assert made.tally.left_out == {"step of a job": 1, "no Start": 1, "no GPU": 1, "no End": 1}
    assert any("State is not read" in note for note in made.notes)
    completed = tn.import_trace("table:status=State", [log])
    assert jobs(completed) == [(0, "train 90010 s x 2")]
    assert completed.tally.left_out["State CANCELLED by 1000"] == 1
    # Without a column of what elapsed, from start to end.
    dates = tn.import_trace("table:start=Start,end=End", [log])
    assert jobs(dates) == jobs(made)


SWF = """\
; UnixStartTime: 749433603
; MaxProcs: 128
1 0 1451 1460 2 -1 -1 -1 -1 -1 -1 1 1 1 -1 -1 -1 -1
  2 1460 3726 3710.5 1 -1 -1 -1 -1 -1 0 2 1 1 -1 -1 -1 -1

3 1500 10 -1 4 -1 -1 -1 -1 -1 5 2 1 1 -1 -1 -1 -1
4 1600 10 0 4 -1 -1 -1 -1 -1 5 2 1 1 -1 -1 -1 -1
5 1700 10 30 -1 -1 -1 4 -1 -1 1 2 1 1 -1 -1 -1 -1
"""


def test_swf(tmp_path: Path) -> None:
    made = tn.import_trace("table", [written(tmp_path, SWF, "a.swf")])
    # Where what the last one was given is not known, what it asked for counts.
    assert jobs(made) == [(0, "job 1460 s x 2"), (1_460_000_000, "job 3710.5 s"), (1_700_000_000, "job 30 s x 4")]
    assert made.tally.left_out == {"no run": 1, "ran for 0 s": 1}
    assert made.summary.model_requests == {}
    assert made.scenario.instance.models == ()
    by_user = tn.import_trace("table:model=user,gpus=", [tmp_path / "a.swf"])
    assert jobs(by_user) == [(0, "1 1460 s"), (1_460_000_000, "2 3710.5 s"), (1_700_000_000, "2 30 s")]


SPANS: list[dict[str, object]] = [
    {"request_id": "a", "model": "m", "startTime": "2026-01-01T00:00:00.500Z", "endTime": "2026-01-01T00:00:02Z"},
    {"request_id": "b", "model": "m", "startTime": "2026-01-01T00:00:01Z", "endTime": None},
    {"request_id": "c", "model": "m", "startTime": "2026-01-01T00:00:01+00:00", "endTime": "2026-01-01T00:00:02Z"},
]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(SPANS),
        json.dumps(SPANS, indent=2),
        json.dumps({"data": SPANS, "meta": {"page": 1}}),
        json.dumps({"meta": {"data": [1]}, "data": SPANS}, indent=4),
        "\n".join(json.dumps(span, indent=2) for span in SPANS),
        lines(*SPANS),
    ],
    ids=["list", "indented list", "in an object", "in an indented object", "indented lines", "lines"],
)
def test_objects_of_json_however_they_stand(tmp_path: Path, text: str) -> None:
    made = tn.import_trace("table", [written(tmp_path, text, "spans.json")])
    assert jobs(made) == [(0, "m 1.5 s"), (500_000, "m 1 s")]
    assert made.tally.left_out == {"no endTime": 1}


def test_an_error_in_a_document_has_its_line(tmp_path: Path) -> None:
    spans = [SPANS[0], SPANS[2] | {"endTime": "2025-01-01T00:00:00Z"}]
    log = written(tmp_path, json.dumps({"data": spans}, indent=2), "spans.json")
    with pytest.raises(InputError, match=r"spans.json:9: endTime: '2025-01-01T00:00:00Z' is before startTime"):
        tn.import_trace("table", [log])


def test_jobs_of_kubernetes(tmp_path: Path) -> None:
    def job(second: int, gpus: str | None, end: str | None) -> dict[str, object]:
        limits = {} if gpus is None else {"resources": {"limits": {"nvidia.com/gpu": gpus}}}
        return {
            "metadata": {"name": f"job-{second}", "creationTimestamp": f"2026-01-01T00:00:0{second}Z"},
            "spec": {"template": {"spec": {"containers": [{"image": "train:1", **limits}]}}},
            "status": {"startTime": "2026-01-01T00:00:09Z"} | ({"completionTime": end} if end else {}),
        }

    end = "2026-01-01T00:01:09Z"
    items = [job(1, "2", end), job(2, "1", None), job(3, None, end), job(4, "1", end)]
    made = tn.import_trace("table", [written(tmp_path, json.dumps({"kind": "List", "items": items}), "jobs.json")])
    assert jobs(made) == [(0, "train:1 60 s x 2"), (3_000_000, "train:1 60 s")]
    assert made.tally.left_out == {"no status.completionTime": 1, "no GPU": 1}


VLLM = {
    "date": "20260120-101500",
    "model_id": "org/llm",
    "completed": 2,
    "input_lens": [1500, 1100, 600],
    "output_lens": [210, 0, 320],
    "itls": [[0.02], [], [0.03]],
    "start_times": [353399.725848632, 353400.0, 353401.225848632],
    "errors": ["", "Traceback: timed out", ""],
}


def test_vllm_bench_serve(tmp_path: Path) -> None:
    made = tokens(tmp_path, json.dumps(VLLM), name="result.json")
    # A monotonic clock is no date, and the first request is time zero, not what the machine has been up for.
    assert releases(made) == [0, 1.5]
    assert made.workload.served is not None
    assert made.workload.served.tokens[:, [0, 2]].tolist() == [[1500, 210], [600, 320]]
    assert made.tally.left_out == {"errors Traceback: timed out": 1}
    older = {key: of for key, of in VLLM.items() if key != "start_times"}
    made = tokens(tmp_path, json.dumps(older, indent=2), name="result.json")
    assert releases(made) == [0, 0]
    assert "the log has no arrivals: all requests are released at time zero" in made.notes


def test_aiperf(tmp_path: Path) -> None:
    def record(ns: int, metrics: dict[str, int], error: object = None) -> dict[str, object]:
        measured = {key: {"value": value, "unit": "tokens"} for key, value in metrics.items()}
        return {"metadata": {"request_start_ns": ns}, "metrics": measured, "error": error}

    start = 1759522419158355424
    made = tokens(
        tmp_path,
        lines(
            record(start - 10**9, {"input_sequence_length": 9}, {"code": 499, "type": "Cancelled", "message": "gone"}),
            record(start, {"input_sequence_length": 550, "output_sequence_length": 808}),
            record(start + 3_500_000_600, {"input_sequence_length": 640, "output_sequence_length": 410}),
        ),
    )
    assert releases(made) == [0, 3.500001]
    assert made.workload.served is not None
    assert made.workload.served.tokens[:, [0, 2]].tolist() == [[550, 808], [640, 410]]
    assert made.tally.left_out == {"error 499 Cancelled gone": 1}


def test_litellm_and_langfuse_have_tokens(tmp_path: Path) -> None:
    start = {"model": "llm", "startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:00:09Z"}
    later = start | {"startTime": "2026-01-01T00:00:02Z"}
    spent = [of | {"prompt_tokens": 10, "completion_tokens": 20, "status": "success"} for of in (start, later)]
    made = tokens(tmp_path, json.dumps([*spent, spent[0] | {"status": "failure"}]))
    assert (releases(made), made.tally.left_out) == ([0, 2], {"status failure": 1})
    seen = [of | {"usage": {"input": 10, "output": 20, "unit": "TOKENS"}} for of in (start, later)]
    assert releases(tokens(tmp_path, json.dumps({"data": seen}))) == [0, 2]


MOONCAKE = {"input_length": 10, "output_length": 5, "hash_ids": [1]}


@pytest.mark.parametrize("stamps", [(0.0, 0.2, 0.4), (0, 20.5, 119.9), tuple(range(10))])
def test_seconds_under_the_keys_of_milliseconds_are_not_guessed(tmp_path: Path, stamps: tuple[float, ...]) -> None:
    text = lines(*({"timestamp": stamp} | MOONCAKE for stamp in stamps for _ in range(20)))
    with pytest.raises(
        InputError, match=r"timestamp: .*the unit is in doubt; write unit=s \(or unit=ms, unit=us, unit=ns"
    ):
        tokens(tmp_path, text)
    assert releases(tokens(tmp_path, text, "unit=s"))[-1] == stamps[-1]
    assert releases(tokens(tmp_path, text, "unit=ms"))[-1] == stamps[-1] / 1000


def test_milliseconds_are_read_as_such(tmp_path: Path) -> None:
    text = lines(*({"timestamp": stamp} | MOONCAKE for stamp in (0, 3000.0, 6000)))
    assert releases(tokens(tmp_path, text)) == [0, 3, 6]


def test_blocks_that_do_not_fit_name_a_size_that_does(tmp_path: Path) -> None:
    text = lines({"timestamp": 0, "input_length": 48, "output_length": 1, "hash_ids": [1, 2, 3]})
    with pytest.raises(InputError, match=r"block=N says how many tokens a block has \(here 16 would fit\)"):
        tokens(tmp_path, text)


def test_units_of_columns(tmp_path: Path) -> None:
    log = written(tmp_path, "ts_ns,took_ms,due\n1759522419158355424,12.5,2\n1759522420158355424,7,\n")
    made = tn.import_trace("table:release=ts_ns,runtime=took_ms,deadline=due", [log])
    assert jobs(made) == [(0, "job 0.0125 s"), (1_000_000, "job 0.007 s")]
    assert made.workload.deadline_us is not None
    assert made.workload.deadline_us.tolist() == [2_000_000, -1]
    log = written(tmp_path, "release,runtime\n1712500000123.5,1\n")
    with pytest.raises(
        InputError, match=r"log.csv:2: release: .* is no time in s, but in ms since 1970; write unit=ms"
    ):
        tn.import_trace("table", [log])


def test_dates_with_slashes(tmp_path: Path) -> None:
    log = "timeStamp,elapsed,label,success\n2024/04/07 12:00:00.500,5,a,true\n2024/04/07 12:00:02.500,5,a,true\n"
    assert jobs(tn.import_trace("table", [written(tmp_path, log)])) == [(0, "a 0.005 s"), (2_000_000, "a 0.005 s")]


def test_what_was_left_out_is_named_where_nothing_is_left(tmp_path: Path) -> None:
    log = written(tmp_path, "release,runtime,outcome\n0,1,lost\n1,1,lost\n2,1,late\n")
    with pytest.raises(InputError, match=r"no row is left; .*; left out: 2 outcome lost"):
        tn.import_trace("table:status=outcome", [log])


def test_a_log_without_arrivals(tmp_path: Path) -> None:
    made = tn.import_trace("table:release=", [written(tmp_path, "model,runtime\na,1\nb,2\n")])
    assert jobs(made) == [(0, "a 1 s"), (0, "b 2 s")]


@pytest.mark.parametrize(
    ("header", "mapping"),
    [
        ("time,duration,gpu", "table:release=time,runtime=duration,gpus=gpu"),
        ("submit,job,seconds,gpus", "table:release=submit,runtime=seconds,model=job,gpus=gpus"),
        ("Request Time;Latency (ms);Endpoint", "table:release=Request Time,runtime=Latency (ms),model=Endpoint"),
        ("a,b", "table:release=COLUMN,runtime=COLUMN"),
        ("started_at,finished_at,fn", "table:release=started_at,end=finished_at"),
    ],
)
def test_a_log_of_no_known_shape_is_told_the_mapping_that_fits(tmp_path: Path, header: str, mapping: str) -> None:
    columns = header.replace(";", ",").replace(",", ", ")
    with pytest.raises(InputError) as refused:
        tn.import_trace("table", [written(tmp_path, header + "\n1,2,3\n")])
    assert str(refused.value).endswith(f"has no column 'release'; its columns: {columns}; allowed is such as {mapping}")


def test_a_row_of_prompts_is_one_row(tmp_path: Path) -> None:
    prompt = 'say ""hello""\n\n' + "word\n" * 20_000
    log = written(tmp_path, f'release,runtime,prompt\n0,1,"{prompt}"\n1,2,"a\nb"\n2,3,c\n')
    assert jobs(tn.import_trace("table", [log])) == [(0, "job 1 s"), (1_000_000, "job 2 s"), (2_000_000, "job 3 s")]
