"""What a scenario says that is allowed, has no effect, and is hardly meant: told once, when its file is read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from truenorth.models.errors import ScenarioWarning
from truenorth.models.instance import Instance
from truenorth.models.scenario.document import ScenarioDocument
from truenorth.models.scenario.errors import quote
from truenorth.models.streams import ANY_KIND, of_kind


def tell_doubts(document: ScenarioDocument, instance: Instance, file: str) -> None:
    """Warn of everything that is hardly meant.

    Warns
    -----
    ScenarioWarning
        Naming file and field.
    """
    for field, said in _doubts(document, instance):
        warnings.warn(ScenarioWarning(f"{file}: {field}: {said}"), stacklevel=3)


def _doubts(document: ScenarioDocument, instance: Instance) -> Iterator[tuple[str, str]]:
    """Yield what is hardly meant, each with its field."""
    kinds = {gpu.kind for gpu in instance.cluster.gpus}
    if not any(gpu.open for gpu in instance.cluster.gpus):
        for field, table in _tables(document):
            strange = [kind for kind in table if kind != ANY_KIND and kind not in kinds]
            without = sorted(kind for kind in kinds if of_kind(table, kind) is None)
            # Kinds that the cluster lacks may be listed; a name that is mistyped leaves one of its kinds without.
            if strange and without:
                names, lacking = ", ".join(map(quote, strange)), ", ".join(map(quote, without))
                yield field, f"the cluster has no {names}, and nothing is said of its {lacking}, which cannot run it"
    sizes = {len(place) for place in instance.places.gpus}
    for field, gpus in _sizes(document):
        if gpus not in sizes:
            yield field, f"the cluster has no place of {gpus} GPUs, so that this mode is never taken"
    if instance.streams is not None and instance.streams.prefixes is None and _lists_blocks(instance):
        yield "streams", "prompts list blocks, and no class has a prefix_cache, so that none is ever cached"


def _tables(document: ScenarioDocument) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the run times of tasks by kind of GPU; classes are often of catalogues, and of kinds of their own."""
    for name, workflow in document.workflows.items():
        for of, task in workflow.tasks.items():
            field = f"workflows.{name}.tasks.{of}"
            if task.runtime is not None:
                yield f"{field}.runtime", task.runtime
            for number, mode in enumerate(task.modes or ()):
                yield f"{field}.modes[{number}].runtime", mode.runtime


def _sizes(document: ScenarioDocument) -> Iterator[tuple[str, int]]:
    """Yield the numbers of GPUs that tasks may take; one without any place is refused elsewhere."""
    for name, workflow in document.workflows.items():
        for of, task in workflow.tasks.items():
            for number, mode in enumerate(task.modes or ()):
                yield f"workflows.{name}.tasks.{of}.modes[{number}]", mode.gpus


def _lists_blocks(instance: Instance) -> bool:
    tasks = (task for workflow in instance.workflows for task in workflow.tasks)
    return any(job.blocks for job in instance.jobs) or any(task.blocks for task in tasks)
