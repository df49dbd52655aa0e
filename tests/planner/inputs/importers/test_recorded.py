"""The recorded traces, where they lie beside the clone."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import pytest

import truenorth as tn

DATA = Path(__file__).parents[5] / "shared" / "data"
GENTD26 = DATA / "gentd26"

pytestmark = pytest.mark.skipif(not DATA.exists(), reason="the recorded traces are not part of the repository")


def test_the_prepared_peak_hour_is_a_window_of_the_trace() -> None:
    # What succeeded on 6 December 2024 from 00:00 to before 01:00, in the trace's order, counted from 00:00.
    made = tn.import_trace(
        "gentd26", [GENTD26 / "lora_request_trace.csv.gz"], window=("2024-12-06T00:00", "2024-12-06T01:00")
    )
    work = made.workload
    with (GENTD26 / "peak_hour.csv").open(newline="") as file:
        prepared = [(int(row["arrival_s"]), row["model_id"], float(row["runtime_s"])) for row in csv.DictReader(file)]
    tasks = [work.workflows[index].tasks[0] for index in work.workflow]
    assert [
        (release / 1e6, task.models[0], task.runtime_us["*"] / 1e6)
        for release, task in zip(work.release_us.tolist(), tasks, strict=True)
    ] == prepared
    assert len(prepared) == 435
    assert len(made.summary.model_requests) == 18


def test_the_documented_load_time_is_the_median_update() -> None:
    files = [GENTD26 / name for name in ("lora_request_trace.csv.gz", "pipeline_update_latency_anon.csv.gz")]
    made = tn.import_trace("gentd26", files)
    assert made.target == tn.import_trace("gentd26", files[:1]).target
    assert (made.tally.read, len(made.workload.release_us)) == (26_823, 26_392)


def test_the_azure_trace_keeps_its_tail_in_classes() -> None:
    log = DATA / "azure_llm_2023" / "AzureLLMInferenceTrace_code.csv.gz"
    exact, classes = (tn.import_trace("azure-llm", [log], runtime_classes=text) for text in ("exact", "16"))
    assert len(exact.workload.release_us) == 8_819
    rounding = classes.workload.rounding
    assert rounding is not None
    # 16 classes, and 89 requests from the 99th percentile on as they are.
    assert len(classes.workload.workflows) <= 16 + 89
    assert (rounding.rounded_us >= exact.summary.job_work_us).all()
    assert rounding.quantiles_s(Fraction(99, 100))[0] == rounding.quantiles_s(Fraction(99, 100))[1]
    assert 0 < rounding.work_added < 0.15
