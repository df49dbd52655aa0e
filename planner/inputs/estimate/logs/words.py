"""Which lines of a log are worth a closer look: those that hold words of progress, of failures, or of the end.

A log repeats itself: most of its lines differ from others in their digits alone, and no word here has any. So what a
line holds is looked up by the line with all digits alike, and lines are searched once per sort.
"""

from __future__ import annotations

from planner.inputs.estimate.logs.causes import HINTS

_CUES = ("%|", "step", "iter", "epoch", "batch", "update", "it/s", "/s", "per second", "per_second", "s/it", "[=", "━")
_FINISHED = ("train_runtime", "training completed", "training complete", "training finished", "training done")
_ALIKE = bytes.maketrans(b"123456789", b"000000000")
CUE, HINT, END = 1, 2, 4
"""What a line holds, as flags: a word of progress, one of failures, one that says that the job is through."""
_MOST_SORTS = 20_000
_LONGEST = 400
"""Longer lines are hardly of a sort."""


class Words:
    """Finds words in lines, in bounded memory."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}

    def held_by(self, lowered: str) -> int:
        """Return what a line in lower case holds, as flags."""
        if len(lowered) > _LONGEST:
            return _search(lowered)
        sort = lowered.encode().translate(_ALIKE)
        held = self._known.get(sort)
        if held is None:
            if len(self._known) >= _MOST_SORTS:
                self._known.clear()
            held = self._known[sort] = _search(lowered)
        return held


def _search(lowered: str) -> int:
    held = 0
    for flag, words in ((CUE, _CUES), (HINT, HINTS), (END, _FINISHED)):
        held |= flag if any(word in lowered for word in words) else 0
    return held
