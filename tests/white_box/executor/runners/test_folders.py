"""Any architecture of a folder, other kinds of numbers, and texts of recorded lengths."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.night import by_day
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.devices.station import Station, StationWork
from truenorth.executor.devices.weights import HostWeights, aligned, packed_bytes, tensors_of
from truenorth.executor.errors import DeviceError
from truenorth.executor.runners.architectures import library
from truenorth.executor.runners.transformers_runner import TransformersOptions, TransformersRunner
from truenorth.models import GPU, MLModel

WORDS = 50
INPUT = torch.arange(200, dtype=torch.uint8)
ROOM = 10_000_000
TEXT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
SEEN = {"image_size": 8, "patch_size": 4}
HEARD = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2} | {
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 8,
    "decoder_ffn_dim": 8,
    "num_mel_bins": 4,
    "max_source_positions": 6,
}
CONFIGS: Mapping[str, tuple[str, str | None, Mapping[str, object], int]] = {
    "chat": ("LlamaConfig", "LlamaForCausalLM", TEXT | {"vocab_size": WORDS}, 3 + WORDS),
    "embedder": ("BertConfig", None, TEXT | {"vocab_size": WORDS}, 7 * 16),
    "eye": ("ViTConfig", "ViTForImageClassification", TEXT | SEEN | {"num_labels": 3}, 3),
    "ear": (
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        HEARD
        | {"vocab_size": WORDS}
        | dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 1),
        3 + WORDS,
    ),
}
"""By a model's name: class of its configuration, the class it names, its widths, and the numbers that a task gets:
three words and the scores of the last, seven positions of sixteen numbers, or a score per label."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, hf = tmp_path_factory.mktemp("configs"), library()
    for name, (kind, named, widths, _) in CONFIGS.items():
        config = getattr(hf, kind)(**widths, architectures=[named] if named else None)
        config.save_pretrained(path / name)
    return path


def runner_of(folder: Path, **options: object) -> TransformersRunner:
    given: dict[str, Any] = {"configs": str(folder), "prompt": 7, "answer": 3} | options
    return TransformersRunner(TransformersOptions(**given))


def loaded(runner: TransformersRunner, name: str, address: int) -> tuple[Station, nn.Module]:
    """Return a GPU on which a model lies at an address, and its module there."""
    model, physical = MLModel(name, ROOM), physical_devices("cpu")[0]
    gpu = GPU("s0/g0", 0, "core", 2 * aligned(ROOM), Fraction(1))
    modules: list[nn.Module] = []
    make = runner.module
    runner.module = lambda model: modules.append(make(model)) or modules[-1]  # type: ignore[method-assign, func-returns-value]
    station = Station(gpu, [model], HostWeights([model], runner, physical.host_memory), runner, physical)
    station.load(0, address)
    return station, modules[0]


@pytest.mark.parametrize("name", by_day(CONFIGS, 2))
def test_a_configuration_is_all_that_a_model_needs(name: str, folder: Path) -> None:
    """The output is that of the module as the library builds it, and everything it computes with lies on the GPU."""
    runner = runner_of(folder)
    weights = runner.weights(MLModel(name, ROOM))
    station, module = loaded(runner, name, 512)
    (output,), _ = station.run([StationWork(0, "w", "t", 1, [0], {"before": (INPUT, len(INPUT))})])
    assert output.shape == (CONFIGS[name][3],)
    arena = station._arena
    lowest, highest = arena.data_ptr() + 512, arena.data_ptr() + 512 + packed_bytes(weights)
    tensors = tensors_of(module)
    assert tensors.keys() == weights.keys()
    assert all(lowest <= tensor.data_ptr() < highest for tensor in tensors.values() if tensor.nbytes)
    fresh = runner._build(MLModel(name, ROOM)).eval()
    for key, tensor in tensors_of(fresh).items():
        tensor.data.copy_(weights[key])
    with torch.inference_mode():
        (expected,) = runner.run_batch([call({name: fresh})])
    assert torch.equal(output, expected)


def call(modules: Mapping[str, nn.Module], job: int = 0) -> RunnerCall:
    return RunnerCall(job, "w", "t", modules, {"before": INPUT}, torch.device("cpu"), 1)


def test_tensors_that_are_plain_attributes_are_weights(folder: Path) -> None:
    """Llama keeps the frequencies of its rotations twice: as a buffer, and as an attribute that torch never moves."""
    weights = runner_of(folder).weights(MLModel("chat", ROOM))
    buffer, plain = (weights[f"model.rotary_emb.{name}inv_freq"] for name in ("", "original_"))
    assert torch.equal(buffer, plain)


def test_numbers_of_another_kind_halve_the_weights(folder: Path) -> None:
    def size(weights: Mapping[str, Tensor]) -> int:
        return sum(tensor.nbytes for tensor in weights.values() if tensor.is_floating_point())

    eye = MLModel("eye", ROOM)
    single, half = (runner_of(folder, dtype=kind).weights(eye) for kind in ("float32", "bfloat16"))
    assert size(single) == 2 * size(half)
    module = runner_of(folder, dtype="bfloat16")._build(eye).eval()
    assert runner_of(folder).run(call({"eye": module})).shape == (3,)


def test_lengths_of_each_job_decide_what_it_takes(folder: Path, tmp_path: Path) -> None:
    """Job 0 writes two words, job 1 four, job 2 as job 0; a batch of all three agrees with each alone."""
    recorded = tmp_path / "lengths.csv"
    recorded.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\nx,5,2\ny,9,4\n")
    runner = runner_of(folder, lengths=str(recorded))
    modules = {"chat": runner._build(MLModel("chat", ROOM)).eval()}
    with torch.inference_mode():
        alone = [runner.run(call(modules, job)) for job in range(3)]
        together = runner.run_batch([call(modules, job) for job in range(3)])
    assert [len(output) - WORDS for output in alone] == [2, 4, 2]
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(alone, together, strict=True))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("prompt,answer\n", "has no rows under the columns prompt,answer or ContextTokens,GeneratedTokens"),
        ("prompt,answer\n5,2\n5,0\n", "lengths.csv:3: 5,0: allowed are whole numbers of at least 1"),
    ],
)
def test_lengths_that_are_none_are_refused(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "lengths.csv").write_text(content)
    with pytest.raises(DeviceError, match=said):
        TransformersRunner(TransformersOptions(lengths=str(tmp_path / "lengths.csv")))


def test_two_folders_are_refused(folder: Path) -> None:
    with pytest.raises(DeviceError, match="allowed is one of weights and configs"):
        runner_of(folder, weights=str(folder))
