"""The scenario document: the sections of a scenario file, their keys, defaults and descriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from truenorth.models.cluster import ALWAYS
from truenorth.models.objective import Objective
from truenorth.models.scenario.errors import quote
from truenorth.models.scenario.quantities import (
    MAX_SIZE_BYTES,
    Bandwidth,
    BatchSize,
    BlockNumbers,
    EdgeSize,
    Flag,
    GPUCount,
    Index,
    Intervals,
    JobCount,
    Kind,
    Levels,
    Line,
    Minimised,
    Name,
    Number,
    PositiveNumber,
    PositiveSize,
    PositiveTime,
    Priority,
    Rate,
    Seed,
    Server,
    Share,
    Size,
    Time,
    TokenCount,
    TokenTriple,
    UncachedCount,
    Window,
    read_edge_size,
)
from truenorth.models.scenario.section import Section, kind_of, problem, refuse_empty
from truenorth.models.scenario.stream_section import StreamSection, WeightRule, for_every_kind
from truenorth.models.streams import ANY_KIND


class GPUSection(Section):
    """A sort of GPU; its memory is shared by bytes (`memory`) or divided into `slots`."""

    one_of = ("memory", "slots")

    kind: Kind = Field(description="Tasks say how long they run by this name.")
    memory: PositiveSize | None = Field(default=None, description="Memory for weights, shared by bytes.")
    slots: Annotated[tuple[PositiveSize, ...], refuse_empty("slot")] | None = Field(
        default=None, description="Sizes of the slots, in place of memory; a slot holds one model."
    )
    load_bandwidth: Bandwidth = Field(description="From host memory to the GPU.")
    load_overhead: Time = Field(default="0 us", validate_default=True, description="Added to every load.")

    @model_validator(mode="after")
    def _total(self) -> GPUSection:
        if self.memory_bytes > MAX_SIZE_BYTES:
            raise problem(f"the slots add up to more than {MAX_SIZE_BYTES} B; allowed is less")
        return self

    @property
    def memory_bytes(self) -> int:
        """Memory for weights: of the slots together if there are any."""
        return self.memory if self.memory is not None else sum(self.slots or ())


class WithinServerSection(Section):
    """The link between GPUs of one server; what is left out is as between servers."""

    latency: Time | None = None
    bandwidth: Bandwidth | None = None


class NetworkSection(Section):
    """The links between GPUs."""

    latency: Time = Field(default="0 us", validate_default=True, description="Added to every transfer.")
    bandwidth: Bandwidth = Field(description="Between two servers.")
    staged: Flag = Field(
        default=False, description="Whether a transfer also pays the copies device to host and host to device."
    )
    within_server: WithinServerSection | None = Field(default=None, description="Between GPUs of one server.")


_Engines = Annotated[tuple[GPUCount, ...], refuse_empty("engine")]


class GroupSection(Section):
    """Equal servers."""

    count: GPUCount = Field(description="Number of servers.")
    gpus_per_server: GPUCount = 1
    engines: _Engines | None = Field(
        default=None,
        description="GPUs of each engine of a server, such as [4, 2, 2]; without modes of streams 1 each if left out.",
    )
    gpu: GPUSection
    price_per_hour: Number | None = Field(default=None, description="Price of one server for an hour.")
    available: Annotated[Intervals, refuse_empty("interval")] = Field(
        default=ALWAYS.intervals, description="When the servers are there; always if left out."
    )
    drain: Time = Field(
        default="0 us",
        validate_default=True,
        description="How long before it goes a server takes no more requests of streams.",
    )
    start_up: Time = Field(
        default="0 us",
        validate_default=True,
        description="How long a server takes to start, where servers are ordered by the hour.",
    )

    @model_validator(mode="after")
    def _engines_fit(self) -> GroupSection:
        if self.engines is not None:
            _check_engines(self.layout, self.gpus_per_server, self.gpu)
        return self

    @property
    def layout(self) -> tuple[int, ...]:
        """GPUs of each engine of a server, the largest first; of 1 each where nothing is said."""
        return tuple(sorted(self.engines or (1,) * self.gpus_per_server, reverse=True))


def _check_engines(layout: Sequence[int], gpus: int, gpu: GPUSection) -> None:
    """Refuse engines for which a server has no room."""
    if sum(layout) > gpus:
        raise problem(f"take {sum(layout)} GPUs together; allowed are at most the {gpus} of a server", "engines")
    if gpu.slots is not None and max(layout) > 1:
        raise problem(f"has slots and engines of {max(layout)} GPUs; allowed is memory in place of slots", "engines")


def _place_rule(value: object) -> object:
    """Read which GPUs a run on several takes; ids of GPUs are looked up with the cluster."""
    if isinstance(value, str) and value in ("aligned", "any"):
        return value
    listed = value if isinstance(value, (list, tuple)) else ()
    sets = [place for place in listed if isinstance(place, (list, tuple)) and all(isinstance(g, str) for g in place)]
    if not listed or len(sets) < len(listed):
        raise problem(f"{kind_of(value)} stands here; allowed is aligned, any, or sets such as [[s0/g0, s0/g2]]")
    return tuple(tuple(place) for place in sets)


_PlaceRule = Annotated[str | tuple[tuple[str, ...], ...], BeforeValidator(_place_rule)]


class ClusterSection(Section):
    """The servers: `servers` equal ones with `gpu`, or `groups` of them; numbered from 0 in file order."""

    one_of = ("servers", "groups")

    servers: GPUCount | None = Field(default=None, description="Number of equal servers.")
    gpus_per_server: GPUCount | None = Field(default=None, description="1 if left out.")
    engines: _Engines | None = Field(default=None, description="As in groups.")
    gpu: GPUSection | None = None
    groups: Annotated[tuple[GroupSection, ...], refuse_empty("group")] | None = Field(
        default=None, description="Servers of several sorts, in place of servers, gpus_per_server and gpu."
    )
    network: NetworkSection | None = Field(default=None, description="May be left out where there is only one GPU.")
    away: dict[Server, Annotated[Intervals, refuse_empty("interval")]] = Field(
        default_factory=dict, description="By server, such as s0: when it is away although its group is there."
    )

    places: _PlaceRule = Field(
        default="aligned",
        description="Which GPUs a task on several takes: aligned ones of a server, any of a server, or listed sets.",
    )

    @model_validator(mode="after")
    def _servers_or_groups(self) -> ClusterSection:
        if self.servers is not None and self.gpu is None:
            raise problem("key 'gpu' is missing; allowed is servers with gpu, or groups")
        inside = [key for key in ("gpu", "gpus_per_server", "engines") if getattr(self, key) is not None]
        if self.groups is not None and inside:
            raise problem(f"has groups beside {' and '.join(inside)}; allowed is to give these inside the groups")
        if self.engines is not None and self.gpu is not None:
            _check_engines(self.server_groups[0].layout, self.server_groups[0].gpus_per_server, self.gpu)
        if self.network is None and sum(group.count * group.gpus_per_server for group in self.server_groups) > 1:
            raise problem("key 'network' is missing; allowed is a cluster of several GPUs with a network")
        return self

    @property
    def server_groups(self) -> tuple[GroupSection, ...]:
        """The groups of equal servers; one group where `servers` is given."""
        if self.groups is not None:
            return self.groups
        alike: dict[str, Any] = {
            "count": self.servers,
            "gpus_per_server": self.gpus_per_server or 1,
            "engines": self.engines,
            "gpu": self.gpu,
            "drain": 0,
            "start_up": 0,
        }
        return (GroupSection.model_construct(**alike),)

    @property
    def n_servers(self) -> int:
        """Number of servers over all groups."""
        return sum(group.count for group in self.server_groups)


class ModelSection(Section):
    """A machine-learning model."""

    weights: PositiveSize


def _tables(value: object) -> object:
    """Turn one table by batch size into one for every kind of GPU."""
    if not isinstance(value, Mapping):
        raise problem(f"{kind_of(value)} stands here; allowed is a table such as {_A_TABLE}, or one per kind of GPU")
    per_kind = not value or any(isinstance(table, Mapping) for table in value.values())
    return value if per_kind else {ANY_KIND: value}


def _rising(times: dict[int, int]) -> dict[int, int]:
    """Refuse a table without size 1, or in which a larger batch takes less time."""
    if 1 not in times:
        raise problem(f"lists no size 1; allowed is a table such as {_A_TABLE}")
    for small, large in pairwise(sorted(times)):
        if times[large] < times[small]:
            fall = f"size {large} takes {times[large]} us, less than the {times[small]} us of size {small}"
            raise problem(f"{fall}; allowed are times that do not fall with the size", str(large))
    return times


_A_TABLE = "{1: 560 ms, 4: 980 ms}"
_Table = Annotated[dict[BatchSize, PositiveTime], AfterValidator(_rising)]


def _edges(value: object) -> object:
    """Turn a list of predecessors into a mapping without bytes of its own."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, (list, tuple)):
        raise problem(f"{kind_of(value)} stands here; allowed is a list of tasks, or a mapping from tasks to bytes")
    named: dict[Any, None] = {}
    for name in value:
        if not isinstance(name, str):
            raise problem(f"{kind_of(name)} stands as a predecessor; allowed are names of tasks")
        if name in named:
            raise problem(f"predecessor {quote(name)} is named twice; allowed is once", name)
        named[name] = None
    return named


class EdgeSection(Section):
    """What lies between a task and its predecessor: bytes that travel, and time that passes outside of the cluster."""

    bytes: EdgeSize | None = Field(
        default=None, description="What travels, in place of the predecessor's output; kv: the KV of its prompt."
    )
    delay: Time = Field(
        default="0 s",
        validate_default=True,
        description="What passes between the end and the next task besides the transfer: a tool runs, a person thinks.",
    )
    hold: Flag = Field(
        default=False,
        description="Whether the KV that the next request finds cached stays on the GPU meanwhile, if there is room.",
    )


def _edge(value: object) -> object:
    """Turn the bytes of an edge into a section with these alone."""
    if isinstance(value, Mapping):
        return value
    size = None if value is None else read_edge_size(value)
    return EdgeSection.model_construct(bytes=size, delay=0, hold=False)


RuntimeByKind = Annotated[
    dict[Name, PositiveTime],
    BeforeValidator(for_every_kind, PositiveTime | dict[Name, PositiveTime]),
    refuse_empty("kind"),
]
TablesByKind = Annotated[
    dict[Name, _Table], BeforeValidator(_tables, _Table | dict[Name, _Table]), refuse_empty("table by batch size")
]
_Edge = Annotated[EdgeSection, BeforeValidator(_edge, EdgeSize | EdgeSection | None)]
_After = Annotated[dict[Name, _Edge], BeforeValidator(_edges, list[Name] | dict[Name, EdgeSize | EdgeSection | None])]


_WEIGHTS = "Whether each of several GPUs holds a part of its models (split) or all of them (copy)."


class TaskModeSection(Section):
    """One way to run a task: on how many GPUs, and how long that takes."""

    gpus: GPUCount = Field(description="How many GPUs it takes, all from its start to its end.")
    runtime: RuntimeByKind = Field(description="One time for every kind of GPU, or a time per kind.")
    across: PositiveNumber = Field(
        default=1,
        validate_default=True,
        description="Factor on the run time where its GPUs are in several servers, at least 1; of several GPUs only.",
    )
    weights: WeightRule = Field(default="split", description=_WEIGHTS)

    @model_validator(mode="after")
    def _across_servers(self) -> TaskModeSection:
        _check_mode(self.across, self.weights, self.gpus)
        return self


def _check_mode(across: Fraction, weights: str, gpus: int) -> None:
    """Refuse a factor below 1, and what only runs on several GPUs have."""
    if across < 1:
        raise problem(f"is {float(across):g}; allowed is at least 1", "across")
    if across != 1 and gpus == 1:
        raise problem(f"is {float(across):g}; allowed is that of a task on several gpus", "across")
    if weights == "copy" and gpus == 1:
        raise problem("is copy; allowed is that of a task on several gpus", "weights")


def _differ(modes: tuple[TaskModeSection, ...]) -> tuple[TaskModeSection, ...]:
    """Refuse two modes of one number of GPUs."""
    before = set[int]()
    for position, mode in enumerate(modes):
        if mode.gpus in before:
            text = f"is a second mode of {mode.gpus} GPUs; allowed is one of each number, with a runtime for each kind"
            raise problem(text, position)
        before.add(mode.gpus)
    return modes


_TaskModes = Annotated[tuple[TaskModeSection, ...], refuse_empty("mode"), AfterValidator(_differ)]


class TaskSection(Section):
    """A step of a workflow, with a runtime of its own or modes, in a batch class, or a request of a stream."""

    one_of = ("batch", "modes", "runtime", "stream")

    models: tuple[Name, ...] = Field(
        default=(), description="Models that must be ready on the GPU while the task runs."
    )
    runtime: RuntimeByKind | None = Field(
        default=None, description="One time for every kind of GPU, or a time per kind."
    )
    output: Size = Field(default="0 B", validate_default=True, description="Bytes that travel to each successor.")
    after: _After = Field(
        default_factory=dict,
        description="Predecessors: a list, or a mapping to the bytes of the edge (null: the output's; kv: its KV), or "
        "to its bytes, delay and hold.",
    )
    input: Size = Field(
        default="0 B",
        validate_default=True,
        description="Bytes that a task without predecessors gets from the ingress of its job, if the job names one.",
    )
    batch: Name | None = Field(
        default=None, description="The batch class it belongs to, in place of models, runtime, share and memory."
    )
    share: Share = Field(default=1, validate_default=True, description="Of the GPU's compute that it takes.")
    memory: Size = Field(default="0 B", validate_default=True, description="Held while it runs, beside the models.")
    stream: Name | None = Field(
        default=None, description="The stream class of which it is a request, in place of the same."
    )
    adapter: Name | None = Field(default=None, description="The adapter of the class that the request needs besides.")
    prompt: TokenCount | None = Field(default=None, description="Prompt tokens, unless the job says otherwise.")
    uncached: UncachedCount | None = Field(
        default=None, description="Prompt tokens that no cache has: all if left out; none where KV is moved to it."
    )
    output_tokens: TokenCount | None = Field(default=None, description="Tokens of the answer.")
    blocks: BlockNumbers = Field(
        default=(), description="Numbers of the leading blocks of the prompt, for nodes that cache; see prefix_cache."
    )
    tied_to: Name | None = Field(
        default=None, alias="with", description="An earlier request on whose GPU this one is served."
    )
    first_token: Flag = Field(
        default=False, description="Whether its first token is that of the job; if none says so the last request's is."
    )

    gpus: GPUCount = Field(default=1, description="How many GPUs it takes, all from its start to its end.")
    across: PositiveNumber = Field(
        default=1, validate_default=True, description="Factor on its run time where its GPUs are in several servers."
    )
    weights: WeightRule = Field(default="split", description=_WEIGHTS)
    modes: _TaskModes | None = Field(
        default=None, description="Ways to run it, of which a plan chooses one: each gpus, runtime, across, weights."
    )

    def _says_of(self, keys: Set[str]) -> set[str]:
        """Return which of some keys are given, and are not empty."""
        return {key for key in keys & self.model_fields_set if getattr(self, key) not in ((), {}, 0, None)}

    @model_validator(mode="after")
    def _on_several_gpus(self) -> TaskSection:
        _check_mode(self.across, self.weights, self.gpus)
        others = self._says_of({"share", "batch", "stream"})
        beside = others | self._says_of({"gpus", "across", "weights"})
        if self.modes is not None and beside:
            key = min(beside)
            beside_them = "models, memory, output, after and input beside modes, and gpus, across and weights in each"
            raise problem(f"has modes and {key}; allowed is {beside_them}", key)
        if self.gpus > 1 and others:
            key = min(others)
            with_it = "runtime, models, memory, across, weights, output, after and input with it"
            raise problem(f"has gpus: {self.gpus} and {key}; allowed is {with_it}", key)
        return self

    @model_validator(mode="after")
    def _class_or_own(self) -> TaskSection:
        own = [key for key in ("models", "share", "memory") if key in self.model_fields_set]
        form = "batch" if self.batch is not None else "stream"
        if own and (self.batch is not None or self.stream is not None):
            problem_text = f"has {form} and {own[0]}; allowed is {form} in place of models, runtime, share and memory"
            raise problem(problem_text, own[0])
        keys = {"prompt", "uncached", "output_tokens", "tied_to", "first_token", "adapter", "blocks"}
        of_requests = keys & self.model_fields_set
        if self.stream is None and of_requests:
            key = min(of_requests).replace("tied_to", "with")
            raise problem(f"has {key} without stream; allowed is {key} for a request of a stream", key)
        if self.input and self.after:
            raise problem("has input and after; allowed is input for a task without predecessors", "input")
        return self


class BatchSection(Section):
    """Tasks that may run together on a GPU, in batches, whatever their workflow or job."""

    models: tuple[Name, ...] = Field(default=(), description="Models that must be ready while a batch runs.")
    runtime: TablesByKind = Field(
        description="A time by batch size, for every kind of GPU or per kind; size 1 among them."
    )
    share: Share = Field(
        default=1, validate_default=True, description="Of the GPU's compute that a batch takes, whatever its size."
    )
    memory: Size = Field(
        default="0 B", validate_default=True, description="Held by each task of a batch while it runs."
    )


class BranchSection(Section):
    """Tasks that a job of the workflow runs together or not at all."""

    probability: Number
    tasks: tuple[Name, ...] = ()


class WorkflowSection(Section):
    """A DAG of tasks, of which a job runs those of one branch and those that are in none."""

    tasks: Annotated[dict[Name, TaskSection], refuse_empty("task")]
    branches: tuple[BranchSection, ...] = Field(
        default=(), description="Which shows to online policies when the task before a branch ends."
    )
    deadline: Time | None = Field(
        default=None, description="Of its jobs, relative to the release, unless a job says otherwise; soft."
    )
    ideal: PositiveTime | None = Field(
        default=None, description="What slowdowns of its jobs divide by, the critical path if left out."
    )
    priority: Priority = Field(
        default=0,
        description="Of its jobs, unless a job says otherwise, 0 to 1000: a higher one goes first in policies' queues.",
    )


class PoissonSection(Section):
    """Random arrivals: independent exponential gaps, the first from time 0 to the first release."""

    rate: Rate
    jobs: JobCount
    seed: Seed = 0
    mix: Annotated[dict[Name, Number], refuse_empty("workflow")] | None = Field(
        default=None, description="Relative weights of the workflows; all alike if left out."
    )


class TraceSection(Section):
    """Arrivals from a CSV file: time_ms (or time_s, time_us), workflow.

    Besides, where there are such columns, deadline_ms, weight, ingress, path and priority; of a request TASK of a
    stream also TASK.prompt, TASK.uncached, TASK.output, and TASK.blocks, numbers of its prompt's blocks by spaces; of a
    task that comes after others TASK.delay, a time with its unit, or TASK.delay_ms (or _s, _us), a plain number.
    """

    file: Name = Field(description="Path, relative to the scenario file.")
    window: Window | None = None
    rate_factor: PositiveNumber = Field(
        default=1, description="Multiply the arrival rate: releases are divided by it.", validate_default=True
    )


class JobSection(Section):
    """One arrival."""

    release: Time
    workflow: Name
    deadline: Time | None = Field(default=None, description="Relative to the release; soft.")
    weight: Number = Field(default=1, description="Counts in the weighted objectives.", validate_default=True)
    ingress: Server | None = Field(default=None, description="The server that plans the job online.")
    path: Index | None = Field(default=None, description="The branch that it takes, from 0; drawn if left out.")
    priority: Priority | None = Field(default=None, description="A higher one goes first in policies' queues.")
    tokens: dict[Name, TokenTriple] = Field(
        default_factory=dict, description="By task: prompt, uncached and output tokens of its request."
    )
    delay: dict[Name, Time] = Field(
        default_factory=dict,
        description="By task: what passes between the end of each predecessor and it, in place of its edges' delay.",
    )
    blocks: dict[Name, BlockNumbers] = Field(
        default_factory=dict, description="By task: numbers of the leading blocks of its request's prompt."
    )
    ideal: PositiveTime | None = Field(default=None, description="What its slowdown divides by, as of its workflow.")
    line: Line | None = Field(default=None, description="Line of the log that it comes from, named by estimates.")
    label: str | None = Field(default=None, description="What the log calls it, for estimates: a model or a user.")


class WorkloadSection(Section):
    """The arrivals: exactly one of poisson, trace and jobs."""

    one_of = ("poisson", "trace", "jobs")

    poisson: PoissonSection | None = None
    trace: TraceSection | None = None
    jobs: Annotated[tuple[JobSection, ...], refuse_empty("job")] | None = None


class ResidencySection(Section):
    """A model that is on a GPU at time 0."""

    gpu: Name
    model: Name
    slot: Index | None = Field(default=None, description="Default: the smallest free slot that fits.")


class OptionsSection(Section):
    """Choices of the physics."""

    overlap_loads: Flag = Field(default=True, description="Whether a GPU computes while it loads.")
    initial_residency: tuple[ResidencySection, ...] = ()


class PlaceSection(Section):
    """A model or a workflow, and GPUs: ``s0/g0``, servers ``s1``, or ``group 1`` (the first group)."""

    one_of = ("model", "workflow")

    model: Name | None = None
    workflow: Name | None = None
    on: Annotated[tuple[Name, ...], refuse_empty("GPU")] = Field(examples=[["s0/g0", "s1", "group 1"]])


class RestrictionsSection(Section):
    """What an operator rules out."""

    pin: tuple[PlaceSection, ...] = Field(
        default=(), description="A model may be resident, a workflow may run, only there."
    )
    forbid: tuple[PlaceSection, ...] = Field(default=(), description="A model or a workflow may not be there.")
    max_replicas: dict[Name, GPUCount] = Field(
        default_factory=dict, description="Most GPUs that hold a model at the same instant."
    )
    no_swaps: Flag = Field(default=False, description="Whether a model, once loaded, stays for ever.")


class ScenarioDocument(Section):
    """A workload window on a cluster, and what a plan is to achieve."""

    name: Name | None = Field(default=None, description="Default: the file's name.")
    cluster: ClusterSection
    models: dict[Name, ModelSection] = Field(default_factory=dict)
    workflows: Annotated[dict[Name, WorkflowSection], refuse_empty("workflow")]
    workload: WorkloadSection
    batches: dict[Name, BatchSection] = Field(default_factory=dict, description="Classes of tasks that run together.")
    streams: dict[Name, StreamSection] = Field(
        default_factory=dict, description="Classes of requests that language models serve by continuous batching."
    )
    objective: Minimised = Objective.MEAN_SLOWDOWN
    slo: Levels | None = Field(
        default=None, description="A service level, or several that must all hold, for the questions that ask for one."
    )
    options: OptionsSection = OptionsSection()
    restrictions: RestrictionsSection = RestrictionsSection()
    rounded_up: Number | None = Field(
        default=None,
        description="Run times are those of a log, raised by at most this share of themselves; answers repeat it.",
    )

    @model_validator(mode="after")
    def _adapters_are_models(self) -> ScenarioDocument:
        for stream, section in self.streams.items():
            for name, adapter in section.adapters.items():
                if f"{stream}/{name}" in self.models:
                    text = f"{quote(f'{stream}/{name}')} is a model, too; allowed is another name"
                    raise problem(text, "models")
                # In memory they are models like others: so they are pinned, limited and resident, too.
                self.models[f"{stream}/{name}"] = ModelSection.model_construct(weights=adapter.weights)
        return self


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario file, for editors."""
    schema = ScenarioDocument.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Truenorth scenario"}
