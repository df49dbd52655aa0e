"""What a person sees while a log is read."""

from __future__ import annotations

from planner.command.console import Line


class RowsLine(Line):
    """Elapsed time and rows read."""

    def __init__(self) -> None:
        super().__init__()
        self._rows = 0

    def watch(self, rows: int) -> None:
        """Take note of how many rows are read."""
        self._rows = rows

    def __str__(self) -> str:
        return f"importing  {self.elapsed_s:6.1f} s   {self._rows:,} rows"
