"""Files of samples: every time that ``truenorth profile`` measured, as JSON beside the scenario that it writes.

``{schema_version, device, kind, runner, rounds, runs: {workflow: {task: [us, ...]}}, batches: {class: {size: [...]}},
loads: {model: [...]}, transfers: {bytes: [...]}, live: {workflow: {task: [...]}}, dispatch: {idle:
[...], queued: [...], load: [...], moves: [...]}}``; samples are in microseconds, ascending. Older files lack `live` and
`dispatch`, which live runs have shown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PlainValidator, model_validator

from truenorth.executor.samples import Spread
from truenorth.models.scenario.reading import read_record
from truenorth.models.scenario.section import Record, Section, problem

SCHEMA_VERSION = 1
_LEVELS = (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))

Runs = Mapping[tuple[str, str], Spread]
"""Samples of run times by the names of workflow and task."""


def _spread(samples: object) -> Spread:
    good = isinstance(samples, list) and samples and all(isinstance(each, (int, float)) for each in samples)
    if not good or not all(each > 0 and math.isfinite(each) for each in samples):  # type: ignore[attr-defined]
        raise problem("is no list of times; allowed are microseconds above 0")
    return Spread.of(samples)  # type: ignore[arg-type]


_Spread = Annotated[Spread, PlainValidator(_spread)]


class Dispatch(Section):
    """How late runs start on a GPU that idled, runs that were queued behind another, and loads; and what moves take.

    Of a load, where nobody has planned addresses. None: not measured.
    """

    idle: _Spread | None = None
    queued: _Spread | None = None
    load: _Spread | None = None
    moves: _Spread | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """What a profile measured: run times by workflow and task, loads by model; in live runs run times and lateness."""

    runs: Runs
    loads: Mapping[str, Spread]
    live: Runs = field(default_factory=dict)
    dispatch: Dispatch | None = None


class _SamplesFile(Record):
    """What is read of a file."""

    runs: dict[str, dict[str, _Spread]]
    loads: dict[str, _Spread] = Field(default_factory=dict)
    live: dict[str, dict[str, _Spread]] = Field(default_factory=dict)
    dispatch: Dispatch | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_this_sort(cls, value: object) -> object:
        if not isinstance(value, dict) or value.get("schema_version") != SCHEMA_VERSION or "runs" not in value:
            allowed = f"what truenorth profile -o writes, schema_version {SCHEMA_VERSION}"
            raise problem(f"is no file of samples; allowed is {allowed}", "file")
        return value


def samples_path(profile: Path) -> Path:
    """Return where the samples of a profile lie.

    >>> samples_path(Path("some/profiled.yaml")).name
    'profiled.samples.json'
    """
    return profile.with_name(f"{profile.stem}.samples.json")


def samples_text(content: Mapping[str, Any]) -> str:
    """Return the text of a file of samples."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **content}, indent=1) + "\n"


def read_samples(path: Path) -> Samples:
    """Return run times, loads and lateness of a file of samples.

    Raises
    ------
    InputError
        With file and line, if it cannot be read or is none.
    """
    file = read_record(path, _SamplesFile)
    runs, live = (
        {(workflow, task): spread for workflow, tasks in of.items() for task, spread in tasks.items()}
        for of in (file.runs, file.live)
    )
    return Samples(runs, file.loads, live, file.dispatch)


def outer_quantiles_us(spread: Spread) -> tuple[float, float, float]:
    """Return the 10 %, 50 % and 90 % quantile.

    >>> outer_quantiles_us(Spread.of(range(1, 21)))
    (2, 10, 18)
    """
    low, middle, high = (spread.quantile_us(level) for level in _LEVELS)
    return low, middle, high
