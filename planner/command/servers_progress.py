"""What a person sees while servers are counted."""

from __future__ import annotations

from planner.command.console import Line


class ServersLine(Line):
    """Elapsed time and what is being done."""

    def __init__(self) -> None:
        super().__init__()
        self._words = "reading"

    def watch(self, words: str) -> None:
        """Take note of what is being done."""
        self._words = words

    def __str__(self) -> str:
        return f"counting servers  {self.elapsed_s:6.1f} s   {self._words}"
