"""CUDA as far as devices need it. No other file calls `torch.cuda`, so that tests can put a pretended card here."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor, distributed

from truenorth.executor.errors import DeviceError

STREAMS = 32
"""PyTorch hands out so many streams per device, and then the same ones again."""


class CardStream(Protocol):
    """A queue of work on a card, as `torch.cuda.Stream` is one."""

    @property
    def cuda_stream(self) -> int:
        """What tells streams apart."""

    def wait_event(self, event: Any) -> None:
        """Let nothing that is enqueued from now on begin before the card has come by an event."""


class CardEvent(Protocol):
    """A point in a stream, as `torch.cuda.Event` is one; asking it raises what has failed before it."""

    def record(self, stream: Any) -> None:
        """Put it behind what has been enqueued on a stream."""

    def query(self) -> bool:
        """Say whether the card has come by."""

    def synchronize(self) -> None:
        """Wait until the card has come by, without spinning."""

    def elapsed_time(self, end_event: Any) -> float:
        """Return milliseconds from here to another event that the card has come by."""


class Group(Protocol):
    """What adds up over several processes, as torch's process groups do."""

    def allreduce(self, tensors: list[Tensor]) -> Any:
        """Begin to put sums over all processes in place of what each has; whoever waits for it has them."""


class Card(Protocol):
    """A CUDA device, or a slice of one."""

    def __hash__(self) -> int:
        """Tell it from others."""

    @property
    def device(self) -> torch.device:
        """Where torch puts its tensors."""

    @property
    def name(self) -> str:
        """As a person knows it."""

    @property
    def uuid(self) -> str:
        """As NVIDIA's management library knows it."""

    @property
    def processors(self) -> int:
        """How many multiprocessors it has."""

    @property
    def cache_bytes(self) -> int:
        """Size of its level-2 cache."""

    def now_ns(self) -> int:
        """Return the host's clock."""

    def stream(self) -> CardStream:
        """Hand out a stream, after `STREAMS` of them the same ones again."""

    def default_stream(self) -> CardStream:
        """Return the stream that nothing else goes to."""

    def event(self) -> CardEvent:
        """Return an event that keeps its time."""

    def enqueuing(self, stream: Any, label: str) -> AbstractContextManager[None]:
        """Put what is launched inside on a stream, under a name that profilers show."""

    def allocate(self, size_bytes: int) -> Tensor:
        """Return zeros in its memory; others may use them once it has been waited for."""

    def pinned(self, size_bytes: int) -> Tensor:
        """Return zeros in pinned host memory."""

    def pin(self, memory: Tensor) -> None:
        """Pin host memory that is there, for as long as this process lives."""

    def probe(self) -> None:
        """Compute something and wait for it, which a card refuses that serves no longer."""

    def synchronize(self) -> None:
        """Wait until it has nothing to do."""

    def peak_bytes(self) -> int:
        """Return the most memory that torch has held there since this was asked last."""

    def group(self, meeting: Any, rank: int, size: int) -> Group:
        """Return what adds up over so many cards of this machine, of which this is one."""


@dataclass(frozen=True)
class CudaCard:
    """A CUDA device as torch has it; plain data, so that another process can be handed it."""

    device: torch.device
    name: str
    uuid: str
    processors: int
    cache_bytes: int

    @classmethod
    def at(cls, index: int) -> CudaCard:
        """Return the device of a number."""
        told = torch.cuda.get_device_properties(index)
        uuid = _uuid(str(told.uuid), index)
        name = f"{told.name} {uuid}" if uuid.startswith("MIG-") else str(told.name)
        return cls(torch.device("cuda", index), name, uuid, told.multi_processor_count, told.L2_cache_size)

    def now_ns(self) -> int:
        """Return the host's clock."""
        return time.perf_counter_ns()

    def stream(self) -> CardStream:
        """Hand out a stream of torch's pool."""
        made: CardStream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        return made

    def default_stream(self) -> CardStream:
        """Return torch's default stream, for which those of the pool do not wait, nor it for them."""
        found: CardStream = torch.cuda.default_stream(self.device)
        return found

    def event(self) -> CardEvent:
        """Return an event that keeps its time; whoever waits for it leaves the core to others."""
        made: CardEvent = torch.cuda.Event(enable_timing=True, blocking=True)  # type: ignore[no-untyped-call]
        return made

    @contextmanager
    def enqueuing(self, stream: Any, label: str) -> Iterator[None]:
        """Put what is launched inside on a stream, in a range of NVTX."""
        with torch.cuda.device(self.device), torch.cuda.stream(stream), torch.cuda.nvtx.range(label):
            yield

    def allocate(self, size_bytes: int) -> Tensor:
        """Return zeros in its memory."""
        return torch.zeros(size_bytes, dtype=torch.uint8, device=self.device)

    def pinned(self, size_bytes: int) -> Tensor:
        """Return zeros in pinned host memory."""
        return torch.zeros(size_bytes, dtype=torch.uint8, pin_memory=True)

    def pin(self, memory: Tensor) -> None:
        """Pin host memory that is there, for as long as this process lives."""
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        with torch.cuda.device(self.device):
            torch.cuda.check_error(int(runtime.cudaHostRegister(memory.data_ptr(), memory.nbytes, 0)))

    def probe(self) -> None:
        """Compute something and wait for it."""
        torch.ones(1, device=self.device).item()

    def synchronize(self) -> None:
        """Wait until it has nothing to do."""
        torch.cuda.synchronize(self.device)

    def peak_bytes(self) -> int:
        """Return the most memory that torch has held there since this was asked last."""
        most = torch.cuda.max_memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        return most

    def group(self, meeting: Any, rank: int, size: int) -> Group:
        """Return NCCL's; its work follows what the current stream has, and is followed there."""
        with torch.cuda.device(self.device):
            options = distributed.ProcessGroupNCCL.Options()
            made: Any = distributed.ProcessGroupNCCL(meeting, rank, size, options)
        found: Group = made
        return found


@cache
def find_cards() -> tuple[Card, ...]:
    """Return every CUDA device that can be reached.

    Raises
    ------
    DeviceError
        If there is none.
    """
    settle()
    if not torch.cuda.is_available():
        raise DeviceError("no CUDA device can be reached (torch.cuda.is_available() is false); allowed here is cpu")
    return tuple(CudaCard.at(index) for index in range(torch.cuda.device_count()))


def settle() -> Mapping[str, object]:
    """Ask for kernels that give equal bits for equal inputs, before CUDA is first used; return what was asked for."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filling what is made without content would be work that nobody asked for.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return {
        "CUBLAS_WORKSPACE_CONFIG": os.environ["CUBLAS_WORKSPACE_CONFIG"],
        "deterministic_algorithms": "warn only",
        "cudnn_benchmark": False,
        "allow_tf32": False,
    }


def _uuid(told: str, index: int) -> str:
    """Return how the management library knows a device: CUDA tells the card's UUID of a slice, too.

    >>> _uuid("7a-1", 0)
    'GPU-7a-1'
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    slices = [each.strip() for each in visible if each.strip().startswith("MIG-")]
    return slices[index] if index < len(slices) == len(visible) else f"GPU-{told}"
