"""The report of a trial, with units in its keys; it is read back without the packages of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from truenorth.models.objective import Objective
from truenorth.models.record import ABSENT, Spreading, spread
from truenorth.planner.answers.forecast import ForecastComparison
from truenorth.planner.answers.intervals import Interval
from truenorth.planner.answers.replay_report import ClockCompared, MemoryMeasured
from truenorth.planner.answers.versions import Origin


@dataclass(frozen=True, slots=True)
class ContenderRow(Spreading):
    """What became of a contender.

    Parameters
    ----------
    objective, predicted, error
        Measured, what was predicted, and the mean of measured over predicted, less 1.
    difference
        To the first contender within a repeat.
    realised_bound_s
        What no schedule of these durations lies below.
    latency_error
        Of single jobs.
    dispatch_us
        Median over the tasks of all runs that count: from the instant that allowed a start to the start.
    same_order
        Runs in which placement and orders were as predicted.
    different_outputs
        Of all runs, tasks whose output is not, bit for bit, that of the first run in which they ran; None with batches,
        which round.
    not_finite_outputs
        Tasks that put out what is no finite number.
    failed_jobs, faults, runs
        Of all runs.
    counted
        Runs that count in the means, which are None without one.
    forecast
        Beside what samples foretell; None without them.
    """

    policy: str
    clairvoyant: bool
    objective: Interval = field(metadata=spread(Interval, "objective"))
    predicted: float
    error: float | None
    difference: Interval = field(metadata=spread(Interval, "difference"))
    mean_latency_s: float | None
    realised_bound_s: float | None
    latency_error: float | None
    dispatch_us: float | None
    same_order: int
    different_outputs: int | None
    not_finite_outputs: int
    failed_jobs: int
    faults: int
    runs: int
    counted: int
    forecast: ForecastComparison | None


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A trial in reported units."""

    objective: Objective
    device: str
    virtual: str | None
    runner: str
    repeats: int
    count_faults: bool
    ended: str | None
    order: Sequence[Sequence[str]]
    rows: Annotated[list[ContenderRow], Field(min_length=1)]
    machine: Mapping[str, Mapping[str, Any]]
    clocks: list[ClockCompared] = ABSENT
    memory: MemoryMeasured = ABSENT


@dataclass(frozen=True, slots=True)
class JobLatencies:
    """Latency of every job: predicted, and measured in each run that counts."""

    predicted_s: list[float]
    measured_s: list[list[float]]

    def __post_init__(self) -> None:
        """Refuse runs of another number of jobs."""
        if any(len(run) != len(self.predicted_s) for run in self.measured_s):
            raise ValueError("a run has not a latency for each job")


@dataclass(frozen=True, slots=True)
class TrialOrigin(Origin):
    """What ``trial.json`` says besides."""

    jobs: Mapping[str, JobLatencies]
