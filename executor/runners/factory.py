"""Runners by name: ``name:key=value`` for the built-in ones, ``module:factory`` for modules of the user's own.

Such a factory makes one module per model, and it maps bytes to a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from truenorth.executor.devices.runner import MakeRunner, Runner, RunnerCall
from truenorth.executor.errors import DeviceError
from truenorth.executor.policies.options import Kind, count, nearest, option
from truenorth.executor.runners.prototypes import Prototypes
from truenorth.executor.runners.synthetic import SyntheticRunner
from truenorth.executor.runners.transformers_runner import TransformersRunner
from truenorth.executor.runners.uses import as_bytes, received
from truenorth.models import Instance, MLModel


@dataclass(frozen=True, slots=True)
class FactoryOptions:
    """How a runner of the user's modules is set up.

    Parameters
    ----------
    seed
        Of weights that the factory draws.
    """

    seed: int = option(0, count)


class FactoryRunner:
    """Modules that a factory of the user's makes.

    A module is called with one tensor, the bytes that reached the task (one-dimensional, uint8, on the device), and
    returns one tensor of any kind. A task with several models hands each the output of the one before. The tasks of a
    batch are stacked (two-dimensional, shape [tasks, bytes]) and what is returned for them is taken apart along the
    first dimension; tasks that received different numbers of bytes go one after the other.

    Parameters
    ----------
    factory
        Called with a model's name; returns its module.
    """

    Options = FactoryOptions

    def __init__(self, factory: Callable[[str], nn.Module], options: FactoryOptions | None = None) -> None:
        self._factory = factory
        self._prototypes = Prototypes(self._build, (options or FactoryOptions()).seed)

    def weights(self, model: MLModel) -> Mapping[str, Tensor]:
        """Return a model's weights.

        Raises
        ------
        DeviceError
            If the factory returns no module.
        """
        return self._prototypes.weights(model)

    def module(self, model: MLModel) -> nn.Module:
        """Return a module of a model, without weights of its own."""
        return self._prototypes.module(model)

    def run(self, call: RunnerCall) -> Tensor:
        """Compute a task with the modules of its models."""
        data = received(call)
        for module in call.modules.values():
            data = module(as_bytes(data))
        return data

    def run_batch(self, calls: Sequence[RunnerCall]) -> Sequence[Tensor]:
        """Compute tasks in one forward pass per model, where their inputs can be stacked.

        Raises
        ------
        TypeError
            If a module returns anything but a tensor with an entry per task.
        """
        data = [received(call) for call in calls]
        if len({len(each) for each in data}) > 1:
            return [self.run(call) for call in calls]
        for name, module in calls[0].modules.items():
            made = module(torch.stack([as_bytes(each) for each in data]))
            if not isinstance(made, Tensor) or not made.dim() or len(made) != len(calls):
                found = f"shape {list(made.shape)}" if isinstance(made, Tensor) else f"a {type(made).__name__}"
                raise TypeError(
                    f"model {name} returned {found} for a batch of {len(calls)}; allowed is an entry per task"
                )
            data = list(made)
        return data

    def _build(self, model: MLModel) -> nn.Module:
        try:
            module = self._factory(model.name)
        except Exception as error:  # the user's code may raise anything
            raise DeviceError(f"model {model.name}: its factory raised {type(error).__name__}: {error}") from error
        if not isinstance(module, nn.Module):
            raise DeviceError(
                f"model {model.name}: its factory returned {type(module).__name__}; allowed is a torch.nn.Module"
            )
        return module


RUNNERS: Mapping[str, type[SyntheticRunner] | type[TransformersRunner]] = {
    "synthetic": SyntheticRunner,
    "transformers": TransformersRunner,
}
"""The built-in runners by name."""

_KIND = Kind("runner", DeviceError)


def default_runner(instance: Instance) -> str:
    """Return who computes where nobody is named: synthetic work; for requests of streams, decoders of a few layers."""
    return "synthetic" if instance.streams is None else "transformers:other=llm"


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


def runner_named(text: str) -> MakeRunner:
    """Return what makes a runner of that name in any process, once it is known that there is one.

    Raises
    ------
    DeviceError
        As of `parse_runner`.
    """
    parse_runner(text)
    return partial(parse_runner, text)


def _options(name: str, options: type, text: str) -> Any:
    return _KIND.options(name, options, text)
