"""A timeline: what happens when. One type for plans, heuristics, simulated runs and runs on devices.

When the tokens of its requests come, and what is said of a rule that it breaks, stand here, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorth.models.cluster import FOREVER
from truenorth.models.instance import NONE, Instance, Ints

UNPLACED = -1
"""Stands for the GPU of a task that a timeline leaves out; the checker reports it."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One task's run: the half-open interval [start, end) on a GPU, in microseconds.

    A request of a stream has besides: when its first token comes, before when it may not join (0: at any time), of what
    happened how many output tokens it had (None: as given), where KV grows or nodes cache its number in the order of
    joining, and where nodes cache how many of its prompt tokens were cached as it joined.
    """

    task: int
    gpu: int
    start_us: int
    end_us: int
    first_us: int | None = None
    not_before_us: int = 0
    output: int | None = None
    order: int | None = None
    cached: int | None = None


@dataclass(frozen=True, slots=True)
class Residency:
    """A stay of a model in a GPU's memory.

    Parameters
    ----------
    model, gpu
        Indices in the instance; `gpu` is the number of a place: of a GPU, or of several over which the model is split.
    load_start_us, ready_us
        Memory is held from the first, tasks may use the model from the second; both 0 if initial.
    end_us
        When the model is evicted, or its GPU goes; None: never.
    slot
        0-based; None where memory is shared by bytes.
    initial
        Whether the model was there at time 0 without a load.
    """

    model: int
    gpu: int
    load_start_us: int
    ready_us: int
    end_us: int | None = None
    slot: int | None = None
    initial: bool = False


class CutRun(NamedTuple):
    """A run of a request that had not ended when its GPU went (rule E3): all that it had computed is lost.

    `order` is its number in the order of joining, None where nobody says.
    """

    task: int
    gpu: int
    start_us: int
    cut_us: int
    order: int | None = None


class Leave(NamedTuple):
    """For how long a request was preempted (rule E8): from when, until when (None: until its GPU went).

    `order` and `again` are the numbers, in the order of joining, of its leaving and of its joining again.
    """

    task: int
    gpu: int
    from_us: int
    to_us: int | None
    order: int
    again: int | None


class Runs(NamedTuple):
    """What runs when: first every task's own run, with its number, then those of requests that were cut. Shape [runs].

    `again` marks runs that come after one that was cut: nothing of the prompt is there any more.
    """

    task: Ints
    gpu: Ints
    start_us: Ints
    end_us: Ints
    again: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class ServedRequests:
    """What a timeline says of requests of streams, beside where and from when to when they are served.

    Parameters
    ----------
    first_us
        Per task: when its first token comes; NONE for what is no request. Shape [tasks].
    not_before_us
        Per task: before when the plan does not let it join; 0 where it does not say. Shape [tasks].
    output
        Per task: output tokens, the given ones unless it happened otherwise; 0 for what is no request. Shape [tasks].
    limits
        By GPU: most requests at once there, where the plan allows fewer than there are seats.
    order
        Per task: a number that rises in the order in which requests join, NONE for what is no request; None where KV
        grows on no GPU and no run was cut, and nobody needs to be told. Shape [tasks].
    cut
        Runs of requests that were cut as their GPU went, before the one that ended.
    cached
        Per task: how many prompt tokens its GPU had cached as it joined (rule E4); None where no GPU caches.
    preempted
        Where a higher priority may preempt: who was preempted when, whatever the reason. If there is none, requests are
        preempted as rule E2 says.
    """

    first_us: Ints
    not_before_us: Ints
    output: Ints
    limits: Mapping[int, int] = field(default_factory=dict)
    order: Ints | None = None
    cut: tuple[CutRun, ...] = ()
    cached: Ints | None = None
    preempted: tuple[Leave, ...] = ()

    @classmethod
    def of(
        cls,
        instance: Instance,
        placements: Iterable[Placement],
        limits: Mapping[int, int] | None = None,
        cut: Iterable[CutRun] = (),
        preempted: Iterable[Leave] = (),
    ) -> ServedRequests | None:
        """Return what placements say of their requests; None where the instance has none."""
        if instance.streams is None:
            return None
        first_us, not_before_us = np.full(instance.n_tasks, NONE, np.int64), np.zeros(instance.n_tasks, np.int64)
        output, order = instance.streams.output.copy(), np.full(instance.n_tasks, NONE, np.int64)
        cached = None if instance.streams.prefixes is None else np.zeros(instance.n_tasks, np.int64)
        for placement in placements:
            if placement.first_us is not None:
                first_us[placement.task] = placement.first_us
                not_before_us[placement.task] = placement.not_before_us
                output[placement.task] = output[placement.task] if placement.output is None else placement.output
                order[placement.task] = NONE if placement.order is None else placement.order
            if cached is not None:
                cached[placement.task] = placement.cached or 0
        orders = order if order.max(initial=NONE) > NONE else None
        return cls(first_us, not_before_us, output, limits or {}, orders, tuple(cut), cached, tuple(preempted))

    def only(self, kept: Ints) -> ServedRequests:
        """Return the same of some of the tasks, numbered in their order."""
        order, cached = (None if row is None else row[kept] for row in (self.order, self.cached))
        number = {task: at for at, task in enumerate(kept.tolist())}
        cut = tuple(run._replace(task=number[run.task]) for run in self.cut if run.task in number)
        preempted = tuple(each._replace(task=number[each.task]) for each in self.preempted if each.task in number)
        rows = self.first_us[kept], self.not_before_us[kept], self.output[kept]
        return ServedRequests(*rows, self.limits, order, cut, cached, preempted)


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Placements of all tasks, and the residencies.

    Parameters
    ----------
    place, start_us, end_us
        Per task; `place` is the number of the GPU, or of a set of several (`Instance.places`), UNPLACED for a task that
        is left out. Shape [tasks].
    residencies
        By GPU, then load start.
    realised
        Whether this happened (noise, a device): run and load durations then come from here.
    served
        Of requests of streams; None where no task is one.
    """

    place: Ints
    start_us: Ints
    end_us: Ints
    residencies: tuple[Residency, ...]
    realised: bool = False
    served: ServedRequests | None = None

    def __repr__(self) -> str:
        realised = ", realised" if self.realised else ""
        return f"<Timeline of {len(self.place)} tasks, {len(self.residencies)} residencies{realised}>"

    def __post_init__(self) -> None:
        if not len(self.place) == len(self.start_us) == len(self.end_us):
            raise ValueError("gpu, start and end of a timeline must have one entry per task")
        for array in (self.place, self.start_us, self.end_us):
            array.setflags(write=False)

    @classmethod
    def build(
        cls,
        n_tasks: int,
        placements: Iterable[Placement],
        residencies: Iterable[Residency],
        realised: bool = False,
        served: ServedRequests | None = None,
    ) -> Timeline:
        """Return the timeline of these placements and residencies; tasks without a placement stay UNPLACED.

        Raises
        ------
        ValueError
            If a placement is of no task, or a task is placed twice.
        """
        gpu = np.full(n_tasks, UNPLACED, np.int64)
        start, end = np.zeros(n_tasks, np.int64), np.zeros(n_tasks, np.int64)
        for placement in placements:
            if not 0 <= placement.task < n_tasks:
                raise ValueError(f"there is no task {placement.task}; allowed are 0 to {n_tasks - 1}")
            if gpu[placement.task] != UNPLACED:
                raise ValueError(f"task {placement.task} is placed twice")
            gpu[placement.task] = placement.gpu
            start[placement.task], end[placement.task] = placement.start_us, placement.end_us
        ordered = sorted(residencies, key=lambda r: (r.gpu, r.load_start_us, r.ready_us, r.model))
        return cls(gpu, start, end, tuple(ordered), realised, served)

    @property
    def runs(self) -> Runs:
        """Every run: those that ended, in task order, then those of requests that were cut."""
        task = np.arange(len(self.place), dtype=np.int64)
        if not self.cuts:
            return Runs(task, self.place, self.start_us, self.end_us, np.zeros(len(task), bool))
        rows = np.array([run[:4] for run in self.cuts], np.int64).T
        whose = np.concatenate((task, rows[0]))
        start_us = np.concatenate((self.start_us, rows[2]))
        begins_us = np.full(len(task), FOREVER, np.int64)
        np.minimum.at(begins_us, whose, start_us)
        gpu, end_us = np.concatenate((self.place, rows[1])), np.concatenate((self.end_us, rows[3]))
        return Runs(whose, gpu, start_us, end_us, start_us > begins_us[whose])

    @property
    def cuts(self) -> tuple[CutRun, ...]:
        """The runs of requests that were cut as their GPU went: none in a plan."""
        return () if self.served is None else self.served.cut

    @property
    def preempted(self) -> tuple[Leave, ...]:
        """When requests were preempted, where a policy lets higher priorities do that: never in a plan."""
        return () if self.served is None else self.served.preempted

    @property
    def is_plan(self) -> bool:
        """Whether it can be a plan: no request was cut as its GPU went (rule E3), or preempted by priority (E8)."""
        return not (self.cuts or self.preempted)

    @property
    def placements(self) -> Iterator[Placement]:
        """The placed tasks, in task order."""
        for task, (gpu, start, end) in enumerate(
            zip(self.place.tolist(), self.start_us.tolist(), self.end_us.tolist(), strict=True)
        ):
            if gpu != UNPLACED:
                yield Placement(task, gpu, start, end)


def file_order(instance: Instance, timeline: Timeline) -> Ints:
    """Return the runs in the order in which a file has them: by start, u = 0 first, first token, job, task.

    Where KV grows, or runs were cut, first tokens do not tell who joined first, and the file says it.
    """
    streams, served, runs = instance.streams, timeline.served, timeline.runs
    if streams is None or served is None:
        return np.argsort(timeline.start_us, kind="stable").astype(np.int64)
    if served.order is not None:
        cut = [NONE if run.order is None else run.order for run in served.cut]
        return np.lexsort((np.concatenate((served.order, np.array(cut, np.int64))), runs.start_us)).astype(np.int64)
    computes = (streams.uncached[runs.task] > 0) | runs.again
    return np.lexsort((served.first_us[runs.task], computes, runs.start_us)).astype(np.int64)


def leave_at(residency: Residency, taken_us: Sequence[int]) -> int:
    """Return which of the instants at which room is taken on its GPU ends a residency (rule R7), their number if none.

    Parameters
    ----------
    taken_us
        When loads, or runs that hold memory, begin there; ascending.
    """
    return len(taken_us) if residency.end_us is None else bisect_left(taken_us, residency.end_us)


def batch_leaders(instance: Instance, timeline: Timeline) -> Ints:
    """Return the lowest task of each task's batch (rule T3b): itself for a task without a batch class.

    Tasks of one class that start at the same instant on one GPU are one batch. Shape [tasks].
    """
    leaders = np.arange(instance.n_tasks, dtype=np.int64)
    if not instance.batches:
        return leaders
    batch = instance.template_batch[instance.task_template]
    members = np.flatnonzero(batch != NONE)
    keys = np.stack((batch[members], timeline.place[members], timeline.start_us[members]))
    _, first, group = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    leaders[members] = members[first[group.reshape(-1)]]
    return leaders


def is_eviction(instance: Instance, residency: Residency) -> bool:
    """Say whether a residency ends while its GPU stays: one that lasts until the GPU goes is no eviction (rule A1)."""
    return residency.end_us is not None and residency.end_us < _goes_us(instance, residency)


def end_with_gpu(instance: Instance, residency: Residency) -> Residency:
    """Return a residency that ends when its GPU goes, unless it has ended before (rule A1)."""
    goes_us = _goes_us(instance, residency)
    if goes_us == FOREVER or (residency.end_us is not None and residency.end_us <= goes_us):
        return residency
    return replace(residency, end_us=goes_us)


def _goes_us(instance: Instance, residency: Residency) -> int:
    gpus = (instance.cluster.gpus[gpu] for gpu in instance.places.gpus[residency.gpu])
    intervals = (gpu.available.at(residency.load_start_us) for gpu in gpus)
    return min((interval[1] for interval in intervals if interval is not None), default=FOREVER)


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule.

    Parameters
    ----------
    rule
        Its number, R1 to R6, T1 to T3, T3b, T3c, A1, S1 to S5, E2, E3, E8, or X for an operator's restriction.
    subject
        The task, residency or GPU at fault, by name.
    problem
        What is wrong, in words.
    found, allowed
        The two values that disagree (microseconds, bytes, shares or counts).
    """

    rule: str
    subject: str
    problem: str
    found: int | str
    allowed: int | str

    def __str__(self) -> str:
        return f"{self.rule} {self.subject}: {self.problem} (found {self.found}, allowed {self.allowed})"


def name_task(instance: Instance, task: int) -> str:
    """Return how a violation calls a task."""
    return f"job {instance.task_job[task]} task {instance.task_name(task)}"


def name_residency(instance: Instance, residency: Residency) -> str:
    """Return how a violation calls a residency."""
    model, where = instance.models[residency.model].name, instance.place_name(residency.gpu)
    return f"{model} on {where} from {residency.load_start_us} us"


@dataclass(frozen=True, slots=True, eq=False)
class TokenTimes:
    """When the tokens of a timeline's requests came, exactly.

    Parameters
    ----------
    first_us
        Per job: from its release to its first token in microseconds; NONE for a job without requests. Shape [jobs].
    job, span_us, steps
        Of every answer of several tokens: its job, microseconds from its first token to its last, and the tokens after
        the first. Where prefill is apart from decode an answer is that of both.
    """

    first_us: Ints
    job: Ints
    span_us: Ints
    steps: Ints

    @classmethod
    def of(cls, instance: Instance, timeline: Timeline) -> TokenTimes | None:
        """Return the times of a timeline that places every task; None without requests."""
        streams, served = instance.streams, timeline.served
        if streams is None or served is None:
            return None
        task = streams.first_token
        first_us = np.where(task == NONE, NONE, served.first_us[task] - instance.job_release_us)
        answers = streams.answers(served.output)
        span_us = timeline.end_us[answers.last] - served.first_us[answers.first]
        return cls(first_us, instance.task_job[answers.last], span_us, answers.steps)
