"""The report of a run on devices: predicted against measured, with units in its keys; read back as it was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from truenorth.models.metrics import CacheMetrics, Metrics, StreamMetrics
from truenorth.models.objective import Objective
from truenorth.models.record import ABSENT, Spreading, spread
from truenorth.models.units import say_size
from truenorth.planner.answers.forecast import ForecastComparison

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
    gpu: str | list[str] | None
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
    """A request of a stream: when it joined, had its first token, and ended.

    Parameters
    ----------
    kv_bytes, kv_arrived_s
        KV that came in from another GPU, and when it had arrived; absent if none did.
    """

    job: int
    task: str
    gpu: str
    predicted_start_s: float
    predicted_first_s: float
    predicted_end_s: float
    start_s: float
    first_s: float
    end_s: float
    kv_bytes: int = field(default=ABSENT, kw_only=True)
    kv_arrived_s: float = field(default=ABSENT, kw_only=True)


@dataclass(frozen=True, slots=True)
class KVSent:
    """KV that was sent from GPU to GPU, and how long that took, in total."""

    requests: int
    bytes: int
    predicted_s: float
    measured_s: float

    def __str__(self) -> str:
        """Say it."""
        times = f"in {self.measured_s:.4f} s, predicted {self.predicted_s:.4f} s"
        return f"{say_size(self.bytes)} sent for {self.requests} requests {times}"


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
    gpu: str | list[str]
    predicted_start_s: float
    start_s: float
    predicted_s: float
    measured_s: float
    dispatch_us: int
    error: str | None


@dataclass(frozen=True, slots=True)
class LoadMeasured:
    """A load."""

    gpu: str | list[str]
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
    metrics: CacheMetrics | StreamMetrics | Metrics | None
    jobs: list[JobMeasured]
    tasks: list[TaskMeasured]
    loads: list[LoadMeasured]
    tokens: TokensBoth | None = None
    iteration_times: DurationsTogether | None = None
    requests: list[RequestMeasured] = field(default_factory=list)
    iterations: list[IterationMeasured] = field(default_factory=list)
    clocks: list[ClockCompared] = ABSENT
    memory: MemoryMeasured = ABSENT
    kv_sent: KVSent = ABSENT
