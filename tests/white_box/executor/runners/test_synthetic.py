"""Synthetic work: an output that depends on every byte, however much work goes with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.devices.weights import packed_bytes
from truenorth.executor.errors import DeviceError
from truenorth.executor.runners import synthetic
from truenorth.executor.runners.factory import parse_runner
from truenorth.executor.runners.synthetic import SyntheticRunner, folded
from truenorth.models import MLModel

MODEL = MLModel("m", 5001)


def module(runner: SyntheticRunner, content: Tensor) -> nn.Module:
    made = runner.module(MODEL)
    made.register_buffer("content", content)
    return made


def call(modules: dict[str, nn.Module], data: list[int], run_us: int = 1) -> RunnerCall:
    return RunnerCall(0, "w", "t", modules, {"a": torch.tensor(data, dtype=torch.uint8)}, torch.device("cpu"), run_us)


def test_weights_have_the_size_that_was_asked_for() -> None:
    weights = SyntheticRunner().weights(MODEL)
    assert {name: tensor.shape for name, tensor in weights.items()} == {"content": (5001,)}
    assert packed_bytes(weights) == 5001
    assert SyntheticRunner().module(MODEL).get_buffer("content").shape == (5001,)
    assert torch.equal(weights["content"], SyntheticRunner().weights(MODEL)["content"])


@pytest.mark.parametrize("size", [1, 1023, 1024, 5001])
def test_folding_adds_rows_of_128_words(size: int) -> None:
    data = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(size))
    padded = np.zeros(-(-size // 1024) * 1024, np.uint8)
    padded[:size] = data.numpy()
    expected = padded.view(np.int64).reshape(-1, 128).sum(0)
    assert np.array_equal(folded(data).numpy(), expected)


def test_output_depends_on_every_byte_and_on_nothing_else() -> None:
    content = SyntheticRunner().weights(MODEL)["content"]
    runners = [SyntheticRunner() for _ in range(2)]
    alone = [
        runner.run(call({"m": module(runner, content)}, [7] * 100, run_us))
        for runner, run_us in zip(runners, (1, 3000), strict=True)
    ]
    assert torch.equal(alone[0], alone[1])
    for place in (0, 2500, 5000):
        changed = content.clone()
        changed[place] ^= 1
        assert not torch.equal(runners[0].run(call({"m": module(runners[0], changed)}, [7] * 100)), alone[0])
    assert not torch.equal(runners[0].run(call({"m": module(runners[0], content)}, [7] * 99 + [8])), alone[0])


def test_the_order_of_models_and_inputs_shows() -> None:
    """Models m and n after one another are (input x s + m) x s + n for an odd s."""
    runner = SyntheticRunner()
    first = module(runner, torch.arange(1024).to(torch.uint8))
    second = module(runner, torch.arange(1024).flip(0).to(torch.uint8))
    there = runner.run(call({"m": first, "n": second}, [1]))
    back = SyntheticRunner().run(call({"n": second, "m": first}, [1]))
    assert not torch.equal(there, back)


@pytest.mark.parametrize(("run_us", "bursts"), [(1000, 450), (100, 0), (50, 0)])
def test_work_fills_what_folding_leaves(run_us: int, bursts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folding takes 100 us, 32 multiplications 64 us: (1000 - 100) / 2 = 450 of them."""
    durations = iter([64.0, 100.0])
    monkeypatch.setattr(synthetic, "_duration_us", lambda device, work, *before: next(durations))
    counted: list[int] = []
    monkeypatch.setattr(SyntheticRunner, "_work", lambda self, device, times: counted.append(times))
    runner = SyntheticRunner()
    for _ in range(2):  # the second run finds the first one's figures
        runner.run(call({}, [1], run_us))
    assert counted == [bursts, bursts]


def test_folding_is_timed_on_weights_that_no_cache_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each of six times, the first of which does not count; multiplications need nothing of memory."""
    told: list[str] = []
    monkeypatch.setattr(synthetic, "_pass_through_caches", lambda device: told.append("caches"))
    monkeypatch.setattr(synthetic, "_folded_together", lambda given: told.append("fold"))
    SyntheticRunner().run(call({}, [1], 1000))
    assert told == ["caches", "fold"] * 6 + ["fold"]


def test_a_calibration_in_a_file_makes_later_runs_do_equal_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first runner measures 2 us and 100 us; the second, another process say, would find everything slower."""
    durations = iter([64.0, 100.0, 640.0, 1000.0])
    monkeypatch.setattr(synthetic, "_duration_us", lambda device, work, *before: next(durations))
    counted: list[int] = []
    monkeypatch.setattr(SyntheticRunner, "_work", lambda self, device, times: counted.append(times))
    path = tmp_path / "work.json"
    for _ in range(2):
        parse_runner(f"synthetic:calibration={path}").run(call({}, [1], 1000))
    assert counted == [450, 450]
    path.write_text('{"cpu": {"multiplication": -1}}')
    with pytest.raises(
        DeviceError, match=r"calibration .*work.json: holds no times; allowed is a file that a run wrote"
    ):
        parse_runner(f"synthetic:calibration={path}")
