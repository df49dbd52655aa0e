"""What a job's source and configuration say about it."""

from __future__ import annotations

from dataclasses import dataclass

FIELDS = ("model", "batch_size", "steps", "epochs", "precision", "dataset", "gpus")
"""The fields of a description that have evidence."""
PRECISIONS = ("fp64", "fp32", "fp16", "bf16", "fp8", "int8", "int4", "amp")
"""What `JobDescription.precision` may be; amp is automatic mixed precision of a kind that nothing states."""


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
        One of `PRECISIONS`.
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
    precision: str | None = None
    dataset: str | None = None
    gpus: int | None = None
    evidence: tuple[Evidence, ...] = ()
    problems: tuple[Problem, ...] = ()
    text: str = ""
