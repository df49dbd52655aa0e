"""Models of a local folder: any architecture that `transformers` knows, with its weights or with drawn ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from truenorth.executor.errors import DeviceError
from truenorth.executor.runners.architectures import library


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
