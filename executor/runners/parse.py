"""Runners by name: ``name:key=value,key=value`` for the built-in ones, ``module:factory`` for one's own modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from executor.errors import DeviceError
from executor.named import Kind, nearest
from executor.runners.factory import FactoryRunner
from executor.runners.runner import Runner
from executor.runners.synthetic import SyntheticRunner
from executor.runners.transformers_runner import TransformersRunner

RUNNERS: Mapping[str, type[SyntheticRunner] | type[TransformersRunner]] = {
    "synthetic": SyntheticRunner,
    "transformers": TransformersRunner,
}
"""The built-in runners by name."""

_KIND = Kind("runner", DeviceError)


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
            f"unknown runner {text!r}{nearest(name, RUNNERS)}; allowed are {', '.join(RUNNERS)}, module:factory"
        )
    factory = _KIND.load(name, attribute)
    if not callable(factory):
        raise DeviceError(
            f"runner {name}:{attribute} is no function; allowed is a function of a model's name that returns its "
            "torch.nn.Module"
        )
    return FactoryRunner(factory, _options(f"{name}:{attribute}", FactoryRunner.Options, options))


def _options(name: str, options: type, text: str) -> Any:
    return _KIND.options(name, options, text)
