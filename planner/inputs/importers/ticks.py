"""How coarse the clock of a log is, and how requests are spread within its ticks.

A log of whole seconds releases all requests of a second at one instant, at which they did not arrive: policies that
see the state of a while ago then send all of them to one place, and percentiles of waiting are those of such bursts.
"""

from __future__ import annotations

import numpy as np

from truenorth.models.errors import QuestionError
from truenorth.models.instance import Ints
from truenorth.models.units import seconds

_FINEST_US = 1_000
"""A clock of milliseconds, or a finer one, is not coarse."""


def tick_us(release_us: Ints) -> int:
    """Return the length of which all releases are whole multiples from the first one on; 0 for a single instant."""
    return int(np.gcd.reduce(release_us - release_us.min()))


def coarse(release_us: Ints) -> str:
    """Return how coarse the clock is, in words; nothing if it is fine, or if no two requests share an instant."""
    tick, counts = tick_us(release_us), np.unique(release_us, return_counts=True)[1]
    shared = int(counts[counts > 1].sum())
    if tick <= _FINEST_US or not shared:
        return ""
    listed = f"{shared:,} of {len(release_us):,} requests share an instant, up to {counts.max():,} the same one"
    return f"the log's clock ticks every {seconds(tick)}: {listed}; --spread spreads them evenly within a tick"


def spread(release_us: Ints, seed: int) -> Ints:
    """Return releases at random, evenly within their ticks; requests of one tick keep their order. Shape [requests].

    Raises
    ------
    QuestionError
        If all releases are of one instant, so that the length of a tick is not known.
    """
    tick = tick_us(release_us)
    if not tick:
        raise QuestionError("all requests are released at one instant; allowed are logs with several", "spread")
    # Equal releases in the order of the log, and offsets in ascending order for each of them.
    order = np.argsort(release_us, kind="stable")
    offsets = np.random.default_rng(seed).integers(0, tick, len(release_us))
    made = np.empty_like(release_us)
    made[order] = release_us[order] + offsets[np.lexsort((offsets, release_us[order]))]
    return made
