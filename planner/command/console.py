"""What a person sees while a command works, and how a command is interrupted."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from models.objective import Objective, gap, reported_bound, reported_value
from solvers.result import Progress


class Line(ABC):
    """A line on standard error, renewed four times a second; silent unless standard error is a terminal."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the line was made."""
        return time.monotonic() - self._start

    def watch(self, moment: Any) -> None:
        """Take note of what is known now."""
        self._latest = moment

    @abstractmethod
    def __str__(self) -> str:
        """Return what the line says now."""

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the line for as long as the block runs."""
        if not sys.stderr.isatty():
            yield
            return
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(
            get_renderable=lambda: Text(str(self)), console=Console(stderr=True), refresh_per_second=4, transient=True
        ):
            yield


class ProgressLine(Line):
    """Elapsed time, incumbent, bound and gap of a search."""

    def __init__(self, objective: Objective, what: str, time_limit_s: float = math.inf) -> None:
        super().__init__()
        self._time_limit_s = time_limit_s
        self._objective = objective
        self._what = what
        self._latest = Progress(0.0, None, None)

    def watch(self, progress: Progress) -> None:
        """Take note of an improvement."""
        self._latest = progress

    def __str__(self) -> str:
        value, bound = self._latest.value, self._latest.bound
        unit = self._objective.unit
        parts = [f"{self._what}  {self.elapsed_s:6.1f} s"]
        parts.append(
            f"{self._objective} {'-' if value is None else f'{reported_value(self._objective, value):.6g}'} {unit}"
        )
        parts.append(f"bound {'-' if bound is None else f'{reported_bound(self._objective, bound):.6g}'} {unit}")
        share = None if value is None else gap(value, bound)
        parts.append(f"gap {'-' if share is None else f'{share:.2%}'}")
        if value is None and self.elapsed_s > self._time_limit_s:
            parts.append(f"the limit of {self._time_limit_s:g} s is too short for a first plan, which follows")
        return "   ".join(part.strip() for part in parts)


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C or SIGTERM into an event that searches obey; a second one ends the program at once."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
