"""A profile of a device on a node of a Ray cluster: an actor there measures, and tells of every round as it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from truenorth.executor.devices.gpu_process import in_words
from truenorth.executor.devices.machine import processor
from truenorth.executor.devices.nodes import Nodes, in_a_line
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.profiling import Measurements, RoundSamples, measure
from truenorth.executor.devices.runner import MakeRunner
from truenorth.executor.errors import DeviceError, StoppedError
from truenorth.models import MLModel, Workflow

_Told = int | tuple[int, RoundSamples] | Measurements | Exception
"""How many rounds are done, a round with its number, all that was measured, or why there is none."""


class Gauge:
    """What the actor does."""

    def __init__(self, kind: str) -> None:
        self._kind, self._stopped = kind, Event()

    def describe(self) -> dict[str, Any]:
        """Return what decides what is measured here."""
        return {"devices": [physical.name for physical in physical_devices(self._kind)], "processor": processor()}

    def stop(self) -> None:
        """End after the round that is under way."""
        self._stopped.set()

    def measure(
        self, models: Sequence[MLModel], workflows: Sequence[Workflow], make: MakeRunner, how: Mapping[str, Any]
    ) -> Iterator[_Told]:
        """Yield what there is to tell, in the end the measurements or an error."""
        told: SimpleQueue[_Told] = SimpleQueue()

        def keep(number: int, samples: RoundSamples) -> None:
            """Tell of a round."""
            told.put((number, samples))

        def go() -> None:
            """Measure."""
            try:
                here: dict[str, Any] = {"keep": keep, "watch": told.put, "stop": self._stopped.is_set}
                told.put(measure(models, workflows, make(), self._kind, **here, **how))
            except StoppedError as error:
                told.put(error)
            except BaseException as error:  # whatever the runner's code raises is told in one line
                told.put(DeviceError(in_words(error)))

        Thread(target=go, daemon=True).start()
        while True:
            yield told.get()


class FarGauge:
    """An actor on the node with most devices, as the head sees it; it ends with the block.

    Parameters
    ----------
    nodes
        All of the cluster.
    beside
        How many more devices do the same meanwhile.

    Raises
    ------
    DeviceError
        If no node has so many devices.
    """

    def __init__(self, nodes: Nodes, beside: int) -> None:
        self._ray, self._node = nodes.ray, max(nodes.nodes, key=lambda node: node.devices)
        if self._node.devices < 1 + beside:
            raise DeviceError(
                f"node {self._node.name} has most devices, {self._node.devices}; --beside {beside} needs {1 + beside}"
            )
        actor = self._ray.remote(concurrency_groups={"beside": 1})(Gauge)
        self._actor = actor.options(**nodes.options(self._node, 1 + beside)).remote(nodes.kind)

    def __enter__(self) -> FarGauge:
        """Do nothing: it is there."""
        return self

    def __exit__(self, *error: object) -> None:
        """End it."""
        self._ray.kill(self._actor)

    def describe(self) -> dict[str, Any]:
        """Return what decides what is measured there."""
        told: dict[str, Any] = self._get(self._actor.describe.remote())
        return told | {"node": self._node.name}

    def measure(
        self,
        models: Sequence[MLModel],
        workflows: Sequence[Workflow],
        make: MakeRunner,
        *,
        keep: Callable[[int, RoundSamples], None],
        watch: Callable[[int], None],
        stop: Callable[[], bool],
        **how: Any,
    ) -> Measurements:
        """Do what `profiling.measure` does, there.

        Raises
        ------
        DeviceError, StoppedError
            As there, with the node's name, or if it is lost.
        """
        telling = self._actor.measure.options(num_returns="streaming").remote(models, workflows, make, how)
        for reference in telling:
            match self._get(reference):
                case Measurements() as found:
                    return replace(found, device=f"{found.device} of node {self._node.name}")
                case DeviceError() as error:
                    raise DeviceError(f"node {self._node.name}: {error}")
                case StoppedError() as error:
                    raise error
                case int() as done:
                    watch(done)
                case number, samples:
                    keep(number, samples)
            if stop():
                self._actor.stop.options(concurrency_group="beside").remote()
        raise DeviceError(f"node {self._node.name} has ended early")

    def _get(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            raise DeviceError(f"node {self._node.name}: {in_a_line(error)}") from None
