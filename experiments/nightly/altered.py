"""Certificates altered at random: each is refused, or what it proves is at most the optimum."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

JUNK: tuple[Any, ...] = (None, True, False, -1, 0, 1, 3, 1e400, float("nan"), 1 << 63, 10**40, "x", [], {}, [[]], 0.5)


def altered(document: dict[str, Any], count: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Yield so many certificates that differ from one in one or two places."""
    for _ in range(count):
        changed = copy.deepcopy(document)
        for _ in range(rng.randint(1, 2)):
            places = [place for place in _places(changed) if place[0] in ("lower_bound", "parameters", "prices")]
            inside, place = changed, rng.choice(places)
            for key in place[:-1]:
                inside = inside[key]
            inside[place[-1]] = _instead(inside[place[-1]], rng)
        # A claim that only a proof of more than is true could bear.
        changed["lower_bound"] = rng.choice((changed["lower_bound"], 1e18))
        yield changed


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to everything inside a document."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*at, key)
        yield from _places(value[key], (*at, key))


def _instead(value: Any, rng: random.Random) -> Any:
    """Return something else: near by, far away, reordered, or no such thing at all."""
    if isinstance(value, int) and rng.random() < 0.7:
        return rng.choice((value + 1, value - 1, 2 * value, value // 2, -value, value << rng.randint(1, 80)))
    if isinstance(value, list) and value and rng.random() < 0.7:
        return rng.choice((value[::-1], value[:-1], value + value[-1:], [value[0]] * len(value)))
    return rng.choice(JUNK)
