"""A lane: a thread that does one thing after another and reports how each ended, whatever happens in it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import torch

from truenorth.executor.errors import DeviceError

_NS_PER_S = 1_000_000_000
_SWITCH_S = 0.0005
"""How long a thread may keep Python's lock while another wants it: the engine must not wait behind a runner."""


class LostError(DeviceError):
    """An engine of a GPU was stuck beyond its limit."""


@dataclass(slots=True)
class Order:
    """Something to be done.

    Parameters
    ----------
    work
        What is done; its result is reported.
    limit_s
        How long it may take before it is given up.
    done
        Called by whoever takes the report, with the result or the error.

    Attributes
    ----------
    lane
        Which carries it out.
    began_ns, ended_ns
        When it was taken up and reported; None: not yet.
    result, error
        How it ended.
    ends_device
        Whether nothing more can be done on the device since: it was stuck, or answers no call any more.
    """

    work: Callable[[], Any]
    limit_s: float
    done: Callable[[Order], None]
    lane: Lane | None = None
    began_ns: int | None = None
    ended_ns: int | None = None
    result: Any = None
    error: BaseException | None = None
    ends_device: bool = False


class Lane:
    """A daemon thread with a queue of orders.

    Parameters
    ----------
    name
        For messages.
    reports
        Where orders go when they have ended.
    answers
        Says whether the device still answers, after CUDA has reported an error.

    Attributes
    ----------
    lost
        Why the lane takes no more orders, or None.
    under_way
        Orders that nobody has taken a report of.
    """

    def __init__(self, name: str, reports: SimpleQueue[Order], answers: Callable[[], bool] = lambda: True) -> None:
        self.name = name
        self._answers = answers
        self.lost: str | None = None
        self.under_way: dict[int, Order] = {}
        self._orders: SimpleQueue[Order | None] = SimpleQueue()
        self._reports = reports
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def thread(self) -> int:
        """What the thread is known by."""
        return self._thread.ident or 0

    def submit(self, order: Order) -> None:
        """Have something done after everything ordered before."""
        order.lane = self
        self.under_way[id(order)] = order
        self._orders.put(order)

    def taken(self, order: Order) -> bool:
        """Take note of a report; say whether anybody still waits for it."""
        return self.under_way.pop(id(order), None) is not None

    def overdue(self) -> Order | None:
        """Give up the order that is being carried out if it is beyond its limit, and the lane with it; return it."""
        now = time.perf_counter_ns()
        for order in self.under_way.values():
            running = order.began_ns is not None and order.ended_ns is None
            if running and now - (order.began_ns or now) > order.limit_s * _NS_PER_S:
                self.lost = f"{self.name} was stuck for more than {order.limit_s:.3g} s"
                order.error, order.ends_device = LostError(self.lost), True
                del self.under_way[id(order)]
                return order
        return None

    def replace(self) -> Lane:
        """Return a lane that carries out what still waits here."""
        fresh = Lane(self.name, self._reports, self._answers)
        for order in self.under_way.values():
            fresh.submit(order)
        self.under_way.clear()
        return fresh

    def close(self) -> None:
        """Let the thread end; one that is stuck is left behind."""
        self._orders.put(None)
        if self.lost is None:
            self._thread.join(1.0)

    def _serve(self) -> None:
        torch.set_num_threads(1)
        while (order := self._orders.get()) is not None:
            if order.lane is not self:
                continue  # it was handed on while this thread was stuck
            order.began_ns = time.perf_counter_ns()
            try:
                order.result = order.work()
            except BaseException as error:  # whatever a runner raises fails its task, not the run
                order.error = error
                # Asked here, where a device that never answers holds nobody up but this order, which has its limit.
                order.ends_device = isinstance(error, torch.AcceleratorError) and not self._answers()
            order.ended_ns = time.perf_counter_ns()
            order.work = let_be  # it may hold the order before this one, and so on to the first
            self._reports.put(order)


def let_be(*_: object) -> None:
    """Do nothing: stands for work, or for a report, that nobody wants."""


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Give every lane one thread of computation, and the engine Python's lock soon after it asks."""
    threads, interval = torch.get_num_threads(), sys.getswitchinterval()
    torch.set_num_threads(1)
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        sys.setswitchinterval(interval)
