"""A log as lines of bounded length, however large the file, and which of them are worth a closer look.

Carriage returns, ANSI codes and any bytes are no obstacle. Words are looked for of progress, of failures, and of the
end. A log repeats itself: most of its lines differ from others in their digits alone, and no word here has any. So what
a line holds is looked up by the line with all digits alike, and lines are searched once per sort.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from io import BufferedIOBase

from models.scenario import InputError
from planner.inputs.estimate.logs.failures import HINTS

MAX_LINE = 4_000
"""What stands further right in a line is not read."""
LONGEST_LINE = 64 << 20
"""A line of more bytes is no line of a log; without a limit a device of zeros would be read for ever."""
_CHUNK = 1 << 20
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[PX^_][^\x1b]{0,200}\x1b\\|[@-OQ-WYZ\\])"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CONTROL_BYTES = bytes({*range(0x20), 0x7F} - set(b"\t\n\r"))
_CUES = ("%|", "step", "iter", "epoch", "batch", "update", "it/s", "/s", "per second", "per_second", "s/it", "[=", "━")
_FINISHED = ("train_runtime", "training completed", "training complete", "training finished", "training done")
_ALIKE = bytes.maketrans(b"123456789", b"000000000")
CUE, HINT, END = 1, 2, 4
"""What a line holds, as flags: a word of progress, one of failures, one that says that the job is through."""
_MOST_SORTS = 20_000
_LONGEST = 400
"""Longer lines are hardly of a sort."""


def read_lines(
    file: BufferedIOBase, name: str, watch: Callable[[int], None] | None = None
) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line; what a carriage return overwrote counts as a text of its own.

    Lines are counted as editors count them, by line feeds. Bytes that are no UTF-8 are replaced.

    Parameters
    ----------
    file
        Open for reading bytes; never more than about a megabyte of it is held.
    name
        As errors name it.
    watch
        Is told how many bytes have been read from it.

    Raises
    ------
    InputError
        If a line has more than `LONGEST_LINE` bytes.
    """
    number, rest, read, unended, plain = 1, b"", 0, 0, True
    while chunk := file.read(_CHUNK):
        read += len(chunk)
        if watch is not None:
            watch(read)
        plain = plain and len(chunk.translate(None, _CONTROL_BYTES)) == len(chunk)
        pieces = (rest + chunk).splitlines(keepends=True)
        unended = unended + len(chunk) if len(pieces) == 1 else 0
        if unended > LONGEST_LINE:
            raise InputError(name, number, "line", f"is longer than {LONGEST_LINE} bytes; allowed are logs of lines")
        rest = b"" if pieces[-1].endswith((b"\n", b"\r")) else pieces.pop()[:MAX_LINE]
        for piece in pieces:
            text = piece[:MAX_LINE].decode("utf-8", "replace").rstrip() if plain else _clean(piece)
            if text:
                yield number, text
            number += piece.endswith(b"\n")
    text = _clean(rest)
    if text:
        yield number, text


def _clean(piece: bytes) -> str:
    text = piece[:MAX_LINE].decode("utf-8", "replace")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return _CONTROL.sub("", text).rstrip()


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
