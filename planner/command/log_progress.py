"""What a person sees while a log is read: how much of it has been."""

from __future__ import annotations

from models.units import say_size
from planner.command.console import Line


class LogLine(Line):
    """How much of a log has been read."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self._size = size_bytes
        self._read = 0

    def watch(self, read_bytes: int) -> None:
        """Take note of how far the reader has come."""
        self._read = read_bytes

    def __str__(self) -> str:
        return f"reading  {say_size(self._read)} of {say_size(self._size)}   {self.elapsed_s:.0f} s"
