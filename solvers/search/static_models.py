"""Which models may settle on which GPUs where no model may ever leave: a packing.

Every template needs a GPU that can hold its models beside all others settled there. A depth-first search settles
the templates one after the other, those with the most bytes first, and goes back where one finds no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from truenorth.models.instance import NEVER, Instance

Mask = NDArray[np.bool_]

TRIALS = 100_000
"""Settlements after which the packing is given up."""


def static_models(instance: Instance) -> Mask | None:
    """Return which models a dispatch rule may use on which GPUs. Shape [gpus, models].

    All that the tables allow, unless no model may ever leave: then a packing in which every task can run, with
    what is left of the memory filled by the models with most work per copy. None if no packing was found.
    """
    allowed: Mask = np.ascontiguousarray((instance.load_us != NEVER)[:, instance.gpu_class].T)
    if not instance.restrictions.no_swaps:
        return allowed
    settled: list[set[int]] = [set() for _ in range(instance.n_gpus)]
    templates = sorted(
        (template for template, needs in enumerate(instance.needs) if needs),
        key=lambda template: -sum(int(instance.weight_bytes[model]) for model in instance.needs[template]),
    )
    if not _settle(instance, templates, settled):
        return None
    _fill(instance, allowed, settled)
    mask = np.zeros_like(allowed)
    for gpu, models in enumerate(settled):
        mask[gpu, list(models)] = True
    return mask


def _settle(instance: Instance, templates: list[int], settled: list[set[int]]) -> bool:
    """Settle the models of all templates, if each finds a GPU within so many trials; say whether they did."""
    trials = 0
    waiting: list[Iterator[int]] = []
    placed: list[tuple[int, set[int]]] = []
    while len(placed) < len(templates):
        template = templates[len(placed)]
        if len(waiting) == len(placed):  # first visit of this depth; after a step back its GPUs are tried further
            waiting.append(iter(_rooms(instance, template, settled)))
        needs = set(instance.needs[template])
        for gpu in waiting[-1]:
            added = needs - settled[gpu]
            trials += bool(added)
            if trials > TRIALS:
                return False
            if _may_settle(instance, settled, gpu, added):
                settled[gpu] |= added
                placed.append((gpu, added))
                break
        else:
            waiting.pop()
            if not placed:
                return False
            gpu, added = placed.pop()
            settled[gpu] -= added
    return True


def _rooms(instance: Instance, template: int, settled: list[set[int]]) -> list[int]:
    """Return the GPUs to try: one that holds all models already, else first what holds most, then the emptiest."""
    needs = set(instance.needs[template])
    eligible: list[int] = np.flatnonzero(instance.run_us[template, instance.gpu_class] != NEVER).tolist()
    held = [gpu for gpu in eligible if needs <= settled[gpu]]
    return held[:1] or sorted(eligible, key=lambda gpu: (-len(needs & settled[gpu]), len(settled[gpu])))


def _may_settle(instance: Instance, settled: list[set[int]], gpu: int, added: set[int]) -> bool:
    """Say whether models fit beside those settled on a GPU, and have a replica left."""
    sizes = [int(instance.weight_bytes[model]) for model in settled[gpu] | added]
    most = instance.restrictions.max_replicas
    return instance.cluster.gpus[gpu].fits(sizes) and all(
        sum(model in models for models in settled) < most.get(instance.models[model].name, instance.n_gpus)
        for model in added
    )


def _fill(instance: Instance, allowed: Mask, settled: list[set[int]]) -> None:
    """Add copies while there is room, each time of the model with most work per copy."""
    task, model = instance.model_uses()
    fastest = np.where(instance.run_us == NEVER, np.iinfo(np.int64).max, instance.run_us).min(axis=1)
    work = np.bincount(model, fastest[instance.task_template[task]].astype(np.float64), len(instance.models))
    copies = np.array([sum(m in models for models in settled) for m in range(len(instance.models))])
    open_models = set(np.flatnonzero(copies > 0).tolist())
    while open_models:
        busiest = max(open_models, key=lambda m: (work[m] / copies[m], m))
        rooms = [
            gpu
            for gpu in np.flatnonzero(allowed[:, busiest]).tolist()
            if busiest not in settled[gpu] and _may_settle(instance, settled, gpu, {busiest})
        ]
        if rooms:
            settled[min(rooms, key=lambda gpu: (len(settled[gpu]), gpu))].add(busiest)
            copies[busiest] += 1
        else:
            open_models.discard(busiest)
