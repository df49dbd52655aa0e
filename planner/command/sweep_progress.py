"""What a person sees while a sweep runs."""

from __future__ import annotations

from planner.answers.whatif.result import Counts
from planner.command.console import Line


class SweepLine(Line):
    """Cells finished, cells failed, elapsed and remaining time."""

    def __init__(self) -> None:
        super().__init__()
        self._counts = Counts(0, 0, 0, 0)

    def watch(self, counts: Counts) -> None:
        """Take note of how far the sweep has come."""
        self._counts = counts

    def __str__(self) -> str:
        return describe_counts(self._counts, self.elapsed_s)


def describe_counts(counts: Counts, elapsed_s: float) -> str:
    """Return how far a sweep has come, in words; what is left is expected to take as long as what this run finished.

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
