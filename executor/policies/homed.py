"""Who goes on where models may not leave a GPU, or be on many: every model has homes, and nothing is evicted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from truenorth.executor.policies.queueing import QueuePolicy
from truenorth.executor.site import Site
from truenorth.models import NONE
from truenorth.models.gpu_state import Memory


class Homes:
    """Where models may be for good, under the restrictions no_swaps and max_replicas.

    A model's homes are the GPUs that hold it. A task whose models have no home in common gives them one: the first GPU
    that has room for those they lack, beside all that have their home there. So does every GPU that has room for all
    models, as long as there may be more replicas. Initial residencies beyond the replicas allowed are left out.

    Parameters
    ----------
    stay
        Whether models stay on their homes; else only the number of homes counts, and only of limited models.
    """

    def __init__(self, site: Site, stay: bool = True) -> None:
        self._site, self._stay = site, stay
        self._home = [Memory(gpu, site.weight_bytes) for gpu in site.cluster.gpus]
        self._most_held = [0] * site.n_gpus
        self._most = [site.restrictions.max_replicas.get(model.name, site.n_gpus) for model in site.models]
        leave_out_excess(site)
        for home, memory in zip(self._home, site.memory, strict=True):
            for model, slot in memory.residents.items():
                if stay or self._most[model] < site.n_gpus:
                    home.hold_model(model, slot)

    def of(self, task: int) -> list[int]:
        """Return the GPUs where all that a task needs is at home; if there is none, make one of them its home."""
        site, needs = self._site, self._limited(task)
        held = {gpu: self._held_bytes(task, gpu) for gpu in site.eligible_gpus(task)}
        homes = [
            gpu
            for gpu in held
            if (self._home[gpu].residents.keys() >= needs and self._holds(gpu, held[gpu]))
            or (self._takes_all(gpu, held[gpu]) and self._give(gpu, needs, held[gpu]))
        ]
        if not homes:
            homes = list(islice((gpu for gpu in held if self._give(gpu, needs, held[gpu])), 1))
        for gpu in homes:
            self._most_held[gpu] = max(self._most_held[gpu], held[gpu])
        return homes

    def _limited(self, task: int) -> set[int]:
        """Return the models of a task that need a home."""
        needs = self._site.needs[self._site.template[task]]
        return {model for model in needs if self._stay or self._most[model] < self._site.n_gpus}

    def _held_bytes(self, task: int, gpu: int) -> int:
        """Return what a task holds beside its models: memory of its own, or KV."""
        site, template = self._site, self._site.template[task]
        return site.task_bytes[template] if site.stream[template] == NONE else site.kv_bytes(task, gpu)

    def _holds(self, gpu: int, held: int) -> bool:
        """Say whether a task that holds so many bytes can run on a GPU once all are at home there."""
        return not (held and self._stay) or self._home[gpu].free_bytes >= held

    def _takes_all(self, gpu: int, held: int) -> bool:
        """Say whether a GPU has room for every model at once, and for a task that holds so many bytes."""
        site, here = self._site, self._site.cluster.gpus[gpu]
        return not (self._stay and here.slots) and (
            not self._stay or sum(site.weight_bytes) + max(held, self._most_held[gpu]) <= here.memory_bytes
        )

    def _give(self, gpu: int, needs: set[int], held: int) -> bool:
        """Give models a home on a GPU if all of them can have it there; say whether they have."""
        site, home = self._site, self._home[gpu]
        absent = sorted(needs - home.residents.keys(), key=site.weight_bytes.__getitem__, reverse=True)
        for model in absent:
            taken = sum(model in other.residents for other in self._home)
            if taken >= self._most[model] or not site.restrictions.allows_model(site.models[model].name, gpu):
                return False
        trial = Memory(site.cluster.gpus[gpu], site.weight_bytes)
        for model, slot in home.residents.items():
            trial.hold_model(model, slot)
        for model in absent:
            if self._stay and not trial.has_room(model):
                return False
            trial.hold_model(model, None)
        if self._stay and trial.free_bytes < max(held, self._most_held[gpu]):
            return False
        self._home[gpu] = trial
        return True


def leave_out_excess(site: Site) -> None:
    """Leave out initial residencies beyond the replicas allowed, first where fewer of the catalogue's tasks can run."""
    for index, model in enumerate(site.models):
        there = [gpu for gpu, memory in enumerate(site.memory) if index in memory.residents]
        most = site.restrictions.max_replicas.get(model.name, len(there))
        for gpu in sorted(there, key=lambda gpu: (-_users(site, model.name, gpu), gpu))[most:]:
            site.leave_out(gpu, index)


def _users(site: Site, model: str, gpu: int) -> int:
    """Return how many tasks of the catalogue need a model and can run on a GPU."""
    kind, allowed = site.cluster.gpus[gpu].kind, site.restrictions.allows_workflow
    return sum(
        model in task.models and task.runtime_on(kind) is not None and allowed(workflow.name, gpu)
        for workflow in site.catalogue
        for task in workflow.tasks
    )


class Homed(QueuePolicy):
    """Goes on after the loss of a GPU under the restrictions no_swaps and max_replicas: nothing is evicted.

    Where the models of a task can have no home, its job cannot run. Among several homes a task goes to that of least
    wait.
    """

    def begin(self, site: Site) -> None:
        """Let every model be at home where it is."""
        super().begin(site)
        self._homes = Homes(site)

    def _accept(self, site: Site) -> None:
        """Keep to every restriction."""

    def places(self, task: int) -> Sequence[int]:
        """Return the GPUs where all that a task needs is at home; if there is none, make one of them its home."""
        return self._homes.of(task)

    def runnable(self, task: int, server: int) -> None:
        """Place a task where its models are at home."""
        site = self.site
        self.place(task, min(self.places(task), key=lambda gpu: (self.view.wait(gpu, site.gpu_server[gpu]), gpu)))

    def eviction_order(self, gpu: int) -> list[int]:
        """Return nothing: no model leaves."""
        return []
