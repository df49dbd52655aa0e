"""A run on devices: what was measured beside what was predicted, and the report that is made of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from truenorth.executor.devices.records import Clock, DeviceRecord, IterationRecord
from truenorth.executor.devices.run import LiveRun, LiveSettings
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.feasibility import check, exceeded_memory
from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.metrics import Metrics, StreamMetrics, measure
from truenorth.models.objective import Objective, completion_us, reported_value, timeline_value
from truenorth.models.record import ABSENT, encode, take
from truenorth.models.scenario import Scenario, TimelineHeader, write_timeline
from truenorth.models.slo import quantile_rank
from truenorth.models.timeline import UNPLACED, Timeline, Violation, batch_leaders, file_order
from truenorth.planner.answers import replay_report as report
from truenorth.planner.answers.forecast import Forecast, ForecastComparison, measured_latencies
from truenorth.planner.answers.shown import Shown, WithTimelines
from truenorth.planner.answers.versions import Origin, ScenarioNamed, named, provenance
from truenorth.planner.questions.devices import ReplayQuestion


@dataclass(frozen=True)
class Replayed(WithTimelines):
    """What was predicted and what devices made of it.

    Parameters
    ----------
    scenario, policy, runner, settings
        What ran, on what; policy and runner as they were named.
    plan
        What was carried out, unless it was an online policy.
    predicted
        What the same policy makes of the scenario on the virtual clock, where everything takes the given time.
    live
        What was measured.
    causes
        Where the difference comes from; None if a job failed.
    different
        Tasks whose output is not that of their models loaded alone; None if that was not asked.
    forecast
        What the same policy makes of runs and loads as in a profile; None without one.
    asked
        The question that repeats it; None if it was put in another way.
    """

    scenario: Scenario
    policy: str
    plan: Timeline | None
    runner: str
    settings: LiveSettings
    predicted: Timeline
    live: LiveRun
    causes: report.CausesAdded | None
    different: Sequence[int] | None
    forecast: Forecast | None = None
    asked: ReplayQuestion | None = None

    def __repr__(self) -> str:
        return f"<Replayed {self.policy!r} on {self.scenario.name!r}: {self.timeline!r}>"

    @property
    def instance(self) -> Instance:
        """The scenario's instance."""
        return self.scenario.instance

    @property
    def timeline(self) -> Timeline:
        """What was measured."""
        return self.live.timeline

    @cached_property
    def violations(self) -> list[Violation]:
        """Rules that the measured timeline breaks, without any tolerance, by jobs that did not fail."""
        # What a failed job left half done breaks rules that say nothing of the rest.
        failed = tuple(f"job {failure.job} " for failure in self.live.records.failures)
        found = check(self.instance, self.timeline)
        # Where no task names any, a GPU's memory is that for weights, and what runs take lies beside it.
        found += self.memory_exceeded if self.instance.template_memory.any() else []
        return [violation for violation in found if not (failed and violation.subject.startswith(failed))]

    @cached_property
    def memory_exceeded(self) -> list[Violation]:
        """Starts of runs and loads at which models, and what tasks were measured to hold, had no room on their GPU."""
        named, measured = self.instance.template_memory, self.live.held_bytes
        held = np.array([measured.get(template, bytes_) for template, bytes_ in enumerate(named.tolist())], np.int64)
        found = exceeded_memory(self.instance, self.timeline, held) if measured else ()
        return [replace(one, problem="memory is exceeded by what tasks were measured to hold") for one in found]

    @property
    def achieved(self) -> bool:
        """Whether every job ran, every rule held, no output differed, and none holds what is not a number."""
        return not (self.live.records.failures or self.violations or self.different or self.live.not_numbers)

    @property
    def same_placement(self) -> bool:
        """Whether every task ran on the GPU that was predicted."""
        return bool((self.timeline.place == self.predicted.place).all())

    @property
    def same_order(self) -> bool:
        """Whether every GPU carried out its runs, and its loads, in the order that was predicted."""
        return _orders(self.instance, self.timeline) == _orders(self.instance, self.predicted)

    @property
    def metrics(self) -> Metrics | None:
        """Metrics of the measured timeline; None if a job failed."""
        return None if self.live.records.failures else measure(self.instance, self.timeline, self.scenario.slo)

    @property
    def complete(self) -> Ints:
        """Jobs that did not fail."""
        failed = {failure.job for failure in self.live.records.failures}
        return np.array([job for job in range(len(self.instance.jobs)) if job not in failed], np.int64)

    @property
    def latency_us(self) -> tuple[Ints, Ints]:
        """Predicted and measured latency of the jobs that did not fail."""
        release, kept = self.instance.job_release_us, self.complete
        predicted, measured = (completion_us(self.instance, t) - release for t in (self.predicted, self.timeline))
        return predicted[kept], measured[kept]

    @property
    def latency_error(self) -> float | None:
        """Mean absolute error of job latency as a share of the predicted mean; None if every job failed."""
        predicted, measured = self.latency_us
        return float(np.abs(measured - predicted).sum() / predicted.sum()) if len(predicted) else None

    @property
    def shown(self) -> tuple[Shown, ...]:
        """What was measured, and what was predicted."""
        clairvoyant = self.plan is not None
        return (
            Shown(f"{self.policy}, measured", clairvoyant, self.instance, self.timeline),
            Shown(f"{self.policy}, predicted", clairvoyant, self.instance, self.predicted),
        )

    @property
    def record(self) -> report.ReplayRecord:
        """The report with the keys of ``replay --json``."""
        return replay_record(self)

    @property
    def origin(self) -> Origin:
        """Of what it is, and how to repeat it."""
        asked = self.asked or ReplayQuestion(self.policy)
        command = asked.command(self.scenario.source.file)
        return Origin(ScenarioNamed(*named(self.scenario)), command, provenance() | {"torch": version("torch")})

    def save_measured(self, path: Path) -> None:
        """Write the measured timeline; tasks of failed jobs that did not run are left out."""
        objective = self.scenario.objective
        value = None
        if not self.live.records.failures:
            value = reported_value(objective, timeline_value(objective, self.instance, self.timeline))
        gpu = np.array(self.timeline.place)
        # A run that failed did not take place.
        gpu[[run.subject for run in self.live.records.runs if run.error is not None]] = UNPLACED
        kept = replace(self.timeline, place=gpu)
        options = {"device": self.settings.device, "runner": self.runner, "virtual": self.settings.sharing}
        header = TimelineHeader(objective=str(objective), value=value, policy=self.policy, options=options)
        write_timeline(path, self.instance, kept, header)


def _orders(instance: Instance, timeline: Timeline) -> list[list[int]]:
    """Return, per GPU, its tasks and the models it loads, each in order of start."""
    # Runs that start together are told apart by their ends, lest their order looks changed.
    by_start = np.lexsort((timeline.end_us, timeline.start_us))
    if instance.streams is not None:
        by_start = file_order(instance, timeline)
    runs: list[list[int]] = [[] for _ in range(instance.n_gpus)]
    loads: list[list[int]] = [[] for _ in range(instance.n_gpus)]
    for task in by_start[timeline.place[by_start] != UNPLACED].tolist():
        for gpu in instance.places.gpus[timeline.place[task]]:
            runs[gpu].append(task)
    for residency in sorted(timeline.residencies, key=lambda r: r.load_start_us):
        for gpu in () if residency.initial else instance.places.gpus[residency.gpu]:
            loads[gpu].append(residency.model)
    return runs + loads


def replay_record(replayed: Replayed) -> report.ReplayRecord:
    """Return the report with the keys of ``replay --json``."""
    live, scenario, instance = replayed.live, replayed.scenario, replayed.instance
    records = live.records
    return take(
        report.ReplayRecord,
        replayed,
        live,
        device=replayed.settings.device,
        devices=list(live.devices),
        virtual=replayed.settings.sharing,
        valid=not replayed.violations,
        violations=[str(violation) for violation in replayed.violations],
        tolerance_us=report.TOLERANCE_US,
        objective=report.ObjectiveBoth(scenario.objective, _both(replayed, scenario.objective)),
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
            report.MoveDone(_gpu(instance, move.gpu), instance.models[move.model].name, _seconds(move.at_us))
            for move in records.moves
        ],
        forecast=_forecast(replayed),
        not_finite_outputs=_tasks(instance, live.not_finite),
        outputs=_outputs(replayed),
        faults=[
            take(report.FaultSeen, fault, gpu=_gpu(instance, fault.gpu), at_s=_seconds(fault.at_us))
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
        kv_sent=_kv_sent(replayed),
    )


def measured_memory(runs: Sequence[Replayed]) -> report.MemoryMeasured:
    """Return what tasks hold, and how often that was too much in some runs of theirs; absent if it was not measured."""
    tasks = [
        report.TaskMemory(one.instance.template_name(template), int(one.instance.template_memory[template]), held)
        for one in runs[:1]
        for template, held in sorted(one.live.held_bytes.items())
    ]
    if not tasks:
        return ABSENT  # type: ignore[no-any-return]
    more = [task for task in tasks if task.measured_bytes > task.named_bytes]
    return report.MemoryMeasured(len(more), sum(len(run.memory_exceeded) for run in runs), tasks)


def compare_clocks(found: Iterable[Clock]) -> list[report.ClockCompared]:
    """Return the first and the last comparison of every node."""
    of: dict[str, list[Clock]] = {}
    for clock in found:
        of.setdefault(clock.node, []).append(clock)
    return [
        report.ClockCompared(node, all_[0].ahead_us, all_[-1].ahead_us, max(clock.uncertainty_us for clock in all_))
        for node, all_ in of.items()
    ]


def _gpu(instance: Instance, gpu: int) -> str:
    return instance.cluster.gpus[gpu].id


def _place(instance: Instance, place: int) -> str | list[str]:
    """Return a GPU's id, or those of a place of several, as files have them."""
    gpus = [_gpu(instance, gpu) for gpu in instance.places.gpus[place]]
    return gpus if len(gpus) > 1 else gpus[0]


def _seconds(microseconds: int) -> float:
    return microseconds / MICROSECONDS_PER_SECOND


def _both(replayed: Replayed, objective: Objective) -> report.Both:
    def value(timeline: Timeline) -> float:
        return reported_value(objective, timeline_value(objective, replayed.instance, timeline))

    predicted = value(replayed.predicted)
    # Without all jobs there is no value to compare.
    if replayed.live.records.failures:
        return report.Both(predicted, None, None)
    measured = value(replayed.timeline)
    return report.Both(predicted, measured, measured / predicted - 1 if predicted else None)


def _tokens(replayed: Replayed) -> report.TokensBoth | None:
    """Return when tokens came; None without requests, or if a job failed."""
    measured = replayed.metrics
    if not isinstance(measured, StreamMetrics):
        return None
    predicted = measure(replayed.instance, replayed.predicted)

    def both(name: str) -> report.Both:
        before, after = getattr(predicted, name), getattr(measured, name)
        return report.Both(before, after, after / before - 1 if before and after is not None else None)

    return report.TokensBoth(*(both(each.name) for each in fields(report.TokensBoth)))


def _forecast(replayed: Replayed) -> ForecastComparison | None:
    if replayed.forecast is None:
        return None
    measured = measured_latencies([replayed.latency_us[1]], len(replayed.instance.jobs))
    return replayed.forecast.compare(measured)


def _durations(records: Sequence[DeviceRecord]) -> report.DurationsTogether:
    # What failed took no time that could be compared.
    done = [record for record in records if record.error is None]
    given = sum(record.expected_us for record in done)
    # Absolute: times too long and too short must not cancel out.
    astray = sum(abs(record.took_us - record.expected_us) for record in done)
    took = sum(record.took_us for record in done)
    return report.DurationsTogether(len(done), _seconds(given), _seconds(took), astray / given if given else None)


def _spread(values: Sequence[int]) -> report.DispatchSpread:
    ordered = sorted(values)
    if not ordered:
        return report.DispatchSpread(None, None, None, None)
    shares = (Fraction(50, 100), Fraction(95, 100), Fraction(1))
    return report.DispatchSpread(
        float(np.mean(ordered)), *(float(ordered[quantile_rank(share, len(ordered))]) for share in shares)
    )


def _copy(replayed: Replayed) -> report.CopyReached:
    # Loads that had others make way took longer for it: they say nothing of the copy engine.
    moved = {(move.gpu, move.at_us) for move in replayed.live.records.moves}
    loads = [
        load
        for load in replayed.live.records.loads
        if load.error is None and load.took_us
        if not any((gpu, load.ordered_us) in moved for gpu in replayed.instance.places.gpus[load.gpu])
    ]
    peak = replayed.live.copy_peak or None
    taken_us = sum(load.took_us for load in loads)
    achieved = sum(load.size_bytes for load in loads) / taken_us * MICROSECONDS_PER_SECOND if taken_us else None
    share = achieved / peak if achieved is not None and peak is not None else None
    return report.CopyReached(peak, achieved, share)


def batched_tasks(instance: Instance, timeline: Timeline) -> list[int]:
    """Return the tasks that ran in a batch of two or more."""
    leaders = batch_leaders(instance, timeline)
    together: list[int] = np.flatnonzero(np.bincount(leaders, minlength=instance.n_tasks)[leaders] > 1).tolist()
    return together


def _outputs(replayed: Replayed) -> report.OutputsCompared | None:
    if replayed.different is None:
        return None
    instance = replayed.instance
    together = len(batched_tasks(instance, replayed.timeline))
    return report.OutputsCompared(len(replayed.live.outputs), _tasks(instance, replayed.different), together)


def _tasks(instance: Instance, tasks: Sequence[int]) -> list[str]:
    return [f"{instance.task_job[task]}/{instance.task_name(task)}" for task in tasks]


def _failures(replayed: Replayed) -> list[report.FailureSeen]:
    instance = replayed.instance
    return [
        report.FailureSeen(
            failure.job,
            instance.task_name(failure.task),
            None if failure.gpu is None else _place(instance, failure.gpu),
            _seconds(failure.at_us),
            failure.message,
        )
        for failure in replayed.live.records.failures
    ]


def _jobs(replayed: Replayed) -> list[report.JobMeasured]:
    (predicted, measured), jobs = replayed.latency_us, replayed.instance.jobs
    return [
        report.JobMeasured(int(job), jobs[job].workflow.name, _seconds(int(before)), _seconds(int(after)))
        for job, before, after in zip(replayed.complete, predicted, measured, strict=True)
    ]


def _run(replayed: Replayed, run: DeviceRecord) -> report.TaskMeasured:
    instance, task = replayed.instance, run.subject
    start_us = int(replayed.predicted.start_us[task])
    named = {"job": int(instance.task_job[task]), "task": instance.task_name(task)}
    return take(report.TaskMeasured, run, **named, **_timed(instance, run), predicted_start_s=_seconds(start_us))


def _timed(instance: Instance, record: DeviceRecord) -> dict[str, Any]:
    """Return where something was measured, since when, and how long it took, given and measured."""
    times = {"start_s": record.start_us, "predicted_s": record.expected_us, "measured_s": record.took_us}
    return {"gpu": _place(instance, record.gpu), **{name: _seconds(us) for name, us in times.items()}}


def _load(replayed: Replayed, load: DeviceRecord) -> report.LoadMeasured:
    instance, speed = replayed.instance, None
    if load.took_us:
        speed = load.size_bytes / load.took_us * MICROSECONDS_PER_SECOND
    named = {"model": instance.models[load.subject].name, "bytes": load.size_bytes, "bytes_per_s": speed}
    return take(report.LoadMeasured, load, **named, **_timed(instance, load))


def _kv_transfers(replayed: Replayed) -> dict[int, DeviceRecord]:
    """Return the transfers of KV that arrived, by the request that goes on with it."""
    streams = replayed.instance.streams
    if streams is None:
        return {}
    return {
        sent.target: sent
        for sent in replayed.live.records.transfers
        if sent.error is None and sent.target is not None and streams.goes_on[sent.target] == sent.subject
    }


def _kv_sent(replayed: Replayed) -> report.KVSent:
    """Return what was sent of KV; absent if nothing was."""
    sent = _kv_transfers(replayed).values()
    if not sent:
        return ABSENT  # type: ignore[no-any-return]
    took = _durations(list(sent))
    return report.KVSent(len(sent), sum(each.size_bytes for each in sent), took.predicted_s, took.measured_s)


def _requests(replayed: Replayed) -> list[report.RequestMeasured]:
    instance, streams = replayed.instance, replayed.instance.streams
    timelines, failed = (replayed.predicted, replayed.timeline), {one.job for one in replayed.live.records.failures}
    if streams is None:
        return []

    def times(timeline: Timeline, task: int) -> tuple[float, ...]:
        served = timeline.served
        first_us = NONE if served is None else int(served.first_us[task])
        return tuple(_seconds(int(us)) for us in (timeline.start_us[task], first_us, timeline.end_us[task]))

    sent = _kv_transfers(replayed)

    def arrived(task: int) -> dict[str, Any]:
        kv = sent.get(task)
        return {} if kv is None else {"kv_bytes": kv.size_bytes, "kv_arrived_s": _seconds(kv.end_us)}

    return [
        report.RequestMeasured(
            int(instance.task_job[task]),
            instance.task_name(task),
            _gpu(instance, int(replayed.timeline.place[task])),
            *(at for timeline in timelines for at in times(timeline, task)),
            **arrived(task),
        )
        for task in np.flatnonzero(streams.template[instance.task_template] != NONE).tolist()
        if int(instance.task_job[task]) not in failed
    ]


def _iteration(instance: Instance, iteration: IterationRecord) -> report.IterationMeasured:
    return take(report.IterationMeasured, iteration, **_timed(instance, iteration))
