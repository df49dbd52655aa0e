"""Decisions to timelines and back: the public face of the compiled list decoder.

Decisions are an order of the tasks and a GPU per task; the decoder derives start times, loads and evictions.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from truenorth.models.features import SEVERAL_AT_A_TIME, Feature, require
from truenorth.models.instance import NONE, Instance, Ints, UnsupportedInstanceError
from truenorth.models.objective import Objective
from truenorth.models.timeline import Residency, Timeline, batch_leaders
from truenorth.solvers.search.decoder_kernel import INFEASIBLE, cost_so_far, decode, look_ahead
from truenorth.solvers.search.decoder_state import (
    END,
    GPU,
    INITIAL,
    LOAD_START,
    MODEL,
    READY,
    SLOT,
    ClusterState,
    DecodedTasks,
    Decoding,
    Serving,
    copy_of,
    initial_state,
    new_runs,
)
from truenorth.solvers.search.decoder_tables import tabulate, tabulate_service


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """What a search decides.

    Parameters
    ----------
    order
        The tasks, every predecessor before its successors. Shape [tasks].
    gpu
        Per task. Shape [tasks].
    joins
        Per task: 1 if it joins the batch before it on its GPU; None where there are no batches. Shape [tasks].
    """

    order: Ints
    gpu: Ints
    joins: Ints | None = None


SUPPORTS = SEVERAL_AT_A_TIME | {Feature.DELAYS}


class Decoder:
    """An instance and an objective, tabulated once, with the working arrays of a decode.

    Parameters
    ----------
    instance, objective
        What is decoded, and how its cost is counted.
    idle_first
        Whether the model that has been idle for longest leaves, in place of the one needed furthest ahead.

    Attributes
    ----------
    tables
        The instance as the kernels read it.
    service
        Batches, shares and memory of tasks; None where tasks run one at a time, which is faster.
    origin, residencies
        The state at time 0 and a table that takes the residencies of a decode.

    Raises
    ------
    UnsupportedInstanceError
        If a GPU comes twice, or the window has what is not supported.
    """

    def __init__(self, instance: Instance, objective: Objective, idle_first: bool = False) -> None:
        require(instance, "local search", SUPPORTS)
        if any(len(gpu.available.intervals) > 1 for gpu in instance.cluster.gpus):
            raise UnsupportedInstanceError(
                "the list decoder knows no GPU that comes twice; allowed is one interval each"
            )
        self.instance = instance
        self.tables = tabulate(instance, objective, idle_first)
        self.service = None if instance.one_at_a_time else tabulate_service(instance)
        self.origin, self.residencies = initial_state(instance, self.tables)
        if self.service is not None:
            comes_us = [gpu.available.intervals[0][0] for gpu in instance.cluster.gpus]
            self.origin.compute_free[:] = self.origin.copy_free[:] = comes_us
        self._initial = self.residencies[: self.origin.records[0]].copy()

    def work(self, decisions: Decisions) -> DecodedTasks:
        """Return fresh working arrays for some decisions."""
        tasks = len(decisions.order)
        return DecodedTasks(
            order=decisions.order.copy(),
            gpu=decisions.gpu.copy(),
            start=np.zeros(tasks, np.int64),
            end=np.zeros(tasks, np.int64),
            previous=np.full(tasks, NONE, np.int64),
            next_use=np.zeros(int(self.tables.use_first[-1]), np.int64),
            completed=self.tables.ideal_us.copy(),
        )

    def serving(self, decisions: Decisions) -> Serving | None:
        """Return fresh working arrays for the batches of some decisions, None where there are none."""
        if self.service is None:
            return None
        joins = np.zeros(len(decisions.order), np.int64) if decisions.joins is None else decisions.joins
        return Serving(self.service, new_runs(self.instance, joins))

    def cost(self, decisions: Decisions) -> float:
        """Return the cost of some decisions, INFEASIBLE if a task cannot run on its GPU."""
        return self._decode(decisions, self.work(decisions), copy_of(self.origin))

    def encode(self, timeline: Timeline) -> Decisions:
        """Return the decisions behind a complete feasible timeline: its GPUs, and its tasks by start.

        Decoding them starts no task later wherever the timeline loads in the order of need and evicts as the
        decoder does; a timeline that loads more cleverly may decode to a worse one. Members of a batch lie together.
        """
        if self.service is None:
            order = np.lexsort((timeline.end_us, timeline.start_us))
            return Decisions(order.astype(np.int64), timeline.place.copy())
        leaders = batch_leaders(self.instance, timeline)
        order = np.lexsort((np.arange(len(leaders)), leaders, timeline.start_us)).astype(np.int64)
        return Decisions(order, timeline.place.copy(), (leaders != np.arange(len(leaders))).astype(np.int64))

    def timeline(self, decisions: Decisions) -> Timeline | None:
        """Return the timeline of some decisions, or None if a task cannot run on its GPU."""
        work, state = self.work(decisions), copy_of(self.origin)
        if self._decode(decisions, work, state) == INFEASIBLE:
            return None
        return Timeline(work.gpu, work.start, work.end, self._residencies(state))

    def _decode(self, decisions: Decisions, work: DecodedTasks, state: ClusterState) -> float:
        """Decode the whole window; return its cost."""
        last, serving = len(decisions.order), self.serving(decisions)
        # The initial residencies as they were before a decode.
        self.residencies[: len(self._initial)] = self._initial
        look_ahead(self.tables, state, work, serving, 0, last)
        on = Decoding(self.tables, state, work, self.residencies)
        total, worst = decode(on, serving, 0, last, cost_so_far(self.tables, work.completed), INFEASIBLE)
        return total + worst

    def _residencies(self, state: ClusterState) -> tuple[Residency, ...]:
        """Return the residencies of a finished decode; unused initial ones are left out."""
        rows = self.residencies[: state.records[0]]
        unused = (state.last_use == NONE) & (state.record != NONE) & (state.ready != NONE)
        rows[state.record[unused], LOAD_START] = NONE
        kept = rows[rows[:, LOAD_START] != NONE]
        kept = kept[np.lexsort((kept[:, MODEL], kept[:, READY], kept[:, LOAD_START], kept[:, GPU]))]
        # What runs hold would stand in the way of models that stay longer.
        if (self.tables.limited or self.tables.slot_bytes.any()) and not self.instance.template_memory.any():
            _delay_ends(self.instance, kept)
        return tuple(
            Residency(
                model=row[MODEL],
                gpu=row[GPU],
                load_start_us=row[LOAD_START],
                ready_us=row[READY],
                end_us=None if row[END] == NONE else row[END],
                slot=None if row[SLOT] == NONE else row[SLOT],
                initial=bool(row[INITIAL]),
            )
            for row in kept.tolist()
        )


def _delay_ends(instance: Instance, rows: Ints) -> None:
    """Move the ends in a table of residencies to where rule R7 has them, in place.

    A residency ends at the start of the load that takes its room, and otherwise never. Where replicas are limited or
    slots are rearranged, the decoder lets a model go as soon as it was last used, which says since when it may leave.
    Here the loads are walked through once more, in order of time: what may leave stays until a load needs its memory,
    its slot, its replica, or loads the same model anew.
    """
    ends = [(row[END], 0, 0, number) for number, row in enumerate(rows.tolist()) if row[END] != NONE]
    begins = [(row[LOAD_START], 1, -row[INITIAL], number) for number, row in enumerate(rows.tolist())]
    held = _HeldResidencies(instance, rows)
    rows[:, END] = NONE
    for instant, begins_now, _, number in sorted(ends + begins):  # ends before starts, and initial ones before loads
        if begins_now:
            held.add(number, instant)
        else:
            held.may_leave.append(number)


class _HeldResidencies:
    """Which residencies are held, and which of them may leave, the latest last."""

    def __init__(self, instance: Instance, rows: Ints) -> None:
        self.instance, self.rows = instance, rows
        self.may_leave: list[int] = []
        self._memory = [gpu.memory_bytes for gpu in instance.cluster.gpus]
        self._slotted = [bool(gpu.slots) for gpu in instance.cluster.gpus]
        self._weights = instance.weight_bytes.tolist()
        limits = instance.restrictions.max_replicas
        self._most = [limits.get(model.name, instance.n_gpus) for model in instance.models]
        self._bytes, self._copies = defaultdict[int, int](int), defaultdict[int, int](int)

    def add(self, number: int, instant: int) -> None:
        """Hold a residency from an instant on; whatever stands in its way leaves then."""
        for other in reversed(self.may_leave):
            if self._in_the_way(number, other):
                self.may_leave.remove(other)
                self.rows[other, END] = instant
                self._count(other, -1)
        self._count(number, 1)

    def _in_the_way(self, number: int, other: int) -> bool:
        """Say whether a residency that may leave must, for another to begin."""
        model, gpu, slot = (int(value) for value in self.rows[number, [MODEL, GPU, SLOT]])
        same_model = int(self.rows[other, MODEL]) == model
        if same_model and self._copies[model] >= self._most[model]:
            return True
        if int(self.rows[other, GPU]) != gpu:
            return False
        if self._slotted[gpu]:
            return same_model or int(self.rows[other, SLOT]) == slot
        return same_model or self._bytes[gpu] + self._weights[model] > self._memory[gpu]

    def _count(self, number: int, by: int) -> None:
        model, gpu = int(self.rows[number, MODEL]), int(self.rows[number, GPU])
        self._copies[model] += by
        self._bytes[gpu] += by * self._weights[model]
