"""Time between steps in files (rule E5): edges, jobs and columns of a trace; what is wrong with them; identity."""

from __future__ import annotations

from pathlib import Path

import pytest

from truenorth.models.features import Feature, features_of
from truenorth.models.identity import canonical_text, scenario_hash
from truenorth.models.scenario import InputError, Scenario, load_scenario
from truenorth.models.scenario.build import scenario_from
from truenorth.models.scenario.work import workflow_graph, workflow_section
from truenorth.models.scenario.writing import document_of

AGENT = """\
cluster:
  servers: 2
  gpu: {kind: T4, memory: 14 GB, load_bandwidth: 10 GB/s}
  network: {bandwidth: 1 GB/s}
workflows:
  agent:
    tasks:
      call: {runtime: 100 ms, output: 2 KB}
      again: {runtime: 50 ms, after: {call: {bytes: 1 KB, delay: 3 s}}}
      last: {runtime: 50 ms, after: {call: 7 B, again: {delay: 0.5 s}}}
workload:
  jobs: [{release: 0 s, workflow: agent}, {release: 1 s, workflow: agent, delay: {again: 1 s, last: 20 ms}}]
"""


def write(folder: Path, text: str, trace: str = "") -> Path:
    (folder / "arrivals.csv").write_text(trace)
    path = folder / "agent.yaml"
    path.write_text(text)
    return path


def of_trace(folder: Path, trace: str) -> Scenario:
    head = AGENT.partition("workload:")[0]
    return load_scenario(write(folder, head + "workload: {trace: {file: arrivals.csv}}\n", trace))


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(InputError) as refused:
        load_scenario(write(folder, text))
    return str(refused.value).removeprefix(f"{folder}/")


def test_edges_and_jobs_say_how_long(tmp_path: Path) -> None:
    built = load_scenario(write(tmp_path, AGENT)).instance
    # Edges in the order of the tasks: call to again, call to last, again to last. The second job's hold for all edges.
    assert built.delay_us.tolist() == [3_000_000, 0, 500_000, 1_000_000, 20_000, 20_000]
    assert [edge.size_bytes for task in built.workflows[0].tasks for edge in task.inputs] == [1_000, 7, 0]
    # 100 + 3,000 + 50 + 500 + 50 ms, and 100 + 1,000 + 50 + 20 + 50 ms.
    assert built.job_critical_us.tolist() == [3_700_000, 1_220_000]
    assert features_of(built) == [Feature.WORKFLOWS, Feature.DELAYS]


def test_columns_of_a_trace_hold_for_all_edges_into_a_task(tmp_path: Path) -> None:
    trace = "time_ms,workflow,again.delay,last.delay_ms\n0,agent,,\n10,agent,1 s,20\n20,agent,,0\n"
    built = of_trace(tmp_path, trace).instance
    assert [job.delays_us for job in built.jobs] == [None, {"again": 1_000_000, "last": 20_000}, {"last": 0}]
    assert built.job_critical_us.tolist() == [3_700_000, 1_220_000, 3_200_000]
    assert built.job_workflow.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("trace", "problem"),
    [
        ("again.delay\n0,agent,3", "2: again.delay: '3' is no time; allowed is a number with one of us, ms, s, min, h"),
        ("again.delay_s\n0,agent,x", "2: again.delay_s: 'x' is no time; allowed is a plain number of s"),
        ("again.delay_s\n0,agent,-1", "2: again.delay_s: '-1' is out of range; allowed is 0 to 1000000000000000 us"),
        ("call.delay\n0,agent,3 s", "1: header: unknown column 'call.delay'; did you mean 'last.delay'? allowed are "),
        (
            "again.delay,again.delay_s\n0,agent,1 s,1",
            "1: header: column 'again.delay_s' is a second delay of its task; allowed is one",
        ),
    ],
)
def test_a_wrong_column_is_named(tmp_path: Path, trace: str, problem: str) -> None:
    with pytest.raises(InputError) as refused:
        of_trace(tmp_path, f"time_ms,workflow,{trace}\n")
    assert str(refused.value).startswith(f"{tmp_path}/arrivals.csv:{problem}")


AFTER = "{call: {bytes: 1 KB, delay: 3 s}}"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "delay: 3 s}",
            "delay: 3}",
            "9: workflows.agent.tasks.again.after.call.delay: '3' is no time; allowed is a number",
        ),
        ("delay: 3 s}", "delay: -3 s}", "9: workflows.agent.tasks.again.after.call.delay: '-3 s' is out of range"),
        ("delay: 3 s}", "wait: 3 s}", "9: workflows.agent.tasks.again.after.call.wait: unknown key, allowed are bytes"),
        ("bytes: 1 KB", "bytes: 1", "9: workflows.agent.tasks.again.after.call.bytes: '1' is no size"),
        (
            "delay: 3 s}",
            "hold: true}",
            "7: workflows.agent.tasks: workflow agent: KV of call is held for again, which has to be a request of the ",
        ),
        (
            "delay: {again: 1 s,",
            "delay: {call: 1 s,",
            "12: workload.jobs[1].delay.call: comes after no other task of agent, so that it can have no delay; ",
        ),
        ("delay: {again: 1 s,", "delay: {agian: 1 s,", "12: workload.jobs[1].delay.agian: is no task of agent"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert refusal(tmp_path, AGENT.replace(old, new)).startswith(f"agent.yaml:{problem}")


def test_written_and_read_again_it_is_the_same(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, AGENT))
    again = scenario_from(document_of(scenario.instance))
    assert scenario_hash(again.instance) == scenario_hash(scenario.instance)
    scenario.save(tmp_path / "saved.yaml")
    assert scenario_hash(load_scenario(tmp_path / "saved.yaml").instance) == scenario_hash(scenario.instance)
    section = workflow_section(workflow_graph(scenario.workflows[0]))
    assert section["tasks"]["again"]["after"] == {"call": {"bytes": "1000 B", "delay": "3000000 us"}}


def test_without_a_delay_nothing_is_another_window(tmp_path: Path) -> None:
    """Identity and names are what they were: a delay of 0 is none, wherever it stands."""
    plain = AGENT.replace("{bytes: 1 KB, delay: 3 s}", "1 KB").replace("{delay: 0.5 s}", "null")
    plain = plain.replace(", delay: {again: 1 s, last: 20 ms}", "")
    zero = plain.replace("call: 1 KB", "call: {bytes: 1 KB, delay: 0 s}")
    zero = zero.replace("release: 1 s, workflow: agent", "release: 1 s, workflow: agent, delay: {again: 0 s}")
    one, other = (load_scenario(write(tmp_path, text)).instance for text in (plain, zero))
    assert scenario_hash(one) == scenario_hash(other)
    assert "delay" not in canonical_text(one)
    assert repr(one.workflows[0].tasks[1].inputs[0]) == "Edge(source='call', size_bytes=1000)"
    assert Feature.DELAYS not in features_of(other)


def test_kv_may_wait_for_a_tool_as_well(tmp_path: Path) -> None:
    chat = "{prefill: 8000 /s, chunk: 512, concurrency: 8, step: {1: 10 ms, 8: 20 ms}, kv_per_token: 100 KB}"
    tasks = (
        "      first: {stream: chat, prompt: 100, output_tokens: 1}\n"
        "      then: {stream: chat, prompt: 100, output_tokens: 9, after: {first: {bytes: kv, delay: 2 s}}}\n"
    )
    head, _, _ = AGENT.partition("workflows:")
    text = f"{head}streams: {{chat: {chat}}}\nworkflows:\n  agent:\n    tasks:\n{tasks}"
    built = load_scenario(write(tmp_path, text + "workload: {jobs: [{release: 0 s, workflow: agent}]}\n")).instance
    (edge,) = built.workflows[0].tasks[1].inputs
    assert (edge.kv, edge.delay_us) == (True, 2_000_000)
    # 100 prompt tokens at 8,000 per second, the delay, then 9 tokens of 10 ms.
    assert built.job_critical_us.tolist() == [12_500 + 2_000_000 + 90_000]


def test_more_different_delays_than_tables_hold_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truenorth.models.scenario.limits.MAX_TRANSFERS", 5)
    with pytest.raises(InputError, match="2 workflows with delays of their own have 6 edges; allowed are 5"):
        load_scenario(write(tmp_path, AGENT))
