"""From a run on devices to the figures that issue and README speak of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from truenorth.executor.devices.records import DeviceRecord
from truenorth.models.record import encode
from truenorth.planner.answers.replayed import Replayed

TARGETS = {
    "load_share_of_peak": ("at least", 0.95),
    "dispatch_us": ("at most", 30.0),
    "makespan_error": ("at most", 0.03),
    "mean_latency_error": ("at most", 0.03),
    "overlap_s": ("more than", 0.0),
    "different_outputs": ("at most", 0),
    "failures": ("at most", 0),
    "violations": ("at most", 0),
}
"""What must be reached on CUDA: medians of loads and of dispatch, absolute errors."""


def figures(replayed: Replayed, large_bytes: int) -> dict[str, Any]:
    """Return the figures of one run, those that have a target under the target's name.

    Parameters
    ----------
    large_bytes
        From this size on, loads count for the share of the peak.
    """
    report = replayed.record
    records = replayed.live.records
    return {
        "jobs": len(replayed.instance.jobs),
        "tasks": len(records.runs),
        "loads": len(records.loads),
        "copy_peak_bytes_per_s": replayed.live.copy_peak,
        "load_share_of_peak": load_share(records.loads, replayed.live.copy_peak, large_bytes),
        "dispatch_us": report.dispatch_us.p50,
        "dispatch_p95_us": report.dispatch_us.p95,
        "makespan_s": encode(report.makespan_s),
        "makespan_error": _absolute(report.makespan_s.error),
        "mean_latency_s": encode(report.mean_latency_s),
        "mean_latency_error": _absolute(report.mean_latency_s.error),
        "causes_s": encode(report.causes_s),
        "load_s": sum(load.took_us for load in records.loads) / 1e6,
        "overlap_s": overlap_us(records.runs, records.loads) / 1e6,
        "energy_j": report.energy_j,
        "different_outputs": None if replayed.different is None else len(replayed.different),
        "failures": len(records.failures),
        "violations": len(replayed.violations),
        "same_placement": report.same_placement,
        "same_order": report.same_order,
    }


def load_share(loads: Sequence[DeviceRecord], peak: float, large_bytes: int) -> float | None:
    """Return the median bandwidth of large loads as a share of the peak; None if there was no such load."""
    bandwidths = [load.size_bytes / load.took_us * 1e6 for load in loads if load.size_bytes >= large_bytes]
    return median(bandwidths) / peak if bandwidths else None


def overlap_us(runs: Sequence[DeviceRecord], loads: Sequence[DeviceRecord]) -> int:
    """Return for how long GPUs loaded and computed at the same time, summed over GPUs."""
    return sum(
        max(0, min(run.end_us, load.end_us) - max(run.start_us, load.start_us))
        for load in loads
        for run in runs
        if run.gpu == load.gpu
    )


def reached(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return, per target, its worst value over some runs and whether it was met; null where nothing was measured."""
    return {name: _judged([run[name] for run in runs], *target) for name, target in TARGETS.items()}


def _judged(values: Sequence[float | None], relation: str, target: float) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    if not known:
        return {"target": f"{relation} {target}", "worst": None, "met": None}
    worst = max(known) if relation == "at most" else min(known)
    met = {"at most": worst <= target, "at least": worst >= target, "more than": worst > target}[relation]
    return {"target": f"{relation} {target}", "worst": worst, "met": met}


def _absolute(error: float | None) -> float | None:
    return None if error is None else abs(error)
