"""One colour, stroke and shape per policy, in every figure, report and notebook; contrast is 3 on light and on dark."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import NamedTuple
from zlib import crc32


class Style(NamedTuple):
    """How a line is drawn: its colour, and ``solid``, ``dashed`` or ``dotted``."""

    colour: str
    stroke: str

    @property
    def marker(self) -> str:
        """The shape of its points, as matplotlib names it: colours that look alike to some are told apart by it."""
        if not self.colour:
            return _PLAN_MARKER
        return _MARKERS[(LINE_COLOURS.index(self.colour) + STROKES.index(self.stroke)) % len(_MARKERS)]


LINE_COLOURS = ("#4477AA", "#E0556A", "#228833", "#997700", "#B8458A", "#009988", "#8855CC", "#BB5500")
_MARKERS, _PLAN_MARKER = ("o", "s", "^", "D", "v", "P", "X", "p"), "*"
SHAPES = dict(zip((*_MARKERS, _PLAN_MARKER), "○□△◇▽✚✖⬠☆", strict=True))
"""The same shapes as characters of a legend."""
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
_PLAN = Style("", "solid")
"""Of the plan: the ink of the page."""


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Return a style per name: no two share one, up to as many names as there are styles.

    A policy has its own; with options, the policy's where it is not shown without them. Any other name has one that
    follows from the name, or the next that is free.
    """
    listed = list(dict.fromkeys(names))
    found = {name: _OF_POLICY[name] for name in listed if name in _OF_POLICY}
    found |= {name: _PLAN for name in listed if name.partition(" ")[0] == "plan"}
    for name in listed:
        if name not in found:
            first = _OF_POLICY.get(name.partition(":")[0], STYLES[crc32(name.encode()) % len(STYLES)])
            at, taken = STYLES.index(first), set(found.values())
            after = [style for style in (*STYLES[at:], *STYLES[:at]) if style not in taken] or [first]
            own = [style for style in after if style.colour not in {other.colour for other in taken}]
            found[name] = (own or after)[0]
    return found
