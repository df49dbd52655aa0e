"""What a window can have, and which of it a method supports.

Every method lists what it supports, and is not asked about a window that has anything else: so a feature that is added
here is refused by all of them until each says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from truenorth.models.holds import Holds
from truenorth.models.instance import Instance, UnsupportedInstanceError
from truenorth.models.workload import WHOLE


class Feature(StrEnum):
    """What a window can have beside independent tasks on GPUs; the values are the words for users."""

    WORKFLOWS = "tasks that wait for others"
    DELAYS = "time between steps"
    MODELS = "models"
    PLACES = "pinned models and forbidden places"
    REPLICAS = "limits on replicas"
    NO_SWAPS = "no swaps"
    SLOTS = "slots"
    SERIAL_LOADS = "loads that stop computing"
    ABSENCES = "servers that are not always available"
    BATCHES = "batches"
    SHARES = "shares of a GPU"
    MEMORY = "memory of tasks"
    GANGS = "runs on several GPUs"
    MODES = "tasks with a choice of numbers of GPUs"
    SPLITS = "models beside runs on several GPUs"
    STREAMS = "continuous batching"
    ENGINES = "context, mixed iterations, shared budgets or growing KV"
    ADAPTERS = "adapters of language models"
    CACHES = "prefix caches of nodes"
    HOLDS = "KV that is held between requests"
    PRIORITIES = "priorities"
    DEGREES = "engines whose numbers of GPUs are to be chosen"


Features = frozenset[Feature]

PRESENT: Mapping[Feature, Callable[[Instance], bool]] = {
    Feature.WORKFLOWS: lambda instance: instance.n_tasks > len(instance.jobs),
    Feature.DELAYS: lambda instance: bool(instance.delay_us.any()),
    Feature.MODELS: lambda instance: any(instance.needs),
    Feature.PLACES: lambda instance: bool(instance.restrictions.model_gpus or instance.restrictions.workflow_gpus),
    Feature.REPLICAS: lambda instance: bool(instance.restrictions.max_replicas),
    Feature.NO_SWAPS: lambda instance: instance.restrictions.no_swaps,
    Feature.SLOTS: lambda instance: any(gpu.slots for gpu in instance.class_gpu),
    Feature.SERIAL_LOADS: lambda instance: not instance.overlap_loads,
    Feature.ABSENCES: lambda instance: not instance.always_available,
    Feature.BATCHES: lambda instance: bool(instance.batches),
    Feature.SHARES: lambda instance: bool((instance.template_share < WHOLE).any()),
    Feature.MEMORY: lambda instance: bool(instance.template_memory.any()),
    Feature.GANGS: lambda instance: instance.gangs,
    Feature.MODES: lambda instance: (
        instance.gangs and any(task.modes for workflow in instance.workflows for task in workflow.tasks)
    ),
    Feature.SPLITS: lambda instance: instance.gangs and any(instance.needs),
    Feature.STREAMS: lambda instance: instance.streams is not None,
    Feature.ENGINES: lambda instance: instance.streams is not None and instance.streams.amended,
    Feature.ADAPTERS: lambda instance: (
        instance.streams is not None and any(stream.adapters for stream in instance.streams.classes)
    ),
    Feature.CACHES: lambda instance: (
        instance.streams is not None
        and instance.streams.prefixes is not None
        and not isinstance(instance.streams.prefixes, Holds)
    ),
    Feature.HOLDS: lambda instance: instance.streams is not None and isinstance(instance.streams.prefixes, Holds),
    Feature.PRIORITIES: lambda instance: any(job.priority for job in instance.jobs),
    Feature.DEGREES: lambda instance: any(gpu.open for gpu in instance.cluster.gpus),
}
"""How each is seen in an instance."""

# Written out: what is added above must not be supported by itself.
LIMITS: Features = frozenset({Feature.PLACES, Feature.REPLICAS, Feature.NO_SWAPS})
"""What an operator adds."""
NO_RULES: Features = frozenset({Feature.PRIORITIES})
"""What only online policies obey: no rule for a plan, so that every method of planning and bounding supports it."""
ONE_AT_A_TIME: Features = LIMITS | NO_RULES | {Feature.WORKFLOWS, Feature.MODELS, Feature.SLOTS, Feature.SERIAL_LOADS}
"""Of windows whose GPUs are always available and run one task at a time."""
SEVERAL_AT_A_TIME: Features = ONE_AT_A_TIME | {Feature.ABSENCES, Feature.BATCHES, Feature.SHARES, Feature.MEMORY}
"""Of windows without requests of continuous batching."""
SERVING: Features = SEVERAL_AT_A_TIME | {Feature.STREAMS, Feature.ENGINES, Feature.ADAPTERS}
"""Of windows without runs on several GPUs."""
CACHED: Features = SERVING | {Feature.CACHES}
"""The same, by what knows that a node's cache says how much of a prompt is left to compute."""
HELD: Features = CACHED | {Feature.HOLDS}
"""The same, by what knows besides that KV may be gone which was held for a request."""

TOGETHER: Features = NO_RULES | {
    Feature.GANGS,
    Feature.WORKFLOWS,
    Feature.DELAYS,
    Feature.PLACES,
    Feature.MEMORY,
    Feature.ABSENCES,
}
"""Of windows with runs on several GPUs."""
MOLDABLE: Features = TOGETHER | {Feature.MODES}
"""The same, of which some may choose how many GPUs they take."""
LOADED: Features = MOLDABLE | {Feature.MODELS, Feature.SPLITS}
"""The same, where runs may need models."""


def missing(instance: Instance, supports: Features) -> list[Feature]:
    """Return what a window has and a method does not support."""
    return [feature for feature, is_present in PRESENT.items() if feature not in supports and is_present(instance)]


def features_of(instance: Instance) -> list[Feature]:
    """Return what a window has."""
    return missing(instance, frozenset())


def require(instance: Instance, who: str, supports: Features) -> None:
    """Refuse a window with a feature that a method does not support.

    Raises
    ------
    UnsupportedInstanceError
        Naming the features; `who` is the method, in words.
    """
    lacking = missing(instance, supports)
    if Feature.DEGREES in lacking:
        refuse_open_engines(instance)
    if lacking:
        problem = f"{who} has no support for {', '.join(lacking)}"
        if lacking == [Feature.HOLDS]:
            raise UnsupportedInstanceError(f"{problem}; simulate, bound and servers have, or write hold: false")
        raise UnsupportedInstanceError(f"{problem}; choose another method or leave them out of the scenario")


def refuse_open_engines(instance: Instance) -> None:
    """Refuse a window in which it is to be chosen how many GPUs engines have.

    Raises
    ------
    UnsupportedInstanceError
        With what to write.
    """
    if PRESENT[Feature.DEGREES](instance):
        problem = "streams have modes, and nothing says which of them servers run, throughout"
        advice = "write engines beside gpus_per_server, for example [4, 4], or ask truenorth servers which to choose"
        raise UnsupportedInstanceError(f"{problem}; {advice}")
