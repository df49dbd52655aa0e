"""Physical devices: a CUDA device or a core, its streams, its memory, and host memory that it copies from."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from torch.profiler import ProfilerActivity, profile

from truenorth.executor.devices.cuda import Card, Group, find_cards
from truenorth.executor.devices.streams import CudaStream, HostStream, Stream
from truenorth.executor.errors import DeviceError

PATIENCE_S = 60.0
"""How long a device may take to come to rest where nobody says otherwise."""
_MOST_OF_MEMORY = 0.9
_NO_LIMIT = timedelta(days=1)

# Unless somebody wants to read it, the profiler is to say nothing of its own doings; it reads this when first used.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")


@dataclass(frozen=True, slots=True)
class Physical:
    """A device of this machine: a CUDA device, or a core of the CPU.

    Parameters
    ----------
    device
        Where torch puts its tensors.
    name
        As a person knows it.
    card
        The CUDA device; None for a core, and for a device of another machine.
    """

    device: torch.device
    name: str
    card: Card | None = None

    @property
    def is_cuda(self) -> bool:
        """Whether work on it goes through CUDA."""
        return self.card is not None or self.device.type == "cuda"

    def stream(self) -> Stream:
        """Return a new stream on this device."""
        return HostStream() if self.card is None else CudaStream(self.card)

    def host_memory(self, size_bytes: int) -> Tensor:
        """Return bytes of host memory that this device can copy from at full speed (pinned for CUDA).

        Raises
        ------
        DeviceError
            If there is not so much, or not so much may be pinned.
        """
        kind = "host memory" if self.card is None else "pinned host memory"
        self.require_host_memory(size_bytes, f"{size_bytes} bytes of {kind}")
        try:
            if self.card is not None:
                return self.card.pinned(size_bytes)
            return torch.zeros(size_bytes, dtype=torch.uint8)
        except (RuntimeError, MemoryError) as error:
            raise DeviceError(f"{self.name}: no {size_bytes} bytes of {kind}: {_first_line(error)}") from None

    def pin(self, memory: Tensor) -> None:
        """Let copies from host memory that is there take full speed, where that takes anything.

        Raises
        ------
        DeviceError
            If not so much may be pinned.
        """
        try:
            if self.card is not None:
                self.card.pin(memory)
        except RuntimeError as error:
            raise DeviceError(f"{self.name}: {memory.nbytes} bytes cannot be pinned: {_first_line(error)}") from None

    def require_host_memory(self, size_bytes: int, what: str) -> None:
        """Refuse what would exceed this machine's memory, and so end the process without a word.

        Parameters
        ----------
        size_bytes
            In one piece; torch rounds what it pins up to a power of two.
        what
            For the message.

        Raises
        ------
        DeviceError
            If less is available.
        """
        available = available_bytes()
        needed = size_bytes if self.card is None else 1 << max(0, size_bytes - 1).bit_length()
        if available is not None and needed > _MOST_OF_MEMORY * available:
            raise DeviceError(
                f"{self.name}: no {what}: {needed} bytes of this machine's memory are needed, {available} are "
                "available; use a scenario with smaller memories and models"
            )

    def memory(self, size_bytes: int) -> Tensor:
        """Return bytes of this device's memory.

        Raises
        ------
        DeviceError
            If there is not so much.
        """
        try:
            if self.card is None:
                return torch.zeros(size_bytes, dtype=torch.uint8)
            memory = self.card.allocate(size_bytes)
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise DeviceError(f"{self.name}: no {size_bytes} bytes of memory are free: {_first_line(error)}") from None
        except RuntimeError as error:
            raise DeviceError(f"{self.name}: {size_bytes} bytes of memory: {_first_line(error)}") from None
        self.wait()  # other streams may write to it from now on
        return memory

    def answers(self, limit_s: float = PATIENCE_S) -> bool:
        """Say whether it can still be used: after a failed assertion in a kernel every call for a CUDA device fails."""
        if self.card is None:
            return True
        try:
            _within(limit_s, self.card.probe, self.name)
        except torch.OutOfMemoryError:
            return True
        except (torch.AcceleratorError, DeviceError):
            return False
        return True

    def group(self, meeting: Any, rank: int, size: int) -> Group:
        """Return what adds up over so many devices of this machine, of which this is one, once all have come.

        Whoever waits too long for others is ended by the head.
        """
        if self.card is not None:
            return self.card.group(meeting, rank, size)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        made: Any = distributed.ProcessGroupGloo(meeting, rank, size, _NO_LIMIT)
        found: Group = made
        return found

    def wait(self, limit_s: float = PATIENCE_S) -> None:
        """Wait until the device has nothing to do.

        Raises
        ------
        DeviceError
            If that takes longer than a limit.
        """
        if self.card is not None:
            _within(limit_s, self.card.synchronize, self.name)


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
    return [Physical(card.device, card.name, card) for card in find_cards()]


def available_bytes() -> int | None:
    """Return how much host memory this process may still take; None where nothing tells."""
    meminfo, group = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
    if not meminfo.exists():
        return None
    fields = dict(line.split(":") for line in meminfo.read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    limit = group / "memory.max"
    # A container's own limit, beyond which its processes are killed.
    if limit.exists() and (most := limit.read_text().strip()).isdigit():
        available = min(available, int(most) - int((group / "memory.current").read_text()))
    return max(0, available)


def _within(limit_s: float, call: Callable[[], None], name: str) -> None:
    """Make a call that may never return; a thread that is stuck in it is left behind."""
    raised: list[BaseException] = []

    def go() -> None:
        """Make it, and keep what it raises."""
        try:
            call()
        except BaseException as error:  # of whatever kind, it is raised where it was asked for
            raised.append(error)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        raise DeviceError(f"{name}: no answer within {limit_s:g} s")
    for error in raised:
        raise error


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def activation_bytes(physical: Physical, run: Callable[[], object]) -> int:
    """Return the most memory of torch's that some work took at a time, its outputs included.

    On a CPU that is what torch's allocator handed out; what libraries take for themselves is unknown to it.

    Parameters
    ----------
    run
        Waits until the device is done with it.
    """
    if physical.card is not None:
        physical.card.peak_bytes()
        held = physical.card.peak_bytes()
        run()
        return physical.card.peak_bytes() - held
    with _hushed(), profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=False) as seen:
        run()
    changes = sorted(
        (event.start_ns(), event.nbytes())
        for event in seen.profiler.kineto_results.events()
        if event.name() == "[memory]"
    )
    held = most = 0
    for _, change in changes:
        held += change
        most = max(most, held)
    return most


@contextmanager
def _hushed() -> Iterator[None]:
    """Keep to itself what torch's allocator prints of memory that is given back and older than the profiler."""
    errors, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(errors, 2)
        os.close(errors)
        os.close(nowhere)
