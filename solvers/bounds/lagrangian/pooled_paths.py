"""The cheapest ways through jobs that are alike: one dynamic programme for a whole group of them.

Trees are rooted at the source, and the state is an absolute time, in whole slots behind the earliest start of the node
in a job released at 0. So the least cost of a job is that of the root from its release on, whatever the job, and the
jobs that wait for a node move on through the slots together until starting is cheapest.
"""

from __future__ import annotations

from typing import NamedTuple

from truenorth.models.instance import Ints
from truenorth.solvers.bounds.lagrangian.job_paths import (
    FAR,
    JobData,
    Numbers,
    add_children,
    add_extra,
    cheapest_start,
    clipped,
    running_costs,
)
from truenorth.solvers.bounds.lagrangian.shapes import Shapes
from truenorth.solvers.compiled import Floats, allocating_kernel


class Running(NamedTuple):
    """What running costs; or, laid out alike, how much runs.

    Parameters
    ----------
    prefix, rate
        Per lane, for starts in the first slots: from 0 to the beginning of each slot, and per microsecond in it.
    later_prefix, later_rate
        The same for later starts, which pay for no models: rows that several lanes share, from time 0 on.
    later
        The row of each lane.
    model_slots
        Starts in so many slots are the first ones.
    """

    prefix: Floats
    rate: Floats
    later_prefix: Floats
    later_rate: Floats
    later: Ints
    model_slots: int


@allocating_kernel
def pooled_paths(
    data: JobData,
    shapes: Shapes,
    running: Running,
    slot_us: int,
    extra: Floats,
    cost: Floats,
    message: Floats,
    arriving: Floats,
    waiting: Floats,
    value: Floats,
    lanes: Floats,
    later_lanes: Floats,
    excess: Floats,
) -> None:
    """Write the least cost of a job by group and slot of its release, and what all jobs use on their cheapest paths.

    Parameters
    ----------
    data
        The groups, each as one job released at 0 whose window is the whole time.
    extra, cost, message
        As in `cheapest_paths`; nobody takes places in batches.
    arriving
        How many jobs are released by slot. Shape [groups, slots].
    waiting
        Room to work in. Shape [nodes of the largest job, slots].
    value
        Shape [groups, slots].
    lanes, later_lanes
        Receive the time run per slot on each lane, and on each row of later starts. Shaped like the rates.
    excess
        Receives that of the priced precedences, laid out like their prices.
    """
    lanes[:] = 0
    later_lanes[:] = 0
    excess[:] = 0
    for group in range(len(data.shape)):
        first, last = shapes.node_first[data.shape[group]], shapes.node_first[data.shape[group] + 1]
        root, count = last - first - 1, data.delays[group]
        for node in range(first, last):
            _walk_node(group, data, shapes, node, running, slot_us, extra, cost, message)
        value[group, :count] = message[root, :count]
        waiting[: root + 1, :count] = 0
        waiting[root, :count] = arriving[group, :count]
        for node in range(last - 1, first - 1, -1):
            _send_on(group, data, shapes, node, running, slot_us, cost, message, waiting, lanes, later_lanes, excess)
        # Started and ended per slot so far; from now on, by each slot.
        for arc in range(shapes.extra_first[data.shape[group] + 1] - shapes.extra_first[data.shape[group]]):
            begin = data.extra_first[group] + arc * count
            for k in range(begin + 1, begin + count):
                excess[k] += excess[k - 1]
            excess[begin + count - 1] = 0
    for rows in (lanes, later_lanes):
        for row in range(len(rows)):
            for k in range(1, rows.shape[1]):
                rows[row, k] += rows[row, k - 1]


@allocating_kernel
def _walk_node(
    group: int,
    data: JobData,
    shapes: Shapes,
    node: int,
    running: Running,
    slot_us: int,
    extra: Floats,
    cost: Floats,
    message: Floats,
) -> None:
    """Write the least cost of a node's subtree by the slot of its start, and from each slot on."""
    shape, count, weight = data.shape[group], data.delays[group], data.weight[group]
    first = shapes.node_first[shape]
    option_base, earliest = shapes.option_first[first], data.earliest_us[data.node_first[group] + node - first]
    ends_job = node - first == shapes.last_to_end[shape]
    wait = weight if ends_job else 0
    for option in range(shapes.option_first[node], shapes.option_first[node + 1]):
        row, run, lane = cost[option - option_base, :count], shapes.run_us[option], shapes.lane[option]
        row[:] = 0
        if lane >= 0:
            early = clipped(running.model_slots - earliest // slot_us, count)
            running_costs(running.prefix[lane], running.rate[lane], earliest, run, slot_us, wait, row[:early])
            prefix, rate = running.later_prefix[running.later[lane]], running.later_rate[running.later[lane]]
            running_costs(prefix, rate, earliest + early * slot_us, run, slot_us, wait, row[early : count - 1])
        add_children(group, data, shapes, node, earliest + run, slot_us, message, row)
        add_extra(group, data, shapes, node, earliest + run, slot_us, extra, row)
        if ends_job:
            for k in range(count):
                row[k] += weight * (earliest + run + k * slot_us)
    _least_from(cost, option_base, shapes, node, message[node - first, :count])


@allocating_kernel
def _least_from(cost: Floats, option_base: int, shapes: Shapes, node: int, told: Floats) -> None:
    """Write the least cost of a node's subtree from each slot on."""
    told[:] = FAR
    for option in range(shapes.option_first[node], shapes.option_first[node + 1]):
        row = cost[option - option_base]
        for k in range(len(told)):
            told[k] = min(told[k], row[k])
    for k in range(len(told) - 2, -1, -1):
        told[k] = min(told[k], told[k + 1])


@allocating_kernel
def _send_on(
    group: int,
    data: JobData,
    shapes: Shapes,
    node: int,
    running: Running,
    slot_us: int,
    cost: Floats,
    message: Floats,
    waiting: Floats,
    lanes: Floats,
    later_lanes: Floats,
    excess: Floats,
) -> None:
    """Start the jobs that wait for a node where it is cheapest, and let them wait for the nodes behind it."""
    shape, base, count = data.shape[group], data.node_first[group], data.delays[group]
    first, option_base = shapes.node_first[shape], shapes.option_first[shapes.node_first[shape]]
    here, earliest = node - first, data.earliest_us[base + node - first]
    wait = data.weight[group] if here == shapes.last_to_end[shape] else 0
    early = clipped(running.model_slots - earliest // slot_us, count)
    jobs = 0.0
    for k in range(count):
        jobs += waiting[here, k]
        if jobs == 0.0:
            continue
        for option in range(shapes.option_first[node], shapes.option_first[node + 1]):
            if cost[option - option_base, k] > message[here, k]:
                continue
            begin_us = earliest + k * slot_us
            _move_on(group, data, shapes, node, k, begin_us + shapes.run_us[option], slot_us, jobs, waiting, excess)
            lane = shapes.lane[option]
            if lane >= 0 and k < count - 1:
                prefix, rate, lanes_run = running.prefix[lane], running.rate[lane], lanes[lane]
                if k >= early:
                    later = running.later[lane]
                    prefix, rate, lanes_run = running.later_prefix[later], running.later_rate[later], later_lanes[later]
                start = cheapest_start(prefix, rate, begin_us, shapes.run_us[option], slot_us, wait, 1.0)
                _add_steps(lanes_run, start, jobs, slot_us)
                _add_steps(lanes_run, start + shapes.run_us[option], -jobs, slot_us)
            jobs = 0.0
            break


@allocating_kernel
def _move_on(
    group: int,
    data: JobData,
    shapes: Shapes,
    node: int,
    k: int,
    end_us: int,
    slot_us: int,
    jobs: float,
    waiting: Floats,
    excess: Floats,
) -> None:
    """Let jobs whose node has started in slot k wait for its children, and count the priced precedences."""
    shape, base, count = data.shape[group], data.node_first[group], data.delays[group]
    first, arcs = shapes.node_first[shape], shapes.extra_first[shape]
    # The end of a start at the beginning of the slot: what is behind it counts whole slots from there.
    end_us -= k * slot_us
    child = shapes.first_child[node]
    while child >= 0:
        behind = (end_us - data.earliest_us[base + child]) // slot_us
        waiting[child, clipped(k + behind, count)] += jobs
        child = shapes.next_child[first + child]
    arc = shapes.first_into[node]
    while arc >= 0:
        excess[data.extra_first[group] + arc * count + k] += jobs
        arc = shapes.next_into[arcs + arc]
    arc = shapes.first_from[node]
    while arc >= 0:
        behind = (end_us - data.earliest_us[base + shapes.extra_target[arcs + arc]]) // slot_us
        excess[data.extra_first[group] + arc * count + clipped(k + behind, count)] -= jobs
        arc = shapes.next_from[arcs + arc]


@allocating_kernel
def _add_steps(lane: Numbers, instant_us: int, jobs: float, slot_us: int) -> None:
    """Add to the changes from slot to slot of the time that is run: so many jobs run from an instant on."""
    slot, within = instant_us // slot_us, instant_us % slot_us
    lane[slot] += jobs * (slot_us - within)
    lane[slot + 1] += jobs * within
