"""Scenario files as they are written: their look, and that they read as what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.random_scenarios import draw
from truenorth.models.identity import scenario_hash
from truenorth.models.scenario import load_scenario, scenario_from
from truenorth.models.scenario.errors import Plain
from truenorth.models.scenario.writing import document_of, job_sections, scenario_text, write_scenario

GIVEN = Path("experiments/scenarios")


def test_small_collections_stand_on_one_line_and_comments_stay_comments() -> None:
    tasks = {"opt": {"models": ["opt"], "runtime": "3 ms"}, "end": {"runtime": "1 ms", "after": {"opt": "5 B"}}}
    content = {"name": "1.5", "options": {"overlap_loads": Plain("true")}, "workflows": {"a": {"tasks": tasks}}}
    assert scenario_text(Path("a.yaml"), content, ["from a\nb.csv"]) == (
        "# from a?b.csv\n"
        "name: '1.5'\n"
        "options: {overlap_loads: true}\n"
        "workflows:\n"
        "  a:\n"
        "    tasks:\n"
        "      opt: {models: [opt], runtime: 3 ms}\n"
        "      end: {runtime: 1 ms, after: {opt: 5 B}}\n"
    )


@pytest.mark.parametrize(("letters", "on_one_line"), [(86, True), (87, False)])
def test_a_collection_of_a_hundred_characters_stands_on_lines_of_its_own(letters: int, on_one_line: bool) -> None:
    # With a separator of two after each part {a: x.., b: y} takes 2 + 3 + letters + 2 + 3 + 3 characters; most are 99.
    content = {"k": {"a": "x" * letters, "b": "y"}}
    assert scenario_text(Path("a.yml"), content).startswith("k: {") is on_one_line


def test_json_has_numbers_where_none_were_quoted() -> None:
    content = {"name": "7", "n": Plain("7"), "half": [Plain("0.50")], "of": (Plain("true"),), "size": Plain("2 GB")}
    expected = '{\n "name": "7",\n "n": 7,\n "half": [\n  0.5\n ],\n "of": [\n  true\n ],\n "size": "2 GB"\n}\n'
    assert scenario_text(Path("a.JSON"), content) == expected


@pytest.mark.parametrize("name", ["compass_edge.yaml", "paper_small.yaml"])
@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_what_is_written_reads_as_what_was_given(name: str, suffix: str, tmp_path: Path) -> None:
    given = load_scenario(GIVEN / name)
    path = tmp_path / f"again{suffix}"
    write_scenario(path, given.source.data(), ["a comment"])
    again = load_scenario(path)
    assert again.source.data() == given.source.data()
    assert scenario_hash(again.instance) == scenario_hash(given.instance)


def test_jobs_are_listed_with_what_is_their_own() -> None:
    job: dict[str, Any] = {"release": "2 ms", "workflow": "w", "deadline": "5 us", "weight": 2.5, "ingress": "s1"}
    made = scenario_from(
        {
            "cluster": {
                "servers": 2,
                "gpu": {"kind": "A", "memory": "2 GB", "load_bandwidth": "1 GB/s"},
                "network": {"bandwidth": "1 GB/s"},
            },
            "workflows": {"w": {"tasks": {"t": {"runtime": "1 ms"}}}},
            "workload": {"jobs": [job, {"release": "0 s", "workflow": "w"}]},
        }
    )
    assert job_sections(made.instance) == [
        {"release": "0 us", "workflow": "w"},
        {"release": "2000 us", "workflow": "w", "deadline": "5 us", "weight": 2.5, "ingress": "s1"},
    ]


def test_a_document_of_an_instance_reads_as_that_instance() -> None:
    """Random windows: groups, absences, slots, batches, branches, restrictions, initial residencies, ideal times."""
    for seed in range(80):
        instance = draw(seed).scenario.instance
        assert scenario_hash(scenario_from(document_of(instance)).instance) == scenario_hash(instance), seed


@pytest.mark.parametrize("name", ["azure", "branches", "compass_batches", "milliseconds", "six_models"])
def test_a_document_of_a_file_s_instance_reads_as_that_instance(name: str) -> None:
    instance = load_scenario(GIVEN / f"{name}.yaml").instance
    assert scenario_hash(scenario_from(document_of(instance)).instance) == scenario_hash(instance)


STREAMS = """
cluster:
  groups:
    - {count: 2, drain: 60 s, gpu: {kind: H100, memory: 78 GB, load_bandwidth: 50 GB/s}}
    - {count: 1, available: [[1 s, 9 s], [20 s, end]], gpu: {kind: A, memory: 40 GB, load_bandwidth: 50 GB/s}}
  away: {s0: [[100 s, 110 s]]}
  network: {bandwidth: 125 bit/s, within_server: {latency: 3 us}}
models: {m: {weights: 16 GB}}
streams:
  chat: {models: [m], prefill: 8000 /s, chunk: 2048, concurrency: 64, step: {1: 12.5 ms, 64: 40 ms}, kv_per_token: 1 KB}
  long: {models: [m], prefill: {H100: 0.3 /s, A: 5 /min}, chunk: {H100: 9, A: 8}, concurrency: {H100: 4, A: 3},
    step: {H100: {1: 1 ms, 4: 2 ms}, A: {1: 2 ms, 3: 3 ms}},
    context: 0.03 us, mixed: 0.3 ms, budget: shared, kv: grows, block: 4,
    kv_per_token: 2 KB, fitted: {A: {log: run.jsonl, requests: 300, mean_error: 0.012, p95_error: 0.5}}}
workflows:
  ask: {tasks: {answer: {stream: chat, prompt: 1000, output_tokens: 600},
    more: {stream: long, prompt: 90, uncached: 9, output_tokens: 2, after: {answer: 3 KB}}}}
workload:
  jobs:
    - {release: 10 s, workflow: ask, tokens: {answer: [9, 8, 7]}}
    - {release: 1 s, workflow: ask, deadline: 9 s, weight: 2}
restrictions: {pin: [{model: m, "on": [s0, s2/g0]}], max_replicas: {m: 2}, no_swaps: true}
"""


def test_a_document_of_engines_reads_as_those_engines() -> None:
    instance = scenario_from(yaml.safe_load(STREAMS)).instance
    again = scenario_from(document_of(instance)).instance
    assert scenario_hash(again) == scenario_hash(instance)
    assert again.streams is not None
    assert instance.streams is not None
    assert again.streams.fitted == instance.streams.fitted
    assert [law.requests for law in again.streams.fitted] == [300]
