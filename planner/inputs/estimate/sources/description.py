"""What a job's source and configuration say about it, and descriptions kept in a file by the hash of what was read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from truenorth.models.scenario import write_atomically

FIELDS = ("model", "batch_size", "steps", "epochs", "precision", "dataset", "gpus")
"""The fields of a description that have evidence."""
Precision = Literal["fp64", "fp32", "fp16", "bf16", "fp8", "int8", "int4", "amp"]
"""What `JobDescription.precision` may be; amp is automatic mixed precision of a kind that nothing states."""
SCHEMA_VERSION = 1
"""Rises whenever a reader would describe the same bytes differently."""
MAX_ENTRIES = 4_000
MAX_BYTES = 256_000_000


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a field's value was read.

    Parameters
    ----------
    field
        One of `FIELDS`. A number of GPUs may have two lines: GPUs per node, and nodes.
    file
        As the caller named it; ``command`` for the launch line that the caller gave.
    line
        From 1.
    """

    field: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.field}: {self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a file, or a part of it, was not understood.

    Parameters
    ----------
    file, line
        Where; the line counts from 1.
    message
        What is wrong, and what is allowed.
    """

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


@dataclass(frozen=True, slots=True)
class JobDescription:
    """What a job is, as far as its files say; None stands for what they leave open.

    Parameters
    ----------
    model
        Name of the ML model, as a hub, a library or the job itself names it.
    batch_size
        Examples per step as the job states it: per device where its option is per device.
    steps
        Optimiser, training or denoising steps of the whole job.
    epochs
        Passes over the data; a fraction where the job says so.
    precision
        One of `Precision`.
    dataset
        Name or path of the training data.
    gpus
        GPUs of the whole job.
    evidence
        Where each known field was read, in the order of `FIELDS`.
    problems
        Files and lines that were not understood; what they say is missing above.
    text
        Imports, identifiers, strings and settings, for retrieval; of bounded length.
    """

    model: str | None = None
    batch_size: int | None = None
    steps: int | None = None
    epochs: float | None = None
    precision: Precision | None = None
    dataset: str | None = None
    gpus: int | None = None
    evidence: tuple[Evidence, ...] = ()
    problems: tuple[Problem, ...] = ()
    text: str = ""


_DESCRIPTION = TypeAdapter(JobDescription)


class DescriptionCache:
    """A file of descriptions; it is written by `save`, and a damaged file or entry counts as missing.

    Parameters
    ----------
    path
        Of the JSON file; it need not exist.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._entries = _read(self._path)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> JobDescription | None:
        """Return the description under a key; None if there is none, or none that holds together."""
        entry = self._entries.get(key)
        if not isinstance(entry, dict) or set(entry) != {field.name for field in fields(JobDescription)}:
            return None
        try:
            return _DESCRIPTION.validate_json(json.dumps(entry), strict=True)
        except ValidationError:
            return None

    def keep(self, key: str, description: JobDescription) -> None:
        """Put a description under a key; the oldest goes if there are too many."""
        self._entries.pop(key, None)
        self._entries[key] = asdict(description)
        while len(self._entries) > MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]

    def save(self) -> None:
        """Write the file, whole or not at all.

        Raises
        ------
        InputError
            If it cannot be written.
        """
        write_atomically(self._path, json.dumps({"schema_version": SCHEMA_VERSION, "entries": self._entries}))


def _read(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        document = json.loads(data) if len(data) <= MAX_BYTES else None
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        return {}
    entries = document.get("entries")
    return entries if isinstance(entries, dict) else {}
