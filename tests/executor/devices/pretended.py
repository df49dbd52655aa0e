"""A card that pretends: streams, events, engines, memory and failures of CUDA on tensors of the host; a judge of races.

What is launched is computed at once. When a card would have begun and ended it is simulated; whether anything makes
certain that it comes behind what it must follow is judged by vector clocks (Lamport 1978; Mattern 1989), whatever the
times. So a race is found in every run of a test, not in the one in which it strikes.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from truenorth.executor.devices.cuda import STREAMS, Group
from truenorth.executor.devices.physical import Physical

View = dict[int, int]
"""By stream: up to which of its operations everything is known to have ended."""

ASSERT, RECOVERS, HANGS, LOST, FULL = "assert", "recovers", "hangs", "lost", "full"
"""How an operation fails: for good once it runs; only itself; it never ends; the card is gone; no memory is left."""


class RaceError(AssertionError):
    """Nothing makes certain that an access comes behind one that it must follow."""


class Stepped:
    """A clock that moves when it is read, or slept on."""

    def __init__(self) -> None:
        self.at_ns = 0

    def now_ns(self) -> int:
        self.at_ns += 100
        return self.at_ns

    def sleep_until(self, at_ns: int) -> None:
        self.at_ns = max(self.at_ns, at_ns)


class Wall(Stepped):
    """The host's clock."""

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    def sleep_until(self, at_ns: int) -> None:
        time.sleep(max(0, at_ns - time.perf_counter_ns()) / 1e9)


@dataclass(slots=True)
class Operation:
    """What was launched: a copy from the host (``in``) or to it (``out``), or a kernel."""

    label: str
    kind: str
    stream: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Access:
    """Bytes that an operation reads or writes: the `number`-th of its stream."""

    low: int
    high: int
    stream: int
    number: int
    writes: bool
    label: str


class PretendedStream:
    def __init__(self, card: PretendedCard, handle: int) -> None:
        self.cuda_stream, self.card = handle, card
        self.tail_ns, self.view, self.failed = 0, View(), list[tuple[int, str]]()

    def wait_event(self, event: PretendedEvent) -> None:
        self.card.require()
        self.tail_ns = max(self.tail_ns, event.at_ns)
        _merge(self.view, event.view)


class PretendedEvent:
    def __init__(self, card: PretendedCard) -> None:
        self.card, self.at_ns, self.view, self.stream = card, 0, View(), card.streams[0]

    def record(self, stream: PretendedStream) -> None:
        self.card.require()
        self.stream, self.view = stream, dict(stream.view)
        self.at_ns = max(stream.tail_ns, self.card.clock.now_ns())

    def query(self) -> bool:
        self.card.require()
        if self._hangs() or self.card.clock.now_ns() < self.at_ns:
            return False
        self.card.see(self)
        return True

    def synchronize(self) -> None:
        while self._hangs() and self.card.broken is None:
            self.card.released.wait(0.01)
        self.card.require()
        self.card.clock.sleep_until(self.at_ns)
        self.card.see(self)

    def covers(self, number: int) -> bool:
        """Say whether it lies behind an operation of its stream."""
        return self.view.get(self.stream.cuda_stream, 0) >= number

    def _hangs(self) -> bool:
        hanging = self.card.hanging.get(self.stream)
        return hanging is not None and self.covers(hanging)

    def elapsed_time(self, end: PretendedEvent) -> float:
        return float(np.float32((end.at_ns - self.at_ns) * self.card.speed / 1e6))


@dataclass(eq=False)
class PretendedCard:
    """One card; its methods are those of `executor.devices.cuda.Card`.

    Parameters
    ----------
    memory_bytes
        Beyond it nothing is allocated.
    kernel_ns, copy_ns
        What a kernel takes, and a byte of a copy between card and host; one copy each way at a time.
    speed
        Of the card's clock against the host's.
    failing
        By a part of a label: how the first operation with it fails.

    Attributes
    ----------
    operations
        What was launched, in order.
    """

    index: int = 0
    memory_bytes: int = 1 << 30
    kernel_ns: int = 10_000
    copy_ns: float = 1.0
    speed: float = 1.0
    clock: Stepped = field(default_factory=Stepped)
    failing: dict[str, str] = field(default_factory=dict)
    processors: int = 4
    cache_bytes: int = 1 << 16
    operations: list[Operation] = field(default_factory=list, init=False)
    broken: torch.AcceleratorError | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.device = torch.device("cpu")
        self.name, self.uuid = f"pretended card {self.index}", f"GPU-{self.index}"
        self.streams = [PretendedStream(self, handle) for handle in range(STREAMS + 1)]
        self.hanging, self.released = dict[PretendedStream, int](), threading.Event()
        self._handed, self._held, self._peak = 0, 0, 0
        self._seen, self._accesses = View(), list[Access]()
        self._engine_ns: defaultdict[str, int] = defaultdict(int)
        self._pinned: list[Tensor] = []
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[type[PretendedCard], tuple[object, ...]]:
        given = tuple(getattr(self, one.name) for one in fields(self) if one.init)
        return type(self), given

    # -- what devices call ----------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        return self.clock.now_ns()

    def stream(self) -> PretendedStream:
        self.require()
        self._handed += 1
        return self.streams[1 + (self._handed - 1) % STREAMS]

    def default_stream(self) -> PretendedStream:
        return self.streams[0]

    def event(self) -> PretendedEvent:
        self.require()
        return PretendedEvent(self)

    @contextmanager
    def enqueuing(self, stream: PretendedStream, label: str) -> Iterator[None]:
        self.require()
        with _Launches(self, stream, label):
            yield

    def allocate(self, size_bytes: int) -> Tensor:
        self.require()
        self.hold(size_bytes)
        return torch.zeros(size_bytes, dtype=torch.uint8)

    def pinned(self, size_bytes: int) -> Tensor:
        self.pin(made := torch.zeros(size_bytes, dtype=torch.uint8))
        return made

    def pin(self, memory: Tensor) -> None:
        self.require()
        self._pinned.append(memory)

    def probe(self) -> None:
        self.require()

    def synchronize(self) -> None:
        for stream in self.streams:
            event = PretendedEvent(self)
            event.record(stream)
            event.synchronize()

    def peak_bytes(self) -> int:
        most, self._peak = self._peak, self._held
        return most

    def group(self, meeting: Any, rank: int, size: int) -> Group:
        self.require()
        return Physical(self.device, self.name).group(meeting, rank, size)

    # -- what the tests call, and what happens on the card ----------------------------------------------------------

    def physical(self) -> Physical:
        """Return it as devices have it."""
        return Physical(self.device, self.name, self)

    def lose(self) -> None:
        """Have the card fall off the bus."""
        self.broken = torch.AcceleratorError("CUDA error: unspecified launch failure: the device is lost")

    def release(self) -> None:
        """Let what hangs end after all."""
        self.hanging.clear()
        self.released.set()

    def require(self) -> None:
        """Raise what ended the card."""
        if self.broken is not None:
            raise self.broken

    def see(self, event: PretendedEvent) -> None:
        """Let the host know that an event has come, and of what failed before it."""
        _merge(self._seen, event.view)
        failed = [one for one in event.stream.failed if event.covers(one[0])]
        for number, how in failed[:1]:
            event.stream.failed.remove((number, how))
            error = torch.AcceleratorError(f"CUDA error: device-side {how} triggered")
            self.broken = error if how == ASSERT else None
            raise error

    def hold(self, size_bytes: int) -> None:
        """Take memory; within an operation nothing is freed."""
        if self._held + size_bytes > self.memory_bytes:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size_bytes} bytes.")
        self._held += size_bytes
        self._peak = max(self._peak, self._held)

    def free(self, size_bytes: int) -> None:
        """Give memory back."""
        self._held -= size_bytes

    def read_by_host(self, tensor: Tensor) -> None:
        """Judge a look of the host at what lies on the card."""
        self._judge(tensor, self._seen, Access(*_extent(tensor), -1, 0, False, "the host"))

    def of(self, label: str) -> list[Operation]:
        """Return the operations with a part of a label."""
        return [operation for operation in self.operations if label in operation.label]

    def launch(self, stream: PretendedStream, label: str, kind: str, size_bytes: int) -> None:
        """Put an operation behind the others of its stream, and have it fail as it should."""
        how = next((self.failing.pop(part) for part in list(self.failing) if part in label), None)
        if how == FULL:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        if how == LOST:
            self.lose()
            self.require()
        begin = max(self.clock.now_ns(), stream.tail_ns, self._engine_ns[kind])
        took = round(size_bytes * self.copy_ns) if kind != "kernel" else self.kernel_ns
        stream.tail_ns = begin + took
        if kind != "kernel":
            self._engine_ns[kind] = stream.tail_ns
        self.operations.append(Operation(label, kind, stream.cuda_stream, begin, stream.tail_ns))
        _merge(stream.view, self._seen)  # whatever the host has seen before it launched this
        number = stream.view[stream.cuda_stream] = stream.view.get(stream.cuda_stream, 0) + 1
        if how == HANGS:
            self.hanging.setdefault(stream, number)
        elif how is not None:
            stream.failed.append((number, how))

    def touch(self, stream: PretendedStream, label: str, tensor: Tensor, writes: bool, fresh: bool = False) -> None:
        """Judge an access of the operation launched last on a stream."""
        number = stream.view[stream.cuda_stream]
        access = Access(*_extent(tensor), stream.cuda_stream, number, writes, label)
        if fresh:  # nobody can know the address yet
            self._accesses = [old for old in self._accesses if not _overlap(old, access)]
        self._judge(tensor, stream.view, access)
        self._accesses.append(access)

    def _judge(self, tensor: Tensor, view: Mapping[int, int], access: Access) -> None:
        for old in self._accesses:
            known = view.get(old.stream, 0) >= old.number
            if not known and (old.writes or access.writes) and _overlap(old, access):
                verb = {True: "writes", False: "reads"}
                raise RaceError(f"{access.label} {verb[access.writes]} what {old.label} {verb[old.writes]}")

    def kind_of(self, func: Any, args: Sequence[Any]) -> str:
        """Return whether an operation is a copy from the host, to it, or a kernel."""
        if func.overloadpacket is torch.ops.aten.copy_:
            for kind, tensor in zip(("out", "in"), args, strict=False):
                if any(_within(tensor, pinned) for pinned in self._pinned):
                    return kind
        return "kernel"


class _Launches(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Everything that torch is asked to do in a thread goes to a stream."""

    def __init__(self, card: PretendedCard, stream: PretendedStream, label: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.card, self.stream, self.label = card, stream, label

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise the first launch imports a compiler, for seconds

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        made, schema = func(*args, **kwargs), func._schema
        if any(one.alias_info is not None and not one.alias_info.is_write for one in schema.returns):
            return made  # a view touches no memory
        given = [tensor for tensor in tree_leaves((list(args), dict(kwargs))) if isinstance(tensor, Tensor)]
        fresh = [one for one in tree_leaves(made) if isinstance(one, Tensor) and not any(one is old for old in given)]
        named = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | dict(kwargs)
        written = [
            named[argument.name]
            for argument in schema.arguments
            if argument.alias_info is not None and argument.alias_info.is_write and argument.name in named
        ]
        size = max((tensor.nbytes for tensor in written), default=0)
        with self.card._lock:
            self.card.hold(sum(tensor.nbytes for tensor in fresh))
            if func._schema.name.startswith("aten::empty"):
                return made
            self.card.launch(self.stream, self.label, self.card.kind_of(func, args), size)
            for tensor in given:
                self.card.touch(self.stream, self.label, tensor, any(tensor is one for one in written))
            for tensor in fresh:
                self.card.touch(self.stream, self.label, tensor, True, fresh=True)
        return made


def _merge(view: View, other: Mapping[int, int]) -> None:
    for stream, number in other.items():
        view[stream] = max(number, view.get(stream, 0))


def _extent(tensor: Tensor) -> tuple[int, int]:
    if not tensor.numel() or tensor.is_meta:
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.itemsize


def _overlap(one: Access, other: Access) -> bool:
    return one.low < other.high and other.low < one.high


def _within(tensor: Tensor, whole: Tensor) -> bool:
    (low, high), (first, end) = _extent(tensor), _extent(whole)
    return first <= low and high <= end and low < high
