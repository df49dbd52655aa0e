"""A lane: one thing after another in the process of a GPU, as the head sees it; orders, and how they are told to it.

Orders and reports are rows of whole numbers, and go through sockets that keep messages whole: nobody spins, and the
queue of a lane is the kernel's.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, auto
from itertools import count, islice
from typing import Protocol

from truenorth.executor.devices.streams import Span

_NS_PER_S = 1_000_000_000
_MOST_SENT = 64
"""Orders that are told to a lane before any of them has ended: the rest waits here, lest a socket be full."""
LARGEST_MESSAGE = 1 << 17
ORDER = struct.Struct("4q")
"""What an order begins with: number, what, on which GPU, and when it was asked for."""
REPORT = struct.Struct("7q")
"""What a report begins with: by which process, of which order, how it ended, when it began and ended, its span."""
_NEVER = Span(0, 0)


class Do(IntEnum):
    """What is ordered. Each has numbers of its own behind the GPU and the instant at which it was asked for."""

    RUN = auto()
    ITERATE = auto()
    LOAD = auto()
    RECEIVE = auto()
    PUBLISH = auto()
    TRY = auto()
    TRY_TRANSFER = auto()
    MEASURE_COPIES = auto()
    RUN_ALONE = auto()
    RUN_TOGETHER = auto()
    TRY_TOGETHER = auto()

    @property
    def is_run(self) -> bool:
        """Whether the code of a runner computes."""
        return self in (Do.RUN, Do.ITERATE, Do.TRY, Do.RUN_ALONE) or self.is_together

    @property
    def is_together(self) -> bool:
        """Whether other GPUs do the same, and wait for this one."""
        return self in (Do.RUN_TOGETHER, Do.TRY_TOGETHER)


class Ended(IntEnum):
    """How an order has ended: well, by an error of the runner or of this project, with its device, or not at all."""

    WELL = auto()
    RAISED = auto()
    REFUSED = auto()
    WITH_DEVICE = auto()
    GIVEN_UP = auto()


_numbers = count(1)


@dataclass(slots=True)
class Order:
    """Something to be done.

    Parameters
    ----------
    do, gpu, args
        What, on which planned GPU, and with what.
    limit_s
        How long it may take before it is given up.
    done
        Called by whoever takes the report, with the result or the error.
    again
        Returns what to do it with if it has to be done once more after an unknown part of it was; None: the same.

    Attributes
    ----------
    number
        By which it is reported.
    lane
        Which carries it out.
    began_ns, ended_ns, span
        When it was taken up, reported, and when the device was busy with it; None: not yet.
    results, error
        How it ended; an error in words.
    how
        Whose error it is.
    """

    do: Do
    gpu: int
    args: Sequence[int]
    limit_s: float
    done: Callable[[Order], None]
    again: Callable[[], Sequence[int]] | None = None
    number: int = field(default_factory=lambda: next(_numbers))
    lane: Lane | None = None
    began_ns: int | None = None
    ended_ns: int | None = None
    span: Span = _NEVER
    results: Sequence[int] = ()
    error: str | None = None
    how: Ended = Ended.WELL

    @property
    def is_wanted(self) -> bool:
        """Whether anything is to come of it."""
        return self.done != let_be

    @property
    def message(self) -> bytes:
        """What is told to the lane."""
        return pack((self.number, self.do, self.gpu, time.perf_counter_ns(), *self.args))

    def take(self, how: int, began_ns: int, ended_ns: int, span: Span, rest: bytes) -> None:
        """Take in what a report says."""
        self.how, self.began_ns, self.ended_ns, self.span = Ended(how), began_ns, ended_ns, span
        if self.how == Ended.WELL:
            self.results = unpack(rest)
        else:
            self.error = rest.decode(errors="replace")

    def hurry(self, within_s: float) -> None:
        """Let it be given up if it has not ended within some seconds."""
        if self.lane is not None and self.number in self.lane.under_way:
            passed_s = (time.perf_counter_ns() - self.lane.since_ns) / _NS_PER_S
            self.limit_s = min(self.limit_s, passed_s + within_s)

    def fail(self, why: str, began_ns: int, ended_ns: int) -> None:
        """Take in that it is given up."""
        if self.lane is not None:
            self.lane.take(self)
        self.how, self.error, self.began_ns, self.ended_ns = Ended.GIVEN_UP, why, began_ns, ended_ns


def pack(numbers: Sequence[int]) -> bytes:
    """Return whole numbers as a message.

    >>> unpack(pack([3, -1]))
    (3, -1)
    """
    return struct.pack(f"{len(numbers)}q", *numbers)


def unpack(message: bytes) -> tuple[int, ...]:
    """Return the whole numbers of a message."""
    return struct.unpack(f"{len(message) // 8}q", message)


class Channel(Protocol):
    """What goes in at this end comes out in the process of a device, in order and whole: a socket is one."""

    def send(self, message: bytes, /) -> object:
        """Tell it something.

        Raises
        ------
        OSError
            If it is known to be gone.
        """

    def close(self) -> None:
        """Let nothing more be told."""


class Lane:
    """A queue of orders.

    Parameters
    ----------
    name
        For messages.
    orders
        All orders that are under way anywhere, by number.
    computes
        Whether runs are what it carries out.

    Attributes
    ----------
    under_way
        Orders that nobody has taken a report of, by number, in their order.
    since_ns
        When the first of them began, as far as can be known here.
    """

    def __init__(self, name: str, orders: dict[int, Order], computes: bool = False) -> None:
        self.name, self.computes, self._orders = name, computes, orders
        self.under_way: dict[int, Order] = {}
        self.since_ns = 0
        self._link: Channel | None = None
        self._sent = 0

    def open(self, link: Channel) -> None:
        """Begin anew with a process that has been told nothing; what is under way waits for `send_all`."""
        self.close()
        self._link, self._sent = link, 0

    def submit(self, order: Order) -> None:
        """Have something done after everything ordered before."""
        if not self.under_way:
            self.since_ns = time.perf_counter_ns()
        order.lane = self
        self.under_way[order.number] = self._orders[order.number] = order
        self._send_on()

    def send_all(self) -> None:
        """Tell a fresh process what is under way."""
        self.since_ns = time.perf_counter_ns()
        for order in self.under_way.values():
            order.args = order.args if order.again is None else order.again()
        self._send_on()

    def _send_on(self) -> None:
        if self._link is None:
            return
        try:
            for order in islice(self.under_way.values(), self._sent, _MOST_SENT):
                self._link.send(order.message)
                self._sent += 1
        except OSError:  # its process has just ended: whoever takes note of that has all of this sent again
            self._sent = _MOST_SENT

    def take(self, order: Order) -> bool:
        """Take note that an order has ended; say whether anybody still waits for it."""
        self._orders.pop(order.number, None)
        if self.under_way.pop(order.number, None) is None:
            return False
        self.since_ns = time.perf_counter_ns()
        self._sent -= 1
        if len(self.under_way) > self._sent:
            self._send_on()
        return True

    @property
    def is_wanted(self) -> bool:
        """Whether anything is to come of what is under way."""
        return any(order.is_wanted for order in self.under_way.values())

    @property
    def first(self) -> Order | None:
        """The first that no report was taken of."""
        return next(iter(self.under_way.values()), None)

    def overdue(self, begun: Order | None) -> Order | None:
        """Return the order that is being carried out if it is beyond its limit.

        Parameters
        ----------
        begun
            That order; how those before it ended has yet to be told. None: it is the first.
        """
        limit_s = 0.0
        for order in self.under_way.values():
            limit_s += order.limit_s
            if begun is None or begun is order:
                late = time.perf_counter_ns() - self.since_ns > limit_s * _NS_PER_S
                return order if late else None
        return None

    def close(self) -> None:
        """Let whoever serves it end."""
        if self._link is not None:
            self._link.close()


def let_be(order: Order) -> None:
    """Do nothing: stands for a report that nobody wants."""


_GRACE_S = 2.0
"""Within so many seconds whoever ran with a GPU that has failed has to note it."""


def join(orders: Sequence[Order], done: Callable[[Order], None]) -> None:
    """Have orders to several GPUs told as one when all have ended.

    Parameters
    ----------
    done
        Called with what they are as one: from the first start to the last end, and in error if one of them is.
    """
    if len(orders) == 1:
        orders[0].done = done
    else:
        _Joined(orders, done)


class _Joined:
    """Counts the orders that have ended."""

    def __init__(self, orders: Sequence[Order], done: Callable[[Order], None]) -> None:
        self._orders, self._done, self._left = orders, done, len(orders)
        self._failed: list[Order] = []
        for order in orders:
            order.done = self._take

    def _take(self, order: Order) -> None:
        self._left -= 1
        if order.error is not None:
            self._failed.append(order)
            for other in self._orders if order.do.is_together else ():
                other.hurry(_GRACE_S)
        if not self._left:
            self._done(self._as_one())

    def _as_one(self) -> Order:
        # Whoever was left by another is refused; the other one is to blame.
        blamed = next((order for order in self._failed if order.how != Ended.REFUSED), None)
        one = blamed or next(iter(self._failed), self._orders[0])
        began = [order.began_ns for order in self._orders if order.began_ns is not None]
        ended = [order.ended_ns for order in self._orders if order.ended_ns is not None]
        spans = [order.span for order in self._orders]
        span = Span(min(each.start_ns for each in spans), max(each.end_ns for each in spans))
        return replace(one, began_ns=min(began, default=None), ended_ns=max(ended, default=None), span=span)
