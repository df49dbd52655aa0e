"""Static placement where the models do not all fit: every model belongs to some GPUs, and is swapped only there."""

from __future__ import annotations

import numpy as np

from models import Instance
from models.scenario import Scenario, build
from models.scenario.document import PlaceSection, RestrictionsSection


def assigned(scenario: Scenario) -> Scenario:
    """Return the scenario with every model pinned to the GPUs that `owners` gives it."""
    pins = tuple(PlaceSection(model=model, on=on) for model, on in owners(scenario.instance).items())
    document = scenario.document.model_copy(update={"restrictions": RestrictionsSection(pin=pins)})
    return build(document, scenario.source)


def owners(instance: Instance) -> dict[str, tuple[str, ...]]:
    """Return the GPUs of each model, so that the work of the window is spread evenly.

    A model gets as many GPUs as its share of the work asks for, rounded, at least one; then models take the GPUs with
    the least work so far, most work per GPU first. The shares are those of the window itself, which flatters it.
    """
    work = np.zeros(len(instance.models), np.int64)
    tasks, models = instance.model_uses()
    np.add.at(work, models, instance.run_us[instance.task_template[tasks]].max(axis=1))
    copies = np.maximum(1, np.rint(work * instance.n_gpus / work.sum())).astype(np.int64)
    load = np.zeros(instance.n_gpus)
    found: dict[str, tuple[str, ...]] = {}
    for model in np.argsort(-work / copies, kind="stable").tolist():
        chosen = sorted(np.argsort(load, kind="stable")[: copies[model]].tolist())
        load[chosen] += work[model] / copies[model]
        found[instance.models[model].name] = tuple(instance.cluster.gpus[gpu].id for gpu in chosen)
    return found
