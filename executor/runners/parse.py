"""Runners by name: ``name:key=value,key=value`` for the built-in ones, ``module:factory`` for one's own modules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch import nn

from executor.errors import DeviceError
from executor.runners.factory import FactoryRunner
from executor.runners.runner import Runner
from executor.runners.synthetic import SyntheticRunner
from executor.runners.transformers_runner import TransformersRunner

RUNNERS: Mapping[str, type[SyntheticRunner] | type[TransformersRunner]] = {
    "synthetic": SyntheticRunner,
    "transformers": TransformersRunner,
}
"""The built-in runners by name."""


def parse_runner(text: str) -> Runner:
    """Read a runner.

    Parameters
    ----------
    text
        ``synthetic``, ``transformers``, ``transformers:size=full,weights=FOLDER``, or ``module:factory`` with a
        function of a model's name that returns its `torch.nn.Module`, importable or in the working folder; options
        may follow it, as in ``module:factory:seed=1``.

    Raises
    ------
    DeviceError
        If there is no such runner, option or factory, or a value cannot be read; the message says what is allowed.

    >>> type(parse_runner("synthetic:seed=1")).__name__
    'SyntheticRunner'
    """
    name, _, rest = text.strip().partition(":")
    if name in RUNNERS:
        kind = RUNNERS[name]
        return kind(_options(name, kind.Options, rest))
    attribute, _, options = rest.partition(":")
    if not name or not attribute or "=" in attribute:
        raise DeviceError(
            f"unknown runner {text!r}{_nearest(name, RUNNERS)}; allowed are {', '.join(RUNNERS)}, module:factory"
        )
    return FactoryRunner(_load(name, attribute), _options(f"{name}:{attribute}", FactoryRunner.Options, options))


def _load(module_name: str, attribute: str) -> Callable[[str], nn.Module]:
    """Import a factory of the user's."""
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.append(here)
    try:
        module = importlib.import_module(module_name)
    except (ImportError, SyntaxError, ValueError) as error:
        raise DeviceError(
            f"runner {module_name}:{attribute}: module {module_name} cannot be imported: {error}; allowed is one that "
            "is installed or lies in the working folder"
        ) from None
    finally:
        if added:
            sys.path.remove(here)
    factory: Callable[[str], nn.Module] | None = getattr(module, attribute, None)
    if not callable(factory):
        known = {name: None for name, value in vars(module).items() if callable(value) and not name.startswith("_")}
        raise DeviceError(
            f"runner {module_name}:{attribute}: no such function{_nearest(attribute, known)}; allowed is a function "
            "of a model's name that returns its torch.nn.Module"
        )
    return factory


def _options(name: str, kind: type[Any], text: str) -> Any:
    """Read ``key=value,key=value`` into a runner's options."""
    readers = {field.name: field.metadata["read"] for field in fields(kind)}
    values: dict[str, object] = {}
    for item in filter(None, text.split(",")):
        key, given, value = item.strip().partition("=")
        if key not in readers:
            allowed = ", ".join(readers)
            raise DeviceError(f"runner {name}: unknown option {key!r}{_nearest(key, readers)}; allowed are {allowed}")
        if not given or key in values:
            raise DeviceError(f"runner {name}: option {key!r} must be given once, as {key}=value")
        try:
            values[key] = readers[key](value)
        except ValueError as error:
            raise DeviceError(f"runner {name}: option {key}: {error}") from None
    return kind(**values)


def _nearest(word: str, known: Mapping[str, object]) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""
