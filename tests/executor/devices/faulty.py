"""Runners that fail on demand in the process of a GPU, and what makes them there: plain data, for it is sent there.

What they patch is patched in the processes of their crew alone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from tests.executor.devices.small import Small
from truenorth.executor.devices import gpu_process
from truenorth.executor.devices.lane import Do
from truenorth.executor.devices.physical import Physical
from truenorth.executor.devices.runner import MakeRunner, Runner, RunnerCall
from truenorth.executor.devices.station import Station
from truenorth.executor.devices.streams import Span

LONG_S = 60.0
LATE_S = 0.2
QUEUED_S = 0.05


@dataclass(frozen=True)
class In:
    """Does something in runs of a task, of a job, on a planned GPU; None: of any. It is not done twice with a file."""

    do: Callable[[], object]
    job: int | None = None
    task: str | None = None
    gpu: str | None = None
    once: Path | None = None

    def __call__(self, call: RunnerCall) -> None:
        here = threading.current_thread().name
        if self.job not in (None, call.job) or self.task not in (None, call.task):
            return
        if self.gpu is not None and not here.startswith(self.gpu):
            return
        self.do_once()

    def do_once(self) -> None:
        if self.once is not None:
            if self.once.exists():
                return
            self.once.touch()
        self.do()


@dataclass(frozen=True)
class Slowly:
    """Lets every run take so long that the next one is queued behind it."""

    before: Callable[[RunnerCall], None]

    def __call__(self, call: RunnerCall) -> None:
        time.sleep(QUEUED_S)
        self.before(call)


@dataclass(frozen=True)
class Raise:
    error: BaseException

    def __call__(self) -> None:
        raise self.error


def hang() -> None:
    time.sleep(LONG_S)


def spin() -> None:
    """Keep Python's lock for good: a loop of the interpreter that never lets go of it."""
    sum(iter(int, 1))


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def segmentation_fault() -> None:
    ctypes.string_at(0)


def leave() -> None:
    os._exit(3)


def exhaust_memory() -> Tensor:
    return torch.empty(1 << 60, dtype=torch.uint8)


def assert_on_device() -> None:
    raise torch.AcceleratorError("CUDA error: device-side assert triggered")


def small(before: Callable[[RunnerCall], None]) -> Small:
    return Small(before)


def without_answers(make: MakeRunner) -> Runner:
    """Let devices answer no call once something has failed there."""
    patch.object(Physical, "answers", lambda physical: False).start()
    return make()


def without_warm_up(make: MakeRunner) -> Runner:
    """Let nothing run before the clock does."""
    patch.dict(gpu_process.GpuProcess._carry_out, {Do.TRY: lambda *_: lambda: (Span(0, 0), ())}).start()
    return make()


class Late(SimpleQueue[Any]):
    """Gives out what was put into it long after that."""

    def get(self, *how: Any) -> Any:
        found = super().get(*how)
        time.sleep(LATE_S)
        return found


def slow_to_tell(make: MakeRunner) -> Runner:
    """Let processes tell how an order ended long after they have begun the next one that waits."""
    patch.object(gpu_process, "SimpleQueue", Late).start()
    return make()


def failing_loads(do: Callable[[], object], gpu: str | None = None, model: int | None = None, tries: int = 99) -> Small:
    """Let something happen in the first tries to load a model while the clock runs."""
    original, seen = Station.load_after, list[int]()

    def load_after(station: Station, moves: Any, wanted: int, *given: Any) -> Any:
        if gpu in (None, station.id) and model in (None, wanted) and len(seen) < tries:
            seen.append(wanted)
            do()
        return original(station, moves, wanted, *given)

    patch.object(Station, "load_after", load_after).start()
    return Small()


def failing_transfers(do: Callable[[], object], size_bytes: int, tries: int) -> Small:
    """Let something happen in the first tries to send so many bytes."""
    original, left = Station.receive, [tries]

    def receive(station: Station, output: Tensor, size: int, staged: bool) -> Any:
        left[0] -= size == size_bytes  # others warm the way up
        if left[0] >= 0 and size == size_bytes:
            do()
        return original(station, output, size, staged)

    patch.object(Station, "receive", receive).start()
    return Small()


def refuse_first_loads(runs: int) -> None:
    """Have the first load of each of so many runs fail, from now on; the second try works."""
    original, measure, left, due = Station.load_after, Station.copy_peak, [runs], [False]

    def copy_peak(station: Station, *told: Any) -> float:  # with which every run begins
        due[0], left[0] = left[0] > 0, left[0] - 1
        return measure(station, *told)

    def load_after(station: Station, *told: Any) -> Any:
        if due[0]:
            due[0] = False
            raise RuntimeError("no")
        return original(station, *told)

    patch.object(Station, "copy_peak", copy_peak).start()
    patch.object(Station, "load_after", load_after).start()


def refusing_loads(runs: int) -> Small:
    refuse_first_loads(runs)
    return Small()
