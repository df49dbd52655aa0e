"""The verb replay: predicted beside measured, causes that add up, files, and what it says when things fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

import truenorth as tn
from tests.executor.devices.small import BYTES, Decoding, Small, gpus, instance
from tests.executor.scripted import Listed, runs
from tests.instances import chain, task
from tests.night import by_day
from tests.white_box.planner.test_command import Command, command
from truenorth.executor import parse_policy
from truenorth.executor.devices.machine import Observed
from truenorth.executor.devices.records import DeviceRecord, Records, measured
from truenorth.executor.devices.run import LiveRun, LiveSettings
from truenorth.executor.devices.runner import MakeRunner, RunnerCall
from truenorth.executor.simulation import Durations, simulate_recorded
from truenorth.models import Placement, Residency, Timeline, check
from truenorth.models.record import encode
from truenorth.models.scenario import Scenario, load_scenario, read_timeline
from truenorth.planner.answers.replay import CAUSES, replay_on_devices
from truenorth.planner.answers.replayed import Replayed
from truenorth.planner.questions.devices import ReplayQuestion

__all__ = ["command"]

TEXT = f"""\
name: tiny
cluster:
  servers: 2
  gpu: {{kind: core, memory: {2 * BYTES} B, load_bandwidth: 100 MB/s}}
  network: {{bandwidth: 100 MB/s, latency: 1 ms}}
models:
  m0: {{weights: {BYTES} B}}
  m1: {{weights: {BYTES} B}}
  m2: {{weights: {BYTES} B}}
workflows:
  w:
    tasks:
      a: {{models: [m0], runtime: 2 ms, output: 64 B}}
      b: {{models: [m1], runtime: 1 ms, output: 64 B, after: [a]}}
      c: {{models: [m2], runtime: 1 ms, output: 64 B, after: [a]}}
      d: {{runtime: 100 us, after: [b, c]}}
workload:
  poisson: {{rate: 200 /s, jobs: 6, seed: 1}}
objective: mean_latency
"""
SERIAL = LiveSettings(sharing="serial")


@pytest.fixture
def tiny_file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def tiny(tiny_file: Path) -> Scenario:
    return load_scenario(tiny_file)


def replay(scenario: Scenario, policy: str | Path, runner: MakeRunner = Small) -> Replayed:
    asked = ReplayQuestion(policy, runner="small", virtual="serial", check_outputs=True)
    return replay_on_devices(asked, scenario, runner)


def test_a_plan_is_carried_out_as_planned(tiny: Scenario, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    tn.save(tn.simulate(tiny, "compass"), plan)
    replayed = replay(tiny, plan)
    assert (replayed.violations, replayed.achieved) == ([], True)
    assert (replayed.same_placement, replayed.same_order) == (True, True)
    document = encode(replayed.record)
    assert document["outputs"] == {"compared": 24, "different": [], "of_batches": 0}
    assert document["failures"] == document["moves"] == document["unpacked_gpus"] == []
    assert document["run_times"]["count"] == 24
    assert document["run_times"]["predicted_s"] == pytest.approx(6 * 0.0041)
    assert [job["job"] for job in document["jobs"]] == list(range(6))
    assert document["metrics"]["makespan_s"] == document["makespan_s"]["measured"]


@pytest.mark.parametrize("policy", by_day(["compass", "jit", "srpt"], 1))
def test_causes_add_up_to_the_difference(tiny: Scenario, policy: str) -> None:
    document = encode(replay(tiny, policy).record)
    for name, added in document["causes_s"].items():
        whole = document[f"{name}_s"]["measured"] - document[f"{name}_s"]["predicted"]
        assert list(added) == list(CAUSES)
        assert sum(added.values()) == pytest.approx(whole, abs=1e-9)


CHATS = """\
name: chats
cluster:
  servers: 2
  gpu: {kind: core, memory: 1 MB, load_bandwidth: 100 MB/s}
  network: {bandwidth: 100 MB/s, latency: 100 us}
models: {llm: {weights: 100 KB}}
workflows:
  chat: {tasks: {answer: {stream: chat, prompt: 20, uncached: 15, output_tokens: 4}}}
  cut: {tasks: {answer: {stream: chat, prompt: 5, output_tokens: 1}}}
streams:
  chat: {models: [llm], prefill: 10000 /s, chunk: 8, concurrency: 3, step: {1: 1 ms, 3: 2 ms}, kv_per_token: 128 B}
workload:
  poisson: {rate: 400 /s, jobs: 9, seed: 1, mix: {chat: 2, cut: 1}}
objective: mean_latency
"""


@pytest.fixture
def chats(tmp_path: Path) -> Scenario:
    (tmp_path / "chats.yaml").write_text(CHATS)
    return load_scenario(tmp_path / "chats.yaml")


def test_requests_are_reported_token_by_token(chats: Scenario, tmp_path: Path) -> None:
    """What the report says of tokens follows from its requests; its iterations add up to all of their tokens."""
    plan = tmp_path / "plan.json"
    tn.save(tn.simulate(chats, "least_requests"), plan)
    replayed = replay(chats, plan, Decoding)
    assert (replayed.achieved, replayed.same_placement, replayed.same_order) == (True, True, True)
    document = encode(replayed.record)
    release = [job.release_us / 1e6 for job in chats.instance.jobs]
    for said, which in (("predicted", "predicted_first_s"), ("measured", "first_s")):
        first = [request[which] - release[request["job"]] for request in document["requests"]]
        assert document["tokens"]["mean_first_token_s"][said] == pytest.approx(sum(first) / 9)
    streams = chats.instance.streams
    assert streams is not None
    assert sum(iteration["prompt_tokens"] for iteration in document["iterations"]) == streams.uncached.sum()
    assert sum(iteration["decodes"] for iteration in document["iterations"]) == (streams.output - 1).sum()
    assert document["outputs"] == {"compared": 9, "different": [], "of_batches": 0}
    assert document["iteration_times"]["count"] == len(document["iterations"])
    assert document["causes_s"]["mean_latency"].keys() == set(CAUSES)
    replayed.save_measured(tmp_path / "measured.json")
    assert tn.check(chats, tmp_path / "measured.json").violations == []


MOVED = """\
name: moved
cluster:
  groups:
    - {count: 1, gpu: {kind: early, memory: 1 MB, load_bandwidth: 100 MB/s}}
    - {count: 1, gpu: {kind: late, memory: 1 MB, load_bandwidth: 100 MB/s}}
  network: {bandwidth: 100 MB/s, latency: 100 us}
models: {llm: {weights: 100 KB}}
workflows:
  chat:
    tasks:
      prefill: {stream: first, output_tokens: 1, first_token: true}
      decode: {stream: rest, output_tokens: 4, after: {prefill: kv}}
streams:
  first: {models: [llm], prefill: 10000 /s, chunk: 64, concurrency: 1, step: {early: {1: 1 ms}}, kv_per_token: 1 KB}
  rest: {models: [llm], prefill: 10000 /s, chunk: 64, concurrency: 1, step: {late: {1: 1 ms}}, kv_per_token: 1 KB}
workload:
  jobs:
    - {release: 0 ms, workflow: chat, tokens: {prefill: [20, 20, 1], decode: [21, 0, 4]}}
    - {release: 9 ms, workflow: chat, tokens: {prefill: [30, 30, 1], decode: [31, 0, 4]}}
"""


def test_kv_that_was_sent_is_reported_with_its_bytes_and_its_arrival(tmp_path: Path) -> None:
    """20 KB and 30 KB, given 300 and 400 us, took 500 and 300; a third transfer came to nothing."""
    (tmp_path / "moved.yaml").write_text(MOVED)
    scenario = load_scenario(tmp_path / "moved.yaml")
    happened = simulate_recorded(scenario.instance, parse_policy("least_requests"), Durations())
    transfers = [
        DeviceRecord(0, 1, 5_000, 5_100, 5_600, 300, 20_000, 1),
        DeviceRecord(2, 1, 14_000, 14_000, 14_100, 400, 30_000, 3, error="no"),
        DeviceRecord(2, 1, 14_000, 14_200, 14_500, 400, 30_000, 3),
    ]
    live = LiveRun(happened, Records(transfers=transfers), (), 0, Observed(), ("core 0", "core 1"), {}, {})
    replayed = Replayed(scenario, "least_requests", None, "none", SERIAL, happened, live, None, None)
    document = encode(replayed.record)
    assert document["kv_sent"] == {"requests": 2, "bytes": 50_000, "predicted_s": 0.0007, "measured_s": 0.0008}
    assert str(replayed.record.kv_sent) == "50 KB sent for 2 requests in 0.0008 s, predicted 0.0007 s"
    arrived = [(each.get("kv_bytes"), each.get("kv_arrived_s")) for each in document["requests"]]
    assert arrived == [(None, None), (20_000, 0.0056), (None, None), (30_000, 0.0145)]


def test_recorded_times_take_the_place_of_given_ones() -> None:
    """One GPU: load 11 us, a 10 us, b 10 us; then on the other GPU c, 1064 us later, 10 us.

    With a load of 20 us, a run of a of 15 us and a transfer of 2000 us: a 20-35, b 35-45, c 2045-2055.
    A transfer that is recorded as faster than given takes the given time.
    """
    on = instance(
        [chain(task("a", 10, ["m0"]), task("b", 10, (), {"a": 0}), task("c", 10, (), {"b": 64}))],
        ["m0"],
        gpus(2, BYTES),
    )
    given = simulate_recorded(on, lambda: Listed([0, 0, 1]), Durations(transfers={(1, 2): 5}))
    assert runs(given) == [(0, 11, 21), (0, 21, 31), (1, 1095, 1105)]
    slower = Durations(runs={0: 15}, loads={(0, 0): [20]}, transfers={(1, 2): 2000})
    assert runs(simulate_recorded(on, lambda: Listed([0, 0, 1]), slower)) == [(0, 20, 35), (0, 35, 45), (1, 2045, 2055)]


def test_measured_times_replace_those_of_the_engine() -> None:
    """The engine orders at 0 and 10 and notices ends at 10 and 20; the device was busy from 2 to 9 and 11 to 19."""
    ordered = Timeline.build(
        1, [Placement(0, 0, 10, 20)], [Residency(0, 0, 0, 10, 30), Residency(1, 0, 0, 0, initial=True)]
    )
    records = Records(runs=[DeviceRecord(0, 0, 10, 11, 19, 5)], loads=[DeviceRecord(0, 0, 0, 2, 9, 5)])
    timeline = measured(ordered, records)
    assert runs(timeline) == [(0, 11, 19)]
    assert set(timeline.residencies) == {Residency(0, 0, 2, 9, 30), Residency(1, 0, 0, 0, initial=True)}
    assert (records.runs[0].dispatch_us, records.runs[0].took_us) == (1, 8)


class Failing(Small):
    def run(self, call: RunnerCall) -> Tensor:
        if (call.job, call.task) == (2, "b"):
            raise torch.OutOfMemoryError("tried to allocate 3 GiB")
        return super().run(call)


def test_a_failed_job_is_reported_and_left_out(tiny: Scenario, tmp_path: Path) -> None:
    replayed = replay(tiny, "jit", Failing)
    document = encode(replayed.record)
    assert not replayed.achieved
    assert document["valid"] is True
    (failure,) = document["failures"]
    assert (failure["job"], failure["task"]) == (2, "b")
    assert failure["message"] == "OutOfMemoryError: tried to allocate 3 GiB"
    assert document["causes_s"] is document["metrics"] is document["makespan_s"]["measured"] is None
    assert [job["job"] for job in document["jobs"]] == [0, 1, 3, 4, 5]
    tn.save(replayed, tmp_path / "out")
    written = read_timeline(tmp_path / "out" / "measured.json", tiny.instance).timeline
    missing = {violation.subject for violation in check(tiny.instance, written)}
    assert {"job 2 task b", "job 2 task d"} <= missing <= {"job 2 task b", "job 2 task c", "job 2 task d"}


def test_the_command_writes_report_timelines_picture_and_trace(
    command: Command, tiny_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    arguments = [
        "--policy",
        "jit",
        "--virtual",
        "serial",
        "--runner",
        "tests.white_box.planner.test_replay:layer",
        "--json",
    ]
    code, out, err = command("replay", tiny_file, *arguments, "-o", folder)
    document = json.loads(out)
    assert (code, err.count("wrote ")) == (0, 6)
    assert {path.name for path in folder.iterdir()} == {
        "replay.json", "predicted.json", "measured.json", "gantt.png", "trace.json", "timelines.json",
    }  # fmt: skip
    written = json.loads((folder / "replay.json").read_text())
    assert {key: written[key] for key in document} == document
    assert document["valid"] is True
    assert command.json("check", tiny_file, folder / "measured.json")["valid"] is True
    names = {
        e["args"]["name"] for e in json.loads((folder / "trace.json").read_text())["traceEvents"] if e["ph"] == "M"
    }
    assert {"predicted s0/g0", "measured s0/g0", "predicted s1/g0", "measured s1/g0"} <= names


class Layer(torch.nn.Linear):
    """Two numbers for every byte it gets; a module of the user's."""

    def __init__(self) -> None:
        super().__init__(1, 2)

    def forward(self, data: Tensor) -> Tensor:
        return super().forward(data.float()[:, None])


def layer(name: str) -> torch.nn.Module:
    """Make the module of a model: a factory as a user would name it."""
    return Layer()


class Hungry(Layer):
    """A megabyte, and one number more, beside what a layer takes."""

    def forward(self, data: Tensor) -> Tensor:
        return super().forward(data) + torch.ones(250_000).sum()


def hungry(name: str) -> torch.nn.Module:
    """Make the module of model m1 such that it takes a megabyte, for task b."""
    return Hungry() if name == "m1" else Layer()


@pytest.mark.parametrize("named", by_day([", memory: 1000 B", ""], 1))
def test_tasks_are_held_to_what_they_name(command: Command, tmp_path: Path, named: str) -> None:
    """A GPU of 2176 bytes has not a megabyte; where no task names any memory, that is for weights alone."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TEXT.replace("{models: [m1], ", f"{{models: [m1]{named}, "))
    runner = ["--runner", "tests.white_box.planner.test_replay:hungry", "--virtual", "serial"]
    code, out, _ = command("replay", path, "--policy", "jit", *runner, "--check-outputs", "--json")
    document = json.loads(out)
    memory = document["memory"]
    assert (code, document["valid"]) == ((1, False) if named else (0, True))
    assert [task["task"] for task in memory["tasks"]] == ["w/a", "w/b", "w/c", "w/d"]
    assert [task["named_bytes"] for task in memory["tasks"]] == [0, 1000 if named else 0, 0, 0]
    assert 1_000_000 < memory["tasks"][1]["measured_bytes"] < 1_010_000
    assert memory["more_than_named"] == sum(each["measured_bytes"] > each["named_bytes"] for each in memory["tasks"])
    assert memory["more_than_left"] >= 6  # b of each of six jobs
    if named:
        assert len(document["violations"]) == memory["more_than_left"]
        assert "memory is exceeded by what tasks were measured to hold" in document["violations"][0]
    _, out, _ = command("replay", path, "--policy", "jit", *runner, "--json")
    assert "memory" not in json.loads(out)  # on cores it takes long


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "allowed is either a PLAN or --policy"),
        (("--policy", "jit", "--runner", "syntetic"), "unknown runner 'syntetic'"),
        (("--policy", "compass-released", "--virtual", "serial"), "runs on a twin of the instance"),
        (("--policy", "jit", "--virtual", "both"), "--virtual: 'both' is unknown; allowed are parallel, serial"),
    ],
)
def test_bad_requests_are_one_line(command: Command, tiny_file: Path, arguments: tuple[str, ...], said: str) -> None:
    assert said in command.error("replay", tiny_file, *arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_cuda_is_refused(command: Command, tiny_file: Path) -> None:
    assert "no CUDA device can be reached" in command.error("replay", tiny_file, "--policy", "jit", "--device", "cuda")


class Odd(Small):
    def run(self, call: RunnerCall) -> Tensor:
        output = super().run(call)
        return output + torch.inf if (call.job, call.task) == (3, "d") else output


def test_outputs_that_are_no_finite_numbers_are_named(tiny: Scenario) -> None:
    """Task d, the last of every job, puts out infinity in job 3, alone as well: nothing differs, yet it is wrong."""
    document = encode(replay(tiny, "jit", Odd).record)
    assert (document["outputs"]["different"], document["not_finite_outputs"]) == ([], ["3/d"])
