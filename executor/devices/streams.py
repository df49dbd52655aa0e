"""Streams: work is handed over in order, and is done some time later.

Handing over returns at once with what is `Pending`: whoever needs it done waits for that, and what other streams are
handed later may be told to begin behind it, without anybody waiting. On CUDA start and end are those of events on the
card, read on the host's clock; on a CPU a stream is the calling thread, and work is done when it returns. One clock
stamps both: `time.perf_counter_ns`.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Generic, TypeVar
from weakref import WeakSet

from truenorth.executor.devices.cuda import STREAMS, Card, CardEvent, CardStream
from truenorth.executor.errors import DeviceError

Result = TypeVar("Result")
S = TypeVar("S")
_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000
_FIRST_NAP_S, _LONGEST_NAP_S = 0.00002, 0.001
_ANCHOR_NS = 4 * _NS_PER_S
_ANCHOR_TRIES = 5


@dataclass(frozen=True, slots=True)
class Span:
    """When something took place, in nanoseconds of `time.perf_counter_ns`."""

    start_ns: int
    end_ns: int

    @property
    def duration_us(self) -> float:
        """Length in microseconds."""
        return (self.end_ns - self.start_ns) / 1000


class Pending(ABC, Generic[Result]):
    """Work that a stream was handed.

    Attributes
    ----------
    result
        What the work returned. Its tensors are there for what is enqueued behind it; anybody else waits first.
    end
        What others may be told to follow; None on cores, where it is done at once.
    """

    result: Result
    end: CardEvent | None

    @abstractmethod
    def wait(self, limit_s: float | None = None) -> Span:
        """Wait until the device is done with it, without spinning; return when it was busy with it.

        Raises
        ------
        DeviceError
            If that takes longer than a limit.
        RuntimeError
            Of torch, for what has failed on the device.
        """


class Stream(ABC):
    """An ordered lane of work on a physical device."""

    @abstractmethod
    def enqueue(
        self,
        work: Callable[[], Result],
        *,
        after: Iterable[CardEvent | None] = (),
        not_before_ns: int = 0,
        label: str = "",
    ) -> Pending[Result]:
        """Have something done behind all that was enqueued here before.

        Parameters
        ----------
        after
            Ends of what else it follows, on whatever stream of this machine.
        not_before_ns
            When the work was asked for: its span cannot start earlier, however the device's clock is read.
        label
            What profilers show it as.
        """

    def carry_out(self, work: Callable[[], Result], not_before_ns: int = 0, label: str = "") -> tuple[Result, Span]:
        """Do something and wait until the device is done with it; return what it returned, and when that was."""
        pending = self.enqueue(work, not_before_ns=not_before_ns, label=label)
        return pending.result, pending.wait()


@dataclass(frozen=True, slots=True)
class Done(Pending[Result]):
    """What is done."""

    result: Result
    span: Span
    end: CardEvent | None = None

    def wait(self, limit_s: float | None = None) -> Span:
        """Return when it was done."""
        return self.span


class HostStream(Stream):
    """The calling thread."""

    def enqueue(
        self,
        work: Callable[[], Result],
        *,
        after: Iterable[CardEvent | None] = (),
        not_before_ns: int = 0,
        label: str = "",
    ) -> Pending[Result]:
        """Do it now: what it follows has ended."""
        start = time.perf_counter_ns()
        result = work()
        return Done(result, Span(start, time.perf_counter_ns()))


def find_unused(make: Callable[[], S], handle: Callable[[S], int], used: Collection[int]) -> S:
    """Return a stream that nobody uses.

    Parameters
    ----------
    make
        Hands out streams, the same ones again after `STREAMS`.
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
    for _ in range(STREAMS):
        made = make()
        if handle(made) not in used:
            return made
    raise DeviceError(
        f"all {STREAMS} streams that PyTorch has for a device are in use: each planned GPU takes three, and one more "
        "for every run beside another; allowed are fewer planned GPUs per device, and larger shares"
    )


class CardClock:
    """Reads events of a card on the host's clock.

    An event that the host sees at once tells what its clock shows when the card is there. Others are read as
    milliseconds from that one, in 24 bits, so it is made anew before a microsecond gets lost.
    """

    def __init__(self, card: Card) -> None:
        self._card, self._stream = card, card.default_stream()
        self._lock = threading.Lock()
        self._anchor: tuple[CardEvent, int] | None = None

    def anchor(self) -> tuple[CardEvent, int]:
        """Return an event of the last few seconds, and what the host's clock showed then."""
        with self._lock:
            if self._anchor is None or self._card.now_ns() - self._anchor[1] > _ANCHOR_NS:
                tried = [self._try() for _ in range(_ANCHOR_TRIES)]
                event, begin, end = min(tried, key=lambda each: each[2] - each[1])
                self._anchor = event, (begin + end) // 2
            return self._anchor

    def _try(self) -> tuple[CardEvent, int, int]:
        """Return an event, and between which instants the card came by."""
        event, begin = self._card.event(), self._card.now_ns()
        event.record(self._stream)
        while not event.query():  # spinning for a few microseconds, of which sleeping would make many
            pass
        return event, begin, self._card.now_ns()


_clock_of = cache(CardClock)


class OnCard(Pending[Result]):
    """Work on a stream of a card, between two events.

    Parameters
    ----------
    card
        Where it is.
    anchor
        What its events are read from.
    begin, end
        The events.
    not_before_ns
        As for `Stream.enqueue`.
    result, work
        What was returned, by what: what that reads stays allocated until it has ended.
    """

    def __init__(
        self,
        card: Card,
        anchor: tuple[CardEvent, int],
        begin: CardEvent,
        end: CardEvent,
        not_before_ns: int,
        result: Result,
        work: object,
    ) -> None:
        self.result = result
        self.end: CardEvent = end
        self._card, self._anchor, self._begin = card, anchor, begin
        self._not_before_ns, self._work = not_before_ns, work

    def wait(self, limit_s: float | None = None) -> Span:
        """Wait for the second event."""
        if limit_s is None:
            self.end.synchronize()
        else:
            _nap_until(self.end.query, limit_s, self._card.name)
        done, self._work = self._card.now_ns(), None
        # The clocks agree up to some microseconds; what was seen to have ended has, whatever they say.
        end = min(max(self._stamp_ns(self.end), self._not_before_ns), done)
        return Span(min(max(self._stamp_ns(self._begin), self._not_before_ns), end), end)

    def _stamp_ns(self, event: CardEvent) -> int:
        anchor, stamp_ns = self._anchor
        return stamp_ns + round(anchor.elapsed_time(event) * _NS_PER_MS)


class CudaStream(Stream):
    """A CUDA stream of its own."""

    _in_use: ClassVar[WeakSet[CudaStream]] = WeakSet()

    def __init__(self, card: Card) -> None:
        self._card, self._clock = card, _clock_of(card)
        self._stream: CardStream
        used = {other._stream.cuda_stream for other in self._in_use if other._card == card}
        self._stream = find_unused(card.stream, lambda made: made.cuda_stream, used)
        self._in_use.add(self)

    def enqueue(
        self,
        work: Callable[[], Result],
        *,
        after: Iterable[CardEvent | None] = (),
        not_before_ns: int = 0,
        label: str = "",
    ) -> Pending[Result]:
        """Enqueue it between two events, behind the second one of each that it follows."""
        anchor, begin, end = self._clock.anchor(), self._card.event(), self._card.event()
        with self._card.enqueuing(self._stream, label):
            for event in after:
                if event is not None:
                    self._stream.wait_event(event)
            begin.record(self._stream)
            result = work()
            end.record(self._stream)
        return OnCard(self._card, anchor, begin, end, not_before_ns, result, work)


def _nap_until(has_come: Callable[[], bool], limit_s: float, name: str) -> None:
    """Sleep in short naps until something has come."""
    nap_s, end_s = _FIRST_NAP_S, time.monotonic() + limit_s
    while not has_come():
        if time.monotonic() > end_s:
            raise DeviceError(f"{name}: no answer within {limit_s:g} s")
        time.sleep(nap_s)
        nap_s = min(2 * nap_s, _LONGEST_NAP_S)
