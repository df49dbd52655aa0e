"""From chunks to a workload: one table, and workflows made of models and run times.

Run times stay as they are, or are rounded up to a few of each model, the slowest as they are. What rounding costs is
measured: how much work it adds to a log, and how far each percentile rises.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from truenorth.models.errors import QuestionError
from truenorth.models.instance import Ints
from truenorth.models.objective import Objective
from truenorth.models.scenario.limits import MAX_HORIZON_US
from truenorth.models.slo import quantile_rank
from truenorth.models.units import seconds
from truenorth.models.workload import ANY_KIND, WHOLE, BatchClass, Edge, Task, Workflow
from truenorth.planner.inputs.importers.retries import AGAIN, FIRST, Attempts, attempts_of
from truenorth.planner.inputs.importers.sessions import Calls
from truenorth.planner.inputs.importers.tables import DagJobs, Requests, Texts, TokenRequests

MOST_EXACT = 20_000
"""Up to so many distinct pairs of model and run time, run times stay as they are unless classes are asked for."""
DEFAULT_CLASSES = 1_000
"""Classes per model where there are more: run times a thousandfold apart are rounded up by less than 1 %."""
MOST_WORKFLOWS = 50_000
"""More would make a scenario file that nobody loads."""
SLOWEST = Fraction(99, 100)
"""Requests from this quantile of their model's run times on stay as they are."""
_BISECTIONS = 16
MEMORY = "memory_bytes"
"""Column of what a request holds while it runs."""
_DIGITS = 10**4


@dataclass(frozen=True, slots=True)
class Classes:
    """How many run times a model may have.

    Parameters
    ----------
    most
        Classes per model; 0: every run time as it is; None: as it is, or where that would make more than `MOST_EXACT`
        workflows, `DEFAULT_CLASSES`, or for many models as many as make `MOST_EXACT` together.
    """

    most: int | None = None

    @classmethod
    def parse(cls, text: str) -> Classes:
        """Read ``auto``, ``exact`` or a number of classes.

        Raises
        ------
        QuestionError
            If the text is none of these.

        >>> Classes.parse("exact"), Classes.parse("8")
        (Classes(most=0), Classes(most=8))
        """
        if text in ("auto", "exact"):
            return cls(None if text == "auto" else 0)
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST_WORKFLOWS and len(text) < 9):
            allowed = f"auto, exact, or a number from 1 to {MOST_WORKFLOWS}"
            raise QuestionError(f"{text[:40]!r} is no number of classes; allowed is {allowed}", "runtime_classes")
        return cls(int(text))

    def per_group(self, exact: int, groups: int) -> int:
        """Return how many classes each group of requests gets; 0: every run time as it is.

        Parameters
        ----------
        exact, groups
            Distinct run times of all groups, and groups.

        Raises
        ------
        QuestionError
            If run times as they are would make more than `MOST_WORKFLOWS` workflows.
        """
        if self.most == 0 or (self.most is None and exact <= MOST_EXACT):
            refuse_more(exact)
            return 0
        return self.most or max(1, min(DEFAULT_CLASSES, MOST_EXACT // groups))


def round_up(figures: Ints, most: int) -> Ints:
    """Return the figures that stand for each request of a group: never less than its own.

    Requests whose figures are all alike to within a factor make a class, which is represented by the largest of every
    figure; the factor is as small as `most` classes allow. Requests from the 99th percentile of run time on keep their
    figures, so that what was slowest is as slow as it was.

    Parameters
    ----------
    figures
        One row for each request; the first column is a run time. Shape [requests, figures].
    """
    runtimes = figures[:, 0]
    place = quantile_rank(SLOWEST, len(runtimes))
    quick = runtimes < np.partition(runtimes, place)[place]
    if not quick.any() or _number(figures[quick]).max() < most:
        return figures
    classes, made = _classes_of(figures[quick], most), figures.copy()
    largest = np.zeros((classes.max() + 1, figures.shape[1]), np.int64)
    np.maximum.at(largest, classes, figures[quick])
    made[quick] = largest[classes]
    return made


def words(most: int, exact: int) -> str:
    """Return how workflows were made of so many distinct run times, in words."""
    if not most:
        return "run times as they are"
    cut = f"{most:,} class{'' if most == 1 else 'es'} per model"
    return f"run times rounded up to {cut}, the slowest per cent as they are ({exact:,} distinct before)"


def refuse_more(workflows: int) -> None:
    """Refuse more workflows than a scenario file may have.

    Raises
    ------
    QuestionError
        If there are more.
    """
    if workflows > MOST_WORKFLOWS:
        raise QuestionError(
            f"run times make {workflows:,} workflows; allowed are {MOST_WORKFLOWS:,}: ask for fewer runtime classes, "
            "a window, or models that more requests share"
        )


def _classes_of(figures: Ints, most: int) -> Ints:
    """Return which class each row is of: a grid of equal ratios over all columns, as fine as `most` classes allow."""
    logs = np.log(np.maximum(figures, 1))
    below = logs.max(axis=0) - logs
    coarse, fine = float(below.max()) + 1, 0.0
    classes = np.zeros(len(figures), np.int64)
    for _ in range(_BISECTIONS):
        step = (coarse + fine) / 2
        finer = _number((below / step).astype(np.int64))
        if finer.max() < most:
            coarse, classes = step, finer
        else:
            fine = step
    return classes


def _number(rows: Ints) -> Ints:
    """Return the number of each row among the distinct ones, from 0. Shape [rows]."""
    distinct = rows[:, 0] if rows.shape[1] == 1 else rows
    return np.asarray(np.unique(distinct, axis=0, return_inverse=True)[1], np.int64).reshape(-1)


@dataclass(frozen=True, slots=True)
class Rounding:
    """Run times of a log's requests as they are, and rounded up.

    Parameters
    ----------
    exact_us, rounded_us
        Of each request, on the kind of GPU where it is quickest. Shape [requests].
    most
        No run time is raised by more than this share of itself, on any kind and at any batch size; to four places,
        rounded up.
    """

    exact_us: Ints
    rounded_us: Ints
    most: float

    @classmethod
    def of(cls, parts: Sequence[tuple[pd.DataFrame, pd.DataFrame]]) -> Rounding | None:
        """Return the cost of rounding some tables up; None if nothing was.

        Parameters
        ----------
        parts
            Tables of figures before and after: run times by kind of GPU or size of batch, and perhaps `MEMORY`.
        """
        if all((before.to_numpy() == after.to_numpy()).all() for before, after in parts):
            return None
        runtimes = [[table.drop(columns=MEMORY, errors="ignore") for table in part] for part in parts]
        most = max((after / before).max().max() for before, after in runtimes)
        exact, rounded = (np.concatenate([part[side].min(axis=1) for part in runtimes]) for side in (0, 1))
        return cls(exact, rounded, math.ceil((most - 1) * _DIGITS) / _DIGITS)

    @property
    def work_added(self) -> float:
        """Share by which rounding raises the run times of all requests together."""
        return float(self.rounded_us.sum()) / float(self.exact_us.sum()) - 1

    def quantiles_s(self, share: Fraction) -> tuple[float, float]:
        """Return a quantile of the run times before and after."""
        rank = quantile_rank(share, len(self.exact_us))
        before, after = (np.partition(times, rank)[rank] / 1e6 for times in (self.exact_us, self.rounded_us))
        return float(before), float(after)


MOST_READ = 30_000_000
"""Most requests of all files together, before a window is cut; they take about 1 GB."""


REQUEST = "request"
"""The task of every workflow that is one request of a stream."""
CALL = "call {}"
"""The tasks of a workflow that is a session of requests, from 1."""


@dataclass(frozen=True, slots=True)
class Served:
    """What is known of the requests of streams that jobs are.

    Parameters
    ----------
    tokens
        Of the prompt, uncached ones among them, and of the answer. Shape [requests, 3].
    alone_us, least_us
        Where it is quickest: time on an empty GPU; time of a GPU that prefill and decodes take at least, the decodes
        at the concurrency that is best for them. Shape [requests].
    blocks
        Numbers of the full blocks of each prompt, where nodes cache; None: they do not.
    calls
        How requests make jobs, in whose order they stand; None: each is one.
    """

    tokens: Ints
    alone_us: Ints
    least_us: Ints
    blocks: tuple[tuple[int, ...], ...] | None = None
    calls: Calls | None = None

    def by_job(self, per_request: Ints) -> Ints:
        """Return sums of a figure of requests over the requests of each job. Shape [jobs]."""
        if self.calls is None:
            return per_request
        return np.asarray(np.add.reduceat(per_request, np.flatnonzero(self.calls.place == 0)), np.int64)


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
        Where every job is a request of a stream, or a session of them.
    split
        Whether these are computed on one node and decoded on another.
    suits
        What is minimised unless a person says otherwise; None: what is for any scenario.
    line, label
        Line of the log that each job comes from, None where it is not known or the log is several files; and what the
        log calls it. Shape [jobs].
    delay_us
        By task: what passes before it in each job, -1 in those that do not have it; none where nothing passes. Each of
        shape [jobs].
    """

    workflows: tuple[Workflow, ...]
    workflow: Ints
    release_us: Ints
    deadline_us: Ints | None
    mapping: str
    weight: NDArray[np.float64] | None = None
    rounding: Rounding | None = None
    served: Served | None = None
    suits: Objective | None = None
    line: Ints | None = None
    label: Texts | None = None
    split: bool = False
    delay_us: Mapping[str, Ints] = field(default_factory=dict)

    @property
    def gangs(self) -> bool:
        """Whether some job runs on several GPUs together."""
        return any(task.gpus > 1 for workflow in self.workflows for task in workflow.tasks)


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
    if len({chunk.file for chunk in requests}) > 1:  # a line alone does not say of which
        requests = [replace(chunk, line=None) for chunk in requests]
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
    if found.gangs and (asked.share is not None or found.batch_us):
        problem = "the log has runs on several GPUs beside shares, memory or batches"
        raise QuestionError(f"{problem}; allowed is one without these, or split=on")
    if found.tries_us is not None and (asked.share is not None or found.batch_us):
        raise QuestionError("retries= is about jobs that run alone; allowed is without shares, memory and batches")
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
    make = _together if found.gangs else _single
    workflows = tuple(make(str(names[kind.pop("model")]), kind, known) for kind in kinds)
    mapping = words(most if rounding else 0, exact)
    if found.batch_us:
        mapping += "; only requests with equal figures form batches, which few classes make more of"
    of_each = np.asarray(grouped.ngroup(), np.int64)
    given = asked.deadline_us, mapping, _weights(asked), rounding
    made = Workload(
        workflows, of_each, release_us, *given, suits=_suits(asked, workflows), line=asked.line, label=asked.model
    )
    attempts = attempts_of(asked)
    return made if attempts is None else _tried_again(made, attempts)


def _tried_again(single: Workload, attempts: Attempts) -> Workload:
    """Return the jobs whose attempts are the jobs of a workload: a workflow for each sequence of theirs."""
    ends = np.flatnonzero(np.append(attempts.place[1:] == 0, True)) + 1
    kinds = single.workflow[attempts.row].tolist()
    sequences = [tuple(kinds[begin:end]) for begin, end in pairwise([0, *ends.tolist()])]
    # In order of the sequences, so that equal logs give equal workflows in equal order.
    distinct = {kinds: index for index, kinds in enumerate(sorted(set(sequences)))}
    refuse_more(len(distinct))
    known: dict[str, int] = {}
    first = attempts.first
    weight = np.ones(len(single.workflow)) if single.weight is None else single.weight
    return replace(
        single,
        workflows=tuple(_in_sequence([single.workflows[kind] for kind in kinds], known) for kinds in distinct),
        workflow=np.array([distinct[kinds] for kinds in sequences], np.int64),
        release_us=single.release_us[first],
        weight=weight[attempts.last],
        mapping=f"{single.mapping}; retries in the job of the attempt that failed",
        delay_us=attempts.delays_us(),
        deadline_us=None if single.deadline_us is None else single.deadline_us[first],
        line=None if single.line is None else single.line[first],
        label=None if single.label is None else single.label[first],
    )


def _in_sequence(attempts: Sequence[Workflow], known: dict[str, int]) -> Workflow:
    """Return a workflow whose tasks are those of some workflows of one task, each after the one before it.

    Parameters
    ----------
    known
        Names so far, and how many workflows have each.
    """
    if len(attempts) == 1:
        return attempts[0]
    name = f"{attempts[-1].name} after {len(attempts) - 1} failed"
    known[name] = known.get(name, 0) + 1
    tasks = [replace(attempts[0].tasks[0], name=FIRST)]
    for number, workflow in enumerate(attempts[1:], 1):
        task = replace(workflow.tasks[0], name=AGAIN.format(number), inputs=(Edge(tasks[-1].name, 0),))
        tasks.append(task)
    return Workflow(name if known[name] == 1 else f"{name} #{known[name]}", tuple(tasks))


def _suits(asked: Requests, workflows: Sequence[Workflow]) -> Objective | None:
    """Return what a log suits: of training jobs, which need no model, mean completion time, if need be by weight."""
    if asked.failed is not None:
        return Objective.WEIGHTED_LATENCY
    served = asked.gpus is None or any(task.models for each in workflows for task in each.tasks)
    return None if served else Objective.MEAN_LATENCY


def _weights(asked: Requests) -> NDArray[np.float64] | None:
    """Return the weights of requests, 0 for those that failed; None: all weigh 1. Shape [requests]."""
    if asked.failed is None:
        return asked.weight
    given = np.ones(len(asked.failed)) if asked.weight is None else asked.weight
    return np.where(asked.failed, 0.0, given)


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


def _together(label: str, kind: dict[Any, int], _known: dict[str, int]) -> Workflow:
    """Return a workflow of one task on as many GPUs as it takes together; what would be its model is a label only."""
    gpus, runtime_us = kind["gpus"], kind["runtime_us"]
    name = f"{label or 'job'} {seconds(runtime_us)}" + (f" x {gpus}" if gpus > 1 else "")
    return Workflow(name, (Task("run", {ANY_KIND: runtime_us}, gpus=gpus),))


def _single(model: str, kind: dict[Any, int], known: dict[str, int]) -> Workflow:
    """Return a workflow of equal tasks side by side, one per GPU; the name tells model, run time and GPUs apart.

    Parameters
    ----------
    known
        Names so far, and how many workflows have each: where only memory or batches differ, a number is added.
    """
    gpus, runtime_us = kind.pop("gpus"), kind.pop("runtime_us")
    share, memory = kind.pop("share", WHOLE), kind.pop(MEMORY, 0)
    name = f"{model or 'job'} {seconds(runtime_us)}" + (f" x {gpus}" if gpus > 1 else "")
    models = (model,) if model else ()
    # Workflows are known by name, also where only memory or batches differ.
    known[name] = known.get(name, 0) + 1
    if known[name] > 1:
        name += f" #{known[name]}"
    steps = ["run"] if gpus == 1 else [f"run{index}" for index in range(gpus)]
    if kind:
        table = {ANY_KIND: {1: runtime_us} | kind}
        batch = BatchClass(name, table, models, share, memory)
        return Workflow(name, tuple(Task.of_class(step, batch) for step in steps))
    return Workflow(name, tuple(Task(step, {ANY_KIND: runtime_us}, models, (), share, memory) for step in steps))


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
