"""Options and arguments that several verbs of the command share."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


def assert_finite(seconds: float) -> float:
    """Return a time limit that ends.

    Raises
    ------
    typer.BadParameter
        If it does not.
    """
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} never ends; allowed is a number of seconds of at least 0.1")
    return seconds


ScenarioPath = Annotated[Path, typer.Argument(metavar="SCENARIO", help="Scenario file, YAML or JSON.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the result to this file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
TimeLimit = Annotated[float, typer.Option(min=0.1, callback=assert_finite, help="Seconds for everything together.")]
Workers = Annotated[int, typer.Option(min=1, max=64, help="Processes or threads to search with.")]
Ray = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Search on this Ray cluster, too: HOST:PORT of its head, or auto.")
]
Seed = Annotated[int, typer.Option(min=0, max=2**31 - 1, help="The same seed repeats a run.")]
Warmup = Annotated[str, typer.Option(help="Share of the earliest jobs that the metrics leave out, such as 0.1.")]


class DeviceChoice(StrEnum):
    """The values of ``--device``."""

    CPU = "cpu"
    CUDA = "cuda"


class SharingChoice(StrEnum):
    """The values of ``--virtual``."""

    PARALLEL = "parallel"
    SERIAL = "serial"


Device = Annotated[DeviceChoice, typer.Option(help="Where to run.")]

Runner = Annotated[str, typer.Option(help="What computes the tasks: synthetic, transformers, or module:factory.")]

Virtual = Annotated[
    SharingChoice | None,
    typer.Option(help="Several GPUs of the scenario on one device: side by side, or one run at a time."),
]

Patience = Annotated[
    float, typer.Option(min=0.1, help="Seconds that anything may take longer than given before it is given up.")
]

SamplesPath = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Samples of a profile of this scenario, to predict from.")
]
