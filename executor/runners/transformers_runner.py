"""Runs real architectures of `transformers`, with random weights or with those of a local folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.errors import DeviceError
from truenorth.executor.policies.options import count, one_of, option
from truenorth.executor.runners import uses
from truenorth.executor.runners.architectures import ARCHITECTURES, Architecture, build, library
from truenorth.executor.runners.prototypes import Prototypes
from truenorth.executor.runners.uses import WorkSize, as_bytes, read_lengths, received
from truenorth.models import MLModel


def read_config(model: str, folder: Path) -> Any:
    """Return the configuration in a model's folder.

    Raises
    ------
    DeviceError
        If there is none, or `transformers` does not know it.
    """
    if not (folder / "config.json").is_file():
        raise DeviceError(
            f"model {model}: {folder} holds no config.json; allowed is a folder per model with config.json and "
            "model.safetensors, or configs=FOLDER, which needs no weights and draws them"
        )
    try:
        return library().AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise DeviceError(f"model {model}: {folder}: {error}") from None


def class_of(config: Any) -> Any:
    """Return the class that a configuration names, or the bare model of its kind."""
    hf = library()
    named = [getattr(hf, name, None) for name in config.architectures or ()]
    return next((kind for kind in named if kind is not None), None) or hf.MODEL_MAPPING[type(config)]


def read_weights(model: str, kind: Any, folder: Path) -> nn.Module:
    """Return a module of a class with the weights in a folder.

    Raises
    ------
    DeviceError
        If they cannot be read, or are no safetensors.
    """
    try:
        module: nn.Module = kind.from_pretrained(
            str(folder), local_files_only=True, use_safetensors=True, dtype="float32", trust_remote_code=False
        )
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise DeviceError(f"model {model}: {folder}: {error}") from None
    return module


_KINDS = ("float32", "bfloat16", "float16")


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
    configs
        A folder with a folder per model that holds a ``config.json``; weights are drawn.
    dtype
        Of weights and of what models compute: ``float32``, ``bfloat16`` or ``float16``.
    prompt, answer
        Tokens that a task reads and writes, one by one; 0: as many as suit the model.
    lengths
        A CSV file with such a pair per job; the jobs after its last row begin anew with its first.
    other
        The architecture of models whose names name none; without it they are refused.
    seed
        Of the weights that are drawn.
    """

    size: str = option("small", one_of("small", "full"))
    weights: str = option("", str)
    configs: str = option("", str)
    dtype: str = option("float32", one_of(*_KINDS))
    prompt: int = option(0, count)
    answer: int = option(0, count)
    lengths: str = option("", str)
    other: str = option("", one_of("", *ARCHITECTURES))
    seed: int = option(0, count)


class TransformersRunner:
    """Real architectures: a model's name says which, such as ``opt``, or ``opt-chat`` for another with other weights.

    With a folder, a model may have any other name: then what its ``config.json`` says is computed, whatever it is. A
    task with several models hands each the output of the one before; a task with none passes on what it received.

    Raises
    ------
    DeviceError
        If options exclude one another, or the file of lengths cannot be read.
    """

    Options = TransformersOptions

    def __init__(self, options: TransformersOptions | None = None) -> None:
        self._options = given = options or TransformersOptions()
        if given.weights and given.configs:
            raise DeviceError("weights=FOLDER brings its configurations; allowed is one of weights and configs")
        self._folder = given.weights or given.configs
        self._lengths = read_lengths(given.lengths) if given.lengths else [(given.prompt, given.answer)]
        self._prototypes = Prototypes(self._build, given.seed)

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
        """Compute tasks in one forward pass per model, their inputs stacked; one per length where lengths differ."""
        lengths = [self._lengths[call.job % len(self._lengths)] for call in calls]
        data = [received(call) for call in calls]
        for name, module in calls[0].modules.items():
            use, effort = self._use(name)
            read = [as_bytes(each) for each in data]
            for pair in sorted(set(lengths)):
                members = [place for place, length in enumerate(lengths) if length == pair]
                made = use(module, [read[place] for place in members], effort.with_lengths(*pair))
                for place, output in zip(members, made, strict=True):
                    data[place] = output
        return data

    def _use(self, model: str) -> tuple[Callable[[Any, Sequence[Tensor], WorkSize], list[Tensor]], WorkSize]:
        """Return how tasks use a model, and what they ask of it."""
        architecture = self._published(model)
        if architecture is None:
            return uses.compute, uses.ANY
        return architecture.use, architecture.efforts[self._options.size]

    def _published(self, model: str) -> Architecture | None:
        """Return the architecture of the paper that a model's name names; None if its folder says what it is."""
        if self._folder and model.partition("-")[0] not in ARCHITECTURES:
            return None
        return architecture_of(model, self._options.other)

    def _build(self, model: MLModel) -> nn.Module:
        architecture, options = self._published(model.name), self._options
        if not self._folder:
            module = build(architecture_of(model.name, options.other), options.size)
        else:
            folder = Path(self._folder) / model.name
            config = read_config(model.name, folder)
            kind = class_of(config) if architecture is None else getattr(library(), architecture.kind)
            module = read_weights(model.name, kind, folder) if options.weights else kind(config)
        return module.to(getattr(torch, options.dtype))


def architecture_of(model: str, other: str = "") -> Architecture:
    """Return the architecture that a model's name begins with, up to the first hyphen; any other one's if it is given.

    Raises
    ------
    DeviceError
        If there is no such architecture.
    """
    name = model.partition("-")[0]
    if name not in ARCHITECTURES and other:
        return ARCHITECTURES[other]
    if name not in ARCHITECTURES:
        close = get_close_matches(name, list(ARCHITECTURES), n=1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        raise DeviceError(
            f"model {model}: no architecture {name!r}{meant}; allowed are {', '.join(ARCHITECTURES)}, "
            "each perhaps with a hyphen and more, any name with other=llm, weights=FOLDER or configs=FOLDER, or another"
            " runner"
        )
    return ARCHITECTURES[name]
