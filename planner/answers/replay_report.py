"""The report of a run on devices: predicted against measured, as plain data with units in its keys."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from executor.devices.records import Record
from models.cluster import MICROSECONDS_PER_SECOND
from models.instance import Instance
from models.objective import Objective, reported_value, timeline_value
from models.record import encode
from models.slo import quantile_rank
from models.timeline import Timeline, batch_leaders
from planner.answers.forecast import measured_latencies

if TYPE_CHECKING:
    from planner.answers.replay import Replayed

TOLERANCE_US = 0
"""By how much a measured timeline may break a rule: orders and measurements share one clock, so not at all."""


def replay_document(replayed: Replayed) -> dict[str, Any]:
    """Return the report with the keys of ``replay --json``."""
    live, scenario = replayed.live, replayed.scenario
    metrics = replayed.metrics
    return {
        "policy": replayed.policy,
        "runner": replayed.runner,
        "device": replayed.settings.device,
        "devices": list(live.devices),
        "virtual": replayed.settings.sharing,
        "valid": not replayed.violations,
        "violations": [str(violation) for violation in replayed.violations],
        "tolerance_us": TOLERANCE_US,
        "same_placement": replayed.same_placement,
        "same_order": replayed.same_order,
        "objective": {"name": str(scenario.objective), **_both(replayed, scenario.objective)},
        "makespan_s": _both(replayed, Objective.MAKESPAN),
        "mean_latency_s": _both(replayed, Objective.MEAN_LATENCY),
        "latency_error": replayed.latency_error,
        "causes_s": _causes(replayed),
        "run_times": _durations(live.records.runs),
        "load_times": _durations(live.records.loads),
        "transfer_times": _durations(live.records.transfers),
        "dispatch_us": _spread([run.dispatch_us for run in live.records.runs if run.error is None]),
        "copy": _copy(replayed),
        "energy_j": live.energy_j,
        "unpacked_gpus": [replayed.instance.cluster.gpus[gpu].id for gpu in live.unpacked],
        "moves_s": sum(load.moves_us for load in live.records.loads) / MICROSECONDS_PER_SECOND,
        "moves": [_moved(replayed.instance, move.gpu, move.model, move.at_us) for move in live.records.moves],
        "forecast": _forecast(replayed),
        "outputs": _outputs(replayed),
        "faults": _faults(replayed),
        "failures": _failures(replayed),
        "metrics": None if metrics is None else encode(metrics),
        "jobs": _jobs(replayed),
        "tasks": [_run(replayed, run) for run in sorted(live.records.runs, key=lambda r: r.subject)],
        "loads": [_load(replayed, load) for load in live.records.loads],
    }


def _both(replayed: Replayed, objective: Objective) -> dict[str, float | None]:
    """Return an objective's value predicted and measured, and the relative error; None if a job failed."""

    def value(timeline: Timeline) -> float:
        return float(reported_value(objective, timeline_value(objective, replayed.instance, timeline)))

    predicted = value(replayed.predicted)
    if replayed.live.records.failures:
        return {"predicted": predicted, "measured": None, "error": None}
    measured = value(replayed.timeline)
    return {
        "predicted": predicted,
        "measured": measured,
        "error": measured / predicted - 1 if predicted else None,
    }


def _causes(replayed: Replayed) -> dict[str, dict[str, float]] | None:
    causes = replayed.causes
    if causes is None:
        return None
    return {
        "mean_latency": {cause: us / MICROSECONDS_PER_SECOND for cause, us in causes.mean_latency_us.items()},
        "makespan": {cause: us / MICROSECONDS_PER_SECOND for cause, us in causes.makespan_us.items()},
    }


def _forecast(replayed: Replayed) -> dict[str, Any] | None:
    if replayed.forecast is None:
        return None
    measured = measured_latencies([replayed.latency_us[1]], len(replayed.instance.jobs))
    return replayed.forecast.compare(measured)


def _durations(records: Sequence[Record]) -> dict[str, float | int | None]:
    """Return how long things took together, given and measured, and the mean absolute error as a share of given."""
    done = [record for record in records if record.error is None]
    given = sum(record.expected_us for record in done)
    astray = sum(abs(record.took_us - record.expected_us) for record in done)
    return {
        "count": len(done),
        "predicted_s": given / MICROSECONDS_PER_SECOND,
        "measured_s": sum(record.took_us for record in done) / MICROSECONDS_PER_SECOND,
        "absolute_error": astray / given if given else None,
    }


def _spread(values: Sequence[int]) -> dict[str, float | None]:
    ordered = sorted(values)
    if not ordered:
        return dict.fromkeys(("mean", "p50", "p95", "max"))
    shares = {"p50": Fraction(50, 100), "p95": Fraction(95, 100), "max": Fraction(1)}
    ranks = {name: float(ordered[quantile_rank(share, len(ordered))]) for name, share in shares.items()}
    return {"mean": float(np.mean(ordered)), **ranks}


def _copy(replayed: Replayed) -> dict[str, float | None]:
    """Return the bandwidth of loads beside the peak of bare copies in the same run, in bytes per second."""
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
    return {"peak_bytes_per_s": peak, "achieved_bytes_per_s": achieved, "share_of_peak": share}


def _moved(instance: Instance, gpu: int, model: int, at_us: int) -> dict[str, str | float]:
    return {
        "gpu": instance.cluster.gpus[gpu].id,
        "model": instance.models[model].name,
        "at_s": at_us / MICROSECONDS_PER_SECOND,
    }


def batched_tasks(instance: Instance, timeline: Timeline) -> list[int]:
    """Return the tasks that ran in a batch of two or more."""
    leaders = batch_leaders(instance, timeline)
    together: list[int] = np.flatnonzero(np.bincount(leaders, minlength=instance.n_tasks)[leaders] > 1).tolist()
    return together


def _outputs(replayed: Replayed) -> dict[str, Any] | None:
    if replayed.different is None:
        return None
    names, odd = (
        [_task_name(replayed.instance, task) for task in tasks] for tasks in (replayed.different, replayed.not_finite)
    )
    together = len(batched_tasks(replayed.instance, replayed.timeline))
    return {"compared": len(replayed.live.outputs), "different": names, "not_finite": odd, "of_batches": together}


def _task_name(instance: Instance, task: int) -> str:
    return f"{instance.task_job[task]}/{instance.task_name(task)}"


def _failures(replayed: Replayed) -> list[dict[str, Any]]:
    instance = replayed.instance
    return [
        {
            "job": failure.job,
            "task": instance.task_name(failure.task),
            "gpu": None if failure.gpu is None else instance.cluster.gpus[failure.gpu].id,
            "at_s": failure.at_us / MICROSECONDS_PER_SECOND,
            "message": failure.message,
        }
        for failure in replayed.live.records.failures
    ]


def _faults(replayed: Replayed) -> list[dict[str, Any]]:
    """Return what went wrong with loads, transfers and GPUs, whether or not a job failed of it."""
    gpus = replayed.instance.cluster.gpus
    return [
        {
            "what": fault.what,
            "gpu": gpus[fault.gpu].id,
            "at_s": fault.at_us / MICROSECONDS_PER_SECOND,
            "message": fault.message,
        }
        for fault in replayed.live.records.faults
    ]


def _jobs(replayed: Replayed) -> list[dict[str, Any]]:
    """Return predicted and measured latency of every job that did not fail."""
    predicted, measured = replayed.latency_us
    return [
        {
            "job": int(job),
            "workflow": replayed.instance.jobs[job].workflow.name,
            "predicted_s": float(before) / MICROSECONDS_PER_SECOND,
            "measured_s": float(after) / MICROSECONDS_PER_SECOND,
        }
        for job, before, after in zip(replayed.complete, predicted, measured, strict=True)
    ]


def _run(replayed: Replayed, run: Record) -> dict[str, Any]:
    instance, task = replayed.instance, run.subject
    return {
        "job": int(instance.task_job[task]),
        "task": instance.task_name(task),
        "gpu": instance.cluster.gpus[run.gpu].id,
        "predicted_start_s": int(replayed.predicted.start_us[task]) / MICROSECONDS_PER_SECOND,
        "start_s": run.start_us / MICROSECONDS_PER_SECOND,
        "predicted_s": run.expected_us / MICROSECONDS_PER_SECOND,
        "measured_s": run.took_us / MICROSECONDS_PER_SECOND,
        "dispatch_us": run.dispatch_us,
        "error": run.error,
    }


def _load(replayed: Replayed, load: Record) -> dict[str, Any]:
    bandwidth = load.size_bytes / load.took_us * MICROSECONDS_PER_SECOND if load.took_us else None
    return {
        "gpu": replayed.instance.cluster.gpus[load.gpu].id,
        "model": replayed.instance.models[load.subject].name,
        "bytes": load.size_bytes,
        "start_s": load.start_us / MICROSECONDS_PER_SECOND,
        "predicted_s": load.expected_us / MICROSECONDS_PER_SECOND,
        "measured_s": load.took_us / MICROSECONDS_PER_SECOND,
        "bytes_per_s": bandwidth,
        "dispatch_us": load.dispatch_us,
        "error": load.error,
    }
