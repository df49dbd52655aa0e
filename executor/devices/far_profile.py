"""A profile of a device on a node of a Ray cluster: an actor there measures, and tells of every round as it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from truenorth.executor.devices.gpu_process import in_words
from truenorth.executor.devices.nodes import Nodes, in_a_line
from truenorth.executor.devices.profiling import Measurements, RoundSamples, measure
from truenorth.executor.devices.runner import MakeRunner
from truenorth.executor.errors import DeviceError, StoppedError
from truenorth.models import MLModel, Workflow

_Told = int | tuple[int, RoundSamples] | Measurements | Exception
"""How many rounds are done, a round with its number, all that was measured, or why there is none."""


class Gauge:
    """What the actor does."""

    def __init__(self) -> None:
        self._stopped = Event()

    def stop(self) -> None:
        """End after the round that is under way."""
        self._stopped.set()

    def measure(
        self, models: Sequence[MLModel], workflows: Sequence[Workflow], make: MakeRunner, how: Mapping[str, Any]
    ) -> Iterator[_Told]:
        """Yield what there is to tell, in the end the measurements or an error."""
        told: SimpleQueue[_Told] = SimpleQueue()
        here: dict[str, Any] = {"keep": lambda *of: told.put(of), "watch": told.put, "stop": self._stopped.is_set}

        def go() -> None:
            """Measure."""
            try:
                told.put(measure(models, workflows, make(), **here, **how))
            except StoppedError as error:
                told.put(error)
            except BaseException as error:  # whatever the runner's code raises is told in one line
                told.put(DeviceError(in_words(error)))

        Thread(target=go, daemon=True).start()
        while True:
            yield told.get()


def measure_on(
    nodes: Nodes,
    models: Sequence[MLModel],
    workflows: Sequence[Workflow],
    make: MakeRunner,
    *,
    keep: Callable[[int, RoundSamples], None],
    watch: Callable[[int], None],
    stop: Callable[[], bool],
    beside: int = 0,
    **how: Any,
) -> Measurements:
    """Do what `profiling.measure` does, on the node with most devices.

    Raises
    ------
    DeviceError, StoppedError
        As there, with the node's name, or if it has too few devices, or is lost.
    """
    node, ray = max(nodes.nodes, key=lambda node: node.devices), nodes.ray
    if node.devices < 1 + beside:
        raise DeviceError(f"node {node.name} has most devices, {node.devices}; --beside {beside} needs {1 + beside}")
    actor = ray.remote(concurrency_groups={"beside": 1})(Gauge).options(**nodes.options(node, 1 + beside)).remote()
    telling = actor.measure.options(num_returns="streaming")
    try:
        for reference in telling.remote(models, workflows, make, how | {"kind": nodes.kind, "beside": beside}):
            match ray.get(reference):
                case Measurements() as found:
                    return replace(found, device=f"{found.device} of node {node.name}")
                case DeviceError() as error:
                    raise DeviceError(f"node {node.name}: {error}")
                case StoppedError() as error:
                    raise error
                case int() as done:
                    watch(done)
                case number, samples:
                    keep(number, samples)
            if stop():
                actor.stop.options(concurrency_group="beside").remote()
    except ray.exceptions.RayError as error:
        raise DeviceError(f"node {node.name}: {in_a_line(error)}") from None
    finally:
        ray.kill(actor)
    raise DeviceError(f"node {node.name} has ended early")
