"""Trials: contenders interleaved on one set-up, differences within a repeat, and what no schedule could beat."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

import truenorth as tn
from tests.executor.devices.faulty import (
    In,
    Raise,
    be_killed,
    failing_loads,
    hang,
    refuse_first_loads,
    refusing_loads,
    small,
)
from tests.executor.devices.small import Small
from tests.night import by_day
from tests.white_box.planner.test_command import Command, command
from tests.white_box.planner.test_replay import SERIAL, Layer, tiny_file
from truenorth.executor.devices.crew import Crew
from truenorth.executor.devices.live import LiveDevice
from truenorth.executor.devices.machine import Observed
from truenorth.executor.devices.records import STARTED_AGAIN, DeviceRecord, Digest, Fault, Records
from truenorth.executor.devices.run import LiveRun, LiveSettings
from truenorth.executor.devices.runner import MakeRunner, RunnerCall
from truenorth.executor.errors import DeviceError
from truenorth.executor.simulation import Durations, simulate_recorded
from truenorth.models import Instance
from truenorth.models.errors import QuestionError
from truenorth.models.record import encode
from truenorth.models.scenario import Scenario, load_scenario
from truenorth.planner.answers.replay_report import TaskMemory
from truenorth.planner.answers.trial import Trial, realised_bound_s, trial
from truenorth.planner.questions.devices import TrialQuestion
from truenorth.planner.show.trial import trial_view

__all__ = ["command", "tiny_file"]

plan_module = import_module("truenorth.planner.answers.plan")


@dataclass(frozen=True)
class Counted:
    """Writes a line for every run."""

    path: Path

    def __call__(self, call: RunnerCall) -> None:
        with self.path.open("a") as file:
            file.write("run\n")


def tried(
    scenario: Scenario, policies: list[str], runner: MakeRunner, settings: LiveSettings = SERIAL, **asked: Any
) -> Trial:
    question = TrialQuestion(tuple(policies), virtual=settings.sharing, limit_s=settings.limit_s, **asked)
    return trial(question, scenario, runner)


def test_every_repeat_runs_all_of_them_on_one_set_up(tiny_file: Path, tmp_path: Path) -> None:
    """Six jobs of four tasks: the warm-up computes each of four tasks on both GPUs, then every run all 24.

    What was queued up behind a run and has to make way for another may have begun by then: it is computed twice.
    """
    scenario, calls = load_scenario(tiny_file), tmp_path / "calls"
    made = tried(scenario, ["jit", "srpt", "hash"], partial(small, Counted(calls)), SERIAL, repeats=3)
    assert 8 + 9 * 24 <= len(calls.read_text().splitlines()) < 8 + 10 * 24
    assert [sorted(turns) for turns in made.order] == [["hash", "jit", "srpt"]] * 3
    assert made.achieved
    first, *others = made.rows
    assert (first.policy, first.difference.mean, first.difference.low) == ("jit", 0, 0)
    assert [row.different_outputs for row in made.rows] == [0, 0, 0]
    for row in others:
        values = [made.runs[name] for name in (row.policy, "jit")]
        apart = [a.latency_us[1].mean() - b.latency_us[1].mean() for a, b in zip(*values, strict=True)]
        assert row.difference.mean == pytest.approx(sum(apart) / 3 / 1e6)
        ends = row.difference.low, row.difference.high
        assert None not in ends
        assert (ends[0] or 0) <= (row.difference.mean or 0) <= (ends[1] or 0)
    for runs in made.runs.values():
        for run in runs:
            bound = realised_bound_s(run)
            assert bound is not None
            assert 0 < bound <= run.latency_us[1].mean() / 1e6
            assert run.violations == []


def test_a_run_with_a_failed_job_counts_in_no_mean(tiny_file: Path) -> None:
    runner = partial(small, In(Raise(torch.OutOfMemoryError("no")), job=2, task="b"))
    made = tried(load_scenario(tiny_file), ["jit", "srpt"], runner, SERIAL, repeats=1)
    assert not made.achieved
    assert [(row.failed_jobs, row.objective.mean, row.difference.mean) for row in made.rows] == [(1, None, None)] * 2


@pytest.mark.parametrize("do", by_day([be_killed, hang], 1))
def test_what_ends_a_process_touches_no_later_run(tiny_file: Path, tmp_path: Path, do: Callable[[], None]) -> None:
    """Task b of job 1 does so in the first run; its model is loaded again in every run that follows."""
    settings = LiveSettings(sharing="serial", limit_s=0.5)
    runner = partial(small, In(do, job=1, task="b", once=tmp_path / "done"))
    made = tried(load_scenario(tiny_file), ["jit"], runner, settings, repeats=3)
    records = [run.live.records for run in made.runs["jit"]]
    assert [[fault.what for fault in each.faults] for each in records] == [[STARTED_AGAIN], [], []]
    assert [[failure.job for failure in each.failures] for each in records] == [[1], [], []]
    assert all(any(load.subject == 1 for load in each.loads) for each in records[1:])
    (row,) = made.rows
    assert (row.counted, row.faults, row.failed_jobs) == (2, 1, 1)


def test_a_load_that_never_ends_touches_no_later_run(tiny_file: Path, tmp_path: Path) -> None:
    """The first load of m1 never ends: the process is started again, and every job runs."""
    settings = LiveSettings(sharing="serial", limit_s=0.5)
    runner = partial(failing_loads, In(hang, once=tmp_path / "done").do_once, None, 1)
    made = tried(load_scenario(tiny_file), ["jit"], runner, settings, repeats=3)
    records = [run.live.records for run in made.runs["jit"]]
    assert [[fault.what for fault in each.faults] for each in records] == [[STARTED_AGAIN], [], []]
    assert (made.achieved, made.rows[0].counted, made.rows[0].different_outputs) == (True, 2, 0)


@pytest.mark.parametrize("count_faults", by_day([True, False], 1))
def test_a_run_with_faults_counts_only_if_that_is_asked(tiny_file: Path, count_faults: bool) -> None:
    """The first run of jit and that of srpt have a load that fails once: every job runs all the same."""
    runner = partial(refusing_loads, 2)
    made = tried(load_scenario(tiny_file), ["jit", "srpt"], runner, SERIAL, repeats=2, count_faults=count_faults)
    assert made.achieved
    for row in made.rows:
        means = [float(run.latency_us[1].mean()) / 1e6 for run in made.runs[row.policy]]
        counted = means if count_faults else means[1:]
        assert (row.failed_jobs, row.faults, row.counted) == (0, 1, len(counted))
        assert [row.objective.mean, row.mean_latency_s] == pytest.approx([sum(counted) / len(counted)] * 2)
    apart = [
        other.latency_us[1].mean() - first.latency_us[1].mean()
        for first, other in zip(made.runs["jit"], made.runs["srpt"], strict=True)
    ]
    wanted = apart if count_faults else apart[1:]
    assert made.rows[1].difference.mean == pytest.approx(sum(wanted) / len(wanted) / 1e6)


def layer_without_first_loads(name: str) -> torch.nn.Module:
    """Make the module of a model, and have the first loads of two runs fail."""
    if name == "m0":
        refuse_first_loads(2)
    return Layer()


@pytest.mark.nightly
def test_a_contender_whose_runs_all_had_faults_has_no_mean(command: Command, tiny_file: Path, tmp_path: Path) -> None:
    runner = "tests.white_box.planner.test_trial:layer_without_first_loads"
    arguments = ["--policies", "jit", "--repeats", "2", "--virtual", "serial", "--runner", runner, "-o", tmp_path / "o"]
    code, out, _ = command("trial", tiny_file, *arguments)
    said = "No run of jit counts: none ended without faults and failed jobs."
    assert (code, said in out) == (0, True)
    (section,) = tn.report([tmp_path / "o"]).sections
    assert section.answer == "No contender has a run without faults and failed jobs."
    assert said in section.remarks
    (row,) = section.tables[0].cells()
    assert dict(zip((column.name for column in section.tables[0].columns), row, strict=True)).items() >= {
        ("measured", "none"), ("faults", "2"), ("runs counted", "0 of 2"), ("failed jobs", "0")
    }  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_measured_before_an_interruption_is_kept(
    command: Command, tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """The signal comes as the third of six runs begins: one run of each contender has ended, and is on disk by then."""
    began, folder, on_disk = list[int](), tmp_path / "tried", list[str]()
    begin = LiveDevice.begin

    def interrupt_third(device: LiveDevice) -> None:
        began.append(1)
        if len(began) == 3:
            on_disk.extend(sorted(path.name for path in (folder / "runs").glob("[0-9]*")))
            signal.raise_signal(number)
        begin(device)

    monkeypatch.setattr(LiveDevice, "begin", interrupt_third)
    (folder / "runs").mkdir(parents=True)
    (folder / "runs" / "0009.json").write_text("of an earlier trial")
    runner = "tests.white_box.planner.test_replay:layer"
    arguments = ["--policies", "jit,srpt", "--repeats", "3", "--virtual", "serial", "--runner", runner, "-o", folder]
    code, out, err = command("trial", tiny_file, *arguments, "--json")
    assert (code, len(began), on_disk) == (130, 3, ["0001.json", "0002.json"])
    assert "truenorth: interrupted; 2 of 6 runs had ended" in err
    printed = json.loads(out)
    assert (printed["ended"], printed["repeats"], sorted(printed["order"][0])) == ("interrupted", 1, ["jit", "srpt"])
    kept = {
        report["policy"]: report for report in (json.loads((folder / "runs" / name).read_text()) for name in on_disk)
    }
    for row in printed["rows"]:
        assert (row["runs"], row["counted"]) == (1, 1)
        assert row["objective"] == kept[row["policy"]]["objective"]["measured"]
    (section,) = tn.report([folder]).sections
    assert "It ended early: interrupted." in section.remarks
    texts = {name: (folder / "runs" / name).read_text() for name in on_disk}
    code, out, _ = command("trial", tiny_file, *arguments, "--json")
    assert (code, len(began), json.loads(out)["repeats"]) == (0, 3 + 4, 3)
    assert {name: (folder / "runs" / name).read_text() for name in on_disk} == texts


class Killed(BaseException):
    """Stands for whatever ends a process."""


class PretendedRuns:
    """In place of devices: what the n-th run takes follows from n, and some runs end everything.

    Parameters
    ----------
    folder
        Where runs are kept; how many are there says which one this is.
    scenario
        What is run.
    """

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        self.folder, self.scenario, self.ran, self.killed = folder, scenario, list[int](), set[int]()

    @contextmanager
    def crew(self, *_: object) -> Iterator[None]:
        yield

    def run_on(self, crew: None, instance: Instance, policy: Any, settings: LiveSettings, **told: Any) -> LiveRun:
        number = 1 + len(list(self.folder.glob("[0-9]*.json")))
        self.ran.append(number)
        if number in self.killed:
            self.killed.discard(number)
            raise Killed
        takes = {task: 1000 + (task * 7919 + number * 104729) % 5000 for task in range(instance.n_tasks)}
        timeline = simulate_recorded(instance, policy, Durations(runs=takes))
        placed = (timeline.place.tolist(), timeline.start_us.tolist(), timeline.end_us.tolist())
        runs = [
            DeviceRecord(task, gpu, at, at, end, 1000) for task, (gpu, at, end) in enumerate(zip(*placed, strict=True))
        ]
        faults = [Fault("load of m1", 0, 5, "no")] if number % 10 == 0 else []
        odd = {3: Digest("nan", False, False)} if number == 7 else {}
        digests = {task: Digest(f"{task} {task == 5 and number == 40}", True, True) for task in takes} | odd
        records, held = Records(runs, faults=faults), {1: 300}
        return LiveRun(timeline, records, (), 1e9, Observed(), ("pretended",) * 2, digests, {}, held_bytes=held)

    def trial(self, repeats: int, **told: Any) -> Trial:
        """Try two policies."""
        return tried(self.scenario, ["jit", "srpt"], Small, SERIAL, repeats=repeats, folder=self.folder, **told)


@pytest.fixture
def pretended(tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendedRuns:
    made = PretendedRuns(tmp_path / "runs", load_scenario(tiny_file))
    monkeypatch.setattr("truenorth.planner.answers.trial.live_crew", made.crew)
    monkeypatch.setattr("truenorth.planner.answers.trial.run_on", made.run_on)
    return made


@pytest.mark.nightly
def test_a_trial_killed_ten_times_gives_the_table_of_one_that_was_not(
    pretended: PretendedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100 runs ten are killed as they run, and of those three again as their file takes its place."""
    whole = pretended.trial(50)
    assert pretended.ran == list(range(1, 101))
    pretended.folder, pretended.ran = tmp_path / "killed", []
    pretended.killed = set(random.Random(3).sample(range(1, 101), 10))
    wanted, in_writing = sorted(pretended.killed), sorted(pretended.killed)[:3]
    rename = os.replace

    def replace_or_die(source: Any, target: Any) -> None:
        number = Path(target).stem
        if number.isdigit() and int(number) in in_writing:
            in_writing.remove(int(number))
            raise Killed
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace_or_die)
    deaths = 0
    while True:
        try:
            resumed = pretended.trial(50)
            break
        except Killed:
            deaths += 1
    assert deaths == 13
    assert sorted(pretended.ran) == sorted([*range(1, 101), *wanted, *wanted[:3]])
    assert encode(resumed.rows) == encode(whole.rows)
    assert (resumed.order, encode(resumed.origin.jobs)) == (whole.order, encode(whole.origin.jobs))
    assert sum(row.counted for row in resumed.rows) == 90  # every tenth has a fault
    assert sum(row.different_outputs or 0 for row in resumed.rows) == 1 + 1  # of run 40, and of run 7
    assert sum(row.not_finite_outputs for row in resumed.rows) == 1
    for name, runs in whole.runs.items():
        for one, other in zip(runs, resumed.runs[name], strict=True):
            assert encode(one.record) == encode(other.record)
            assert (one.violations, one.achieved) == (other.violations, other.achieved)
    assert resumed.record.memory == whole.record.memory


def test_what_tasks_hold_is_told_once_for_all_runs(pretended: PretendedRuns) -> None:
    """Task b holds 300 bytes on GPUs that have room for two models; nobody names any, so no rule is broken."""
    made = pretended.trial(2)
    assert made.achieved
    memory = made.record.memory
    assert memory.tasks == [TaskMemory("w/b", 0, 300)]
    left = sum(len(run.memory_exceeded) for runs in made.runs.values() for run in runs)
    assert (memory.more_than_named, memory.more_than_left) == (1, left)
    console = Console(width=200)
    with console.capture() as capture:
        console.print(trial_view(made))
    said = "memory: 1 of 1 tasks hold more than they name, most w/b: 300 B where 0 B are named"
    assert f"{said}; {left} times their GPU had less left, weights alone being counted" in capture.get()


def test_more_repeats_of_the_same_question_go_on_behind_the_others(pretended: PretendedRuns) -> None:
    pretended.trial(2)
    assert len(pretended.trial(5, count_faults=True).order) == 5
    assert len(pretended.trial(3).order) == 3
    assert pretended.ran == list(range(1, 11))


def test_a_damaged_run_is_run_again_with_all_behind_it(pretended: PretendedRuns) -> None:
    pretended.trial(3)
    for number, text in ((3, '{"kept": {"timeline": 5}}'), (5, "[")):
        (pretended.folder / f"000{number}.json").write_text(text)
    pretended.ran.clear()
    assert len(pretended.trial(3).order) == 3
    assert len(pretended.ran) == 4


def test_another_question_in_a_folder_is_refused_in_one_line(
    command: Command, pretended: PretendedRuns, tiny_file: Path
) -> None:
    """Who contends, on what devices, and the plan file's content are part of the question."""
    arguments = ["--repeats", "1", "--virtual", "serial", "-o", pretended.folder.parent]
    assert command("trial", tiny_file, "--policies", "jit,srpt", *arguments)[0] == 0
    said = command.error("trial", tiny_file, "--policies", "jit", *arguments)
    assert said == (
        f"truenorth: error: {pretended.folder}: holds runs of another question (policies: ['jit', 'srpt'], now "
        "['jit']); allowed are that question and another folder\n"
    )
    said = command.error("trial", tiny_file, "--policies", "jit,srpt", *arguments[:2], *arguments[4:])
    assert "(virtual: serial, now None)" in said


def test_a_plan_is_made_once_for_all_the_times_a_trial_goes_on(
    pretended: PretendedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, original = list[int](), plan_module.solve

    def solve(*told: Any, **given: Any) -> Any:
        made.append(1)
        return original(*told, **given)

    monkeypatch.setattr(plan_module, "solve", solve)
    for repeats in (1, 2):
        tried(pretended.scenario, ["plan"], Small, SERIAL, repeats=repeats, folder=pretended.folder, time_limit_s=0.5)
    assert (len(made), pretended.ran) == (1, [1, 2])


def test_a_full_disk_takes_nothing_away_from_what_was_measured(
    command: Command, pretended: PretendedRuns, tiny_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the fourth run on nothing can be written: the table of four is printed, in one object, and the code is 1."""
    rename = os.replace

    def replace_or_fail(source: Any, target: Any) -> None:
        if Path(target).stem in ("0004", "trial"):
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace_or_fail)
    arguments = ["--policies", "jit,srpt", "--repeats", "9", "--virtual", "serial", "-o", pretended.folder.parent]
    code, out, err = command("trial", tiny_file, *arguments, "--json")
    printed = json.loads(out)
    assert (code, [row["runs"] for row in printed["rows"]], len(pretended.ran)) == (1, [2, 2], 4)
    for name, said in (("0004", printed["ended"]), ("trial", err)):
        assert f"{name}.json:1: file: cannot be written: No space left on device" in said


@pytest.mark.parametrize("first", ["question", "plan"])
def test_a_disk_that_is_full_from_the_start_takes_plan_and_first_run_from_nobody(
    command: Command, pretended: PretendedRuns, tiny_file: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """The plan is made and one run measured; both are told in one table, and nothing is kept of them."""
    rename = os.replace

    def replace_or_fail(source: Any, target: Any) -> None:
        if Path(target).stem in (first, "trial"):
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace_or_fail)
    arguments = ["--policies", "plan,jit", "--time-limit", "0.5", "--virtual", "serial", "-o", pretended.folder.parent]
    code, out, err = command("trial", tiny_file, *arguments, "--json")
    printed = json.loads(out)
    assert (code, sum(row["runs"] for row in printed["rows"]), pretended.ran) == (1, 1, [1])
    assert [row["predicted"] > 0 for row in printed["rows"]] == [True, True]
    for name, said in ((first, printed["ended"]), ("trial", err)):
        assert f"{name}.json:1: file: cannot be written: No space left on device" in said
    assert not list(pretended.folder.glob("0*.json"))


def test_an_interruption_before_any_run_has_ended_is_said(
    command: Command, tiny_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LiveDevice, "begin", lambda device: signal.raise_signal(signal.SIGINT))
    runner = "tests.white_box.planner.test_replay:layer"
    code, out, err = command("trial", tiny_file, "--policies", "jit", "--virtual", "serial", "--runner", runner)
    assert (code, out, err) == (130, "", "truenorth: interrupted; no run had ended\n")


def test_a_trial_ends_with_what_was_measured_when_devices_serve_no_longer(
    tiny_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copying works in the first run and never again, as after an assertion in a kernel that failed."""
    original, peaks = Crew.measure_copies, list[float]()

    def measure_copies(crew: Crew) -> float:
        if peaks:
            raise DeviceError("copying does not work")
        peaks.append(original(crew))
        return peaks[-1]

    monkeypatch.setattr(Crew, "measure_copies", measure_copies)
    made = tried(load_scenario(tiny_file), ["jit", "srpt"], Small, SERIAL, repeats=2)
    assert (made.ended, made.achieved) == ("copying does not work", False)
    assert sorted(row.runs for row in made.rows) == [0, 1]
    assert sorted(row.objective.mean is None for row in made.rows) == [False, True]


def test_contenders_are_named_once(tiny_file: Path) -> None:
    with pytest.raises(QuestionError, match="allowed are at least one repeat and one contender, each named once"):
        tried(load_scenario(tiny_file), ["jit", "jit"], Small, LiveSettings(sharing="serial"))


def test_the_command_writes_a_trial_that_becomes_a_page(command: Command, tiny_file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    tn.save(tn.simulate(load_scenario(tiny_file), "jit"), plan)
    names, runner = f"{plan},jit", "tests.white_box.planner.test_replay:layer"
    arguments = ["--policies", names, "--repeats", "2", "--virtual", "serial", "--runner", runner]
    folder = tmp_path / "tried"
    code, out, err = command("trial", tiny_file, *arguments, "-o", folder, "--json")
    assert (code, err.count("wrote ")) == (0, 2)
    printed, written = json.loads(out), json.loads((folder / "trial.json").read_text())
    assert printed.items() <= written.items()
    carried_out, jit = printed["rows"]
    assert (carried_out["clairvoyant"], jit["clairvoyant"]) == (True, False)
    assert (carried_out["same_order"], carried_out["failed_jobs"], printed["repeats"]) == (2, 0, 2)
    assert printed["machine"]["before"]["cores"] >= 1
    latencies = written["jobs"]["jit"]
    assert (len(latencies["predicted_s"]), [len(run) for run in latencies["measured_s"]]) == (6, [6, 6])
    (section,) = tn.report([folder]).sections
    assert [row[0] for row in section.tables[0].cells()] == [str(plan), "jit"]
    assert [curve.name for curve in section.figures[0].curves] == [str(plan), "jit", "as predicted"]
    shown = [timeline.name for timeline in section.timelines.timelines] if section.timelines else []
    assert shown == [f"{name}, {kind}" for name in (plan, "jit") for kind in ("measured", "predicted")]


class Odd(Small):
    def run(self, call: RunnerCall) -> Tensor:
        output = super().run(call)
        return output * torch.nan if call.task == "d" and call.job in (0, 3) else output


@pytest.mark.nightly
def test_outputs_that_are_no_finite_numbers_are_reported(tiny_file: Path) -> None:
    """Task d, the last of every job, puts out not-a-number in jobs 0 and 3: the same in every run, yet wrong."""
    made = tried(load_scenario(tiny_file), ["jit"], Odd, SERIAL, repeats=2)
    assert (made.rows[0].not_finite_outputs, made.rows[0].different_outputs) == (4, 0)
    shown = Console(width=150)
    with shown.capture() as printed:
        shown.print(trial_view(made))
    assert "4 outputs of jit hold what is no finite number." in printed.get()


class Late(Small):
    def __init__(self) -> None:
        super().__init__()
        self._calls = itertools.count()

    def run(self, call: RunnerCall) -> Tensor:
        output = super().run(call)
        return output + 1 if next(self._calls) >= 8 + 24 and (call.job, call.task) == (0, "d") else output


@pytest.mark.nightly
def test_outputs_that_differ_between_runs_are_counted(tiny_file: Path) -> None:
    """The last of all runs puts out something else for task d of job 0, which nobody needs any more."""
    made = tried(load_scenario(tiny_file), ["jit"], Late, SERIAL, repeats=2)
    assert (made.rows[0].different_outputs, made.achieved) == (1, False)
