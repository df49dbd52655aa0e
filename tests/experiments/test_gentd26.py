"""The study of GenTD26's peak hour: the static assignment, and what it keeps between runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import gentd26_2026_11_21 as study
from experiments.bench import ask
from experiments.gentd26_2026_11_21 import BOUND, PLAN, STATIC, assigned, owners
from experiments.study import read, write
from truenorth.models.scenario import Scenario, scenario_from

CONTENDERS = (*study.POLICIES, STATIC, PLAN, BOUND)


def four_gpus(runtimes: dict[str, int]) -> Scenario:
    """Return a job of each model, of so many seconds."""
    return scenario_from(
        {
            "cluster": {
                "servers": 4,
                "gpu": {"kind": "GPU", "memory": "2 GB", "load_bandwidth": "1 GB/s"},
                "network": {"bandwidth": "1 GB/s"},
            },
            "models": {model: {"weights": "1 GB"} for model in runtimes},
            "workflows": {
                model: {"tasks": {"run": {"models": [model], "runtime": f"{runtime} s"}}}
                for model, runtime in runtimes.items()
            },
            "workload": {"jobs": [{"release": "0 s", "workflow": model} for model in runtimes]},
        }
    )


def test_models_share_gpus_by_their_work() -> None:
    # Of 40 s on four GPUs, a has half and so two GPUs (10 s each), b has 10 s and one, c, d and e share the last one.
    scenario = four_gpus({"a": 20, "b": 10, "c": 5, "d": 3, "e": 2})
    expected = {"a": ("s0/g0", "s1/g0"), "b": ("s2/g0",), "c": ("s3/g0",), "d": ("s3/g0",), "e": ("s3/g0",)}
    assert owners(scenario.instance) == expected
    pinned = assigned(scenario).instance
    allowed = [[gpu for gpu in range(4) if pinned.load_time(model, gpu) >= 0] for model in range(5)]
    assert allowed == [[0, 1], [2], [3], [3], [3]]


def row(contender: str, gpus: int, value: float) -> study.SizesRow:
    rest = () if contender == BOUND else (10.5, 20.25, 7, None)
    return study.SizesRow("0 s", "9 s", gpus, 5.0, contender, value, *rest)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = [row(contender, 2, 4 / 3) for contender in CONTENDERS]
    write(tmp_path / "results.csv", rows)
    assert read(tmp_path / "results.csv", study.SizesRow) == rows


def test_a_cell_that_is_known_is_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, str, int, float]] = []

    def measured(start: str, end: str, gpus: int, time_limit_s: float) -> list[study.SizesRow]:
        asked.append((start, end, gpus, time_limit_s))
        return [row(contender, gpus, 6.0 if contender == "compass" else 3.0) for contender in CONTENDERS]

    monkeypatch.setattr(study, "measured", measured)
    write(tmp_path / "results.csv", [row(contender, 2, 2.0) for contender in CONTENDERS])
    arguments = ["--window", "0 s", "9 s", "--gpus", "2", "3", "--time-limit", "5", "--folder", str(tmp_path)]
    ask(study.peak_hour, arguments)
    ask(study.peak_hour, arguments)
    assert asked == [("0 s", "9 s", 3, 5.0)]
    assert "| 3 | compass | 6 | 2.00 | 10.5 | 20 | 7 |  |" in capsys.readouterr().out
    assert (tmp_path / "slowdown.png").read_bytes().startswith(b"\x89PNG")
