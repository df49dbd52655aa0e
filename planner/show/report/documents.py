"""What the files of a folder hold that a page reads; a file that holds anything else is refused, field by field."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from models.slo import ServiceLevel

Figure = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=10**18)]
Times = list[Annotated[int, Field(ge=-1, le=10**18)]]
OPEN = ConfigDict(extra="allow")
"""What a page does not read may be anything."""


def _readable(text: str) -> str:
    ServiceLevel.parse(text)
    return text


Level = Annotated[str, AfterValidator(_readable)]
Levels = Level | Annotated[list[Level], Field(min_length=2)]


@with_config(OPEN)
class OriginOfFile(TypedDict):
    """The scenario of an answer."""

    name: str
    hash: str


@with_config(OPEN)
class AssumptionsOfFile(OriginOfFile):
    """The scenario of a server count, and what of it an answer rests on."""

    jobs: Count
    length_s: Figure
    resident_at_start: Count
    overlap_loads: bool


@with_config(OPEN)
class WindowOfFile(OriginOfFile):
    """The scenario of a comparison."""

    jobs: Count
    tasks: Count
    gpus: Count
    slo: str | None


@with_config(OPEN)
class ShownMetrics(TypedDict):
    """Metrics of a contender."""

    p50_slowdown: Figure
    p95_slowdown: Figure
    p99_slowdown: Figure
    hit_rate: Figure | None
    loads: Count
    compute_busy: Figure
    slo_attainment: Figure | None


@with_config(OPEN)
class ComparedPolicy(TypedDict):
    """A row of a comparison; a policy with a problem has no figures."""

    policy: str
    clairvoyant: bool
    knows: str
    twin: bool
    problem: str | None
    objective: Figure | None
    ratio_to_best: Figure | None
    ratio_to_bound: Figure | None
    gap_to_bound: Figure | None
    converged: bool
    metrics: ShownMetrics | None


@with_config(OPEN)
class LossRow(TypedDict):
    """A part of a regret."""

    part: str
    lost: Figure
    share: Figure | None
    at_least: Figure
    at_most: Figure


@with_config(OPEN)
class RegretRow(TypedDict):
    """What a policy loses to each part."""

    policy: str
    note: str
    warning: str | None
    losses: list[LossRow]


@with_config(OPEN)
class ComparisonFile(TypedDict):
    """``comparison.json``."""

    objective: str
    rows: list[ComparedPolicy]
    lower_bound: Figure | None
    bound_method: str | None
    status: str
    warning: str | None
    regret: list[RegretRow]
    note: str
    scenario: WindowOfFile
    unit: str
    warmup: str
    gap: Figure | None
    incumbents: list[tuple[Figure, Figure | None, Figure | None]]
    runtime_s: Figure
    command: str
    versions: dict[str, str]


@with_config(OPEN)
class Group(TypedDict):
    """Servers of one sort."""

    gpu: str
    gpus_per_server: Count


@with_config(OPEN)
class ServerSize(TypedDict):
    """A number of servers; of priced groups also how many of each, and for how much."""

    servers: Count | None
    mix: NotRequired[list[Count] | None]
    price_per_hour: NotRequired[Figure | None]


@with_config(OPEN)
class Minimum(ServerSize):
    """The least size of a server count."""

    proved: bool
    lower_bound: Count | None
    lower_bound_price_per_hour: NotRequired[Figure | None]
    lower_bound_price_of_any_counts: NotRequired[Figure | None]
    value: Figure | list[Figure | None] | None


@with_config(OPEN)
class Reached(ServerSize):
    """What a policy reached at a size."""

    value: Figure | list[Figure | None] | None


@with_config(OPEN)
class TrialRow(ServerSize):
    """The least size at which a policy meets the level."""

    knows: str
    not_simulated: Count
    reached: list[Reached]


@with_config(OPEN)
class RefutationRow(ServerSize):
    """Why no cheaper size is enough."""

    forces: str
    however_many: bool


@with_config(OPEN)
class AlternativeMetrics(TypedDict):
    """The metrics of an alternative that a page shows."""

    mean_latency_s: Figure
    p95_latency_s: Figure
    p99_latency_s: Figure
    mean_slowdown: Figure
    hit_rate: Figure | None
    compute_busy: Figure


@with_config(OPEN)
class WorkRow(TypedDict):
    """What an alternative computes, of what its GPUs offer."""

    gpu_seconds: Figure
    offered_gpu_seconds: Figure


@with_config(OPEN)
class AlternativeRow(ServerSize):
    """A policy at a size near the best price."""

    policy: str
    knows: str
    metrics: AlternativeMetrics
    work: WorkRow


@with_config(OPEN)
class GrowthRow(ServerSize):
    """How much more traffic the best of them takes."""

    policy: str
    holds: Figure
    fails: Figure | None


@with_config(OPEN)
class StrainRow(TypedDict):
    """What the best of them reaches with one figure of one model larger."""

    model: str
    figure: str
    factor: Figure
    met: bool
    value: Figure | list[Figure | None] | None
    share_of_limit: Figure | None


def figures_of_every_level(found: ServersFile) -> ServersFile:
    """Refuse a document in which a value is not one figure for each level."""
    levels = 1 if isinstance(found["slo"], str) else len(found["slo"])
    for at in [found["minimum"], *(at for trial in found["policies"].values() for at in trial["reached"])]:
        value = at["value"]
        if value is not None and (len(value) if isinstance(value, list) else 1) != levels:
            raise ValueError("a value is not one figure for each level")
    return found


def priced_throughout(found: ServersFile) -> ServersFile:
    """Refuse a document of priced groups in which a size lacks its mix or its price."""
    minimum, refutation = found["minimum"], found["refutation"]
    if "mix" not in minimum:
        return found
    trials = found["policies"].values()
    reached = [at for trial in trials for at in trial["reached"]]
    single: list[ServerSize] = [size for size in (refutation, found["growth"]) if size is not None]
    sizes: list[ServerSize] = [found["largest"], minimum, *trials, *reached, *found["alternatives"], *single]
    for size in sizes:
        mix, price = size.get("mix"), size.get("price_per_hour")
        if size["servers"] is not None and (mix is None or price is None or len(mix) != len(found["groups"])):
            raise ValueError("a size of priced groups has no price, or not a count for each group")
    if refutation is not None and found["open_sizes"] and minimum.get("lower_bound_price_per_hour") is None:
        raise ValueError("something is refuted, and no price is a bound")
    return found


@with_config(OPEN)
class ServersFile(TypedDict):
    """``answer.json``."""

    slo: Levels
    rate: NotRequired[Figure]
    spare: Count
    noise: str | None
    groups: list[Group]
    largest: ServerSize
    open_sizes: Count
    minimum: Minimum
    policies: dict[str, TrialRow]
    alternatives: list[AlternativeRow]
    growth: GrowthRow | None
    sensitivity: list[StrainRow]
    refutation: RefutationRow | None
    runtime_s: Figure
    scenario: AssumptionsOfFile
    command: str
    versions: dict[str, str]


ServerCount = Annotated[ServersFile, AfterValidator(figures_of_every_level), AfterValidator(priced_throughout)]


@with_config(OPEN)
class Both(TypedDict):
    """A figure of a replay; also the objective, which has a name."""

    predicted: Figure | None
    measured: Figure | None


@with_config(OPEN)
class Named(Both):
    """The objective of a replay."""

    name: str


@with_config(OPEN)
class ReplayFile(TypedDict):
    """``replay.json``."""

    policy: str
    device: str
    devices: list[str]
    runner: str
    objective: Named
    makespan_s: Both
    mean_latency_s: Both
    valid: bool
    same_placement: bool
    same_order: bool
    latency_error: Figure | None
    failures: list[Any]
    scenario: OriginOfFile
    command: str
    versions: dict[str, str]


@with_config(OPEN)
class ForecastRow(TypedDict):
    """What samples foretell of a contender."""

    mean_latency_s: Figure
    mean_latency_s_low: Figure
    mean_latency_s_high: Figure
    error: Figure | None
    job_error: Figure | None
    own_job_error: Figure | None
    inside: Figure | None


@with_config(OPEN)
class ContenderRow(TypedDict):
    """A contender of a trial."""

    policy: str
    predicted: Figure | None
    objective: Figure | None
    objective_low: Figure | None
    objective_high: Figure | None
    error: Figure | None
    difference: Figure | None
    difference_low: Figure | None
    difference_high: Figure | None
    same_order: Count
    failed_jobs: Count
    faults: Count
    not_finite_outputs: NotRequired[Count]
    runs: NotRequired[Count]
    forecast: ForecastRow | None


class LatenciesOfFile(TypedDict):
    """Latency of every job: predicted, and measured in each run."""

    predicted_s: list[Figure]
    measured_s: list[list[Figure]]


def _alike(found: LatenciesOfFile) -> LatenciesOfFile:
    """Refuse runs of another number of jobs."""
    if any(len(run) != len(found["predicted_s"]) for run in found["measured_s"]):
        raise ValueError("a run has not a latency for each job")
    return found


@with_config(OPEN)
class TrialFile(TypedDict):
    """``trial.json``."""

    objective: str
    device: str
    runner: str
    repeats: Count
    ended: NotRequired[str | None]
    rows: Annotated[list[ContenderRow], Field(min_length=1)]
    jobs: dict[str, Annotated[LatenciesOfFile, AfterValidator(_alike)]]
    scenario: OriginOfFile
    command: str
    versions: dict[str, str]


@with_config(OPEN)
class IntervalOfFile(TypedDict):
    """A contender over replications: means, each with the ends of its interval."""

    policy: str
    replications: Count
    objective: Figure
    objective_low: Figure | None
    objective_high: Figure | None
    ratio_to_best: Figure | None
    ratio_to_best_low: Figure | None
    ratio_to_best_high: Figure | None
    difference: Figure | None
    difference_low: Figure | None
    difference_high: Figure | None
    better_in: Count | None
    gap_to_bound: Figure | None


@with_config(OPEN)
class IntervalsFile(TypedDict):
    """``intervals.json``."""

    objective: str
    of: str
    against: str | None
    rows: Annotated[list[IntervalOfFile], Field(min_length=1)]
    note: str


@with_config(OPEN)
class SweepFile(TypedDict):
    """``sweep.json``."""

    name: str
    file: str | None
    scenario_hash: str | None
    versions: dict[str, str]
    cells: list[str]


@with_config(OPEN)
class Drawn(TypedDict):
    """One of the timelines."""

    name: str
    clairvoyant: bool
    instance: Count
    slowdown: list[Figure]
    latency_us: Times
    gpu: Times
    start_us: Times
    run_us: Times
    residencies: list[list[Any]]


@with_config(OPEN)
class Timelines(TypedDict):
    """``timelines.json``."""

    schema_version: int
    instances: list[dict[str, Any]]
    timelines: list[Drawn]
