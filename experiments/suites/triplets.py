"""Bin-packing triplets: items of which every three fill a bin, and no bin holds more than three.

Packed into a third as many machines as there are items, they end at the bin's size if every bin is filled, and later
otherwise; the known optimum is therefore the capacity. How few bins suffice, without being told, is what
``python -m experiments.servers triplets`` asks of the same items.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from experiments.suites import parallel_machines
from experiments.suites.case import Case, Known
from experiments.suites.choice import Suite

CAPACITY = 1_000_000
"""Size of a bin, in microseconds."""

_SHAPES = ((30, 1), (30, 2), (60, 1), (60, 2), (120, 1), (120, 2), (249, 1))
"""Items and seed."""


def triplets(items: int, seed: int) -> list[int]:
    """Return sizes of which every three by construction fill a bin of `CAPACITY`, and no bin holds more than three.

    As in Falkenauer, Journal of Heuristics 2, 1996: one item between 38 and 49 % of the bin, two that fill the rest.
    """
    rng = random.Random(seed)  # noqa: S311
    sizes: list[int] = []
    for _ in range(items // 3):
        first = rng.randrange(380_000, 490_000) // 1000 * 1000
        second = rng.randrange(250_000, (CAPACITY - first) // 2 + 1) // 1000 * 1000
        sizes += [first, second, CAPACITY - first - second]
    rng.shuffle(sizes)
    return sizes


def cases() -> Iterator[Case]:
    """Yield seeded draws of growing size."""
    for items, seed in _SHAPES:
        name = f"{items} items, seed {seed}"
        built = parallel_machines.scenario(name, triplets(items, seed), items // 3)
        yield Case(Suite.TRIPLETS, name, built, Known.optimum(CAPACITY))
