"""What a person sees while a command, or a call in a notebook, works."""

from __future__ import annotations

import contextvars
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from truenorth.models.objective import Objective, gap, reported_bound, reported_value
from truenorth.models.units import say_size
from truenorth.solvers.incumbents import Progress

if TYPE_CHECKING:
    from truenorth.planner.answers.whatif.result import Counts


class Line:
    """A line on standard error or in a notebook, renewed four times a second; silent where it would not be seen.

    Parameters
    ----------
    say
        Returns what it says, given what was last told and the seconds since the line was made.
    known
        What is known at the beginning.
    """

    def __init__(self, say: Callable[[Any, float], str], known: object = None) -> None:
        self._say, self._known, self._start = say, known, time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the line was made."""
        return time.monotonic() - self._start

    def watch(self, known: Any) -> None:
        """Take note of what is known now."""
        self._known = known

    def __str__(self) -> str:
        return self._say(self._known, self.elapsed_s)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the line for as long as the block runs."""
        if in_notebook():
            with self._in_a_cell():
                yield
            return
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

    @contextmanager
    def _in_a_cell(self) -> Iterator[None]:
        """Renew the line below a cell, once a second has passed, and leave nothing behind."""
        from IPython.display import display

        ended = threading.Event()

        def renew() -> None:
            if ended.wait(1.0):
                return
            said = display({"text/plain": str(self)}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
            while not ended.wait(0.25):
                said.update({"text/plain": str(self)}, raw=True)
            said.update({"text/plain": ""}, raw=True)

        # Below which cell something is displayed is a variable of the context, which threads do not inherit.
        thread = threading.Thread(target=contextvars.copy_context().run, args=(renew,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def in_notebook() -> bool:
    """Say whether this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


class ProgressLine(Line):
    """Elapsed time, incumbent, bound and gap of a search."""

    def __init__(self, objective: Objective, what: str, time_limit_s: float = math.inf) -> None:
        super().__init__(self._in_words, Progress(0.0, None, None))
        self._time_limit_s, self._objective, self._what = time_limit_s, objective, what

    def _in_words(self, known: Progress, elapsed_s: float) -> str:
        value, bound, unit = known.value, known.bound, self._objective.unit
        parts = [f"{self._what}  {elapsed_s:6.1f} s"]
        parts.append(
            f"{self._objective} {'-' if value is None else f'{reported_value(self._objective, value):.6g}'} {unit}"
        )
        parts.append(f"bound {'-' if bound is None else f'{reported_bound(self._objective, bound):.6g}'} {unit}")
        share = None if value is None else gap(value, bound)
        parts.append(f"gap {'-' if share is None else f'{share:.2%}'}")
        if value is None and elapsed_s > self._time_limit_s:
            parts.append(f"the limit of {self._time_limit_s:g} s is too short for a first plan, which follows")
        return "   ".join(part.strip() for part in parts)


def rows_line() -> Line:
    """Return elapsed time and how many rows are read."""
    return Line(lambda rows, elapsed_s: f"importing  {elapsed_s:6.1f} s   {rows:,} rows", 0)


def log_line(size_bytes: int) -> Line:
    """Return how much of a log has been read."""
    return Line(lambda read, elapsed_s: f"reading  {say_size(read)} of {say_size(size_bytes)}   {elapsed_s:.0f} s", 0)


def servers_line() -> Line:
    """Return elapsed time and what is being done."""
    return Line(lambda words, elapsed_s: f"counting servers  {elapsed_s:6.1f} s   {words}", "reading")


def cells_line() -> Line:
    """Return cells finished, cells failed, elapsed and remaining time."""
    from truenorth.planner.answers.whatif.result import Counts

    return Line(describe_counts, Counts(0, 0, 0, 0))


def describe_counts(counts: Counts, elapsed_s: float) -> str:
    """Return how far a sweep has come, in words; what is left is expected to take as long as what this run finished.

    >>> from truenorth.planner.answers.whatif.result import Counts
    >>> describe_counts(Counts(cells=10, known=4, finished=2, failed=1), 6.0)
    'sweeping  6 of 10 cells   1 failed   6 s   12 s left'
    """
    parts = [f"sweeping  {counts.cells - counts.left} of {counts.cells} cells"]
    if counts.failed:
        parts.append(f"{counts.failed} failed")
    parts.append(_duration(elapsed_s))
    if counts.finished and counts.left:
        parts.append(f"{_duration(elapsed_s / counts.finished * counts.left)} left")
    return "   ".join(parts)


def _duration(seconds: float) -> str:
    """Return a time as a person says it.

    >>> _duration(59.6), _duration(3725)
    ('60 s', '1 h 2 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
