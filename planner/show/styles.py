"""One colour and stroke per policy, in every figure, report and notebook; each has a contrast of 3 on white."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import NamedTuple
from zlib import crc32


class Style(NamedTuple):
    """How a line is drawn: its colour, and ``solid``, ``dashed`` or ``dotted``."""

    colour: str
    stroke: str


LINE_COLOURS = ("#4477AA", "#EE6677", "#228833", "#997700", "#AA3377", "#009988", "#332288", "#BB5500")
STROKES = ("solid", "dashed", "dotted")
STYLES = tuple(Style(colour, stroke) for stroke, colour in product(STROKES, LINE_COLOURS))
_OF_POLICY = dict(
    zip(
        (
            "receding", "compass", "srpt", "ahead", "lru", "jit", "rltune", "hadar",
            "compass-released", "dally", "heft", "hash", "static", "clockwork", "deferred", "offline",
            "least_tokens", "prefix_affinity", "least_requests", "round_robin", "least_work", "least_delay", "turns",
        ),
        STYLES,
        strict=False,
    )
)  # fmt: skip
"""The styles that named policies have; any other name takes one that is free."""


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Return a style per name: no two share one, up to as many names as there are styles.

    A policy has its own; with options, the policy's where it is not shown without them. Any other name has one that
    follows from the name, or the next that is free.
    """
    listed = list(dict.fromkeys(names))
    found = {name: _OF_POLICY[name] for name in listed if name in _OF_POLICY}
    for name in listed:
        if name not in found:
            first = _OF_POLICY.get(name.partition(":")[0], STYLES[crc32(name.encode()) % len(STYLES)])
            at, taken = STYLES.index(first), set(found.values())
            after = [*STYLES[at:], *STYLES[:at]]
            found[name] = next((style for style in after if style not in taken), first)
    return found
