"""Logs as they come out of tools are read at the first try, or refused with a line that says what to write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truenorth as tn
from tests.planner.inputs.importers.outcomes import jobs
from tests.planner.inputs.importers.small import written
from tests.planner.inputs.importers.test_shapes import lines, tokens
from truenorth.models.scenario import InputError

SAMPLES = """\
<?xml version="1.0" encoding="UTF-8"?>
<testResults version="1.2">
<httpSample t="512" it="0" lt="410" ts="1712500000123" s="true" lb="a &gt; b" rc="200" tn="Group 1-1" dt="text"/>
<sample t="80" lt="70" ts="1712500000623" s="true" lb="embed" rc="200" rm="1 > 0">
  <httpSample t="70" lt="60" ts="1712500000625" s="true" lb="inner" rc="200"/>
  <assertionResult><name>x</name><failure>false</failure></assertionResult>
</sample>
<httpSample t="30000" lt="0" ts="1712500001623" s="false" lb="chat" rc="504"/>
</testResults>
"""
NO_HEADER = """\
1712500000123,512,a > b,200,OK,Group 1-1,text,true,,2100,300,1,1,https://host/v1/chat,410,0,12
1712500000623,80,embed,200,OK,Group 1-2,text,true,,900,300,2,2,https://host/v1/embed,70,0,12
1712500001623,30000,chat,504,Gateway Timeout,Group 1-3,text,false,,0,300,3,3,https://host/v1/chat,0,0,12
"""


@pytest.mark.parametrize("text", [SAMPLES, NO_HEADER], ids=["xml", "no header"])
def test_jmeter_without_a_header_and_in_xml(tmp_path: Path, text: str) -> None:
    made = tn.import_trace("table", [written(tmp_path, text, "results.jtl")])
    assert jobs(made) == [(0, "a > b 0.512 s"), (500_000, "embed 0.08 s")]
    assert made.tally.left_out == {"success false": 1}


SACCT = """\
JobID           JobName      State              Submit               Start                 End    Elapsed                      AllocTRES 
------------ ---------- ---------- ------------------- ------------------- ------------------- ---------- ------------------------------ 
1001              train  COMPLETED 2025-06-05T10:00:00 2025-06-05T10:00:10 2025-06-06T12:02:13 1-02:02:03 billing=8,cpu=8,gres/gpu=2,no+ 
1001.batch        batch  COMPLETED 2025-06-05T10:00:10 2025-06-05T10:00:10 2025-06-06T12:02:13 1-02:02:03 cpu=8,gres/gpu=2,mem=64G,node+ 
1001.0           python  COMPLETED 2025-06-05T10:00:12 2025-06-05T10:00:12 2025-06-06T12:02:13 1-02:02:01           cpu=8,gres/gpu=2 
1002              my jo    TIMEOUT 2025-06-05T10:01:00 2025-06-05T10:01:05 2025-06-05T10:02:05   00:01:00           cpu=8,gres/gpu=1 
1003              infer CANCELLED+ 2025-06-05T10:02:00             Unknown             Unknown   00:00:00                                
1004              infer    RUNNING 2025-06-05T10:03:00 2025-06-05T10:03:10             Unknown   00:10:00           cpu=8,gres/gpu=1 
1005_3            infer OUT_OF_ME+ 2025-06-05T10:04:00 2025-06-05T10:04:10 2025-06-05T10:04:40   00:00:30           cpu=8,gres/gpu=1 
1006              infer    PENDING 2025-06-05T10:05:00                None             Unknown   00:00:00                                
"""  # noqa: E501, W291


def test_sacct_of_fixed_width(tmp_path: Path) -> None:
    made = tn.import_trace("table", [written(tmp_path, SACCT, "sacct.txt")])
    assert jobs(made) == [(0, "train 93723 s x 2"), (60_000_000, "my jo 60 s"), (240_000_000, "infer 30 s")]
    assert made.tally.left_out == {"step of a job": 2, "no Start": 2, "no End": 1}
    # What is cut off before it says of GPUs is not known to have none.
    cut = SACCT.replace("          cpu=8,gres/gpu=1", "billing=8,cpu=8,mem=64G,gre+")
    with pytest.raises(InputError, match=r"sacct.txt:6: AllocTRES: .*gre\+' is no number of GPUs; allowed is 0 to"):
        tn.import_trace("table", [written(tmp_path, cut, "sacct.txt")])


def _sacct_job(job: int, end: int, gpus: int) -> dict[str, object]:
    resources = [{"type": "cpu", "name": "", "count": 8}, {"type": "gres", "name": "gpu", "count": gpus}]
    at = {"submission": 1749117600 + job, "start": 1749117610, "end": end, "elapsed": 300}
    return {"job_id": job, "name": "train", "time": at, "tres": {"allocated": resources}, "steps": [{"id": 1}]}


def test_sacct_in_json(tmp_path: Path) -> None:
    document = {"jobs": [_sacct_job(0, 1749117910, 2), _sacct_job(1, 0, 1)], "errors": [], "meta": {}}
    made = tn.import_trace("table", [written(tmp_path, json.dumps(document, indent=1), "sacct.json")])
    assert (jobs(made), made.tally.left_out) == ([(0, "train 300 s x 2")], {"no time.end": 1})


def _span(number: int) -> dict[str, object]:
    start = 1717581600 * 10**9 + number * 500_000_000
    counts = {"gen_ai.usage.input_tokens": 100 + number, "gen_ai.usage.output_tokens": 20}
    said: list[object] = [{"key": "gen_ai.request.model", "value": {"stringValue": "org/llm"}}]
    said += [{"key": key, "value": {"intValue": str(count)}} for key, count in counts.items()]
    times = {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 2 * 10**9)}
    return {"name": "chat", **times, "attributes": said}


def test_spans_of_opentelemetry_and_jaeger(tmp_path: Path) -> None:
    spans = [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [_span(0), _span(1)]}]}]
    for text in (json.dumps({"resourceSpans": spans}), lines(_span(0), _span(1)), lines({"resourceSpans": spans}) * 2):
        found = [(0, "chat 2 s"), (500_000, "chat 2 s")]
        again = text.count('"resourceSpans"') == 2
        assert jobs(tn.import_trace("table", [written(tmp_path, text)])) == sorted(found * (1 + again))
    workload = tokens(tmp_path, lines(_span(0), _span(1))).workload
    assert workload.served is not None
    assert workload.served.tokens.tolist() == [[100, 100, 20], [101, 101, 20]]
    jaeger = [{"operationName": "chat", "startTime": 1717581600 * 10**6 + at, "duration": 2 * 10**6} for at in (0, 5)]
    document = {"data": [{"traceID": "t", "spans": jaeger, "processes": {}}], "total": 0}
    made = tn.import_trace("table", [written(tmp_path, json.dumps(document))])
    assert any(note.startswith("spans within spans count besides them") for note in made.notes)
    assert jobs(made) == [
        (0, "chat 2 s"),
        (5, "chat 2 s"),
    ]


def _asked(at: float, prompt: int) -> dict[str, object]:
    times = {"request_start_time": 1759000000 + at, "request_end_time": 1759000001.5 + at}
    return {**times, "prompt_tokens": prompt, "output_tokens": 20}


def test_benchmarks(tmp_path: Path) -> None:
    ended = {"successful": [_asked(0, 100), _asked(0.5, 200)], "errored": [_asked(9, 300)], "incomplete": []}
    guidellm = json.dumps({"metadata": {}, "benchmarks": [{"config": {}, "requests": ended}]}, indent=2)
    workload = tokens(tmp_path, guidellm, name="benchmarks.json").workload
    assert workload.served is not None
    assert workload.served.tokens.tolist() == [[100, 100, 20], [200, 200, 20]]
    made = tn.import_trace("table", [tmp_path / "benchmarks.json"])
    assert jobs(made) == [(0, "job 1.5 s"), (500_000, "job 1.5 s")]
    burst = "Timestamp,Model,Request tokens,Response tokens,Total tokens\n5,org/llm,472,18,490\n45,org/llm,10,0,10\n"
    assert tokens(tmp_path, burst, name="burst.csv").workload.release_us.tolist() == [5_000_000]
    envoy = {"start_time": "2025-06-05T10:00:00.123Z", "duration": 1500, "response_code": 200}
    log = written(tmp_path, lines(envoy, envoy | {"response_code": 503}))
    assert jobs(tn.import_trace("table", [log])) == [(0, "job 1.5 s")]


def test_moments_that_say_utc(tmp_path: Path) -> None:
    log = written(tmp_path, "release,runtime\n2025-06-05 10:00:00.5 UTC,1\n2025-06-05T12:00:01+02:00,2\n")
    assert jobs(tn.import_trace("table", [log])) == [(0, "job 1 s"), (500_000, "job 2 s")]


NO_ROWS = "file: has no rows; allowed is a JSON object for each request, at least one"
EMPTY = "file: is empty; allowed is CSV with a header"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", EMPTY),
        (" \n\n", EMPTY),
        ("[]", NO_ROWS),
        (" [ ]\n", NO_ROWS),
        ("{}", NO_ROWS),
        ('{"jobs": [], "errors": [], "meta": {"plugin": "x"}}', NO_ROWS),
        ("release,runtime", "has no rows; allowed is at least one row below the header"),
        (
            '{"name": "x", "version": 3}',
            "its columns: name, version; allowed is such as table:release=COLUMN,runtime=",
        ),
        (
            "# made by hand\nrelease,runtime\n0,1\n",
            "names no columns: '# made by hand'; allowed is CSV with a header, or",
        ),
        ("0.0,1.5,llm\n", "header: is a row, not the names of columns; allowed is a header above it, such as release,"),
        ("<html></html>", "is XML or HTML; allowed are CSV and JSON, and of XML what JMeter writes"),
        (SAMPLES.replace("\n", ""), "is XML or HTML; allowed are CSV and JSON, and of XML what JMeter writes"),
        ("PAR1\0\0", "is Parquet; write it as CSV, for instance with pandas.read_parquet"),
        ("JobID      State\n----- ----------\n1      COMPLETED\n", "is sacct without times; write it with --parsable2"),
        ('{"total_input_tokens": 9, "request_rate": 2}', "is a result of vllm bench serve without its requests; write"),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n",
            "has the shape of Azure's LLM inference trace; allowed is truenorth import t",
        ),
        (
            "release;runtime\n0,5;1\n",
            "'0,5' is no time in range; .* written as 1234.5: a point before decimals, and no",
        ),
        ('release,runtime\n"1,000",1\n', "'1,000' is no time in range; .* written as 1234.5: a point before decimals"),
        ("release,runtime\n6/5/2025 10:00 AM,1\n", "written as 2024-11-15 16:57:50 if it is a date"),
        (
            "creationTimestamp,startTime,completionTime\n",
            "release=creationTimestamp,start=startTime,end=completionTime",
        ),
        ("job_id,submit_time,duration\n", "allowed is such as table:release=submit_time,runtime=duration$"),
    ],
)
def test_what_is_no_log_is_told_what_to_write(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        tn.import_trace("table", [written(tmp_path, text)])


def test_what_is_assumed_is_said(tmp_path: Path) -> None:
    seconds, milliseconds = "release,runtime\n0,90\n1,1.5\n", "release,runtime\n0,2000\n1000,1500\n"
    assert not any("read in s" in note for note in tn.import_trace("table", [written(tmp_path, seconds)]).notes)
    assert any(
        "read in s, and each is a minute" in note
        for note in tn.import_trace("table", [written(tmp_path, milliseconds)]).notes
    )
    told = tn.import_trace("table:unit=ms", [written(tmp_path, milliseconds)])
    assert not any("read in s" in note for note in told.notes)
    log = "JobID|State|Submit|Elapsed\n1|COMPLETED|2025-06-05T10:00:00|00:02:03\n"
    slurm = tn.import_trace("table", [written(tmp_path, log)])
    assert any(
        "does not say how many GPUs a job has, so that each has one; AllocTRES would" in note for note in slurm.notes
    )
