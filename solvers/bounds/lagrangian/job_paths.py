"""The cheapest way through one job at given prices, for all jobs: a dynamic programme over its tree.

The state is a task's delay, in whole slots, behind its earliest start. Delay k stands for every start in
[earliest + k, earliest + k + 1) slots and costs the least that any of them pays, found exactly: the price of running is
piecewise linear in the start, with kinks where the start or the end meets the edge of a slot; at the root, whose end is
the job's, the cost of completing is added before the least is taken. The last delay of a job's window stands for "then
or later": it pays no price, only the cost of completing at its beginning.

All kernels run in float64 (for the ascent) and in int64 (exact: what is proved).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorth.models.instance import Ints
from truenorth.solvers.bounds.lagrangian.shapes import Shapes
from truenorth.solvers.compiled import Floats, allocating_kernel

FAR = 1 << 58
"""Stands for the cost of what cannot be."""

PART_BITS = 16
PARTS = 1 << PART_BITS
"""Where numbers are whole, a task pays so many parts of the price of its batch at most."""

Numbers = NDArray[Any]
"""Prices and costs: float64 in the ascent, int64 in a proof."""


class JobData(NamedTuple):
    """The jobs of a relaxation.

    Parameters
    ----------
    shape
        Workflow of each job.
    node_first
        First node of each job. Shape [jobs].
    earliest_us
        Earliest start of each node in microseconds. Shape [nodes].
    delays
        Number of delays in each job's window, at least 1.
    weight, free_until_us
        The cost of completing at C is weight x max(0, C - free_until) (or weight if C > free_until, see `steps`).
    steps
        Whether the cost is a step.
    extra_first
        First entry of each job in the prices of its priced precedences (one per delay and precedence).
    """

    shape: Ints
    node_first: Ints
    earliest_us: Ints
    delays: Ints
    weight: Ints
    free_until_us: Ints
    steps: bool
    extra_first: Ints


class Choice(NamedTuple):
    """What the paths chose: per node its option (class), delay and start (-1: beyond the window), per job its value.

    The part is that of the price of its batch that a node pays, 1 if it runs alone.
    """

    option: Ints
    delay: Ints
    start_us: Ints
    part: Floats
    value: Numbers


class Payments(NamedTuple):
    """Which part of the price of its batch each task pays, by way to run and delay.

    Parameters
    ----------
    first
        Per node: the first of its parts, one per option and delay; -1 for a task that runs alone. Shape [nodes].
    part
        Parts of the price: fractions in the ascent, whole numbers of `PARTS` in a proof.
    exact
        Whether they are whole.
    paid
        Receives what each task pays at each delay. Shaped like `part`.
    rest
        Receives what its job costs at least with the task there, but for that; of size 0 if nobody wants to know.
    """

    first: Ints
    part: Numbers
    exact: bool
    paid: Numbers
    rest: Numbers


@allocating_kernel
def running_costs(
    prefix: Numbers, rate: Numbers, first_us: int, run_us: int, slot_us: int, wait: int, out: Numbers
) -> None:
    """Write the least price of a run that starts within each of many slot-long intervals, the first from `first_us` on.

    `prefix` is the price from time 0 to the beginning of each slot, `rate` the price per microsecond in it, `wait` what
    a microsecond costs for which the run waits within its interval.
    """
    count = len(out)
    for candidate in range(4):
        late_us = _candidate(candidate, first_us, run_us, slot_us)
        start, waiting = first_us + late_us, wait * late_us
        begin, begun = start // slot_us, start % slot_us
        end, ended = (start + run_us) // slot_us, (start + run_us) % slot_us
        # Slices of one length, and no branch inside the loops: five times as fast.
        before, rate_before = prefix[begin : begin + count], rate[begin : begin + count]
        after, rate_after = prefix[end : end + count], rate[end : end + count]
        if candidate == 0:
            for k in range(count):
                out[k] = after[k] + rate_after[k] * ended - before[k] - rate_before[k] * begun + waiting
        elif start > first_us:
            for k in range(count):
                price = after[k] + rate_after[k] * ended - before[k] - rate_before[k] * begun + waiting
                out[k] = price if price < out[k] else out[k]


@allocating_kernel
def batch_costs(
    prefix: Numbers,
    rate: Numbers,
    part: Numbers,
    exact: bool,
    first_us: int,
    run_us: int,
    slot_us: int,
    wait: int,
    out: Numbers,
) -> None:
    """Write the least of what a task pays for a batch, as `running_costs` does, of whose price it pays a part.

    The prices of whole batches may use all 64 bits, so those that are whole are first rounded down to `PARTS`.
    """
    count = len(out)
    for candidate in range(4):
        late_us = _candidate(candidate, first_us, run_us, slot_us)
        start, waiting = first_us + late_us, wait * late_us
        begin, begun = start // slot_us, start % slot_us
        end, ended = (start + run_us) // slot_us, (start + run_us) % slot_us
        before, rate_before = prefix[begin : begin + count], rate[begin : begin + count]
        after, rate_after = prefix[end : end + count], rate[end : end + count]
        if candidate and start == first_us:
            continue
        for k in range(count):
            price = after[k] + rate_after[k] * ended - before[k] - rate_before[k] * begun
            price = (int(price) >> PART_BITS) * part[k] if exact else price * part[k]
            out[k] = price + waiting if candidate == 0 else min(out[k], price + waiting)


@allocating_kernel
def _candidate(number: int, first_us: int, run_us: int, slot_us: int) -> int:
    """Return how far into its interval a start that may be cheapest lies.

    First or last in it, or where the start or the end meets the edge of a slot.
    """
    if number == 0:
        return 0
    if number == 1:
        return min(slot_us - 1, slot_us - first_us % slot_us)
    if number == 2:
        return min(slot_us - 1, slot_us - (first_us + run_us) % slot_us)
    return slot_us - 1


@allocating_kernel
def cheapest_start(
    prefix: Numbers, rate: Numbers, first_us: int, run_us: int, slot_us: int, wait: float, part: float
) -> int:
    """Return the start in [first, first + slot) at which a part of the price costs least, with what waiting costs."""
    # Times zero takes the type of the prices: float64 in the ascent, int64 in a proof.
    best_us, best = first_us, prefix[0] * 0 + FAR
    for candidate in range(4):
        start = first_us + _candidate(candidate, first_us, run_us, slot_us)
        end = start + run_us
        cost = prefix[end // slot_us] + rate[end // slot_us] * (end % slot_us)
        cost -= prefix[start // slot_us] + rate[start // slot_us] * (start % slot_us)
        cost = cost * part + wait * (start - first_us)
        if cost < best:
            best_us, best = start, cost
    return best_us


@allocating_kernel
def _costs_from(over_us: int, steps: bool, slot_us: int, count: int) -> int:
    """Return the first delay from which on waiting costs a job throughout; `over_us` is its end past what is free."""
    return count if steps else min(count, max(0, -(over_us // slot_us)))


@allocating_kernel
def clipped(delay: int, count: int) -> int:
    """Return the delay of a window that stands for a delay."""
    return min(count - 1, max(0, delay))


@allocating_kernel
def _add_clipped(out: Numbers, values: Numbers, shift: int, sign: int) -> None:
    """Add (sign times) values[clip(k + shift)] to out[k]."""
    count = len(out)
    low, high = min(count, max(0, -shift)), min(count, max(0, count - shift))
    for k in range(low):
        out[k] += sign * values[0]
    for k in range(low, high):
        out[k] += sign * values[k + shift]
    for k in range(max(low, high), count):
        out[k] += sign * values[count - 1]


@allocating_kernel
def walk_job(
    job: int,
    data: JobData,
    shapes: Shapes,
    prefix: Numbers,
    rate: Numbers,
    slot_us: int,
    extra: Numbers,
    payments: Payments,
    cost: Numbers,
    message: Numbers,
) -> None:
    """Fill `cost[option, delay]`, the least cost of the option's subtree, from the leaves to the root.

    `message[node, delay]` is what all nodes but the root tell their parents.
    """
    shape, count = data.shape[job], data.delays[job]
    first, last = shapes.node_first[shape], shapes.node_first[shape + 1]
    option_base = shapes.option_first[first]
    for node in range(first, last):
        earliest = data.earliest_us[data.node_first[job] + node - first]
        for option in range(shapes.option_first[node], shapes.option_first[node + 1]):
            row, run, lane = cost[option - option_base, :count], shapes.run_us[option], shapes.lane[option]
            row[:] = 0
            over, weight = earliest + run - data.free_until_us[job], data.weight[job]
            first_part = _first_part(job, data, shapes, payments, node, option)
            if lane >= 0:
                # Before the job starts to pay for its end no microsecond of waiting inside a slot costs anything.
                free = count - 1
                if node - first == shapes.last_to_end[shape]:
                    free = _costs_from(over, data.steps, slot_us, count - 1)
                begin = earliest + free * slot_us
                if first_part < 0:
                    running_costs(prefix[lane], rate[lane], earliest, run, slot_us, 0, row[:free])
                    running_costs(prefix[lane], rate[lane], begin, run, slot_us, weight, row[free : count - 1])
                else:
                    # Memory is paid by each member in full, compute and models by the batch.
                    if shapes.held[option] >= 0:
                        held = shapes.held[option]
                        running_costs(prefix[held], rate[held], earliest, run, slot_us, 0, row[: count - 1])
                    part = payments.part[first_part : first_part + count - 1]
                    paid = payments.paid[first_part : first_part + count - 1]
                    exact = payments.exact
                    batch_costs(prefix[lane], rate[lane], part[:free], exact, earliest, run, slot_us, 0, paid[:free])
                    batch_costs(prefix[lane], rate[lane], part[free:], exact, begin, run, slot_us, weight, paid[free:])
                    row[: count - 1] += paid
            add_children(job, data, shapes, node, earliest + run, slot_us, message, row)
            add_extra(job, data, shapes, node, earliest + run, slot_us, extra, row)
            if node - first == shapes.last_to_end[shape]:
                for k in range(count):
                    end = over + k * slot_us
                    row[k] += weight * (min(1, max(0, end)) if data.steps else max(0, end))
            # Before enough of its class can start there is no batch of that size; the last delay has no end.
            for k in range(min(count - 1, max(0, (shapes.from_us[option] - earliest) // slot_us))):
                row[k] = FAR
        if shapes.parent[node] >= 0:
            _tell_parent(job, data, shapes, node, slot_us, cost, message[node - first, :count])


@allocating_kernel
def _first_part(job: int, data: JobData, shapes: Shapes, payments: Payments, node: int, option: int) -> int:
    """Return where the parts begin that a task pays as one of a batch; -1: it runs alone."""
    if shapes.place[option] < 0:
        return -1
    first = payments.first[data.node_first[job] + node - shapes.node_first[data.shape[job]]]
    return first + (option - shapes.option_first[node]) * data.delays[job]


@allocating_kernel
def add_children(
    job: int, data: JobData, shapes: Shapes, node: int, end_us: int, slot_us: int, message: Numbers, row: Numbers
) -> None:
    """Add to an option's costs, by delay, what its subtrees told; `end_us` is its end at delay 0."""
    first, count = shapes.node_first[data.shape[job]], data.delays[job]
    child = shapes.first_child[node]
    while child >= 0:
        told = message[child, :count]
        if shapes.after_parent[first + child]:
            behind = (end_us - data.earliest_us[data.node_first[job] + child]) // slot_us
            _add_clipped(row, told, behind, 1)
        else:
            row += told
        child = shapes.next_child[first + child]


@allocating_kernel
def add_extra(
    job: int, data: JobData, shapes: Shapes, node: int, end_us: int, slot_us: int, extra: Numbers, row: Numbers
) -> None:
    """Charge a node the prices of the precedences outside the tree that lead to it, and pay it those that leave it."""
    first, count = shapes.extra_first[data.shape[job]], data.delays[job]
    arc = shapes.first_into[node]
    while arc >= 0:
        begin = data.extra_first[job] + arc * count
        row += extra[begin : begin + count]
        arc = shapes.next_into[first + arc]
    arc = shapes.first_from[node]
    while arc >= 0:
        begin = data.extra_first[job] + arc * count
        target_us = data.earliest_us[data.node_first[job] + shapes.extra_target[first + arc]]
        _add_clipped(row, extra[begin : begin + count], (end_us - target_us) // slot_us, -1)
        arc = shapes.next_from[first + arc]


@allocating_kernel
def _tell_parent(
    job: int, data: JobData, shapes: Shapes, node: int, slot_us: int, cost: Numbers, told: Numbers
) -> None:
    """Write the least cost of a node's subtree by delay: its own if it follows its parent, else its parent's."""
    shape, count, base = data.shape[job], data.delays[job], data.node_first[job]
    first = shapes.node_first[shape]
    option_base, earliest = shapes.option_first[first], data.earliest_us[base + node - first]
    parent_us = data.earliest_us[base + shapes.parent[node]]
    told[:] = FAR
    for option in range(shapes.option_first[node], shapes.option_first[node + 1]):
        row = cost[option - option_base]
        if shapes.after_parent[node]:
            for k in range(count):
                told[k] = row[k] if row[k] < told[k] else told[k]
        else:
            behind = (earliest + shapes.run_us[option] - parent_us) // slot_us
            low, high = min(count, max(0, -behind)), min(count, max(0, count - behind))
            for k in range(low):
                told[0] = min(told[0], row[k])
            for k in range(low, high):
                told[k + behind] = row[k] if row[k] < told[k + behind] else told[k + behind]
            for k in range(max(low, high), count):
                told[count - 1] = min(told[count - 1], row[k])
    if shapes.after_parent[node]:
        for k in range(count - 2, -1, -1):
            told[k] = min(told[k], told[k + 1])
    else:
        for k in range(1, count):
            told[k] = min(told[k], told[k - 1])


@allocating_kernel
def _least(cost: Numbers, low: int, high: int, best: float, at: int) -> tuple[float, int]:
    """Return the least of cost[low:high] and its delay, or (best, at) if nothing is lower."""
    for k in range(low, high):
        if cost[k] < best:
            best, at = cost[k], k
    return best, at


@allocating_kernel
def _trace_job(
    job: int,
    data: JobData,
    shapes: Shapes,
    prefix: Numbers,
    rate: Numbers,
    slot_us: int,
    payments: Payments,
    cost: Numbers,
    choice: Choice,
) -> None:
    """Write the choice that attains the job's value, from the root to the leaves."""
    shape, count = data.shape[job], data.delays[job]
    first, last = shapes.node_first[shape], shapes.node_first[shape + 1]
    option_base, base = shapes.option_first[first], data.node_first[job]
    far = prefix[0, 0] * 0 + FAR
    for node in range(last - 1, first - 1, -1):
        parent = shapes.parent[node]
        earliest = data.earliest_us[base + node - first]
        best, at, taken = far, 0, shapes.option_first[node]
        for option in range(shapes.option_first[node], shapes.option_first[node + 1]):
            low, high = 0, count
            # What the parent chose leaves the node only delays that respect their precedence.
            if parent >= 0:
                told_us, told = data.earliest_us[base + parent], choice.delay[base + parent]
                if shapes.after_parent[node]:
                    run = shapes.run_us[choice.option[base + parent]]
                    low = clipped(told + (told_us + run - earliest) // slot_us, count)
                elif told < count - 1:
                    high = min(count, max(0, told - (earliest + shapes.run_us[option] - told_us) // slot_us + 1))
            value, k = _least(cost[option - option_base], low, high, best, at)
            if value < best:
                best, at, taken = value, k, option
        choice.option[base + node - first], choice.delay[base + node - first] = taken, at
        lane, run = shapes.lane[taken], shapes.run_us[taken]
        if parent < 0:
            choice.value[job] = best
        choice.start_us[base + node - first] = -1
        if at < count - 1 and lane >= 0:
            begin, wait = earliest + at * slot_us, 0
            if parent < 0 and not data.steps and begin + run >= data.free_until_us[job]:
                wait = data.weight[job]
            first_part = _first_part(job, data, shapes, payments, node, taken)
            part = 1.0 if first_part < 0 else payments.part[first_part + at]
            choice.part[base + node - first] = part
            start = cheapest_start(prefix[lane], rate[lane], begin, run, slot_us, wait, part)
            choice.start_us[base + node - first] = start


@allocating_kernel
def add_rest_of_job(job: int, data: JobData, shapes: Shapes, slot_us: int, cost: Numbers, message: Numbers) -> None:
    """Make `cost`, as `walk_job` left it, the least cost of the whole job by option and delay (min-marginals).

    From the root to the leaves; a node's message serves as room for what the rest of the job costs.
    """
    first, last = shapes.node_first[data.shape[job]], shapes.node_first[data.shape[job] + 1]
    base, count, options = data.node_first[job], data.delays[job], shapes.option_first
    option_base = options[first]
    rest = np.empty(count, cost.dtype)
    for node in range(last - 2, first - 1, -1):
        parent, told = first + shapes.parent[node], message[node - first, :count]
        earliest, parent_us = data.earliest_us[base + node - first], data.earliest_us[base + parent - first]
        rest[:] = FAR
        if shapes.after_parent[node]:
            for option in range(options[parent], options[parent + 1]):
                row, behind = cost[option - option_base], (parent_us + shapes.run_us[option] - earliest) // slot_us
                for k in range(count):
                    at = clipped(k + behind, count)
                    rest[at] = min(rest[at], row[k] - told[at])
            for k in range(1, count):
                rest[k] = min(rest[k], rest[k - 1])
        else:
            for option in range(options[parent], options[parent + 1]):
                row = cost[option - option_base]
                for k in range(count):
                    rest[k] = min(rest[k], row[k] - told[k])
            for k in range(count - 2, -1, -1):
                rest[k] = min(rest[k], rest[k + 1])
        for option in range(options[node], options[node + 1]):
            row, behind = cost[option - option_base], 0
            if not shapes.after_parent[node]:
                behind = (earliest + shapes.run_us[option] - parent_us) // slot_us
            for k in range(count):
                row[k] = min(row[k] + rest[clipped(k + behind, count)], FAR)


@allocating_kernel
def _note_rest(job: int, data: JobData, shapes: Shapes, payments: Payments, cost: Numbers) -> None:
    """Write what the job costs with each task at each delay, but for what the task pays for its batch."""
    first, last = shapes.node_first[data.shape[job]], shapes.node_first[data.shape[job] + 1]
    option_base, count = shapes.option_first[first], data.delays[job]
    for node in range(first, last):
        for option in range(shapes.option_first[node], shapes.option_first[node + 1]):
            at = _first_part(job, data, shapes, payments, node, option)
            if at >= 0:
                row = cost[option - option_base]
                for k in range(count - 1):
                    payments.rest[at + k] = row[k] - payments.paid[at + k]


@allocating_kernel
def cheapest_paths(
    data: JobData,
    shapes: Shapes,
    prefix: Numbers,
    rate: Numbers,
    slot_us: int,
    extra: Numbers,
    payments: Payments,
    cost: Numbers,
    message: Numbers,
    choice: Choice,
) -> None:
    """Write the cheapest path of every job into `choice`.

    Parameters
    ----------
    prefix, rate
        Price of running per lane: from 0 to the beginning of each slot, and per microsecond in it.
    extra
        Prices of the precedences outside the trees: non-increasing in the delay, 0 at the last.
    cost, message
        Room to work in. Shape [options, delays] and [nodes, delays] of the largest job.
    """
    for job in range(len(data.shape)):
        walk_job(job, data, shapes, prefix, rate, slot_us, extra, payments, cost, message)
        _trace_job(job, data, shapes, prefix, rate, slot_us, payments, cost, choice)
        if len(payments.rest):
            add_rest_of_job(job, data, shapes, slot_us, cost, message)
            _note_rest(job, data, shapes, payments, cost)
