"""Real architectures: how large they are, that nothing but their weights and inputs decides what they compute."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor

from tests.night import by_day
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.devices.station import Station, StationWork
from truenorth.executor.devices.weights import HostWeights, aligned, packed_bytes
from truenorth.executor.errors import DeviceError
from truenorth.executor.runners.architectures import ARCHITECTURES, Architecture, build, library
from truenorth.executor.runners.transformers_runner import TransformersOptions, TransformersRunner
from truenorth.models import GPU, MLModel

NAMES = list(ARCHITECTURES)
INPUT = torch.arange(2000, dtype=torch.int64).to(torch.uint8)
LARGE = 100_000_000


@pytest.fixture(scope="module")
def runner() -> TransformersRunner:
    return TransformersRunner()


class DrawnWeights(dict[str, Mapping[str, Tensor]]):
    """Weights by name, drawn when they are first asked for: a worker draws those of its own tests."""

    def __init__(self, runner: TransformersRunner) -> None:
        self._runner = runner

    def __missing__(self, name: str) -> Mapping[str, Tensor]:
        self[name] = self._runner.weights(MLModel(name, LARGE))
        return self[name]


@pytest.fixture(scope="module")
def weights(runner: TransformersRunner) -> Mapping[str, Mapping[str, Tensor]]:
    return DrawnWeights(runner)


def distinct_bytes(tensors: Mapping[str, Tensor]) -> int:
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors.values() if tensor.nbytes}.values())


@pytest.mark.parametrize("name", by_day(NAMES, 2))
def test_weights_are_all_parameters_and_buffers(name: str, weights: Mapping[str, Mapping[str, Tensor]]) -> None:
    module = build(ARCHITECTURES[name], "small")
    expected = sum(parameter.nbytes for parameter in module.parameters())
    expected += sum(buffer.nbytes for buffer in module.buffers())
    assert distinct_bytes(weights[name]) == expected
    assert expected <= packed_bytes(weights[name]) <= expected + 256 * len(weights[name])
    assert set(module.state_dict()) <= set(weights[name])


def test_bytes_of_opt_by_hand(weights: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Embeddings of 8192 tokens and 2050 positions; per layer 4 projections, 2 layers of 1536, 2 norms; a last norm."""
    layer = 4 * (384 * 384 + 384) + 2 * 384 * 1536 + 1536 + 384 + 2 * (384 + 384)
    parameters = (8192 + 2050) * 384 + 6 * layer + 2 * 384
    assert distinct_bytes(weights["opt"]) == 4 * parameters
    # The output layer is the embedding once more: two names, one place.
    assert weights["opt"]["lm_head.weight"].data_ptr() == weights["opt"]["model.decoder.embed_tokens.weight"].data_ptr()


def test_parameters_of_opt_as_published() -> None:
    """1.3 billion by the same formula: 24 layers of 2048 and 8192, 50272 tokens and 2050 positions; shapes only."""
    layer = 4 * (2048 * 2048 + 2048) + 2 * 2048 * 8192 + 8192 + 2048 + 2 * (2048 + 2048)
    with torch.device("meta"):
        module = build(ARCHITECTURES["opt"], "full")
    counted = sum(parameter.numel() for parameter in module.parameters())
    assert counted == (50272 + 2050) * 2048 + 24 * layer + 2 * 2048 == 1_315_758_080


class Drawn:
    """The runner of the tests with weights that are drawn already."""

    def __init__(self, runner: TransformersRunner, weights: Mapping[str, Mapping[str, Tensor]]) -> None:
        self._weights, self.module, self.run, self.run_batch = weights, runner.module, runner.run, runner.run_batch

    def weights(self, model: MLModel) -> Mapping[str, Tensor]:
        return self._weights[model.name]


@pytest.mark.parametrize("name", by_day(NAMES, 3))
def test_outputs_do_not_depend_on_where_the_weights_lie(
    name: str,
    runner: TransformersRunner,
    weights: Mapping[str, Mapping[str, Tensor]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A module as the library builds it; the same weights in an arena, moved, and moved back over other bytes.

    Tasks ask for little: what comes out of a few tokens tells wrong weights as well as what comes out of many.
    """
    model = MLModel(name, packed_bytes(weights[name]))
    asked = ARCHITECTURES[name].efforts["small"]
    little = replace(asked, prompt=min(asked.prompt, 32), answer=min(asked.answer, 2))
    architecture = replace(ARCHITECTURES[name], efforts={"small": little})
    monkeypatch.setitem(cast("dict[str, Architecture]", ARCHITECTURES), name, architecture)
    module = build(architecture, "small").eval()
    missing, unexpected = module.load_state_dict(dict(weights[name]), strict=False)
    assert missing == []
    assert set(unexpected) <= set(weights[name])
    with torch.inference_mode():
        expected = architecture.use(module, [INPUT], architecture.efforts["small"])

    physical = physical_devices("cpu")[0]
    drawn, room = Drawn(runner, weights), aligned(model.weight_bytes)
    gpu = GPU("s0/g0", 0, "core", 2 * room, Fraction(1))
    station = Station(gpu, [model], HostWeights([model], drawn, physical.host_memory), drawn, physical)
    work = StationWork(0, "w", "t", 1, [0], {"before": (INPUT, len(INPUT))})
    for address in (0, room, 256):
        station.load(0, address)
        (output,), _ = station.run([work])
        assert torch.equal(output, expected[0])


def test_weights_come_from_seed_and_name_alone(weights: Mapping[str, Mapping[str, Tensor]]) -> None:
    state = torch.get_rng_state()
    again = TransformersRunner().weights(MLModel("marian", LARGE))
    assert all(torch.equal(again[name], tensor) for name, tensor in weights["marian"].items())
    others = [
        TransformersRunner().weights(MLModel("marian-2", LARGE)),
        TransformersRunner(TransformersOptions(seed=1)).weights(MLModel("marian", LARGE)),
    ]
    name = "model.encoder.layers.0.fc1.weight"
    assert not any(torch.equal(other[name], again[name]) for other in others)
    assert torch.equal(torch.get_rng_state(), state)


def call(**changes: object) -> RunnerCall:
    fields = {"job": 1, "workflow": "w", "task": "t", "modules": {}, "inputs": {}, "run_us": 1}
    return RunnerCall(**(fields | {"device": torch.device("cpu")} | changes))  # type: ignore[arg-type]


def test_tasks_without_models_pass_on_what_they_received(runner: TransformersRunner) -> None:
    inputs = {"b": torch.tensor([1, 2], dtype=torch.uint8), "a": torch.tensor([3], dtype=torch.uint8)}
    assert runner.run(call(inputs=inputs)).tolist() == [1, 2, 3]


def test_tasks_without_inputs_draw_them_by_job_and_task(runner: TransformersRunner) -> None:
    drawn = runner.run(call())
    assert torch.equal(drawn, runner.run(call()))
    assert torch.equal(drawn, runner.run(call(inputs={"a": torch.empty(0, dtype=torch.uint8)})))
    assert not torch.equal(drawn, runner.run(call(job=2)))
    assert not torch.equal(drawn, runner.run(call(task="u")))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("something asked for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ["mt5", "txt2speech"])
def test_weights_of_a_folder_come_back_bit_for_bit(
    name: str, tmp_path: Path, weights: Mapping[str, Mapping[str, Tensor]]
) -> None:
    module = build(ARCHITECTURES[name], "small")
    module.load_state_dict(dict(weights[name]), strict=False)
    module.save_pretrained(tmp_path / name)  # type: ignore[operator]
    assert (tmp_path / name / "model.safetensors").is_file()
    # Another seed: what comes back is what was saved, not what would be drawn.
    read = TransformersRunner(TransformersOptions(weights=str(tmp_path), seed=5)).weights(MLModel(name, LARGE))
    assert read.keys() == weights[name].keys()
    assert all(torch.equal(read[key], tensor) for key, tensor in weights[name].items())


@pytest.mark.usefixtures("no_network")
def test_nothing_is_downloaded(tmp_path: Path) -> None:
    hf = library()
    with pytest.raises(OSError, match="offline mode"):
        hf.OPTForCausalLM.from_pretrained("facebook/opt-125m")
    with pytest.raises(DeviceError, match=r"model opt: .*opt holds no config.json; allowed is a folder per model"):
        TransformersRunner(TransformersOptions(weights=str(tmp_path))).weights(MLModel("opt", LARGE))


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    library().MarianConfig().save_pretrained(tmp_path / "marian")
    with pytest.raises(DeviceError, match=r"model marian: .*no file named.*safetensors"):
        TransformersRunner(TransformersOptions(weights=str(tmp_path))).weights(MLModel("marian", LARGE))


def test_a_name_that_is_no_architecture_is_refused(runner: TransformersRunner) -> None:
    with pytest.raises(DeviceError, match=r"model marain-2: no architecture 'marain' \(did you mean marian\?\)"):
        runner.weights(MLModel("marain-2", LARGE))
