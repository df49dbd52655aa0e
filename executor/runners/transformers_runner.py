"""Runs real architectures of `transformers`, with random weights or with those of a local folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from torch import Tensor, nn

from executor.errors import DeviceError
from executor.policies.options import count, one_of, option
from executor.runners.architectures import ARCHITECTURES, Architecture, build, read
from executor.runners.inputs import as_bytes, received
from executor.runners.prototypes import Prototypes
from executor.runners.runner import RunnerCall
from models import MLModel


@dataclass(frozen=True, slots=True)
class TransformersOptions:
    """How a runner of real architectures is set up.

    Parameters
    ----------
    size
        ``small``: configurations of a few to tens of megabytes, and little work; ``full``: as published.
    weights
        A folder with a folder per model (``config.json`` and safetensors, as `save_pretrained` writes them), which
        then decides the configuration too; without one, weights are drawn.
    seed
        Of the weights that are drawn.
    """

    size: str = option("small", one_of("small", "full"))
    weights: str = option("", str)
    seed: int = option(0, count)


class TransformersRunner:
    """Real architectures: a model's name says which, such as ``opt``, or ``opt-chat`` for another with other weights.

    A task with several models hands each the output of the one before; a task with none passes on what it received.
    """

    Options = TransformersOptions

    def __init__(self, options: TransformersOptions | None = None) -> None:
        self._options = options or TransformersOptions()
        self._prototypes = Prototypes(self._build, self._options.seed)

    def weights(self, model: MLModel) -> Mapping[str, Tensor]:
        """Return a model's weights.

        Raises
        ------
        DeviceError
            If the model's name names no architecture, or its folder cannot be used.
        """
        return self._prototypes.weights(model)

    def module(self, model: MLModel) -> nn.Module:
        """Return a module of a model, without weights of its own."""
        return self._prototypes.module(model)

    def run(self, call: RunnerCall) -> Tensor:
        """Compute a task: tokens and scores, boxes, depths or sound."""
        return self.run_batch([call])[0]

    def run_batch(self, calls: Sequence[RunnerCall]) -> Sequence[Tensor]:
        """Compute tasks in one forward pass per model, their inputs stacked."""
        data = [received(call) for call in calls]
        for name, module in calls[0].modules.items():
            architecture = architecture_of(name)
            read = [as_bytes(each) for each in data]
            data = architecture.use(module, read, architecture.efforts[self._options.size])
        return data

    def _build(self, model: MLModel) -> nn.Module:
        architecture = architecture_of(model.name)
        if not self._options.weights:
            return build(architecture, self._options.size)
        folder = Path(self._options.weights) / model.name
        if not (folder / "config.json").is_file():
            raise DeviceError(
                f"model {model.name}: {folder} holds no config.json; allowed is a folder per model with "
                "config.json and model.safetensors, or no weights=FOLDER, which draws them"
            )
        try:
            return read(architecture, str(folder))
        except (OSError, ValueError, RuntimeError, ImportError) as error:
            raise DeviceError(f"model {model.name}: {folder}: {error}") from None


def architecture_of(model: str) -> Architecture:
    """Return the architecture that a model's name begins with, up to the first hyphen.

    Raises
    ------
    DeviceError
        If there is no such architecture.
    """
    name = model.partition("-")[0]
    if name not in ARCHITECTURES:
        close = get_close_matches(name, list(ARCHITECTURES), n=1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        raise DeviceError(
            f"model {model}: no architecture {name!r}{meant}; allowed are {', '.join(ARCHITECTURES)}, "
            "each perhaps with a hyphen and more, or another runner"
        )
    return ARCHITECTURES[name]
