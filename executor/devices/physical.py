"""Physical devices: what copies and computes, how long that took, and in which order.

Work is handed to a stream, which returns when the device is done with it: so whoever waits for a stream needs no event
of the device. On CUDA durations are those between events on the device; on a CPU a stream is the calling thread. One
clock stamps both: `time.perf_counter_ns`.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import ClassVar, TypeVar
from weakref import WeakSet

import torch
from torch import Tensor

from truenorth.executor.errors import DeviceError

Result = TypeVar("Result")
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Span:
    """When something took place, in nanoseconds of `time.perf_counter_ns`."""

    start_ns: int
    end_ns: int

    @property
    def duration_us(self) -> float:
        """Length in microseconds."""
        return (self.end_ns - self.start_ns) / 1000


class Stream(ABC):
    """An ordered lane of work on a physical device."""

    @abstractmethod
    def carry_out(self, work: Callable[[], Result], not_before_ns: int = 0) -> tuple[Result, Span]:
        """Do something and wait until the device is done with it.

        Parameters
        ----------
        not_before_ns
            When the work was asked for: the span cannot start earlier, however the device's clock is read.

        Returns
        -------
        tuple
            What `work` returned, and when the device was busy with it.
        """


class HostStream(Stream):
    """The calling thread."""

    def carry_out(self, work: Callable[[], Result], not_before_ns: int = 0) -> tuple[Result, Span]:
        """Do it now."""
        start = time.perf_counter_ns()
        result = work()
        return result, Span(start, time.perf_counter_ns())


_POOL = 32
"""PyTorch hands out so many streams per device, and then the same ones again."""

S = TypeVar("S")


def find_unused(make: Callable[[], S], handle: Callable[[S], int], used: Collection[int]) -> S:
    """Return a stream that nobody uses.

    Parameters
    ----------
    make
        Hands out streams, the same ones again after `_POOL`.
    handle
        What tells streams apart.
    used
        Handles of streams in use.

    Raises
    ------
    DeviceError
        If all are: two users would wait for each other without a word.

    >>> pool = iter((1, 2, 3))
    >>> find_unused(lambda: next(pool), int, {1, 2})
    3
    """
    for _ in range(_POOL):
        made = make()
        if handle(made) not in used:
            return made
    raise DeviceError(
        f"all {_POOL} streams that PyTorch has for a device are in use; each planned GPU takes three, and one more for "
        "every run beside another: allowed are fewer planned GPUs per device, or --virtual serial"
    )


class CudaStream(Stream):
    """A CUDA stream of its own, timed by events."""

    _in_use: ClassVar[WeakSet[CudaStream]] = WeakSet()

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream
        used = {other._stream.cuda_stream for other in self._in_use if other._device == device}
        self._stream = find_unused(lambda: torch.cuda.Stream(device), lambda made: int(made.cuda_stream), used)  # type: ignore[no-untyped-call]
        self._in_use.add(self)

    def carry_out(self, work: Callable[[], Result], not_before_ns: int = 0) -> tuple[Result, Span]:
        """Enqueue it between two events and wait for the second; the duration is the one between them."""
        begin, end = _event(), _event()
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            begin.record(self._stream)
            result = work()
            end.record(self._stream)
        end.synchronize()
        done = time.perf_counter_ns()
        start = max(not_before_ns, done - round(begin.elapsed_time(end) * _NS_PER_MS))
        return result, Span(start, done)


@dataclass(frozen=True, slots=True)
class Physical:
    """A device of this machine: a CUDA device, or a core of the CPU.

    Parameters
    ----------
    device
        As torch names it.
    name
        As a person knows it.
    """

    device: torch.device
    name: str

    @property
    def is_cuda(self) -> bool:
        """Whether work on it goes through CUDA."""
        return self.device.type == "cuda"

    def stream(self) -> Stream:
        """Return a new stream on this device."""
        return CudaStream(self.device) if self.is_cuda else HostStream()

    def host_memory(self, size_bytes: int) -> Tensor:
        """Return bytes of host memory that this device can copy from at full speed (pinned for CUDA).

        Raises
        ------
        DeviceError
            If there is not so much, or not so much may be pinned.
        """
        try:
            return torch.zeros(size_bytes, dtype=torch.uint8, pin_memory=self.is_cuda)
        except (RuntimeError, MemoryError) as error:
            kind = "pinned host memory" if self.is_cuda else "host memory"
            raise DeviceError(
                f"{self.name}: no {size_bytes} bytes of {kind} for a model's weights: {_first_line(error)}"
            ) from None

    def memory(self, size_bytes: int) -> Tensor:
        """Return bytes of this device's memory.

        Raises
        ------
        DeviceError
            If there is not so much.
        """
        try:
            memory = torch.zeros(size_bytes, dtype=torch.uint8, device=self.device)
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise DeviceError(f"{self.name}: no {size_bytes} bytes of memory are free: {_first_line(error)}") from None
        except RuntimeError as error:
            raise DeviceError(f"{self.name}: {size_bytes} bytes of memory: {_first_line(error)}") from None
        self.wait()  # other streams may write to it from now on
        return memory

    def answers(self) -> bool:
        """Say whether it can still be used: after a failed assertion in a kernel every call for a CUDA device fails."""
        try:
            return bool(torch.ones(1, device=self.device).item())
        except torch.OutOfMemoryError:
            return True
        except torch.AcceleratorError:
            return False

    def wait(self) -> None:
        """Wait until the device has nothing to do."""
        if self.is_cuda:
            torch.cuda.synchronize(self.device)


def physical_devices(kind: str) -> list[Physical]:
    """Return the devices of a kind: every CUDA device, or every core of the CPU that this process may use.

    Raises
    ------
    DeviceError
        If the kind is unknown, or there is no such device.
    """
    if kind == "cpu":
        return [Physical(torch.device("cpu"), f"cpu core {core}") for core in range(len(os.sched_getaffinity(0)))]
    if kind != "cuda":
        raise DeviceError(f"device {kind!r} is unknown; allowed are cpu, cuda")
    if not torch.cuda.is_available():
        raise DeviceError("no CUDA device can be reached (torch.cuda.is_available() is false); allowed here is cpu")
    count = torch.cuda.device_count()
    return [Physical(torch.device("cuda", index), torch.cuda.get_device_name(index)) for index in range(count)]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
