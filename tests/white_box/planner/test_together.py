"""What the verbs for devices say of tasks on several GPUs."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import truenorth as tn
from tests.executor.devices.faulty import In, be_killed
from tests.executor.devices.together import Summed
from truenorth.executor.devices import profiling
from truenorth.executor.devices import run as running
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.profiling import Measurements
from truenorth.executor.samples import FittedLine, Spread
from truenorth.models.record import decode, encode
from truenorth.models.scenario import Scenario, load_scenario
from truenorth.planner.answers.profile import profile
from truenorth.planner.answers.profile_document import measured_document
from truenorth.planner.answers.replay import replay_on_devices
from truenorth.planner.answers.replay_report import ReplayRecord
from truenorth.planner.answers.trial import realised_bound_s, trial
from truenorth.planner.questions.devices import ProfileQuestion, ReplayQuestion, TrialQuestion

TEXT = """\
name: wide
cluster:
  servers: 1
  gpus_per_server: 2
  gpu: {kind: core, memory: 9 KB, load_bandwidth: 100 MB/s}
  network: {bandwidth: 100 MB/s, latency: 1 ms}
models:
  large: {weights: 9001 B}
  small: {weights: 3 KB}
workflows:
  ask:
    tasks:
      draft: {models: [large], gpus: 2, runtime: 3 ms, output: 64 B}
      check:
        models: [small]
        modes: [{gpus: 1, runtime: 2 ms}, {gpus: 2, runtime: 1 ms, weights: copy}]
        after: [draft]
workload:
  poisson: {rate: 200 /s, jobs: 3, seed: 1}
objective: mean_latency
"""


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    core = physical_devices("cpu")[0]
    for module in (running, profiling):
        monkeypatch.setattr(module, "physical_devices", lambda _: [core, replace(core, name="another core")])


@pytest.fixture
def wide(tmp_path: Path) -> Scenario:
    path = tmp_path / "wide.yaml"
    path.write_text(TEXT)
    return load_scenario(path)


def test_a_replay_names_all_gpus_and_its_file_passes_the_checker(wide: Scenario, tmp_path: Path) -> None:
    """Job 1 loses its draft with a process; the others run, and what is written of them breaks no rule."""
    plan = tmp_path / "plan.json"
    tn.save(tn.simulate(wide, "fifo"), plan)
    runner = partial(Summed, In(be_killed, job=1, task="draft", gpu="s0/g1"))
    replayed = replay_on_devices(ReplayQuestion(plan), wide, runner)
    document = encode(replayed.record)
    both = ["s0/g0", "s0/g1"]
    assert [failure["gpu"] for failure in document["failures"]] == [both]
    assert {str(task["gpu"]) for task in document["tasks"] if task["task"] == "draft"} == {str(both)}
    assert [load["bytes"] for load in document["loads"] if load["gpu"] == both] == [4501]
    assert document["violations"] == []
    assert encode(decode(ReplayRecord, document)) == document

    whole = replay_on_devices(ReplayQuestion(plan), wide, Summed)
    assert (whole.achieved, whole.same_placement, whole.same_order) == (True, True, True)
    assert whole.causes is not None
    assert sum(whole.causes.makespan.values()) == pytest.approx(_makespan(whole.timeline) - _makespan(whole.predicted))
    whole.save_measured(tmp_path / "measured.json")
    written = json.loads((tmp_path / "measured.json").read_text())
    assert both in [task["gpu"] for task in written["tasks"]]
    assert tn.check(wide, tmp_path / "measured.json").violations == []


def _makespan(timeline: object) -> float:
    return float(timeline.end_us.max()) / 1e6  # type: ignore[attr-defined]


def test_a_trial_has_a_bound_below_what_was_measured(wide: Scenario) -> None:
    made = trial(TrialQuestion(("fifo", "srpt"), repeats=1), wide, Summed)
    assert (made.achieved, [row.different_outputs for row in made.rows]) == (True, [0, 0])
    for runs in made.runs.values():
        for run in runs:
            bound = realised_bound_s(run)
            assert bound is not None
            assert 0 < bound <= run.latency_us[1].mean() / 1e6


def test_a_profile_measures_every_number_of_gpus(wide: Scenario) -> None:
    found = profile(ProfileQuestion("cpu", rounds=2), wide, Summed)
    measured = found.measurements
    assert {key: len(spread.samples_us) for key, spread in measured.runs.items()} == {
        ("ask", "draft"): 2,
        ("ask", "check"): 2,
    }
    assert {key: len(spread.samples_us) for key, spread in measured.together.items()} == {("ask", "check", 2): 2}
    assert set(measured.loads) == {"small"}
    assert [task.gpus for task in found.record().tasks[2:]] == [2]


def test_measured_times_take_the_place_of_those_of_their_mode(wide: Scenario) -> None:
    runs = {("ask", "draft"): Spread((1234.0,)), ("ask", "check"): Spread((400.0,))}
    together = {("ask", "check", 2): Spread((250.0,))}
    line = FittedLine(1.0, 1e9)
    sizes = {"large": 9001, "small": 3000}
    made = Measurements("bench", sizes, runs, {}, {}, {}, {}, line, line, None, together=together)
    tasks = measured_document(wide, made)["workflows"]["ask"]["tasks"]
    assert tasks["draft"]["runtime"] == "1.234 ms"
    assert [mode["runtime"] for mode in tasks["check"]["modes"]] == ["400 us", "250 us"]
