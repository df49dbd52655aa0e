"""The section `streams` of a scenario file: per class and kind of GPU prefill, chunk, concurrency, steps and KV."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, NamedTuple, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator

from truenorth.models.cluster import engine_kind
from truenorth.models.scenario.errors import allowed, quote
from truenorth.models.scenario.quantities import (
    Concurrency,
    FineTime,
    GPUCount,
    JobCount,
    Name,
    Number,
    PositiveSize,
    PositiveTime,
    Rate,
    Size,
    Time,
    TokenCount,
)
from truenorth.models.scenario.section import Section, kind_of, problem, refuse_empty
from truenorth.models.streams import ANY_KIND, BLOCK, PREFIX_BLOCK, StreamSpeed

_STEPS = "{1: 12.5 ms, 64: 40 ms}"


class _OnKind(NamedTuple):
    """How a class runs on one kind of GPU, as the file says."""

    prefill: Fraction
    chunk: int
    concurrency: int
    step: dict[int, int]
    kv_per_token: int
    context: int
    mixed: int
    budget: str
    kv: str
    block: int


def for_every_kind(value: object) -> object:
    """Turn one value into that of every kind of GPU."""
    return value if isinstance(value, Mapping) else {ANY_KIND: value}


def _steps_for_every_kind(value: object) -> object:
    """Turn one table by concurrency into that of every kind of GPU."""
    if not isinstance(value, Mapping):
        raise problem(f"{kind_of(value)} stands here; allowed is a table such as {_STEPS}, or one per kind of GPU")
    per_kind = not value or any(isinstance(table, Mapping) for table in value.values())
    return value if per_kind else {ANY_KIND: value}


def _rising(step_us: dict[int, int]) -> dict[int, int]:
    """Refuse a table without concurrency 1, or in which a step of more requests takes less time."""
    if 1 not in step_us:
        raise problem(f"lists no concurrency 1; allowed is a table such as {_STEPS}")
    for few, many in pairwise(sorted(step_us)):
        if step_us[many] < step_us[few]:
            fall = f"a step of {many} takes {step_us[many]} us, less than the {step_us[few]} us of {few}"
            raise problem(f"{fall}; allowed are times that do not fall with the concurrency", str(many))
    return step_us


_Steps = Annotated[dict[Concurrency, PositiveTime], AfterValidator(_rising)]
_Rates = Annotated[dict[Name, Rate], BeforeValidator(for_every_kind, Rate | dict[Name, Rate]), refuse_empty("kind")]
_Counts = Annotated[
    dict[Name, TokenCount], BeforeValidator(for_every_kind, TokenCount | dict[Name, TokenCount]), refuse_empty("kind")
]
_Seats = Annotated[
    dict[Name, Concurrency],
    BeforeValidator(for_every_kind, Concurrency | dict[Name, Concurrency]),
    refuse_empty("kind"),
]
_StepTables = Annotated[
    dict[Name, _Steps],
    BeforeValidator(_steps_for_every_kind, _Steps | dict[Name, _Steps]),
    refuse_empty("table by concurrency"),
]
_Sizes = Annotated[dict[Name, Size], BeforeValidator(for_every_kind, Size | dict[Name, Size]), refuse_empty("kind")]
_Times = Annotated[dict[Name, Time], BeforeValidator(for_every_kind, Time | dict[Name, Time]), refuse_empty("kind")]
_FineTimes = Annotated[
    dict[Name, FineTime], BeforeValidator(for_every_kind, FineTime | dict[Name, FineTime]), refuse_empty("kind")
]


def _one_of(*words: str) -> Callable[[object], str]:
    """Return a validator for one of some words."""

    def validate(value: object) -> str:
        """Read a word."""
        if value not in words:
            raise problem(f"{quote(value)} is unknown; allowed are {', '.join(words)}")
        return str(value)

    return validate


_Budget = Annotated[
    str, PlainValidator(_one_of("separate", "shared")), WithJsonSchema({"enum": ["separate", "shared"]})
]
_Growth = Annotated[str, PlainValidator(_one_of("reserved", "grows")), WithJsonSchema({"enum": ["reserved", "grows"]})]
WeightRule = Annotated[str, PlainValidator(_one_of("split", "copy")), WithJsonSchema({"enum": ["split", "copy"]})]
_Cache = Annotated[str, PlainValidator(_one_of("none", "node")), WithJsonSchema({"enum": ["none", "node"]})]
_Budgets = Annotated[
    dict[Name, _Budget], BeforeValidator(for_every_kind, _Budget | dict[Name, _Budget]), refuse_empty("kind")
]
_Growths = Annotated[
    dict[Name, _Growth], BeforeValidator(for_every_kind, _Growth | dict[Name, _Growth]), refuse_empty("kind")
]


class FittedSection(Section):
    """The log or table that a step law was fitted to, as `fit` writes it; answers repeat it."""

    log: Name = Field(description="Its name.")
    requests: JobCount | None = Field(default=None, description="How many requests were served; null: an estimate.")
    mean_error: Number | None = Field(
        default=None,
        description="Greatest relative error of a mean: over a log by the law of its earlier half, or of a table.",
    )
    p95_error: Number | None = Field(default=None, description="The same of a p95; null: not compared.")


def _fitted_for_every_kind(value: object) -> object:
    """Turn one log into that of every kind of GPU."""
    return {ANY_KIND: value} if isinstance(value, Mapping) and "log" in value else value


class AdapterSection(Section):
    """An adapter of a language model, such as a LoRA, loaded beside it."""

    weights: PositiveSize


_NEEDED = ("prefill", "chunk", "concurrency", "step")


class LawSection(Section):
    """How an engine serves requests; every value holds for all kinds of GPU, or stands per kind."""

    prefill: _Rates | None = Field(default=None, description="Prompt tokens per second.")
    chunk: _Counts | None = Field(default=None, description="Most prompt tokens per iteration.")
    concurrency: _Seats | None = Field(default=None, description="Most requests at once.")
    step: _StepTables | None = Field(
        default=None,
        description="Time of a step by the requests that decode, 1 and the concurrency among them; linear in between.",
    )
    kv_per_token: _Sizes = Field(
        default="0 B", validate_default=True, description="Memory that a token holds, of prompt or answer."
    )

    context: _FineTimes = Field(
        default="0 us", validate_default=True, description="What each token of context of a decode adds to a step."
    )
    mixed: _Times = Field(
        default="0 us", validate_default=True, description="What an iteration with prompt tokens lasts longer."
    )
    budget: _Budgets = Field(
        default="separate", validate_default=True, description="Whether decodes take a token each of the chunk: shared."
    )
    kv: _Growths = Field(
        default="reserved",
        validate_default=True,
        description="Whether a request holds KV for all its tokens from its start, or takes blocks as it grows.",
    )
    block: _Counts = Field(default=BLOCK, validate_default=True, description="Tokens of a block of KV, where KV grows.")
    fitted: Annotated[
        dict[Name, FittedSection], BeforeValidator(_fitted_for_every_kind, FittedSection | dict[Name, FittedSection])
    ] = Field(default_factory=dict, description="What the law was fitted to, and how far off it is.")

    @classmethod
    def _require_law(cls, value: Mapping[str, object]) -> None:
        """Refuse a law that lacks a figure without a default."""
        missing = [key for key in _NEEDED if value.get(key) is None]
        if missing:
            keys = [field.alias or name for name, field in cls.model_fields.items()]
            raise problem(f"key {missing[0]!r} is missing; allowed are the keys {', '.join(keys)}")

    @model_validator(mode="after")
    def _same_kinds(self) -> Self:
        if self.prefill is None:
            return self
        listing = {kind: key for key in _OnKind._fields for kind in getattr(self, key)}
        for kind, key in listing.items():
            for other in _OnKind._fields if kind != ANY_KIND else ():  # that one stands for the kinds of other values
                if kind not in getattr(self, other) and ANY_KIND not in getattr(self, other):
                    text = f"has no value for {quote(kind)}, as {key} has"
                    raise problem(f"{text}; allowed are the same kinds of GPU everywhere", other)
        for kind in self.fitted:
            if not {kind, ANY_KIND} & self.kinds.keys() and kind != ANY_KIND:
                raise problem(f"unknown kind {quote(kind)}; {allowed(kind, self.kinds)}", "fitted")
        for kind, on in self.kinds.items():
            if max(on.step) < on.concurrency:
                text = f"lists no step of {on.concurrency}, the concurrency"
                text = text if kind == ANY_KIND else f"{text} of {quote(kind)}"
                raise problem(f"{text}; allowed is a table from 1 to it, such as {_STEPS}", "step")
            if on.budget == "shared" and on.chunk <= on.concurrency:
                text = f"is {on.chunk} for {on.concurrency} requests at once, each of which takes a token of it"
                raise problem(f"{text}; allowed is a chunk above the concurrency where the budget is shared", "chunk")
        return self

    @property
    def kinds(self) -> dict[str, _OnKind]:
        """What the section says of each kind of GPU that it names."""
        tables = [getattr(self, key) for key in _OnKind._fields]
        everywhere = all(ANY_KIND in table for table in tables)
        kinds = dict.fromkeys(kind for table in tables for kind in table if kind != ANY_KIND or everywhere)
        return {kind: _OnKind(*(table.get(kind, table.get(ANY_KIND)) for table in tables)) for kind in kinds}

    @property
    def speeds(self) -> dict[str, StreamSpeed]:
        """How the class runs on each kind of GPU that the section names."""
        return {
            kind: StreamSpeed(
                *(on.prefill, on.chunk, on.concurrency, on.step, on.kv_per_token, on.context, on.mixed),
                shared=on.budget == "shared",
                block=on.block if on.kv == "grows" else 0,
            )
            for kind, on in self.kinds.items()
        }


class ModeSection(LawSection):
    """How an engine of so many GPUs of a server serves requests: each has its part of the weights and of the KV."""

    model_config = ConfigDict(json_schema_extra={"required": ["gpus", *_NEEDED]})

    gpus: GPUCount = Field(description="GPUs of an engine.")
    weights: Annotated[str, PlainValidator(_one_of("split")), WithJsonSchema({"enum": ["split"]})] = Field(
        default="split", description="Each GPU holds its part; engines that each hold a copy have one GPU."
    )

    @classmethod
    def _check_forms(cls, value: Mapping[str, object]) -> None:
        cls._require_law(value)


class StreamSection(LawSection):
    """Requests served together by continuous batching; one law (prefill, chunk, concurrency, step, ...) or `modes`."""

    one_of = ("prefill", "modes")

    models: tuple[Name, ...] = Field(default=(), description="Models that must be ready while requests are served.")
    modes: Annotated[tuple[ModeSection, ...], refuse_empty("mode")] | None = Field(
        default=None, description="By the GPUs of an engine (tensor parallelism), in place of the keys of one law."
    )
    prefix_cache: _Cache = Field(
        default="none",
        description="Whether each node keeps blocks of prompts (node), or what is cached is the log's word (none).",
    )
    prefix_block: TokenCount = Field(
        default=PREFIX_BLOCK, description="Tokens of a block of prompt, where nodes cache."
    )
    adapters: dict[Name, AdapterSection] = Field(
        default_factory=dict, description="Weights of which a request may need one besides, by name."
    )

    @classmethod
    def _check_forms(cls, value: Mapping[str, object]) -> None:
        super()._check_forms(value)
        inside = [key for key in LawSection.model_fields if key in value]
        if value.get("modes") is None:
            cls._require_law(value)
        elif inside:
            raise problem(f"has modes and {inside[0]}; allowed is {inside[0]} inside the modes", inside[0])

    @model_validator(mode="after")
    def _each_degree_once(self) -> StreamSection:
        gpus = [mode.gpus for mode in self.modes or ()]
        twice = next((each for each in gpus if gpus.count(each) > 1), None)
        if twice is not None:
            raise problem(f"has two modes of {twice} GPUs; allowed is one for each number of GPUs", "modes")
        return self

    @model_validator(mode="after")
    def _whole_blocks(self) -> StreamSection:
        for speed in self.laws.values() if self.prefix_cache == "node" else ():
            if speed.block and self.prefix_block % speed.block:
                text = f"is {self.prefix_block} where KV grows by {speed.block} tokens; allowed is a multiple of block"
                raise problem(text, "prefix_block")
        return self

    @property
    def laws(self) -> dict[str, StreamSpeed]:
        """How the class runs on each kind of GPU or engine that the section names."""
        return self.speeds if self.modes is None else _of_engines((mode.gpus, mode.speeds) for mode in self.modes)

    @property
    def fits(self) -> dict[str, FittedSection]:
        """What the laws were fitted to, by the same kinds."""
        return self.fitted if self.modes is None else _of_engines((mode.gpus, mode.fitted) for mode in self.modes)


_Value = TypeVar("_Value")


def _of_engines(modes: Iterable[tuple[int, Mapping[str, _Value]]]) -> dict[str, _Value]:
    """Return what modes say by kind of GPU, by kind of engine."""
    return {
        f"{gpus}x{ANY_KIND}" if kind == ANY_KIND else engine_kind(gpus, kind): value
        for gpus, table in modes
        for kind, value in table.items()
    }
