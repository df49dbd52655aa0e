"""When a GPU counts as failing: what fails once may be chance, what fails again and again is the GPU."""

from __future__ import annotations

TRIES = 3
"""How often a load or a transfer is tried, and how many runs in a row may fail on a GPU."""


class Faults:
    """Counts, per GPU, the runs that have failed in a row.

    Where all of them were the same task of a workflow, the task is at fault and not the GPU.
    """

    def __init__(self) -> None:
        self._failed: dict[int, list[int]] = {}

    def note_run(self, gpu: int, template: int) -> bool:
        """Take note of a run that failed; say whether the GPU is to be set aside.

        >>> faults = Faults()
        >>> [faults.note_run(0, template) for template in (1, 1, 1, 2)]
        [False, False, False, True]
        """
        failed = self._failed.setdefault(gpu, [])
        failed.append(template)
        return len(failed) >= TRIES and len(set(failed)) > 1

    def clear(self, gpu: int) -> None:
        """Take note of a run that succeeded."""
        self._failed.pop(gpu, None)
