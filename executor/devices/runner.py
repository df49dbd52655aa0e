"""What a runner is: it knows the weights and the code of models, and computes tasks with them on a device.

The device owns the memory: it packs a model's weights once in host memory, copies them into a GPU's arena as a load,
and points the module's parameters at views of that arena before it asks the runner to run a task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from truenorth.models import MLModel

if TYPE_CHECKING:
    from truenorth.executor.devices.team import Team


@dataclass(frozen=True, slots=True)
class RunnerCall:
    """One run of a task.

    Parameters
    ----------
    job
        Number of the job, from which tasks without predecessors draw their inputs; 0 while warming up.
    workflow, task
        Their names.
    modules
        The models that the task needs, by name; their weights are views into the GPU's memory.
    inputs
        What travelled from each predecessor, by its name: one-dimensional, uint8, on `device`, the edge's bytes long.
    device
        Where the run takes place and where its output belongs.
    run_us
        The given run time on this GPU in microseconds; in a batch, that of the batch.
    team
        The GPUs that run it together, of which this is one; None: it runs on this one alone.
    split
        Whether each of them has a part of the models, as of `TeamRunner.parts`; else each has them whole.
    """

    job: int
    workflow: str
    task: str
    modules: Mapping[str, nn.Module]
    inputs: Mapping[str, Tensor]
    device: torch.device
    run_us: int
    team: Team | None = None
    split: bool = False


class Runner(Protocol):
    """Knows models and computes tasks; several threads call it at the same time, one per GPU."""

    def weights(self, model: MLModel) -> Mapping[str, Tensor]:
        """Return a model's weights in host memory.

        Returns
        -------
        Mapping
            Every tensor of `module` by its qualified name, as `executor.devices.weights.tensors_of` finds them; those
            that are tied share their storage.
        """

    def module(self, model: MLModel) -> nn.Module:
        """Return a fresh module in evaluation mode; every weight it has is replaced by a view of a GPU's memory."""

    def run(self, call: RunnerCall) -> Tensor:
        """Compute a task on its device, in the current stream, without waiting for the device.

        Equal jobs, inputs and weights give equal outputs; inputs and weights, which others use too, are left as they
        are. Whatever this raises fails the task and its job.
        """

    def run_batch(self, calls: Sequence[RunnerCall]) -> Sequence[Tensor]:
        """Compute the tasks of a batch together, on the device and with the modules that they share.

        Returns
        -------
        Sequence
            An output per task, that of `run` up to rounding.
        """


@runtime_checkable
class TeamRunner(Runner, Protocol):
    """A runner that computes tasks on several GPUs, too: it is called on each of them, and each puts out the same."""

    def parts(self, model: MLModel, of: int) -> Sequence[Mapping[str, Tensor]]:
        """Return the weights of `part` for each of so many GPUs, at most its share of the bytes."""

    def part(self, model: MLModel, of: int) -> nn.Module:
        """Return what `module` does, of a part on each of so many GPUs."""


MakeRunner = Callable[[], Runner]
"""What makes a runner where it computes: it is sent to another process, so it is a class or a function of a module, or
one with arguments (`functools.partial`)."""
