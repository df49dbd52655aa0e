"""The report of a run on devices: predicted against measured, with units in its keys; read back as it was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from truenorth.executor.devices.records import Clock, DeviceRecord, IterationRecord
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.instance import NONE, Instance
from truenorth.models.metrics import Metrics, StreamMetrics, measure
from truenorth.models.objective import Objective, reported_value, timeline_value
from truenorth.models.record import ABSENT, Spreading, encode, spread, take
from truenorth.models.slo import quantile_rank
from truenorth.models.timeline import Timeline, batch_leaders
from truenorth.models.units import say_size
from truenorth.planner.answers.forecast import ForecastComparison, measured_latencies

if TYPE_CHECKING:
    from truenorth.planner.answers.replay import Replayed

TOLERANCE_US = 0
"""By how much a measured timeline may break a rule: orders and measurements share one clock, so not at all."""


@dataclass(frozen=True, slots=True)
class Both:
    """A figure predicted and measured, and the relative error; None if a job failed."""

    predicted: float | None
    measured: float | None
    error: float | None


@dataclass(frozen=True, slots=True)
class ObjectiveBoth(Spreading):
    """The objective, predicted and measured."""

    name: Objective
    both: Both = field(metadata=spread(Both))


@dataclass(frozen=True, slots=True)
class CausesAdded:
    """What each cause adds, in seconds, by cause."""

    mean_latency: Mapping[str, float]
    makespan: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DurationsTogether:
    """How long things took together, given and measured; the mean absolute error is a share of given."""

    count: int
    predicted_s: float
    measured_s: float
    absolute_error: float | None


@dataclass(frozen=True, slots=True)
class DispatchSpread:
    """Microseconds between an order and its start."""

    mean: float | None
    p50: float | None
    p95: float | None
    max: float | None


@dataclass(frozen=True, slots=True)
class CopyReached:
    """The bandwidth of loads beside the peak of bare copies in the same run."""

    peak_bytes_per_s: float | None
    achieved_bytes_per_s: float | None
    share_of_peak: float | None


@dataclass(frozen=True, slots=True)
class MoveDone:
    """A model that made way within a GPU's memory."""

    gpu: str
    model: str
    at_s: float


@dataclass(frozen=True, slots=True)
class OutputsCompared:
    """Outputs beside those of the models loaded alone."""

    compared: int
    different: list[str]
    of_batches: int


@dataclass(frozen=True, slots=True)
class TaskMemory:
    """What a task of a workflow holds beside its models: as the scenario names it, and measured."""

    task: str
    named_bytes: int
    measured_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryMeasured:
    """What tasks hold beside their models.

    Parameters
    ----------
    more_than_named
        Tasks of workflows that hold more than they, or their class, name.
    more_than_left
        Starts of runs and loads at which there was not so much room on the GPU.
    """

    more_than_named: int
    more_than_left: int
    tasks: list[TaskMemory]

    def __str__(self) -> str:
        """Say it."""
        if not self.more_than_named:
            return "no task holds more than it names"
        most = max(self.tasks, key=lambda task: task.measured_bytes - task.named_bytes)
        sizes = f"{say_size(most.measured_bytes)} where {say_size(most.named_bytes)} are named"
        more = f"{self.more_than_named} of {len(self.tasks)} tasks hold more than they name, most {most.task}: {sizes}"
        if not self.more_than_left:
            return f"{more}; their GPU had that left"
        counted = "" if any(task.named_bytes for task in self.tasks) else ", weights alone being counted"
        return f"{more}; {self.more_than_left} times their GPU had less left{counted}"


@dataclass(frozen=True, slots=True)
class FaultSeen:
    """What went wrong with a load, a transfer or a GPU, whether or not a job failed of it."""

    what: str
    gpu: str
    at_s: float
    message: str


@dataclass(frozen=True, slots=True)
class FailureSeen:
    """A job that failed."""

    job: int
    task: str
    gpu: str | None
    at_s: float
    message: str


@dataclass(frozen=True, slots=True)
class JobMeasured:
    """The latency of a job that did not fail."""

    job: int
    workflow: str
    predicted_s: float
    measured_s: float


@dataclass(frozen=True, slots=True)
class TokensBoth:
    """First tokens, from the release of their jobs, and time per token after them, in seconds."""

    mean_first_token_s: Both
    p95_first_token_s: Both
    mean_time_per_token_s: Both
    p95_time_per_token_s: Both


@dataclass(frozen=True, slots=True)
class RequestMeasured:
    """A request of a stream: when it joined, had its first token, and ended."""

    job: int
    task: str
    gpu: str
    predicted_start_s: float
    predicted_first_s: float
    predicted_end_s: float
    start_s: float
    first_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class IterationMeasured:
    """An iteration of a GPU that serves requests."""

    gpu: str
    start_s: float
    predicted_s: float
    measured_s: float
    prompt_tokens: int
    decodes: int
    dispatch_us: int
    error: str | None


@dataclass(frozen=True, slots=True)
class TaskMeasured:
    """A run of a task."""

    job: int
    task: str
    gpu: str
    predicted_start_s: float
    start_s: float
    predicted_s: float
    measured_s: float
    dispatch_us: int
    error: str | None


@dataclass(frozen=True, slots=True)
class LoadMeasured:
    """A load."""

    gpu: str
    model: str
    bytes: int
    start_s: float
    predicted_s: float
    measured_s: float
    bytes_per_s: float | None
    dispatch_us: int
    error: str | None


@dataclass(frozen=True, slots=True)
class ClockCompared:
    """By how much a node's clock is ahead of the head's, by the first and by the last comparison.

    Parameters
    ----------
    uncertainty_us
        The largest there was: how far a time of that node may be off here.
    """

    node: str
    ahead_first_us: float
    ahead_last_us: float
    uncertainty_us: float

    def __str__(self) -> str:
        """Say it."""
        ahead = f"{self.ahead_first_us:+.0f} us at first, {self.ahead_last_us:+.0f} us at last"
        return f"clock of node {self.node}: {ahead}, uncertain by {self.uncertainty_us:.0f} us"


@dataclass(frozen=True, slots=True)
class ReplayRecord:
    """A run on devices in reported units."""

    policy: str
    runner: str
    device: str
    devices: list[str]
    virtual: str | None
    valid: bool
    violations: list[str]
    tolerance_us: int
    same_placement: bool
    same_order: bool
    objective: ObjectiveBoth
    makespan_s: Both
    mean_latency_s: Both
    latency_error: float | None
    causes_s: CausesAdded | None
    run_times: DurationsTogether
    load_times: DurationsTogether
    transfer_times: DurationsTogether
    dispatch_us: DispatchSpread
    copy: CopyReached
    energy_j: float | None
    cards: Mapping[str, Any] | None
    unpacked_gpus: list[str]
    moves_s: float
    moves: list[MoveDone]
    forecast: ForecastComparison | None
    not_finite_outputs: list[str]
    outputs: OutputsCompared | None
    faults: list[FaultSeen]
    failures: list[FailureSeen]
    metrics: StreamMetrics | Metrics | None
    jobs: list[JobMeasured]
    tasks: list[TaskMeasured]
    loads: list[LoadMeasured]
    tokens: TokensBoth | None = None
    iteration_times: DurationsTogether | None = None
    requests: list[RequestMeasured] = field(default_factory=list)
    iterations: list[IterationMeasured] = field(default_factory=list)
    clocks: list[ClockCompared] = ABSENT
    memory: MemoryMeasured = ABSENT


def replay_record(replayed: Replayed) -> ReplayRecord:
    """Return the report with the keys of ``replay --json``."""
    live, scenario, instance = replayed.live, replayed.scenario, replayed.instance
    records = live.records
    return take(
        ReplayRecord,
        replayed,
        live,
        device=replayed.settings.device,
        devices=list(live.devices),
        virtual=replayed.settings.sharing,
        valid=not replayed.violations,
        violations=[str(violation) for violation in replayed.violations],
        tolerance_us=TOLERANCE_US,
        objective=ObjectiveBoth(scenario.objective, _both(replayed, scenario.objective)),
        makespan_s=_both(replayed, Objective.MAKESPAN),
        mean_latency_s=_both(replayed, Objective.MEAN_LATENCY),
        causes_s=replayed.causes,
        run_times=_durations(records.runs),
        load_times=_durations(records.loads),
        transfer_times=_durations(records.transfers),
        dispatch_us=_spread([run.dispatch_us for run in (*records.runs, *records.iterations) if run.error is None]),
        copy=_copy(replayed),
        energy_j=live.machine.energy_j,
        cards=encode(live.machine) if live.machine.before else None,
        unpacked_gpus=[_gpu(instance, gpu) for gpu in live.unpacked],
        moves_s=sum(load.moves_us for load in records.loads) / MICROSECONDS_PER_SECOND,
        moves=[
            MoveDone(_gpu(instance, move.gpu), instance.models[move.model].name, _seconds(move.at_us))
            for move in records.moves
        ],
        forecast=_forecast(replayed),
        not_finite_outputs=_tasks(instance, live.not_finite),
        outputs=_outputs(replayed),
        faults=[
            take(FaultSeen, fault, gpu=_gpu(instance, fault.gpu), at_s=_seconds(fault.at_us))
            for fault in records.faults
        ],
        failures=_failures(replayed),
        jobs=_jobs(replayed),
        tasks=[_run(replayed, run) for run in sorted(records.runs, key=lambda r: r.subject)],
        loads=[_load(replayed, load) for load in records.loads],
        tokens=_tokens(replayed),
        iteration_times=_durations(records.iterations) if records.iterations else None,
        requests=_requests(replayed),
        iterations=[_iteration(instance, iteration) for iteration in records.iterations],
        clocks=compare_clocks(live.clocks) or ABSENT,
        memory=measured_memory([replayed]),
    )


def measured_memory(runs: Sequence[Replayed]) -> MemoryMeasured:
    """Return what tasks hold, and how often that was too much in some runs of theirs; absent if it was not measured."""
    tasks = [
        TaskMemory(one.instance.template_name(template), int(one.instance.template_memory[template]), held)
        for one in runs[:1]
        for template, held in sorted(one.live.held_bytes.items())
    ]
    if not tasks:
        return ABSENT  # type: ignore[no-any-return]
    more = [task for task in tasks if task.measured_bytes > task.named_bytes]
    return MemoryMeasured(len(more), sum(len(run.memory_exceeded) for run in runs), tasks)


def compare_clocks(found: Iterable[Clock]) -> list[ClockCompared]:
    """Return the first and the last comparison of every node."""
    of: dict[str, list[Clock]] = {}
    for clock in found:
        of.setdefault(clock.node, []).append(clock)
    return [
        ClockCompared(node, all_[0].ahead_us, all_[-1].ahead_us, max(clock.uncertainty_us for clock in all_))
        for node, all_ in of.items()
    ]


def _gpu(instance: Instance, gpu: int) -> str:
    return instance.cluster.gpus[gpu].id


def _seconds(microseconds: int) -> float:
    return microseconds / MICROSECONDS_PER_SECOND


def _both(replayed: Replayed, objective: Objective) -> Both:
    def value(timeline: Timeline) -> float:
        return reported_value(objective, timeline_value(objective, replayed.instance, timeline))

    predicted = value(replayed.predicted)
    # Without all jobs there is no value to compare.
    if replayed.live.records.failures:
        return Both(predicted, None, None)
    measured = value(replayed.timeline)
    return Both(predicted, measured, measured / predicted - 1 if predicted else None)


def _tokens(replayed: Replayed) -> TokensBoth | None:
    """Return when tokens came; None without requests, or if a job failed."""
    measured = replayed.metrics
    if not isinstance(measured, StreamMetrics):
        return None
    predicted = measure(replayed.instance, replayed.predicted)

    def both(name: str) -> Both:
        before, after = getattr(predicted, name), getattr(measured, name)
        return Both(before, after, after / before - 1 if before and after is not None else None)

    return TokensBoth(*(both(each.name) for each in fields(TokensBoth)))


def _forecast(replayed: Replayed) -> ForecastComparison | None:
    if replayed.forecast is None:
        return None
    measured = measured_latencies([replayed.latency_us[1]], len(replayed.instance.jobs))
    return replayed.forecast.compare(measured)


def _durations(records: Sequence[DeviceRecord]) -> DurationsTogether:
    # What failed took no time that could be compared.
    done = [record for record in records if record.error is None]
    given = sum(record.expected_us for record in done)
    # Absolute: times too long and too short must not cancel out.
    astray = sum(abs(record.took_us - record.expected_us) for record in done)
    took = sum(record.took_us for record in done)
    return DurationsTogether(len(done), _seconds(given), _seconds(took), astray / given if given else None)


def _spread(values: Sequence[int]) -> DispatchSpread:
    ordered = sorted(values)
    if not ordered:
        return DispatchSpread(None, None, None, None)
    shares = (Fraction(50, 100), Fraction(95, 100), Fraction(1))
    return DispatchSpread(
        float(np.mean(ordered)), *(float(ordered[quantile_rank(share, len(ordered))]) for share in shares)
    )


def _copy(replayed: Replayed) -> CopyReached:
    # Loads that had others make way took longer for it: they say nothing of the copy engine.
    moved = {(move.gpu, move.at_us) for move in replayed.live.records.moves}
    loads = [
        load
        for load in replayed.live.records.loads
        if load.error is None and (load.gpu, load.ordered_us) not in moved and load.took_us
    ]
    peak = replayed.live.copy_peak or None
    taken_us = sum(load.took_us for load in loads)
    achieved = sum(load.size_bytes for load in loads) / taken_us * MICROSECONDS_PER_SECOND if taken_us else None
    share = achieved / peak if achieved is not None and peak is not None else None
    return CopyReached(peak, achieved, share)


def batched_tasks(instance: Instance, timeline: Timeline) -> list[int]:
    """Return the tasks that ran in a batch of two or more."""
    leaders = batch_leaders(instance, timeline)
    together: list[int] = np.flatnonzero(np.bincount(leaders, minlength=instance.n_tasks)[leaders] > 1).tolist()
    return together


def _outputs(replayed: Replayed) -> OutputsCompared | None:
    if replayed.different is None:
        return None
    instance = replayed.instance
    together = len(batched_tasks(instance, replayed.timeline))
    return OutputsCompared(len(replayed.live.outputs), _tasks(instance, replayed.different), together)


def _tasks(instance: Instance, tasks: Sequence[int]) -> list[str]:
    return [f"{instance.task_job[task]}/{instance.task_name(task)}" for task in tasks]


def _failures(replayed: Replayed) -> list[FailureSeen]:
    instance = replayed.instance
    return [
        FailureSeen(
            failure.job,
            instance.task_name(failure.task),
            None if failure.gpu is None else _gpu(instance, failure.gpu),
            _seconds(failure.at_us),
            failure.message,
        )
        for failure in replayed.live.records.failures
    ]


def _jobs(replayed: Replayed) -> list[JobMeasured]:
    predicted, measured = replayed.latency_us
    return [
        JobMeasured(int(job), replayed.instance.jobs[job].workflow.name, _seconds(int(before)), _seconds(int(after)))
        for job, before, after in zip(replayed.complete, predicted, measured, strict=True)
    ]


def _run(replayed: Replayed, run: DeviceRecord) -> TaskMeasured:
    instance, task = replayed.instance, run.subject
    start_us = int(replayed.predicted.start_us[task])
    named = {"job": int(instance.task_job[task]), "task": instance.task_name(task)}
    return take(TaskMeasured, run, **named, **_timed(instance, run), predicted_start_s=_seconds(start_us))


def _timed(instance: Instance, record: DeviceRecord) -> dict[str, Any]:
    """Return on which GPU something was measured, since when, and how long it took, given and measured."""
    times = {"start_s": record.start_us, "predicted_s": record.expected_us, "measured_s": record.took_us}
    return {"gpu": _gpu(instance, record.gpu), **{name: _seconds(us) for name, us in times.items()}}


def _load(replayed: Replayed, load: DeviceRecord) -> LoadMeasured:
    instance, speed = replayed.instance, None
    if load.took_us:
        speed = load.size_bytes / load.took_us * MICROSECONDS_PER_SECOND
    named = {"model": instance.models[load.subject].name, "bytes": load.size_bytes, "bytes_per_s": speed}
    return take(LoadMeasured, load, **named, **_timed(instance, load))


def _requests(replayed: Replayed) -> list[RequestMeasured]:
    instance, streams = replayed.instance, replayed.instance.streams
    timelines, failed = (replayed.predicted, replayed.timeline), {one.job for one in replayed.live.records.failures}
    if streams is None:
        return []

    def times(timeline: Timeline, task: int) -> tuple[float, ...]:
        served = timeline.served
        first_us = NONE if served is None else int(served.first_us[task])
        return tuple(_seconds(int(us)) for us in (timeline.start_us[task], first_us, timeline.end_us[task]))

    return [
        RequestMeasured(
            int(instance.task_job[task]),
            instance.task_name(task),
            _gpu(instance, int(replayed.timeline.gpu[task])),
            *(at for timeline in timelines for at in times(timeline, task)),
        )
        for task in np.flatnonzero(streams.template[instance.task_template] != NONE).tolist()
        if int(instance.task_job[task]) not in failed
    ]


def _iteration(instance: Instance, iteration: IterationRecord) -> IterationMeasured:
    return take(IterationMeasured, iteration, **_timed(instance, iteration))
