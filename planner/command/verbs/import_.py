"""The verb ``import``."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.command import manners
from planner.command.verbs.options import Json, Output

if TYPE_CHECKING:
    from planner.inputs.importers.trace import Imported

_FORMATS = (
    "gentd26, azure-llm, azure-functions-2021, alibaba-gpu-2023, acme, helios, philly, rltune, wfcommons, asynchow, "
    "table"
)
"""Names of the formats, which the help shows without reading them."""
_Servers = Annotated[int | None, typer.Option(min=1, help="Servers (default: the format's).")]
_GpusPerServer = Annotated[int | None, typer.Option(min=1, help="GPUs of each server.")]
_Memory = Annotated[str | None, typer.Option(metavar="SIZE", help="Memory for weights per GPU: '24 GB'.")]
_Weights = Annotated[str | None, typer.Option(metavar="SIZE", help="Weights of every model: '6.5 GB'.")]
_LoadTime = Annotated[
    str | None, typer.Option(metavar="TIME", help="What a model takes to load; sets the load bandwidth.")
]
_LoadBandwidth = Annotated[str | None, typer.Option(metavar="BANDWIDTH", help="From host memory to a GPU: '12 GB/s'.")]
_NetworkBandwidth = Annotated[str | None, typer.Option(metavar="BANDWIDTH", help="Between GPUs: '25 Gbit/s'.")]

_WORKFLOWS_ALONE = (
    "--workflows: brings cluster, models and run times; allowed is without --servers and its like, "
    "and without --runtime-classes"
)
_CATALOGUE_ALONE = (
    "--catalogue: brings kinds, models and sizes; allowed is without --servers and its like, and --workflows"
)


def import_(
    format_: Annotated[
        str,
        typer.Argument(metavar="FORMAT", help=f"Sort of log, with options as in azure-llm:decode=40ms: {_FORMATS}."),
    ],
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Logs, plain or gzip.")],
    output: Output = None,
    window: Annotated[
        tuple[str, str] | None, typer.Option(metavar="FROM TO", help="Releases from FROM to before TO: '0 s' '3600 s'.")
    ] = None,
    rate_factor: Annotated[str, typer.Option(help="How many times as fast requests arrive.")] = "1",
    runtime_classes: Annotated[
        str, typer.Option(metavar="auto|exact|N", help="Run times as they are, or N classes per model.")
    ] = "auto",
    workflows: Annotated[
        Path | None,
        typer.Option(metavar="SCENARIO", help="Requests drive this scenario's workflows, on its cluster."),
    ] = None,
    catalogue: Annotated[
        Path | None,
        typer.Option(metavar="CATALOGUE", help="Models, GPU kinds and run times to join by model; or open-models."),
    ] = None,
    skip_malformed: Annotated[bool, typer.Option("--skip-malformed", help="Count malformed rows and go on.")] = False,
    servers: _Servers = None,
    gpus_per_server: _GpusPerServer = None,
    memory: _Memory = None,
    weights: _Weights = None,
    load_time: _LoadTime = None,
    load_bandwidth: _LoadBandwidth = None,
    network_bandwidth: _NetworkBandwidth = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", metavar="PNG", help="Write the summary as a picture to this file.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Turn a log into a scenario, and say what is in it before anything is planned."""
    from models.scenario import promise
    from planner.command.import_progress import RowsLine
    from planner.inputs.importers.catalogued import Catalogued
    from planner.inputs.importers.format import Override
    from planner.inputs.importers.target import Driven
    from planner.inputs.importers.trace import import_trace, promise_both

    if output is not None:
        promise_both(output)
    if figure is not None:
        promise(figure)
    override = Override(servers, gpus_per_server, memory, weights, load_time, load_bandwidth, network_bandwidth)
    overrides = override != Override()
    if workflows is not None and (overrides or runtime_classes != "auto"):
        raise manners.UsageError(_WORKFLOWS_ALONE)
    if catalogue is not None and (overrides or workflows is not None):
        raise manners.UsageError(_CATALOGUE_ALONE)
    line = RowsLine()
    with line.shown():
        made = import_trace(
            format_,
            files,
            window=window,
            rate_factor=_number(rate_factor),
            runtime_classes=runtime_classes,
            override=override.apply,
            driven=None if workflows is None else Driven.load(workflows),
            catalogue=None if catalogue is None else Catalogued.load(catalogue),
            skip_malformed=skip_malformed,
            watch=line.watch,
        )
    written = [] if output is None else made.save(output)
    if figure is not None:
        written.append(_draw(made, files, figure))
    manners.show(made.as_dict(written), lambda: _view(made), as_json, written)
    return manners.DONE


def _draw(made: Imported, files: list[Path], path: Path) -> Path:
    """Write the summary as a picture; return where."""
    from models.scenario import write_atomically
    from planner.show.canvas import png
    from planner.show.import_figure import figure

    write_atomically(path, png(figure(made.summary, f"{made.format.name}: {', '.join(file.name for file in files)}")))
    return path


def _view(made: Imported) -> object:
    from planner.show.imported import imported_view

    return imported_view(made)


def _number(text: str) -> Fraction:
    from models.scenario.quantities import MAX_JOBS, read_number
    from models.units import QuantityError

    try:
        return read_number(text)
    except QuantityError:
        problem = f"--rate-factor: {text[:40]!r} is no rate factor; allowed is a number from 1e-9 to {MAX_JOBS}"
        raise manners.UsageError(problem) from None
