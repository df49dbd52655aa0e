"""Files of samples: every time that ``truenorth profile`` measured, as JSON beside the scenario that it writes.

``{schema_version, device, kind, runner, rounds, runs: {workflow: {task: [us, ...]}}, batches: {class: {size: [...]}},
loads: {model: [...]}, transfers: {bytes: [...]}}``; samples are in microseconds, ascending.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from executor.samples import Spread
from models.scenario import InputError
from models.scenario.files import read_text

SCHEMA_VERSION = 1
_LEVELS = (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))

Runs = Mapping[tuple[str, str], Spread]
"""Samples of run times by the names of workflow and task."""


@dataclass(frozen=True, slots=True)
class Samples:
    """What a profile measured: run times by workflow and task, loads by model."""

    runs: Runs
    loads: Mapping[str, Spread]


def samples_path(profile: Path) -> Path:
    """Return where the samples of a profile lie.

    >>> samples_path(Path("some/profiled.yaml")).name
    'profiled.samples.json'
    """
    return profile.with_name(f"{profile.stem}.samples.json")


def samples_text(content: Mapping[str, Any]) -> str:
    """Return the text of a file of samples."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **content}, indent=1) + "\n"


def read_runs(path: Path) -> Runs:
    """Return the run times of a file of samples.

    Raises
    ------
    InputError
        If it cannot be read or is none.
    """
    return read_samples(path).runs


def read_samples(path: Path) -> Samples:
    """Return run times and loads of a file of samples.

    Raises
    ------
    InputError
        If it cannot be read or is none.
    """
    try:
        document = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(str(path), error.lineno, "file", f"is no JSON: {error.msg}") from None
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION or not isinstance(document.get("runs"), dict):
        problem = f"is no file of samples; allowed is what truenorth profile -o writes, schema_version {SCHEMA_VERSION}"
        raise InputError(str(path), 1, "file", problem)
    found: dict[tuple[str, str], Spread] = {}
    for workflow, tasks in document["runs"].items():
        for task, samples in tasks.items() if isinstance(tasks, dict) else ():
            found[workflow, task] = _spread(path, f"runs.{workflow}.{task}", samples)
    given = document.get("loads")
    loads = given if isinstance(given, dict) else {}
    return Samples(found, {name: _spread(path, f"loads.{name}", times) for name, times in loads.items()})


def outer_quantiles_us(spread: Spread) -> tuple[float, float, float]:
    """Return the 10 %, 50 % and 90 % quantile.

    >>> outer_quantiles_us(Spread.of(range(1, 21)))
    (2, 10, 18)
    """
    low, middle, high = (spread.quantile_us(level) for level in _LEVELS)
    return low, middle, high


def _spread(path: Path, where: str, samples: object) -> Spread:
    good = isinstance(samples, list) and samples and all(isinstance(each, (int, float)) for each in samples)
    if not good or not all(each > 0 and math.isfinite(each) for each in samples):  # type: ignore[attr-defined]
        raise InputError(str(path), None, where, "is no list of times; allowed are microseconds above 0")
    return Spread.of(samples)  # type: ignore[arg-type]
