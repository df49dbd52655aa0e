"""From chunks to a workload: one table, a window of it, another rate, and workflows made of models and run times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from truenorth.models.errors import QuestionError
from truenorth.models.instance import Ints
from truenorth.models.scenario.limits import MAX_HORIZON_US
from truenorth.models.units import seconds
from truenorth.models.workload import ANY_KIND, WHOLE, BatchClass, Task, Workflow
from truenorth.planner.inputs.importers.classes import MEMORY, Classes, Rounding, refuse_more, round_up, words
from truenorth.planner.inputs.importers.tables import DagJobs, Requests, TokenRequests

MOST_READ = 30_000_000
"""Most requests of all files together, before a window is cut; they take about 1 GB."""


REQUEST = "request"
"""The task of every workflow that is one request of a stream."""


@dataclass(frozen=True, slots=True)
class Served:
    """What is known of jobs that are requests of streams.

    Parameters
    ----------
    tokens
        Of the prompt, uncached ones among them, and of the answer. Shape [jobs, 3].
    alone_us, least_us
        Where it is quickest: time on an empty GPU; time of a GPU that prefill and decodes take at least, the decodes
        at the concurrency that is best for them. Shape [jobs].
    """

    tokens: Ints
    alone_us: Ints
    least_us: Ints


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in release order.

    Parameters
    ----------
    workflows
        Distinct, with different names.
    workflow
        Index of each job's workflow. Shape [jobs].
    release_us
        From time zero on. Shape [jobs].
    deadline_us
        Relative to the release, -1 for none; None if no job has one. Shape [jobs].
    mapping
        How the workflows were made, in words.
    weight
        Of each job; None: 1. Shape [jobs].
    rounding
        What rounding run times up cost; None: they are as they were.
    served
        Where every job is a request of a stream.
    """

    workflows: tuple[Workflow, ...]
    workflow: Ints
    release_us: Ints
    deadline_us: Ints | None
    mapping: str
    weight: NDArray[np.float64] | None = None
    rounding: Rounding | None = None
    served: Served | None = None


def gather(chunks: Iterable[Requests | DagJobs | TokenRequests]) -> Requests | DagJobs | TokenRequests:
    """Return all chunks as one.

    Raises
    ------
    QuestionError
        If there is nothing in them, or more than `MOST_READ` requests.
    """
    found, total = [], 0
    for chunk in chunks:
        total += len(chunk.release_us)
        # While it reads, so that a file that is too large ends before memory does.
        if total > MOST_READ:
            raise QuestionError(f"more than {MOST_READ:,} requests; allowed are files with fewer")
        if len(chunk.release_us):
            found.append(chunk)
    requests = [chunk for chunk in found if isinstance(chunk, Requests)]
    jobs = [chunk for chunk in found if isinstance(chunk, DagJobs)]
    tokens = [chunk for chunk in found if isinstance(chunk, TokenRequests)]
    if tokens:
        return TokenRequests.join(tokens)
    if requests:
        return Requests.join(requests)
    if jobs:
        workflows = tuple(workflow for chunk in jobs for workflow in chunk.workflows)
        return DagJobs(workflows, np.concatenate([chunk.release_us for chunk in jobs]))
    raise QuestionError("no row is left; allowed are files with at least one request")


def workload_of(found: Requests | DagJobs, rows: Ints, release_us: Ints, classes: Classes) -> Workload:
    """Return some rows of a table as jobs.

    Parameters
    ----------
    rows
        Positions in the table, in release order. Shape [jobs].
    release_us
        Their releases from time zero. Shape [jobs].
    classes
        How run times become workflows; of no effect on jobs that are DAGs.

    Raises
    ------
    QuestionError
        If there are too many workflows, or different workflows of one name.
    """
    if isinstance(found, DagJobs):
        return _of_jobs([found.workflows[row] for row in rows.tolist()], release_us)
    if not found.timed or found.by_kind:
        what = "has run times per kind of GPU" if found.by_kind else "has no run times"
        raise QuestionError(f"the log {what}; allowed is such a log with a catalogue, which knows models and kinds")
    asked = found.at(rows)
    gpus = np.ones(len(rows), np.int64) if asked.gpus is None else asked.gpus
    model, names = pd.factorize(asked.model, sort=True)
    runtime = asked.runtime_us
    # In floats, which cannot overflow; times of plans are whole numbers of 64 bits.
    if float((runtime.astype(np.float64) * gpus).sum()) > MAX_HORIZON_US / 10:
        raise QuestionError(
            f"all run times add up to more than {MAX_HORIZON_US / 10:.0e} us; allowed is a shorter window"
        )
    table = pd.DataFrame({"model": model, "gpus": gpus, "runtime_us": runtime} | _serving(asked))
    kept = [column for column in ("model", "gpus", "share") if column in table]
    exact = len(table.drop_duplicates())
    most = classes.per_group(exact, table.groupby(kept).ngroups)
    table, rounding = _round_up(table, kept, most) if most else (table, None)
    # Sorted, so that equal logs give equal workflows in equal order.
    grouped = table.groupby(list(table.columns), sort=True)
    refuse_more(grouped.ngroups)
    kinds = grouped.size().index.to_frame(index=False).to_dict("records")
    known: dict[str, int] = {}
    workflows = tuple(_single(str(names[kind.pop("model")]), kind, known) for kind in kinds)
    mapping = words(most if rounding else 0, exact)
    if found.batch_us:
        mapping += "; only requests with equal figures form batches, which few classes make more of"
    of_each = np.asarray(grouped.ngroup(), np.int64)
    return Workload(workflows, of_each, release_us, asked.deadline_us, mapping, asked.weight, rounding)


def _round_up(table: pd.DataFrame, kept: list[str], most: int) -> tuple[pd.DataFrame, Rounding | None]:
    """Return a table whose figures are rounded up among rows that agree in some columns, and what that costs."""
    before = table.drop(columns=kept)
    figures = before.to_numpy(np.int64, copy=True)
    for rows in table.groupby(kept).indices.values():
        figures[rows] = round_up(figures[rows], most)
    after = pd.DataFrame(figures, columns=before.columns, index=before.index)
    return pd.concat([table[kept], after], axis=1)[list(table.columns)], Rounding.of([(before, after)])


def _serving(asked: Requests) -> dict[str | int, Ints]:
    """Return the further columns of a table: share, memory, and run times by batch size."""
    if asked.share is None or asked.memory_bytes is None:
        return {}
    columns: dict[str | int, Ints] = {"share": asked.share, MEMORY: asked.memory_bytes}
    return columns | dict(asked.batch_us)


def _single(model: str, kind: dict[Any, int], known: dict[str, int]) -> Workflow:
    """Return a workflow of equal tasks side by side, one per GPU; the name tells model, run time and GPUs apart.

    Parameters
    ----------
    known
        Names so far, and how many workflows have each: where only memory or batches differ, a number is added.
    """
    gpus, runtime_us = kind.pop("gpus"), kind.pop("runtime_us")
    share, memory = kind.pop("share", WHOLE), kind.pop(MEMORY, 0)
    name = f"{model} {seconds(runtime_us)}" + (f" x {gpus}" if gpus > 1 else "")
    # Workflows are known by name, also where only memory or batches differ.
    known[name] = known.get(name, 0) + 1
    if known[name] > 1:
        name += f" #{known[name]}"
    steps = ["run"] if gpus == 1 else [f"run{index}" for index in range(gpus)]
    if kind:
        table = {ANY_KIND: {1: runtime_us} | kind}
        batch = BatchClass(name, table, (model,), share, memory)
        return Workflow(name, tuple(Task.of_class(step, batch) for step in steps))
    return Workflow(name, tuple(Task(step, {ANY_KIND: runtime_us}, (model,), (), share, memory) for step in steps))


def _of_jobs(workflows: Sequence[Workflow], release_us: Ints) -> Workload:
    known: dict[str, tuple[int, Workflow]] = {}
    index = np.empty(len(workflows), np.int64)
    for job, workflow in enumerate(workflows):
        index[job], first = known.setdefault(workflow.name, (len(known), workflow))
        if first is not workflow and first != workflow:
            raise QuestionError(f"two different workflows are named {workflow.name!r}; allowed is a name for each")
    return Workload(
        tuple(first for _, first in known.values()), index, release_us, None, "one workflow per distinct DAG"
    )
