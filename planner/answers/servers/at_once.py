"""Fewer requests at once on a node than its engine has seats: whether that meets the levels with a cheaper fleet.

With fewer decodes beside each other steps are shorter, and requests wait longer for a seat: what is reached mostly
falls with the limit and then rises. Halves of the seats, and then what lies beside the best of them, lead to about the
best limit in some ten simulations. It is a setting of the engine, and needs no other router.
"""

from __future__ import annotations

from collections.abc import Callable

_REFINEMENTS = 2
"""How often the limits half-way to the neighbours of the best one are tried."""


def least_limit(reach: Callable[[int], float | None], most: int, without: float) -> int:
    """Return a limit at which least is reached, found by halves of `most`, where `without` is, and then between them.

    >>> least_limit(lambda limit: abs(limit - 11), 64, 53)
    12
    """
    tried = {most: without}

    def is_better(limit: int) -> bool:
        least, value = min(tried.values()), reach(limit) if limit not in tried else None
        if value is not None:
            tried[limit] = value
        return value is not None and value < least

    limit = most // 2
    while limit and (value := reach(limit)) is not None:
        tried[limit] = value
        if value > min(tried.values()):
            break
        limit //= 2
    for _ in range(_REFINEMENTS):
        at = _best(tried)
        below = max((limit for limit in tried if limit < at), default=at)
        above = min((limit for limit in tried if limit > at), default=at)
        for middle in ((below + at) // 2, (at + above) // 2):
            # One side that is better leaves the other one behind.
            if is_better(middle):
                break
    return _best(tried)


def _best(tried: dict[int, float]) -> int:
    """Return the limit at which least is reached; of equals the largest, which holds up no one for nothing."""
    return min(tried, key=lambda limit: (tried[limit], -limit))
