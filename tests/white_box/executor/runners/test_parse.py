"""Runners by name, and modules of one's own."""

from __future__ import annotations

import pytest
import torch

from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.errors import DeviceError
from truenorth.executor.runners.factory import FactoryRunner, parse_runner
from truenorth.executor.runners.synthetic import SyntheticRunner
from truenorth.executor.runners.transformers_runner import TransformersRunner
from truenorth.models import MLModel

MODEL = MLModel("sum", 100)


def test_runners_by_name() -> None:
    assert isinstance(parse_runner("synthetic"), SyntheticRunner)
    assert isinstance(parse_runner(" transformers:size=full,weights=some/folder "), TransformersRunner)
    assert isinstance(parse_runner("tests.executor.runners.numbers:make"), FactoryRunner)


def test_options_reach_the_runner() -> None:
    words = [parse_runner(f"synthetic:seed={seed}").weights(MODEL)["content"] for seed in (0, 1, 1)]
    assert not torch.equal(words[0], words[1])
    assert torch.equal(words[1], words[2])
    scales = [
        parse_runner(f"tests.executor.runners.numbers:make:seed={seed}").weights(MODEL)["scale"] for seed in (0, 1, 1)
    ]
    assert scales[0] != scales[1] == scales[2]


def test_modules_of_a_factory_compute_with_the_weights_they_are_given() -> None:
    """1 + 2 + 250 = 253, times the scale; a second model gets the four bytes of that number."""
    runner = parse_runner("tests.executor.runners.numbers:make")
    module = runner.module(MODEL)
    assert module.get_parameter("scale").device.type == "meta"
    module.register_parameter("scale", torch.nn.Parameter(torch.tensor([2.0])))
    data = {"a": torch.tensor([1, 2], dtype=torch.uint8), "b": torch.tensor([250], dtype=torch.uint8)}
    call = RunnerCall(0, "w", "t", {"sum": module}, data, torch.device("cpu"), 1)
    with torch.inference_mode():
        output = runner.run(call)
    assert output.view(torch.float32).tolist() == [506.0]
    assert list(runner.weights(MLModel("nested", 100))) == ["0.scale"]


def test_a_factory_that_makes_no_module_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"model sum: its factory returned str; allowed is a torch.nn.Module"):
        parse_runner("tests.executor.runners.numbers:nothing").weights(MODEL)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("syntetic", r"unknown runner 'syntetic' \(did you mean synthetic\?\); allowed are synthetic, transformers"),
        ("", "unknown runner ''; allowed are synthetic, transformers, module:factory"),
        ("transformer:size=full", r"unknown runner 'transformer:size=full' \(did you mean transformers\?\)"),
        ("transformers:size=medium", "option size: 'medium' is not one of small, full"),
        (
            "transformers:sise=small",
            r"unknown option 'sise' \(did you mean size\?\); allowed are size, weights, configs, dtype",
        ),
        ("synthetic:seed=-1", "option seed: '-1' is no whole number of at least 0"),
        ("synthetic:seed=1,seed=2", "option 'seed' must be given once, as seed=value"),
        ("no.such.module:make", "module no.such.module cannot be imported"),
        ("tests.executor.runners.numbers:maik", r"there is no maik in that module \(did you mean make\?\)"),
    ],
)
def test_bad_names_are_refused_with_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        parse_runner(text)
