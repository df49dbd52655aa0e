"""How good estimates must be: the spread at which a plan and an online policy are equally good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import exp, log
from statistics import NormalDist, fmean

from experiments.estimation_error_2026_11_21.cells import CONTENDERS, LEVELS, NONE, TOLD, TRUE, ErrorCell, Level

Values = Mapping[tuple[ErrorCell, str], float]
"""Mean slowdowns by cell and contender."""

_PLANS = [name for name in CONTENDERS if name.startswith("plan")]
_ONLINE = [name for name in CONTENDERS if name not in _PLANS]


def crossing(values: Values, rate: float, side: str, plan: str, online: str) -> float | None:
    """Return the log-normal spread up to which a plan beats an online policy; 0 for never, None for all asked.

    The mean over the draws of log(plan / online) is taken as linear between the spreads that were asked.
    """
    levels = [level for level in LEVELS if level.side in (NONE, side) and level.kind == "lognormal"]
    points = [(level.size, _advantage(values, rate, level, plan, online)) for level in levels]
    if points[0][1] >= 0:
        return 0.0
    for (low, before), (high, after) in pairwise(points):
        if before < 0 <= after:
            return low + (high - low) * before / (before - after)
    return None


def _advantage(values: Values, rate: float, level: Level, plan: str, online: str) -> float:
    cells = {cell for cell, _ in values if cell.jobs_per_s == rate and cell.level == level}
    return fmean(log(values[cell, plan] / values[cell, online]) for cell in cells)


def answer(values: Values, rates: Sequence[float]) -> Iterator[str]:
    """Yield a line per plan, online policy and side: up to which error the plan is better, at every rate."""
    largest = max(level.size for level in LEVELS if level.kind == "lognormal")
    for side in (TRUE, TOLD):
        for plan in _PLANS:
            for online in _ONLINE:
                found = [crossing(values, rate, side, plan, online) for rate in rates]
                shown = [f"over {largest:g}" if spread is None else _in_words(spread) for spread in found]
                yield f"{side}: {plan} beats {online} up to a spread of {'; '.join(shown)}"


def _in_words(spread: float) -> str:
    """Return a spread with the median relative error that belongs to it: half of the factors are nearer to 1."""
    return f"{spread:.2f} ({exp(NormalDist().inv_cdf(0.75) * spread) - 1:.0%})"
