"""What is given beside hardware and work: the models resident at time 0, and the limits an operator adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from truenorth.models.cluster import GPU, Cluster
from truenorth.models.workload import MLModel


class InstanceError(ValueError):
    """The parts of an instance contradict each other; the message names the one at fault."""


@dataclass(frozen=True, slots=True)
class InitialResidency:
    """A model that is ready on a GPU at time 0 (rule R6); `slot` is None where memory is shared by bytes."""

    gpu: int
    model: int
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Restrictions:
    """What an operator rules out beyond the physics.

    Parameters
    ----------
    model_gpus
        GPUs on which a model, by name, may be resident; a model that is not named may be anywhere.
    workflow_gpus
        GPUs on which the tasks of a workflow, by name, may run.
    max_replicas
        Most GPUs that may hold a model, by name, at the same instant.
    no_swaps
        Whether every residency stays for ever once it is loaded or, if initial, used.
    """

    model_gpus: Mapping[str, frozenset[int]] = field(default_factory=dict)
    workflow_gpus: Mapping[str, frozenset[int]] = field(default_factory=dict)
    max_replicas: Mapping[str, int] = field(default_factory=dict)
    no_swaps: bool = False

    def allows_model(self, name: str, gpu: int) -> bool:
        """Say whether a model may be resident on a GPU."""
        return name not in self.model_gpus or gpu in self.model_gpus[name]

    def allows_workflow(self, name: str, gpu: int) -> bool:
        """Say whether the tasks of a workflow may run on a GPU."""
        return name not in self.workflow_gpus or gpu in self.workflow_gpus[name]


def check_restrictions(restrictions: Restrictions, cluster: Cluster, models: Sequence[MLModel]) -> None:
    """Refuse limits on unknown models or GPUs; a workflow may be named that no job of the window uses."""
    unknown = {*restrictions.model_gpus, *restrictions.max_replicas} - {model.name for model in models}
    if unknown:
        raise InstanceError(f"restrictions: unknown model {min(unknown)}")
    for limit in (restrictions.model_gpus, restrictions.workflow_gpus):
        for name, gpus in limit.items():
            if not all(0 <= gpu < len(cluster.gpus) for gpu in gpus):
                raise InstanceError(f"restrictions: {name} is limited to a GPU that the cluster lacks")
    for name, most in restrictions.max_replicas.items():
        if most < 0:
            raise InstanceError(f"restrictions: at most {most} replicas of {name} is below 0")


def check_initial(
    initial: Sequence[InitialResidency], cluster: Cluster, models: Sequence[MLModel], restrictions: Restrictions
) -> None:
    """Refuse initial residencies that overfill a GPU, share a slot, or stand where they may not."""
    on_gpu: dict[int, list[InitialResidency]] = {}
    for resident in initial:
        if not (0 <= resident.gpu < len(cluster.gpus) and 0 <= resident.model < len(models)):
            raise InstanceError(f"initial residency: no model {resident.model} or no GPU {resident.gpu}")
        _check_place(resident, cluster.gpus[resident.gpu], models[resident.model], restrictions)
        on_gpu.setdefault(resident.gpu, []).append(resident)
    for index, here in on_gpu.items():
        gpu = cluster.gpus[index]
        slots = [resident.slot for resident in here if resident.slot is not None]
        if len({resident.model for resident in here}) < len(here) or len(set(slots)) < len(slots):
            raise InstanceError(f"initial residency: a model or a slot is named twice on {gpu.id}")
        if not gpu.slots and not gpu.fits(models[resident.model].weight_bytes for resident in here):
            raise InstanceError(f"initial residency: the models on {gpu.id} exceed its {gpu.memory_bytes} bytes")


def _check_place(resident: InitialResidency, gpu: GPU, model: MLModel, restrictions: Restrictions) -> None:
    if not gpu.fits([model.weight_bytes]) or not restrictions.allows_model(model.name, resident.gpu):
        raise InstanceError(f"initial residency: model {model.name} may not be on {gpu.id}")
    if gpu.available.at(0) is None:
        raise InstanceError(f"initial residency: {gpu.id} is not there at time 0")
    if (resident.slot is None) == bool(gpu.slots):
        raise InstanceError(f"initial residency: {model.name} on {gpu.id} needs a slot exactly if the GPU has slots")
    if resident.slot is not None and not (
        0 <= resident.slot < len(gpu.slots) and model.weight_bytes <= gpu.slots[resident.slot]
    ):
        raise InstanceError(f"initial residency: {model.name} does not fit slot {resident.slot} of {gpu.id}")
