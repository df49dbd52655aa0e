"""Figures of a run on devices, from made-up records."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from experiments.benchmarks.devices.device_figures import Stage, _all, _of_part
from experiments.benchmarks.devices.figures import TARGETS, load_share, overlap_us, reached
from experiments.benchmarks.devices.parts import parts
from experiments.benchmarks.devices.steps import Figure, refuse_too_much, take_steps
from truenorth.executor.devices.records import DeviceRecord
from truenorth.executor.runners.synthetic import SyntheticRunner
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import Scenario, scenario_from
from truenorth.planner.answers.kept import KeptRuns
from truenorth.planner.answers.versions import versions


def record(gpu: int, start_us: int, end_us: int, size_bytes: int = 0) -> DeviceRecord:
    return DeviceRecord(0, gpu, start_us, start_us, end_us, end_us - start_us, size_bytes)


def test_overlap_is_counted_per_gpu() -> None:
    """On GPU 0 the load [5, 20) meets the runs [0, 10) and [18, 30) for 5 + 2 us; GPU 1 only loads."""
    runs = [record(0, 0, 10), record(0, 18, 30)]
    assert overlap_us(runs, [record(0, 5, 20), record(1, 0, 30)]) == 7
    assert overlap_us(runs, [record(0, 10, 18)]) == 0


def test_share_of_the_peak_is_the_median_of_large_loads() -> None:
    """1000 bytes in 1, 2 and 4 us are 1, 0.5 and 0.25 GB/s; the peak is 1 GB/s; the small load does not count."""
    loads = [record(0, 0, took, 1000) for took in (1, 2, 4)] + [record(0, 0, 100, 999)]
    assert load_share(loads, 1e9, 1000) == pytest.approx(0.5)
    assert load_share(loads, 1e9, 1001) is None


def test_targets_are_judged_by_the_worst_run() -> None:
    good = {
        "load_share_of_peak": 0.95, "dispatch_us": 30, "makespan_error": 0.01, "mean_latency_error": 0.02,
        "overlap_s": 0.5, "different_outputs": 0, "failures": 0, "violations": 0,
    }  # fmt: skip
    assert [judged["met"] for judged in reached([good]).values()] == [True] * len(TARGETS)
    bad = {**good, "load_share_of_peak": 0.94, "dispatch_us": 31, "overlap_s": 0.0, "different_outputs": None}
    judged = reached([good, bad])
    assert {name for name, target in judged.items() if not target["met"]} == {
        "load_share_of_peak", "dispatch_us", "overlap_s",
    }  # fmt: skip
    assert judged["load_share_of_peak"] == {"target": "at least 0.95", "worst": 0.94, "met": False}
    assert judged["different_outputs"]["worst"] == 0  # checked in one run only
    assert reached([{**good, "failures": None}])["failures"] == {"target": "at most 0", "worst": None, "met": None}


def test_what_ends_a_step_is_a_figure_and_the_next_one_is_taken() -> None:
    """More host memory than there is is refused in one line; a step that raises has not met its goal."""

    def stumble(device: str) -> Iterator[Figure]:
        raise RuntimeError(f"no {device}\nat all")
        yield

    stumbled, refused = take_steps([("first", stumble), ("second", refuse_too_much)], "cpu")
    assert (stumbled.met, stumbled.note) == (False, "RuntimeError: no cpu")
    assert (refused.met, refused.value) == (True, 1)
    assert refused.note.startswith(f"cpu core 0: no {1 << 50} bytes of host memory: ")


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    """The third of four stages is killed: the first two stay as they were, the others are taken the next time."""
    taken: list[str] = []

    def stage(name: str) -> Stage:
        def measure() -> dict[str, Any]:
            if name == "c" and "c" not in taken:
                taken.append(name)
                raise KeyboardInterrupt
            taken.append(name)
            return {"lines": [name * len(taken)]}

        return name, measure

    stages = [stage(name) for name in "abcd"]
    with pytest.raises(KeyboardInterrupt):
        list(_all(stages, KeptRuns(tmp_path, {"device": "cpu"})))
    found = dict(_all(stages, KeptRuns(tmp_path, {"device": "cpu"})))
    assert [measured["lines"] for measured in found.values()] == [["a"], ["bb"], ["cccc"], ["ddddd"]]
    assert taken == ["a", "b", "c", "c", "d"]
    with pytest.raises(QuestionError, match=r"holds runs of another question \(device: cpu, now cuda\); allowed are"):
        KeptRuns(tmp_path, {"device": "cuda"})


def test_small_parts_are_scenarios_of_one_gpu() -> None:
    made = parts("cpu", 6)
    assert [(part.name, part.runner, part.sharing) for part in made] == [
        ("synthetic", "synthetic", None),
        ("transformers", "transformers", None),
        ("two on a card", "synthetic", "serial"),
    ]
    instance = scenario_from(made[0].document).instance
    assert (instance.n_gpus, len(instance.jobs), instance.cluster.gpus[0].memory_bytes) == (1, 6, 80_000_000)


def test_large_parts_thrash(monkeypatch: pytest.MonkeyPatch) -> None:
    """On two devices: a quarter of the authors' 20.76 GB against 3.5 GB, and real architectures against 8 GB."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    synthetic, real, shared = (scenario_from(part.document).instance for part in parts("cuda", 6))
    assert [(each.n_gpus, len(each.jobs)) for each in (synthetic, real, shared)] == [(2, 12), (2, 12), (4, 12)]
    assert sum(gpu.memory_bytes for gpu in shared.cluster.gpus) == 2 * 3_500_000_000
    assert sum(model.weight_bytes for model in synthetic.models) == 5_190_000_000
    assert [instance.cluster.gpus[0].memory_bytes for instance in (synthetic, real)] == [3_500_000_000, 8_000_000_000]


def test_a_profile_is_taken_with_a_runner_that_other_processes_can_make(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile ends with live runs, each GPU of which is a process of its own that makes the runner for itself."""
    given: list[object] = []

    def stop(asked: object, scenario: Scenario, make: object, **rest: object) -> None:
        given.append(pickle.loads(pickle.dumps(make))())  # noqa: S301
        raise InterruptedError

    monkeypatch.setattr("experiments.benchmarks.devices.device_figures.profile", stop)
    with TemporaryDirectory() as folder, pytest.raises(InterruptedError):
        _of_part(parts("cpu", 6)[0], "cpu", 1, 1, Path(folder) / "synthetic")[0][1]()
    assert [type(runner) for runner in given] == [SyntheticRunner]


def test_a_host_without_solvers_says_the_versions_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU host lacks OR-Tools, and a checkout that runs in place is no installed package."""

    def installed(package: str) -> str:
        if package in ("truenorth", "ortools"):
            raise PackageNotFoundError(package)
        return "1.0"

    monkeypatch.setattr("truenorth.planner.answers.versions.version", installed)
    assert versions() == dict.fromkeys(("highspy", "numba", "numpy", "pulp"), "1.0")


def test_a_gpu_host_needs_no_solver() -> None:
    """What is missing there is made impossible to import, then everything that the study runs is imported."""
    missing = ("ortools", "pulp", "highspy", "numba", "pandas", "matplotlib", "typer")
    code = "import sys\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in missing)
    code += "import experiments.benchmarks.devices.device_figures\n"
    code += "import planner.answers.replay_report, executor.runners.architectures"
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=120, capture_output=True, text=True)  # noqa: S603
    assert (done.returncode, done.stderr) == (0, "")
