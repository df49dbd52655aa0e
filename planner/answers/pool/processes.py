"""Calls on worker processes of this machine, each of which may die without harm to the others; what becomes of each.

A killed worker loses the one call it was at, and a killed parent leaves no worker behind. Pebble (5.2) does the first
as well; but its workers outlive a parent that is killed, and run the program's main file again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")

LOOK_S = 0.2
"""How often a wait looks at `stop`."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Value]):
    """What became of one call.

    Parameters
    ----------
    index
        Position of the call's argument.
    value
        What it returned; None if it failed.
    failure
        Why it has no value, in one line; None if it has one.
    seconds
        How long the call took on its worker; 0 if that is unknown.
    """

    index: int
    value: Value | None
    failure: str | None
    seconds: float


def describe_error(error: BaseException) -> str:
    """Return an exception in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def time_call(call: Callable[[Item], Value], item: Item) -> tuple[Value, float]:
    """Return what a call returns, and how many seconds it took."""
    begun = time.perf_counter()
    return call(item), time.perf_counter() - begun


def _call_in(folder: str, call: Callable[[Item], Value], item: Item) -> tuple[Value, float]:
    """Do the same in the folder that this process's parent is in by now; this is what runs on a worker."""
    os.chdir(folder)
    return time_call(call, item)


CRASHED = "the worker process died: it was killed, ran out of memory, or crashed in compiled code"


def as_finished_here(
    call: Callable[[Item], Value], items: Sequence[Item], workers: int, stop: threading.Event | None, stays: bool
) -> Iterator[Outcome[Value]]:
    """Yield the outcome of every call as soon as it is known, as `planner.answers.pool.as_finished` does."""
    waiting = deque(enumerate(items))
    lanes: list[_CallQueue[Item, Value]] = [_take(call, stays) for _ in range(min(workers, len(items)))]
    try:
        while not (stop is not None and stop.is_set()):
            for lane in lanes:
                lane.fill(waiting, 2 if len(waiting) > 2 * len(lanes) else 1)
            running = [future for lane in lanes for _, _, future in lane.given]
            if not running:
                return
            wait(running, LOOK_S, FIRST_COMPLETED)
            # Workers get their next calls before the caller, who may write files, sees what has ended.
            ended = [outcome for lane in lanes for outcome in lane.collect(waiting)]
            for lane in lanes:
                lane.fill(waiting, 2 if len(waiting) > 2 * len(lanes) else 1)
            yield from ended
    finally:
        for lane in lanes:
            # Idle ones wait for the next sweep; one that is still at a call is ended, whatever it does.
            if stays and not lane.given:
                _IDLE.append(lane)
            else:
                lane.close()


class _Worker(SpawnProcess):
    """A process that does not run the program's main file again, so that scripts and notebooks need no guard."""

    def start(self) -> None:
        """Start it as if there were no main file."""
        main = sys.modules["__main__"]
        names: tuple[str, ...] = ("__file__", "__spec__")
        kept = {name: vars(main)[name] for name in names if name in vars(main)}
        # With a file or a spec the new process would run the script again.
        vars(main).pop("__file__", None)
        main.__spec__ = None
        try:
            super().start()
        finally:
            vars(main).update(kept)


class _Context(SpawnContext):
    Process = _Worker


def _take(call: Callable[[Item], Value], warm: bool) -> _CallQueue[Item, Value]:
    """Return a worker for a call: if it may be one that is warm, and there is one, that."""
    lane: _CallQueue[Item, Value] = _IDLE.pop() if warm and _IDLE else _CallQueue()
    lane.call = call
    return lane


class _CallQueue(Generic[Item, Value]):
    """One worker process and the calls it was given: at most two, so that it is never idle and a crash has one cause.

    The worker ends when its leash does: this process holds one end of a pipe, and closing it, dying included, is seen
    at the other end.
    """

    call: Callable[[Item], Value]

    def __init__(self) -> None:
        self._open()

    def _open(self) -> None:
        context = _Context()
        self._far, self._leash = context.Pipe(duplex=False)
        self._executor = ProcessPoolExecutor(1, context, _settle, (self._far,))
        self.given: deque[tuple[int, Item, Future[tuple[Value, float]]]] = deque()

    def fill(self, waiting: deque[tuple[int, Item]], most: int) -> None:
        """Give the worker calls until it has as many as it may."""
        while waiting and len(self.given) < most:
            index, item = waiting[0]
            try:
                future = self._executor.submit(_call_in, os.getcwd(), self.call, item)
            except BrokenProcessPool:
                if self.given:  # whose outcomes say so
                    return
                self.close()  # it died while it was idle
                self._open()
                continue
            waiting.popleft()
            self.given.append((index, item, future))

    def collect(self, waiting: deque[tuple[int, Item]]) -> Iterator[Outcome[Value]]:
        """Yield the outcomes of calls that have ended, the first given first; put back what a crash cut off."""
        while self.given and self.given[0][2].done():
            index, _, future = self.given.popleft()
            error = future.exception()
            if error is None:
                value, seconds = future.result()
                yield Outcome(index, value, None, seconds)
            elif isinstance(error, BrokenProcessPool):
                # Those behind the call that crashed were not begun: they go back to the front, in their order.
                waiting.extendleft((later, item) for later, item, _ in reversed(self.given))
                self.close()
                self._open()
                yield Outcome(index, None, CRASHED, 0.0)
            else:
                yield Outcome(index, None, describe_error(error), 0.0)

    def close(self) -> None:
        """End the worker, whatever it is doing."""
        self._leash.close()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._far.close()


_IDLE: list[_CallQueue[Any, Any]] = []
"""Workers that are kept from one sweep to the next."""


def _settle(leash: Connection) -> None:
    """Prepare a worker: Ctrl-C is for the process that gave the work, and without that process there is none."""
    # A terminal sends Ctrl-C to the whole group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(leash,), daemon=True).start()


def _end_with(leash: Connection) -> None:
    # Nothing is ever sent: it returns when the other end is closed.
    leash.poll(None)
    # At once, without waiting for threads in compiled code.
    os._exit(1)
