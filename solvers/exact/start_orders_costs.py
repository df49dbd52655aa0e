"""The kernels behind the tables of the dynamic programme over start orders: what runs, and rests of jobs, cost."""

from __future__ import annotations

import numpy as np

from models.instance import Ints
from solvers.compiled import allocating_kernel, inlined

FAR = 1 << 58
"""Stands for the cost of what cannot be, and for a time that is never."""


@inlined
def price_until(prefix: Ints, rate: Ints, slot_us: int, instant: int) -> int:
    """Return the price from time 0 to an instant."""
    slot = instant // slot_us
    price: int = prefix[min(slot, len(rate))]
    return price if slot >= len(rate) else price + rate[slot] * (instant - slot * slot_us)


@allocating_kernel
def price_runs(prefix: Ints, rate: Ints, slot_us: int, run_us: int, out: Ints) -> None:
    """Write the least price of a run that starts within each slot: it has its kinks where an end meets an edge."""
    for slot in range(len(out)):
        begin = slot * slot_us
        best = FAR
        for late_us in (0, slot_us - 1, -(begin + run_us) % slot_us):
            start = begin + late_us
            price = price_until(prefix, rate, slot_us, start + run_us) - price_until(prefix, rate, slot_us, start)
            best = min(best, price)
        out[slot] = best


@allocating_kernel
def least_rests(
    prices: Ints,
    run_us: Ints,
    tail_us: Ints,
    lead_us: Ints,
    loads_us: Ints,
    weight: int,
    column_us: int,
    rest: Ints,
    paid: Ints,
) -> None:
    """Write what tasks that are left pay at least for running, and that with what the job's completion costs.

    Each task starts where it is cheapest after the path that leads to it, and early enough for the path behind it.
    """
    columns, tasks = len(rest), len(run_us)
    for i in range(tasks):
        later = prices[i].copy()
        for x in range(columns - 2, -1, -1):
            later[x] = min(later[x], later[x + 1])
        for x in range(columns):
            paid[x] += later[min(columns - 1, max((x * column_us + lead_us[i]) // column_us, loads_us[i] // column_us))]
    soonest, longest = 0, 0
    for i in range(tasks):
        soonest = max(soonest, loads_us[i] + run_us[i] + tail_us[i])
        longest = max(longest, lead_us[i] + run_us[i] + tail_us[i])
    for x in range(columns):
        soonest_us = max(soonest, x * column_us + longest)
        # Completing beyond the last column costs no less than this.
        best = weight * max(soonest_us, columns * column_us) + paid[x]
        nexts, least = np.empty(tasks, np.int64), np.empty(tasks, np.int64)
        for i in range(tasks):
            nexts[i] = max((x * column_us + lead_us[i]) // column_us, loads_us[i] // column_us)
            least[i] = FAR
        for column in range(soonest_us // column_us, columns):
            cost = weight * max(soonest_us, column * column_us)
            if cost + paid[x] >= best:
                break
            for i in range(tasks):
                last = min(columns - 1, ((column + 1) * column_us - 1 - run_us[i] - tail_us[i]) // column_us)
                while nexts[i] <= last:
                    least[i] = min(least[i], prices[i, nexts[i]])
                    nexts[i] += 1
                cost = min(FAR, cost + least[i])
            best = min(best, cost)
        rest[x] = best


@allocating_kernel
def start_first(price: Ints, run_us: int, loads_us: int, column_us: int, after: Ints, rest: Ints) -> None:
    """Raise `rest` where one task must start first; `after` is the rest after it, `run_us` how long that waits."""
    best = FAR
    for x in range(len(rest) - 1, -1, -1):
        # The last column stands for all later times, also where a load takes longer.
        if x >= min(len(rest) - 1, loads_us // column_us):
            best = min(best, price[x] + after[min(len(rest) - 1, (x * column_us + run_us) // column_us)])
        rest[x] = max(rest[x], best)
