"""What ``servers --json`` says, and a folder keeps: sizes, their prices, policies, and what forces the least size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from truenorth.executor import Knows
from truenorth.models import ServiceLevels
from truenorth.models.metrics import CacheMetrics, Metrics, StreamMetrics
from truenorth.models.record import ABSENT, Spreading, spread
from truenorth.models.streams import Fitted
from truenorth.planner.answers.versions import Origin, ScenarioNamed

Figures = float | list[float | None] | None
"""What a level limits, in seconds, as a ratio or as a share; of several levels one each."""


@dataclass(frozen=True, slots=True)
class Size:
    """A number of servers; of priced groups also how many of each, and for how much. None where there is none."""

    servers: int | None
    mix: list[int] | None = ABSENT
    price_per_hour: float | None = ABSENT


@dataclass(frozen=True, slots=True)
class GroupOfServers:
    """Servers of one sort; the GPUs of each engine where some have several."""

    gpu: str
    gpus_per_server: int
    engines: list[int] = ABSENT


@dataclass(frozen=True, slots=True)
class Minimum(Spreading):
    """The least size; bounds of prices are there where groups have prices, the second whatever the groups' counts."""

    size: Size = field(metadata=spread(Size))
    proved: bool
    lower_bound: int | None
    value: Figures
    plan: str | None
    lower_bound_price_per_hour: float | None = ABSENT
    lower_bound_price_of_any_counts: float | None = ABSENT


@dataclass(frozen=True, slots=True)
class ReachedSize(Spreading):
    """What a policy reached at a size."""

    size: Size = field(metadata=spread(Size))
    value: Figures


@dataclass(frozen=True, slots=True)
class ClosestSize(ReachedSize):
    """What came closest to the level, and the largest share of a limit that it takes up: above 1."""

    share_of_limit: float | None


@dataclass(frozen=True, slots=True)
class CoarseStamps:
    """Arrivals are stamped in whole ticks, and so large a share of them coincide."""

    tick_s: int
    coinciding: float


@dataclass(frozen=True, slots=True)
class PolicySize(Spreading):
    """The least size at which a policy meets the level."""

    size: Size = field(metadata=spread(Size))
    knows: Knows
    simulated_up_to: int | None
    not_simulated: int
    reached: list[ReachedSize]
    information_used: str
    closest: ClosestSize | None


@dataclass(frozen=True, slots=True)
class WorkDone:
    """What is computed, of what the GPUs offer."""

    gpu_seconds: float
    offered_gpu_seconds: float


@dataclass(frozen=True, slots=True)
class AlternativeSize(Spreading):
    """A policy at a size near the best price."""

    policy: str
    knows: Knows
    size: Size = field(metadata=spread(Size))
    value: Figures
    metrics: CacheMetrics | StreamMetrics | Metrics
    work: WorkDone
    information_used: str
    requests_at_once: int | None = ABSENT
    value_with_spare_gone: Figures = ABSENT


@dataclass(frozen=True, slots=True)
class GrowthTaken(Spreading):
    """How much more traffic the best of them takes."""

    policy: str
    size: Size = field(metadata=spread(Size))
    holds: float
    fails: float | None


@dataclass(frozen=True, slots=True)
class LimitReached:
    """What a policy reached with at most so many requests at once on a node."""

    requests_at_once: int
    value: Figures
    met: bool


@dataclass(frozen=True, slots=True)
class LimitsTried:
    """Limits on requests at once that were tried with a policy at a size, and what it reached there without any."""

    policy: str
    size: Size
    seats: int
    value: Figures
    limits: list[LimitReached]


@dataclass(frozen=True, slots=True)
class EngineToStart:
    """Equal engines of what is recommended: how many, GPUs of each, what ``vllm serve`` and requests say."""

    stream: str
    gpu: str
    workflow: str | None
    replicas: int
    gpus: int
    flags: list[str]
    kv_tokens: int | None
    longest: int
    role: str = ABSENT
    priorities: Mapping[str, int] = ABSENT


@dataclass(frozen=True, slots=True)
class FailuresDrawn:
    """At what rate servers failed, and how many outages fell into the window of the best answer, draw by draw."""

    rate: str
    seed: int
    outages: list[int] | None


@dataclass(frozen=True, slots=True)
class FormOfFleet:
    """What a form of fleet takes: servers, how many of each kind, and the policy; None where none met the level.

    There, what came closest and what was reached, or the dearest size and why it is refuted; and of nodes apart about
    what share of the time until the last arrival each role takes.
    """

    servers: int | None
    kinds: Mapping[str, int] | None
    policy: str | None
    price_per_hour: float | None = ABSENT
    closest: Mapping[str, int] = ABSENT
    reached: Figures = ABSENT
    refuted: str = ABSENT
    loads: Mapping[str, float] = ABSENT


@dataclass(frozen=True, slots=True)
class FormsTried:
    """Whether prefill is apart from decode in what is ordered, and what either form takes."""

    chosen: bool
    together: FormOfFleet
    apart: FormOfFleet


@dataclass(frozen=True, slots=True)
class StrainReached:
    """What the best of them reaches with one figure of one model larger."""

    model: str
    figure: str
    factor: float
    met: bool
    value: Figures
    share_of_limit: float | None


@dataclass(frozen=True, slots=True)
class TooLongAlone:
    """A level that jobs break even if each has all GPUs to itself."""

    slo: str
    jobs: int
    too_long: int
    workflow: str
    workflows: int
    best_value: float


@dataclass(frozen=True, slots=True)
class SizeRefuted(Spreading):
    """Why no cheaper size is enough."""

    size: Size = field(metadata=spread(Size))
    method: str
    forces: str
    however_many: bool
    too_long_alone: TooLongAlone | None
    recomputable: bool
    certificate: str | None


@dataclass(frozen=True, slots=True)
class ServersRecord:
    """An answer about servers."""

    slo: str | list[str]
    rate: float
    spare: int
    noise: str | None
    groups: list[GroupOfServers]
    rounded_up: float | None
    largest: Size
    open_sizes: int
    minimum: Minimum
    policies: Mapping[str, PolicySize]
    alternatives: list[AlternativeSize]
    growth: GrowthTaken | None
    survives_failure: bool | None
    coarse_stamps: CoarseStamps | None
    sensitivity: list[StrainReached]
    refutation: SizeRefuted | None
    runtime_s: float
    fitted: list[Fitted] = ABSENT
    requests_at_once: LimitsTried = ABSENT
    not_tried: list[str] = ABSENT
    failures: FailuresDrawn = ABSENT
    split: FormsTried = ABSENT
    away: bool = ABSENT
    engines: list[EngineToStart] = ABSENT
    no_engines: str = ABSENT

    def __post_init__(self) -> None:
        """Refuse what no answer is: values of other levels, or sizes of priced groups without a price."""
        levels = len(self.levels.levels)
        reached = [self.minimum.value, *(at.value for policy in self.policies.values() for at in policy.reached)]
        if any(value is not None and (len(value) if isinstance(value, list) else 1) != levels for value in reached):
            raise ValueError("a value is not one figure for each level")
        if not self.priced:
            return
        if not all(self._has_price(size) for size in self._sizes() if size.servers is not None):
            raise ValueError("a size of priced groups has no price, or not a count for each group")
        least = self.minimum.lower_bound_price_per_hour
        if self.refutation is not None and self.open_sizes and least in (None, ABSENT):
            raise ValueError("something is refuted, and no price is a bound")

    def _sizes(self) -> Iterator[Size]:
        yield from (self.largest, self.minimum.size)
        for policy in self.policies.values():
            yield policy.size
            yield from (each.size for each in policy.reached)
        yield from (each.size for each in self.alternatives)
        if self.growth is not None:
            yield self.growth.size
        if self.refutation is not None:
            yield self.refutation.size

    def _has_price(self, size: Size) -> bool:
        counted = isinstance(size.mix, list) and len(size.mix) == len(self.groups)
        return counted and isinstance(size.price_per_hour, float | int)

    @property
    def levels(self) -> ServiceLevels:
        """The service levels that were asked for."""
        return ServiceLevels.parse(*([self.slo] if isinstance(self.slo, str) else self.slo))

    @property
    def priced(self) -> bool:
        """Whether the question was for the cheapest mix of priced groups."""
        return self.minimum.size.price_per_hour is not ABSENT


@dataclass(frozen=True, slots=True)
class AssumedWindow(ScenarioNamed):
    """The scenario of an answer, and what of it the answer rests on."""

    jobs: int
    length_s: float
    resident_at_start: int
    overlap_loads: bool
    requests: int
    kv_grows: bool = False
    contexts: bool = False


@dataclass(frozen=True, slots=True)
class ServersOrigin(Origin):
    """What ``answer.json`` says besides."""

    scenario: AssumedWindow


@dataclass(frozen=True, slots=True)
class IntervalCount:
    """Servers of one interval, and what its jobs come to by themselves."""

    servers: int | None
    mix: list[int] | None
    attainment: float | None
    met_alone: bool | None


@dataclass(frozen=True, slots=True)
class IntervalLeast(IntervalCount):
    """The plan's, and the fewest that an interval can do with."""

    lower_bound: int


@dataclass(frozen=True, slots=True)
class IntervalOrdered:
    """What an autoscaler orders for an interval."""

    servers: int
    attainment: float | None
    met_alone: bool | None


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """An interval."""

    from_s: float
    to_s: float
    jobs: int
    minimum: IntervalLeast
    forces: str | None
    policies: Mapping[str, IntervalCount]
    autoscaler: IntervalOrdered | None


@dataclass(frozen=True, slots=True)
class ScheduleCosts:
    """What a schedule costs, beside a fleet that stays; None where there is none.

    Intervals end with the one of the last arrival: what its servers do after it is `unpaid_server_hours`.
    """

    tried: int
    server_hours: float | None
    price: float | None
    fixed_server_hours: float | None
    fixed_price: float | None
    unpaid_server_hours: float = field(default=ABSENT, kw_only=True)


@dataclass(frozen=True, slots=True)
class OptimumCosts(ScheduleCosts):
    """The same of the cheapest one found, and what none costs less than."""

    server_hours_lower_bound: float | None
    price_lower_bound: float | None
    proved: bool


@dataclass(frozen=True, slots=True)
class AutoscalerCosts:
    """What an autoscaler came to, and which share of what it aimed at."""

    policy: str
    target: float
    target_of: str
    server_hours: float
    price: float | None
    met: bool
    unpaid_server_hours: float = ABSENT


@dataclass(frozen=True, slots=True)
class SchedulesFound:
    """The schedules that were found."""

    optimum: OptimumCosts
    policies: Mapping[str, ScheduleCosts]
    autoscaler: AutoscalerCosts | None


@dataclass(frozen=True, slots=True)
class ScheduleRecord(Spreading):
    """An answer by the interval, beside that for a fleet that stays."""

    fixed: ServersRecord = field(metadata=spread(ServersRecord))
    by_s: float
    intervals: list[IntervalRow]
    schedule: SchedulesFound

    def __post_init__(self) -> None:
        """Refuse intervals that are not of the policies and groups of the rest."""
        groups, scaled = len(self.fixed.groups), self.schedule.autoscaler is not None
        if not self.intervals:
            raise ValueError("there is no interval")
        for row in self.intervals:
            counts = [row.minimum, *row.policies.values()]
            whole = all(count.mix is None or len(count.mix) == groups for count in counts)
            if not whole or row.policies.keys() != self.schedule.policies.keys():
                raise ValueError("an interval has not a count for each policy and group")
            if (row.autoscaler is not None) != scaled:
                raise ValueError("an autoscaler is not there in every interval")
