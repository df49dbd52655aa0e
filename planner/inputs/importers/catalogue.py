"""The catalogue document: the sections of a catalogue file, read with the same units and errors as a scenario's."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from truenorth.models.scenario.document import NetworkSection, RuntimeByKind, TablesByKind
from truenorth.models.scenario.errors import Source, Where, allowed, quote
from truenorth.models.scenario.quantities import (
    Bandwidth,
    Flag,
    GPUCount,
    Kind,
    Levels,
    Name,
    Number,
    PositiveSize,
    Share,
    Size,
    Time,
)
from truenorth.models.scenario.reading import parse_document, read_document
from truenorth.models.scenario.section import Section, problem, refuse_empty, validate
from truenorth.models.scenario.stream_section import LawSection, StreamSection
from truenorth.models.streams import ANY_KIND
from truenorth.models.workload import WHOLE

PACKAGED = "open-models"
"""Name of the catalogue that comes with the package."""


class KindSection(Section):
    """A sort of server."""

    memory: PositiveSize = Field(description="Memory for weights of a GPU.")
    load_bandwidth: Bandwidth = Field(description="From host memory to the GPU.")
    load_overhead: Time = Field(default="0 us", validate_default=True, description="Added to every load.")
    price_per_hour: Number | None = Field(default=None, description="Price of one server for an hour.")
    gpus_per_server: GPUCount = Field(default=1, description="GPUs of a server; with modes of streams, of its engines.")
    count: GPUCount = Field(default=4, description="Most servers that are at hand.")
    factor: Number = Field(
        default=1, validate_default=True, description="Run times of the log times this, where a model says nothing."
    )
    source: str | None = Field(default=None, description="Where the figures come from.")


class TokenSection(Section):
    """A run time that follows from the numbers of tokens of a request."""

    start: Time = Field(default="0 us", validate_default=True, description="Of every request.")
    input: Time = Field(description="Of each token that goes in.")
    output: Time = Field(description="Of each token that comes out.")
    beside: int = Field(
        default=0, ge=0, le=WHOLE, description="So many other requests ran on the GPU while this was measured."
    )


class CatalogueModel(Section):
    """A model, and how long its requests run: of runtime, batch, tokens, factor and stream at most one.

    Without any of them, run times are those of the log, times the factor of each kind.
    """

    weights: PositiveSize = Field(description="Bytes of the weights.")
    aliases: tuple[Name, ...] = Field(default=(), description="Other names that logs have for it.")
    runtime: RuntimeByKind | None = Field(default=None, description="One time for all requests, or one per kind.")
    batch: TablesByKind | None = Field(default=None, description="A time by batch size, for all kinds or per kind.")
    tokens: dict[Kind, TokenSection] | None = Field(default=None, description="Rates per kind.")
    factor: dict[Kind, Number] | None = Field(default=None, description="Run times of the log times this, per kind.")
    stream: StreamSection | None = Field(
        default=None, description="How it serves by continuous batching, for `import tokens`; models: others it needs."
    )
    share: Share = Field(default=1, validate_default=True, description="Of a GPU's compute that a request takes.")
    memory: Size = Field(default="0 B", validate_default=True, description="Held while a request runs.")
    resident: Flag = Field(default=False, description="Whether it is on every GPU from the start.")
    source: str | None = Field(default=None, description="Where the figures come from.")

    @property
    def knows_times(self) -> bool:
        """Whether it says how long requests run, so that the log's run times do not count."""
        return any(known is not None for known in (self.runtime, self.batch, self.tokens))

    @model_validator(mode="after")
    def _one_rule(self) -> CatalogueModel:
        given = [key for key in ("runtime", "batch", "tokens", "factor", "stream") if getattr(self, key) is not None]
        if len(given) > 1:
            raise problem(
                f"has {' and '.join(given)}; allowed is at most one of runtime, batch, tokens, factor, stream"
            )
        if self.stream is not None and (self.share < WHOLE or self.memory):
            raise problem("has a stream, and share or memory; allowed is kv_per_token and concurrency of the stream")
        return self


class CatalogueDocument(Section):
    """Models, kinds of GPU, and what the question about them is."""

    include: Name | None = Field(
        default=None, description=f"'{PACKAGED}': what comes with the package is known, too; own entries come first."
    )
    kinds: Annotated[dict[Kind, KindSection], refuse_empty("kind")]
    models: Annotated[dict[Name, CatalogueModel], refuse_empty("model")]
    network: NetworkSection | None = Field(default=None, description="10 GB/s if left out.")
    slo: Levels | None = Field(
        default=None, description="Service levels of the scenario; workflows are named as models."
    )


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a catalogue file, for editors."""
    schema = CatalogueDocument.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Truenorth catalogue"}


def load_catalogue(path: Path) -> tuple[CatalogueDocument, str]:
    """Return a catalogue and the name of its file; ``open-models`` is the one of the package.

    Raises
    ------
    InputError
        With file and line of what is wrong.
    """
    if str(path) == PACKAGED and not path.exists():
        return _packaged(), PACKAGED
    source = read_document(path)
    document = validate(CatalogueDocument, source.data(), source)
    _refuse_unknown_kinds(document, source)
    if document.include is None:
        return document, str(path)
    if document.include != PACKAGED:
        raise source.error(("include",), f"unknown catalogue {quote(document.include)}; allowed is {PACKAGED}")
    more = _packaged()
    models = more.models | document.models
    own = {kind: section for kind, section in more.kinds.items() if kind in document.kinds} | document.kinds
    return document.model_copy(update={"models": models, "kinds": own}), str(path)


def _packaged() -> CatalogueDocument:
    text = files("truenorth.planner.inputs.importers").joinpath("open_models.yaml").read_text()
    source = Source(f"{PACKAGED} (of the package)", Path(), parse_document(text, PACKAGED, ".yaml"))
    return validate(CatalogueDocument, source.data(), source)


def _refuse_unknown_kinds(document: CatalogueDocument, source: Source) -> None:
    """Refuse rates for kinds of GPU that the catalogue does not have, and an alias of two models.

    Raises
    ------
    InputError
        At the first of them.
    """
    for name, model in document.models.items():
        _refuse_rates_of_one(name, model, source)
        for key in ("tokens", "factor"):
            for kind in getattr(model, key) or {}:
                if kind not in document.kinds:
                    raise source.error(("models", name, key, kind), f"unknown kind; {allowed(kind, document.kinds)}")
        if model.stream is not None:
            _refuse_stream(name, model.stream, document, source)
    owners: dict[str, str] = {}
    for name, model in document.models.items():
        for alias in (name, *model.aliases):
            if owners.setdefault(alias, name) != name:
                problem_text = f"{quote(alias)} also names {owners[alias]}; allowed is a name for each model"
                raise source.error(("models", name), problem_text)


def _refuse_stream(name: str, stream: StreamSection, document: CatalogueDocument, source: Source) -> None:
    """Refuse a stream on kinds, or with models, that the catalogue does not have.

    Raises
    ------
    InputError
        At the first of them.
    """
    if stream.adapters:
        raise source.error(("models", name, "stream", "adapters"), "stands here; allowed are adapters in a scenario")
    laws: list[tuple[Where, LawSection]] = [(("modes", at), mode) for at, mode in enumerate(stream.modes or ())]
    for within, law in laws or [((), stream)]:
        unknown = next((kind for kind in law.kinds if kind != ANY_KIND and kind not in document.kinds), None)
        if unknown is not None:
            keys = ("prefill", "chunk", "concurrency", "step", "kv_per_token")
            key = next(key for key in keys if unknown in getattr(law, key))
            where = ("models", name, "stream", *within, key, unknown)
            raise source.error(where, f"unknown kind; {allowed(unknown, document.kinds)}")
    for place, other in enumerate(stream.models):
        if other not in document.models:
            raise source.error(
                ("models", name, "stream", "models", place),
                f"unknown model {quote(other)}; {allowed(other, document.models)}",
            )


def _refuse_rates_of_one(name: str, model: CatalogueModel, source: Source) -> None:
    """Refuse a share of a GPU at rates of fewer requests at a time: all prefills would run at full speed.

    Raises
    ------
    InputError
        At the first such kind.
    """
    others = WHOLE // model.share - 1
    for kind, rates in (model.tokens or {}).items():
        if rates.input and rates.beside < others:
            allowed_are = (
                f"allowed is without share, or rates measured so (beside: {others}), or a stream (import tokens)"
            )
            fault = f"lets {others + 1} prefills run side by side, each at the rate measured beside {rates.beside}"
            raise source.error(("models", name, "share"), f"{fault} on {kind}; {allowed_are}")
