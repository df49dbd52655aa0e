"""Known sorts of logs: what their columns mean, as options of the formats ``table`` and ``tokens``.

A new sort of log is an entry of one of the two tables.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from truenorth.models.scenario import InputError
from truenorth.models.scenario.errors import quote


@dataclass(frozen=True, slots=True)
class Shape:
    """A known sort of log.

    Parameters
    ----------
    title
        What it is called.
    marks
        Columns by which it is known.
    columns
        The column of each option; of several, the first that a log has.
    settings
        Other options.
    absent
        Words that stand for a value that is missing.
    steps
        Columns of ids, of which those with a point are parts of a row that is listed besides.
    note
        What a person should know of rows.
    """

    title: str
    marks: Sequence[str]
    columns: Mapping[str, str | Sequence[str]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    steps: Sequence[str] = ()
    note: str = ""

    def options(self, found: Collection[str]) -> dict[str, Any]:
        """Return the options for a log with these columns."""
        known: dict[str, Any] = dict(self.settings)
        for option, names in self.columns.items():
            there = [name for name in ((names,) if isinstance(names, str) else names) if name in found]
            known |= {option: there[0]} if there else {}
        return known


_SPANS = "spans within spans count besides them: a log of one sort of span counts each request once"
TABLES = (
    Shape(
        "JMeter's results",
        ("timeStamp", "elapsed"),
        {"release": "timeStamp", "runtime": "elapsed", "model": "label", "status": "success"},
        {"unit": "ms"},
    ),
    Shape(
        "Slurm's sacct",
        ("Submit", "State"),
        {
            "release": "Submit",
            "start": "Start",
            "end": "End",
            "runtime": ("ElapsedRaw", "Elapsed"),
            "model": "JobName",
            "gpus": ("AllocTRES", "AllocGRES", "ReqTRES", "ReqGRES"),
        },
        {"runtime_unit": "s"},
        steps=("JobIDRaw", "JobID"),
    ),
    Shape(
        "Slurm's sacct --json",
        ("time.submission", "time.elapsed"),
        {
            "release": "time.submission",
            "start": "time.start",
            "end": "time.end",
            "runtime": "time.elapsed",
            "model": "name",
            "gpus": "tres.allocated",
        },
        {"unit": "s"},
        absent=("0",),
    ),
    Shape(
        "aiperf's records",
        ("metadata.request_start_ns", "metadata.request_end_ns"),
        {"release": "metadata.request_start_ns", "end": "metadata.request_end_ns", "status": "error"},
        {"unit": "ns", "success": ("",)},
    ),
    Shape(
        "guidellm's benchmarks",
        ("request_start_time", "request_end_time"),
        {"release": "request_start_time", "end": "request_end_time"},
        {"unit": "s"},
    ),
    Shape(
        "a trace of OpenTelemetry",
        ("startTimeUnixNano", "endTimeUnixNano"),
        {"release": "startTimeUnixNano", "end": "endTimeUnixNano", "model": "name"},
        {"unit": "ns"},
        note=_SPANS,
    ),
    Shape(
        "a trace of Jaeger",
        ("operationName", "startTime", "duration"),
        {"release": "startTime", "runtime": "duration", "model": "operationName"},
        {"unit": "us"},
        note=_SPANS,
    ),
    Shape(
        "Envoy's access log",
        ("start_time", "duration", "response_code"),
        {"release": "start_time", "runtime": "duration", "model": "upstream_cluster", "status": "response_code"},
        {"runtime_unit": "ms"},
    ),
    Shape(
        "the standard workload format",
        ("submit", "run", "requested_processors", "think"),
        {"release": "submit", "runtime": "run", "gpus": "processors"},
        {"unit": "s"},
        absent=("-1",),
    ),
    Shape(
        "a log of spans (LiteLLM, Langfuse)",
        ("startTime", "endTime", "model"),
        {"release": "startTime", "end": "endTime", "model": "model", "status": "status"},
    ),
    Shape(
        "jobs of Kubernetes",
        ("metadata.creationTimestamp", "status.startTime"),
        {
            "release": "metadata.creationTimestamp",
            "start": "status.startTime",
            "end": (
                "status.completionTime",
                "status.containerStatuses.0.state.terminated.finishedAt",
            ),
            "gpus": (
                "spec.template.spec.containers.0.resources.limits.nvidia.com/gpu",
                "spec.containers.0.resources.limits.nvidia.com/gpu",
            ),
            "model": ("spec.template.spec.containers.0.image", "spec.containers.0.image"),
        },
    ),
)
"""Logs of requests and jobs."""
VLLM_RUN = Shape(
    "a run of vLLM with its time stamps",
    ("queued_ts", "input_toks", "output_toks"),
    {"release": "queued_ts", "prompt": "input_toks", "output": "output_toks"},
    {"unit": "s"},
)
"""Of which `truenorth fit` makes a catalogue."""
TOKENS = (
    VLLM_RUN,
    Shape(
        "Azure's LLM inference trace",
        ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        {"release": "TIMESTAMP", "prompt": "ContextTokens", "output": "GeneratedTokens"},
    ),
    Shape(
        "BurstGPT's trace",
        ("Timestamp", "Request tokens", "Response tokens"),
        {"release": "Timestamp", "prompt": "Request tokens", "output": "Response tokens", "model": "Model"},
        {"unit": "s"},
    ),
    Shape(
        "guidellm's benchmarks",
        ("request_start_time", "prompt_tokens", "output_tokens"),
        {"release": "request_start_time", "prompt": "prompt_tokens", "output": "output_tokens"},
        {"unit": "s"},
    ),
    Shape(
        "a trace of OpenTelemetry",
        ("startTimeUnixNano",),
        {
            "release": "startTimeUnixNano",
            "prompt": ("attributes.gen_ai.usage.input_tokens", "attributes.gen_ai.usage.prompt_tokens"),
            "output": ("attributes.gen_ai.usage.output_tokens", "attributes.gen_ai.usage.completion_tokens"),
            "model": ("attributes.gen_ai.request.model", "attributes.gen_ai.response.model"),
        },
        {"unit": "ns"},
    ),
    Shape(
        "Mooncake's trace",
        ("timestamp", "input_length", "output_length"),
        {"release": "timestamp", "prompt": "input_length", "output": "output_length", "hashes": "hash_ids"},
        {"unit": "ms"},
    ),
    Shape(
        "answers of vLLM or OpenAI's interface",
        ("created", "usage.prompt_tokens", "usage.completion_tokens"),
        {
            "release": "created",
            "prompt": "usage.prompt_tokens",
            "output": "usage.completion_tokens",
            "model": "model",
        },
        {"unit": "s"},
    ),
    Shape(
        "a result of vllm bench serve",
        ("input_lens", "output_lens"),
        {
            "release": "start_times",
            "prompt": "input_lens",
            "output": "output_lens",
            "model": "model_id",
            "status": "errors",
        },
        {"unit": "s", "success": ("",)},
    ),
    Shape(
        "aiperf's records",
        ("metadata.request_start_ns", "metrics.input_sequence_length.value"),
        {
            "release": "metadata.request_start_ns",
            "prompt": "metrics.input_sequence_length.value",
            "output": "metrics.output_sequence_length.value",
            "status": "error",
        },
        {"unit": "ns", "success": ("",)},
    ),
    Shape(
        "a log of spans (LiteLLM, Langfuse)",
        ("startTime",),
        {
            "release": "startTime",
            "prompt": ("prompt_tokens", "usage.input", "usageDetails.input", "promptTokens"),
            "output": ("completion_tokens", "usage.output", "usageDetails.output", "completionTokens"),
            "model": "model",
            "status": "status",
        },
    ),
)
"""Logs of requests with numbers of tokens."""
_LIKELY = {
    "release": (
        "release arrival arrived arrival_time submit submitted submit_time submitted_at received creationtimestamp "
        "creation_time time_iso_ time_local request_time timestamp time ts when created created_at queued start "
        "start_time started started_at starttime date datetime"
    ),
    "runtime": (
        "runtime run_time duration elapsed took latency seconds exec_time execution_time service_time processing_time "
        "response_time wall_time walltime run"
    ),
    "start": "start start_time started started_at starttime scheduled_time",
    "end": (
        "end end_time ended finished finish finish_time finished_at completed completed_at endtime completiontime "
        "completion_time deletion_time stop"
    ),
    "model": "model model_id model_name service endpoint function job job_name name label app",
    "gpus": "gpus gpu num_gpus n_gpus gpu_num num_gpu gpu_count ngpus",
    "prompt": "prompt prompt_tokens input_tokens input_length tokens_in context_tokens",
    "output": "output output_tokens completion_tokens output_length tokens_out generated_tokens",
}
"""Names that columns of each option often have."""
_UNIT = re.compile(r"(?:[_\s.(\[-](ns|us|ms|s|sec|secs|seconds)[)\]]?|(?<=[a-z])(Ns|Us|Ms))$")
_NO_LOGS = {
    ("total_input_tokens", "request_rate"): (
        "is a result of vllm bench serve without its requests; write it with --save-result --save-detailed"
    ),
    ("request_throughput.unit", "request_latency.unit"): (
        "is aiperf's summary of a run; its requests are in profile_export.jsonl"
    ),
    ("response_timestamps", "timestamp"): (
        'is a profile of genai-perf, without tokens and run times; write them as CSV: jq -r \'"release,runtime", '
        '(.experiments[].requests[] | "\\(.timestamp),\\(.response_timestamps[-1] - .timestamp)")\', and import it by '
        "table:unit=ns"
    ),
    ("JobID", "State"): (
        "is sacct without times; write it with --parsable2 "
        "--format=JobID,JobName,State,Submit,Start,End,ElapsedRaw,AllocTRES"
    ),
}
"""Columns of files that are no logs of requests, and where those are."""
_VALUE = re.compile(r"\[?-?\d[\d.:/T Z+-]*")
_STATUS = ("status", "state", "success", "error", "outcome", "result", "phase", "State")


def shape_of(shapes: Iterable[Shape], found: Collection[str], needed: Sequence[str] = ()) -> Shape | None:
    """Return the first shape whose marks, and columns for options that are needed, a log has."""
    marked = (shape for shape in shapes if set(shape.marks) <= set(found))
    return next((shape for shape in marked if set(needed) <= shape.options(found).keys()), None)


def names_of(shapes: Iterable[Shape]) -> list[str]:
    """Return the names of all columns of some shapes, by which separators are told."""
    columns = [names for shape in shapes for names in shape.columns.values()]
    return [name for names in columns for name in ((names,) if isinstance(names, str) else names)]


def unit_in(column: str) -> str:
    """Return the unit that the name of a column ends in, or nothing.

    >>> unit_in("took_ms"), unit_in("took (s)"), unit_in("latencyMs"), unit_in("users")
    ('ms', 's', 'ms', '')
    """
    match = _UNIT.search(column)
    unit = (match[1] or match[2]).lower() if match else ""
    return "s" if unit.startswith("s") else unit


def unread_status(found: Collection[str], read: Collection[str | None]) -> str:
    """Return a column that seems to say which rows succeeded and that is not read, or nothing."""
    return next((name for name in _STATUS if name in found and name not in read), "")


def no_column(path: Path, name: str, found: Sequence[str], format_name: str, wanted: Sequence[str]) -> InputError:
    """Return the error that a log lacks a column; it lists those that it has, and a mapping that seems to fit.

    Parameters
    ----------
    wanted
        Options that a mapping has, as far as a column of a likely name is there.
    """
    of_tokens = format_name == "table"
    shape = shape_of(TOKENS, found, ("prompt", "output")) if of_tokens else shape_of(TABLES, found)
    reader = "tokens" if of_tokens else "table"
    said = (
        "" if shape is None else f"has the shape of {shape.title}; allowed is truenorth import {reader}, which reads it"
    )
    said = said or next((said for marks, said in _NO_LOGS.items() if set(marks) <= set(found)), "")
    if said:
        return InputError(str(path), 1, "header", said)
    if any(map(_VALUE.fullmatch, found)):
        example = ",".join(option for option in wanted if option not in ("start", "end"))
        problem = f"is a row, not the names of columns; allowed is a header above it, such as {example}"
        return InputError(str(path), 1, "header", problem)
    plain = {
        re.sub(r"[^a-z]+", "_", column.lower()): column
        for column in reversed(found)
        if not re.search(r"(?i)(?<!model)_?id$", column)
    }
    likely = {
        option: next((plain[word] for word in _LIKELY[option].split() if word in plain), None)
        or next((plain[word] for word in plain for stem in _LIKELY[option].split() if f"_{stem}_" in f"_{word}_"), None)
        for option in wanted
    }
    if likely.get("runtime") is not None or likely.get("end") is None:
        likely |= {"start": None, "end": None}
    elif "runtime" in likely:
        del likely["runtime"]
    if likely.get("start") == likely["release"]:
        likely["start"] = None
    if len(found) == 1 and not any(likely.values()):
        problem = f"names no columns: {quote(found[0])}"
        allowed = "allowed is CSV with a header, or JSON, with the release of each request and what it takes"
        return InputError(str(path), 1, "header", f"{problem}; {allowed}")
    needed = {"release", "runtime", "prompt", "output"} & likely.keys()
    mapping = [f"{option}={column or 'COLUMN'}" for option, column in likely.items() if column or option in needed]
    near = "".join(f", did you mean {quote(other)}?" for other in get_close_matches(name, found, n=1))
    listed = ", ".join(found)[:400]
    remedy = f"its columns: {listed}; allowed is such as {format_name}:{','.join(mapping)}"
    return InputError(str(path), 1, "header", f"has no column {quote(name)}{near}; {remedy}")
