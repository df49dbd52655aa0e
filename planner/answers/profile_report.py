"""The figures of a profile, with units in their keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelProfiled:
    """A model, and how long it takes to load, if it was."""

    weight_bytes: int
    load_median_us: float
    load_p95_us: float


@dataclass(frozen=True, slots=True)
class TaskProfiled:
    """A task, how long it runs, and what it then takes beside the weights (in its largest batch)."""

    workflow: str
    task: str
    run_median_us: float
    run_p95_us: float
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class BatchProfiled:
    """A batch of a size, and how long it runs."""

    batch: str
    size: int
    run_median_us: float
    run_p95_us: float


@dataclass(frozen=True, slots=True)
class StreamProfiled:
    """A stream class: its prefill, KV, and median and 95 % quantile of a step's microseconds by concurrency."""

    stream: str
    prefill_per_s: float
    kv_bytes_per_token: int
    step_us: Mapping[int, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class TransferLine:
    """The line through the times of transfers."""

    bandwidth_bytes_per_s: int
    overhead_us: float


@dataclass(frozen=True, slots=True)
class LoadLine(TransferLine):
    """The line through the times of loads, and the best bare copy."""

    copy_peak_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class ProfileRecord:
    """A profile's figures, and where it was written."""

    device: str
    kind: str
    runner: str
    rounds: int
    beside: int
    models: Mapping[str, ModelProfiled]
    tasks: list[TaskProfiled]
    batches: list[BatchProfiled]
    load: LoadLine | None
    transfer: TransferLine | None
    streams: list[StreamProfiled]
    profile: str | None
    samples: str | None
