"""What a person sees while servers are counted."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class ServersLine:
    """A line on standard error: elapsed time and what is being done; silent without a terminal."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._words = "reading"

    def tell(self, words: str) -> None:
        """Take note of what is being done."""
        self._words = words

    def __str__(self) -> str:
        return f"counting servers  {time.monotonic() - self._start:6.1f} s   {self._words}"

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
