"""Who goes on where models may not leave a GPU, or be on many: every model has homes, and nothing is evicted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from truenorth.executor.policies.queueing import QueuePolicy
from truenorth.executor.site import Site
from truenorth.models.gpu_state import Memory


class Homed(QueuePolicy):
    """Goes on after the loss of a GPU under the restrictions no_swaps and max_replicas.

    A model's homes are the GPUs that hold it. A task whose models have no home in common gives them one, for good: the
    first GPU that has room for those it lacks, beside all that have their home there. Where there is none, its job
    cannot run. Among several homes a task goes to that of least wait.
    """

    def begin(self, site: Site) -> None:
        """Let every model be at home where it is."""
        super().begin(site)
        self._home = [Memory(gpu, site.weight_bytes) for gpu in site.cluster.gpus]
        self._most_held = [0] * site.n_gpus
        for home, memory in zip(self._home, site.memory, strict=True):
            for model, slot in memory.residents.items():
                home.hold_model(model, slot)

    def _accept(self, site: Site) -> None:
        """Keep to every restriction."""

    def places(self, task: int) -> Sequence[int]:
        """Return the GPUs where all that a task needs is at home; if there is none, make one of them its home."""
        site = self.site
        needs, held = site.needs[site.template[task]], site.task_bytes[site.template[task]]
        able = site.eligible_gpus(task)
        homes = [gpu for gpu in able if self._home[gpu].residents.keys() >= set(needs) and self._holds(gpu, held)]
        if not homes:
            homes = list(islice((gpu for gpu in able if self._give_home(gpu, needs, held)), 1))
        for gpu in homes:
            self._most_held[gpu] = max(self._most_held[gpu], held)
        return homes

    def runnable(self, task: int, server: int) -> None:
        """Place a task where its models are at home."""
        site = self.site
        self.place(task, min(self.places(task), key=lambda gpu: (self.view.wait(gpu, site.gpu_server[gpu]), gpu)))

    def eviction_order(self, gpu: int) -> list[int]:
        """Return nothing: no model leaves."""
        return []

    def _holds(self, gpu: int, held: int) -> bool:
        """Say whether a task that holds so many bytes can run on a GPU once all are at home there."""
        return not held or self._home[gpu].free_bytes >= held

    def _give_home(self, gpu: int, needs: Sequence[int], held: int) -> bool:
        """Give models a home on a GPU if all of them can have it there; say whether they have."""
        site, home = self.site, self._home[gpu]
        trial = Memory(site.cluster.gpus[gpu], site.weight_bytes)
        for model, slot in home.residents.items():
            trial.hold_model(model, slot)
        for model in sorted(set(needs) - home.residents.keys(), key=site.weight_bytes.__getitem__, reverse=True):
            most = site.restrictions.max_replicas.get(site.models[model].name, site.n_gpus)
            taken = sum(model in other.residents for other in self._home)
            if taken >= most or not site.restrictions.allows_model(site.models[model].name, gpu):
                return False
            if not trial.has_room(model):
                return False
            trial.hold_model(model, None)
        if trial.free_bytes < max(held, self._most_held[gpu]):
            return False
        self._home[gpu] = trial
        return True
