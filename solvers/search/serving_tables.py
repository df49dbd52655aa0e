"""Batches, shares and working memory as flat arrays, and the working arrays of a decode that knows them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from models.instance import Instance, Ints
from models.workload import WHOLE
from solvers.search.decoder_state import ABSENT


class Service(NamedTuple):
    """What a decode reads of batches, shares and working memory, beside `Tables`.

    Attributes
    ----------
    batch, share, memory
        Per template, as in `Instance`.
    batch_us, largest
        Run times of a batch class on a GPU class by size, and the largest size there, as in `Instance`.
    smallest_share
        The least share that any template takes.
    side_by_side, holds_memory
        Whether some template takes less than a whole GPU; whether some holds memory.
    goes_us
        Per GPU: when it goes; it comes once, when its engines are free at first.
    """

    batch: Ints
    share: Ints
    memory: Ints
    batch_us: Ints
    largest: Ints
    smallest_share: int
    side_by_side: bool
    holds_memory: bool
    goes_us: Ints


class Runs(NamedTuple):
    """Which tasks join batches, and what a decode notes about batches. A batch is known by its first member.

    Attributes
    ----------
    joins
        Per task: 1 if it joins the batch before it on its GPU where that may take it; a decision.
    next_on_gpu, latest
        The task behind each one on its GPU; per GPU the one found last. ABSENT if there is none.
    placed
        Per task: 1 once it has its time.
    members
        The batch under way; its first entries count.
    arrived
        Per task: when its job was released and its inputs had arrived on its GPU.
    held, level
        Per batch: bytes that it holds, bytes that all batches on its GPU hold when it starts.
    flipped, flips
        Tasks whose `joins` the move under way changed; their number (shape [1]).
    """

    joins: Ints
    next_on_gpu: Ints
    latest: Ints
    placed: Ints
    members: Ints
    arrived: Ints
    held: Ints
    level: Ints
    flipped: Ints
    flips: Ints


def tabulate_service(instance: Instance) -> Service:
    """Return the tables of batches, shares and working memory."""
    share = instance.template_share
    return Service(
        batch=instance.template_batch,
        share=share,
        memory=instance.template_memory,
        batch_us=instance.batch_us,
        largest=instance.batch_largest,
        smallest_share=int(share.min()),
        side_by_side=bool((share < WHOLE).any()),
        holds_memory=bool(instance.template_memory.any()),
        goes_us=np.array([gpu.available.intervals[0][1] for gpu in instance.cluster.gpus], np.int64),
    )


def new_runs(instance: Instance, joins: Ints) -> Runs:
    """Return fresh working arrays for some decisions to join."""
    tasks = instance.n_tasks
    fresh = [np.zeros(tasks, np.int64) for _ in range(6)]
    return Runs(
        joins=joins.copy(),
        next_on_gpu=fresh[0],
        latest=np.full(instance.n_gpus, ABSENT, np.int64),
        placed=fresh[1],
        members=np.zeros(max(1, int(instance.batch_largest.max(initial=1))), np.int64),
        arrived=fresh[2],
        held=fresh[3],
        level=fresh[4],
        flipped=fresh[5],
        flips=np.zeros(1, np.int64),
    )
