"""Decisions to timelines and back: the public face of the compiled list decoder.

Decisions are an order of the tasks and a GPU per task; the decoder derives start times, loads and evictions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.instance import Instance, Ints
from models.objective import Objective
from models.timeline import Residency, Timeline
from solvers.search.decoder_kernel import INFEASIBLE, cost_so_far, decode, look_ahead
from solvers.search.decoder_state import (
    ABSENT,
    END,
    GPU,
    INITIAL,
    LOAD_START,
    MODEL,
    READY,
    SLOT,
    State,
    Work,
    copy_of,
    initial_state,
)
from solvers.search.decoder_tables import Tables, tabulate
from solvers.search.normal_ends import delay_ends


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


def encode(timeline: Timeline) -> Decisions:
    """Return the decisions behind a complete feasible timeline: its GPUs, and its tasks by start.

    Decoding them starts no task later wherever the timeline loads in the order of need and evicts as the
    decoder does; a timeline that loads more cleverly may decode to a worse one.
    """
    order = np.lexsort((timeline.end_us, timeline.start_us))
    return Decisions(order.astype(np.int64), timeline.gpu.copy())


def decode_timeline(instance: Instance, decisions: Decisions) -> Timeline | None:
    """Return the timeline of some decisions, or None if a task cannot run on its GPU.

    That happens where the GPU is not eligible or, with no swaps allowed, its models find no room any more.
    """
    return Decoder(instance, Objective.MEAN_LATENCY).timeline(decisions)


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
    origin, residencies
        The state at time 0 and a table that takes the residencies of a decode.

    Raises
    ------
    UnsupportedInstanceError
        If tasks come in batches, take shares or hold memory: `ServingDecoder` knows them.
    """

    serves = False
    """Whether batches, shares and memory of tasks are known."""

    def __init__(self, instance: Instance, objective: Objective, idle_first: bool = False) -> None:
        if not self.serves:
            instance.require_one_at_a_time("the list decoder")
        self.instance = instance
        self.tables: Tables = tabulate(instance, objective, idle_first)
        self.origin, self.residencies = initial_state(instance, self.tables)
        self._initial = self.residencies[: self.origin.records[0]].copy()

    def work(self, decisions: Decisions) -> Work:
        """Return fresh working arrays for some decisions."""
        tasks = len(decisions.order)
        return Work(
            order=decisions.order.copy(),
            gpu=decisions.gpu.copy(),
            start=np.zeros(tasks, np.int64),
            end=np.zeros(tasks, np.int64),
            previous=np.full(tasks, ABSENT, np.int64),
            next_use=np.zeros(int(self.tables.use_first[-1]), np.int64),
            completed=self.tables.ideal_us.copy(),
        )

    def cost(self, decisions: Decisions) -> float:
        """Return the cost of some decisions, INFEASIBLE if a task cannot run on its GPU."""
        return self._decode(decisions, self.work(decisions), copy_of(self.origin))

    def encode(self, timeline: Timeline) -> Decisions:
        """Return the decisions behind a complete feasible timeline."""
        return encode(timeline)

    def timeline(self, decisions: Decisions) -> Timeline | None:
        """Return the timeline of some decisions, or None if a task cannot run on its GPU."""
        work, state = self.work(decisions), copy_of(self.origin)
        if self._decode(decisions, work, state) == INFEASIBLE:
            return None
        return Timeline(work.gpu, work.start, work.end, self._residencies(state))

    def _decode(self, decisions: Decisions, work: Work, state: State) -> float:
        """Decode the whole window; return its cost."""
        last = len(decisions.order)
        self._forget()
        total, worst = cost_so_far(self.tables, work.completed)
        look_ahead(self.tables, state, work, 0, last)
        total, worst = decode(self.tables, state, work, self.residencies, 0, last, total, worst, INFEASIBLE)
        return total + worst

    def _forget(self) -> None:
        """Make the initial residencies what they were before a decode."""
        self.residencies[: len(self._initial)] = self._initial

    def _residencies(self, state: State) -> tuple[Residency, ...]:
        """Return the residencies of a finished decode; unused initial ones are left out."""
        rows = self.residencies[: state.records[0]]
        unused = (state.last_use == ABSENT) & (state.record != ABSENT) & (state.ready != ABSENT)
        rows[state.record[unused], LOAD_START] = ABSENT
        kept = rows[rows[:, LOAD_START] != ABSENT]
        kept = kept[np.lexsort((kept[:, MODEL], kept[:, READY], kept[:, LOAD_START], kept[:, GPU]))]
        # What runs hold would stand in the way of models that stay longer.
        if (self.tables.limited or self.tables.slot_bytes.any()) and not self.instance.template_memory.any():
            delay_ends(self.instance, kept)
        return tuple(
            Residency(
                model=row[MODEL],
                gpu=row[GPU],
                load_start_us=row[LOAD_START],
                ready_us=row[READY],
                end_us=None if row[END] == ABSENT else row[END],
                slot=None if row[SLOT] == ABSENT else row[SLOT],
                initial=bool(row[INITIAL]),
            )
            for row in kept.tolist()
        )
