"""A virtual clock on which some things take as long as they took elsewhere: what a measured run is taken apart with."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from executor.device import VirtualDevice
from executor.engine import Engine
from executor.policy import Policy
from models import Instance, Timeline


@dataclass(frozen=True, slots=True)
class Durations:
    """Measured durations in microseconds; what is not here takes the given time.

    Parameters
    ----------
    runs
        By task.
    loads
        By GPU and model: one after the other; the last one holds for further loads.
    transfers
        By source and target task; never less than given.
    """

    runs: Mapping[int, int] = field(default_factory=dict)
    loads: Mapping[tuple[int, int], Iterable[int]] = field(default_factory=dict)
    transfers: Mapping[tuple[int, int], int] = field(default_factory=dict)


class _RecordedDevice(VirtualDevice):
    def __init__(self, durations: Durations) -> None:
        super().__init__()
        self.exact = False
        self._runs, self._transfers = durations.runs, durations.transfers
        self._recorded = {place: deque(taken) for place, taken in durations.loads.items()}

    def run(self, tasks: Sequence[int], gpu: int, expected_us: int) -> None:
        super().run(tasks, gpu, self._runs.get(tasks[0], expected_us))

    def load(self, model: int, gpu: int, slot: int | None, expected_us: int) -> None:
        left = self._recorded.get((gpu, model), deque())
        if left:
            expected_us = left.popleft() if len(left) > 1 else left[0]
        super().load(model, gpu, slot, expected_us)

    def send(self, source: int, target: int, gpu: int, number: int, expected_us: int) -> bool:
        taken = max(expected_us, self._transfers.get((source, target), 0))
        return super().send(source, target, gpu, number, taken)


def simulate_recorded(
    instance: Instance, policy: Callable[[], Policy], durations: Durations, seed: int = 0
) -> Timeline:
    """Return what a policy would have made of an instance if some things had taken as long as measured.

    Raises
    ------
    PolicyError
        If the policy cannot serve the instance, or misbehaves.
    """
    return Engine(instance, policy(), _RecordedDevice(durations), seed).run()
