"""Prefix caches of nodes in scenario files: blocks of tasks, jobs and traces, and what cannot be."""

from pathlib import Path
from typing import Any

import pytest

from truenorth.models import scenario_hash
from truenorth.models.scenario import InputError, Scenario, load_scenario, scenario_from
from truenorth.models.scenario.writing import document_of

CHAT: dict[str, Any] = {
    "prefill": "8000 /s", "chunk": 2048, "concurrency": 8, "step": {"1": "10 ms", "8": "20 ms"},
    "prefix_cache": "node", "prefix_block": 100,
}  # fmt: skip
JOB: dict[str, Any] = {"release": "0 s", "workflow": "w", "tokens": {"t": [250, 250, 3]}}


def data(jobs: list[dict[str, Any]], task: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    return {
        "cluster": {"servers": 1, "gpu": {"kind": "A", "memory": "1 GB", "load_bandwidth": "1 GB/s"}},
        "streams": {"chat": CHAT | keys},
        "workflows": {"w": {"tasks": {"t": {"stream": "chat"} | (task or {})}}},
        "workload": {"jobs": jobs},
    }


def chains(scenario: Scenario) -> tuple[tuple[int, ...], ...] | None:
    streams = scenario.instance.streams
    assert streams is not None
    return None if streams.prefixes is None else streams.prefixes.chains


def test_full_blocks_are_numbered_as_they_occur_behind_what_comes_before(tmp_path: Path) -> None:
    """250 tokens are two full blocks of 100; a job's own blocks stand in place of the task's."""
    jobs = [JOB, JOB | {"blocks": {"t": [7, 70, 4]}}, JOB | {"blocks": {"t": [5, 70]}}, JOB | {"blocks": {"t": []}}]
    made = scenario_from(data(jobs, {"blocks": [7, 9, 3]}))
    assert chains(made) == ((0, 1), (0, 2), (3, 4), ())
    again = scenario_from(document_of(made.instance))
    assert chains(again) == chains(made)
    assert scenario_hash(again.instance) == scenario_hash(made.instance)
    # Other blocks are another window, unless no node caches them.
    other = scenario_from(data([JOB, *jobs[1:]], {"blocks": [7, 8, 3]}))
    assert scenario_hash(other.instance) != scenario_hash(made.instance)
    off = [scenario_from(data(jobs, {"blocks": [7, last, 3]}, prefix_cache="none")) for last in (8, 9)]
    assert chains(off[0]) is None
    assert scenario_hash(off[0].instance) == scenario_hash(off[1].instance)


def test_a_trace_lists_blocks_by_spaces(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "time_s,workflow,t.prompt,t.output,t.blocks\n0,w,250,3,12 34 5\n1,w,300,3,12\n2,w,9,1,\n"
    )
    content = data([])
    content["workload"] = {"trace": {"file": str(tmp_path / "t.csv")}}
    assert chains(scenario_from(content)) == ((0, 1), (0,), ())


WRONG: tuple[Any, ...] = ({"t": [1, 2, 3, 4]}, {"x": [1]}, {"t": [-1]}, {"t": 7})
FOUR, OF_NONE, NO_NUMBER, NO_LIST = ({"blocks": each} for each in WRONG)
CACHED: dict[str, Any] = {"tokens": {"t": [250, 50, 3]}, "blocks": {"t": [1]}}
SHORT: dict[str, Any] = {"prompt": 90, "output_tokens": 1, "blocks": [1, 2]}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (data([JOB | FOUR]), r"jobs\[0\].blocks.t: 4 blocks of 100 tokens for a prompt of 250; allowed are at most 3"),
        (data([JOB | CACHED]), "50 uncached tokens of 250 beside blocks, which nodes cache; allowed are blocks, or"),
        (data([JOB | OF_NONE]), "blocks.x: is no request of a stream of w; allowed"),
        (data([JOB | NO_NUMBER]), "'-1' is no such number; allowed is a whole number from 0"),
        (data([JOB | NO_LIST]), "allowed is a list of numbers of blocks such as"),
        (
            data([JOB], kv="grows"),
            "prefix_block: is 100 where KV grows by 16 tokens; allowed is a multiple of block",
        ),
        (data([JOB], prefix_cache="nodes"), "'nodes' is unknown; allowed are none, node"),
        (data([JOB], SHORT), "tasks.t.blocks: 2 blocks of 100 tokens for a prompt of 90; allowed are at most 1"),
    ],
)
def test_errors_say_what_is_allowed(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        scenario_from(changed)


def test_errors_of_a_trace_name_line_and_column(tmp_path: Path) -> None:
    trace, file = tmp_path / "t.csv", tmp_path / "s.yaml"
    file.write_text(
        "cluster: {servers: 1, gpu: {kind: A, memory: 1 GB, load_bandwidth: 1 GB/s}}\n"
        "streams: {chat: {prefill: 8000 /s, chunk: 2048, concurrency: 1, step: {1: 10 ms}, prefix_cache: node}}\n"
        "workflows: {w: {tasks: {t: {stream: chat}}}}\nworkload: {trace: {file: t.csv}}\n"
    )
    for blocks, message in (
        ("1 x", "'x' is no number of a block"),
        ("1 2 3", "3 blocks of 512 tokens for a prompt of 1024"),
    ):
        trace.write_text(f"time_s,workflow,t.prompt,t.output,t.blocks\n0,w,600,3,1 2\n1,w,1024,3,{blocks}\n")
        with pytest.raises(InputError, match=rf"t.csv:3: t.blocks: {message}"):
            load_scenario(file)
