"""The verbs ``import``, ``fit``, ``estimate`` and ``progress``: what logs and past tasks say."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from truenorth.planner.command import manners
from truenorth.planner.command.options import Json, Output, Seed

if TYPE_CHECKING:
    from truenorth.planner.inputs.estimate.logs import LogReading
    from truenorth.planner.inputs.importers.trace import Imported


_FORMATS = (
    "gentd26, azure-llm, azure-functions-2021, alibaba-gpu-2023, acme, helios, philly, rltune, elasticflow, "
    "wfcommons, asynchow, table, tokens"
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
        Path | None, typer.Option(metavar="SCENARIO", help="Requests drive this scenario's workflows, on its cluster.")
    ] = None,
    catalogue: Annotated[
        Path | None,
        typer.Option(metavar="CATALOGUE", help="Models, GPU kinds and run times to join by model; or open-models."),
    ] = None,
    cache: Annotated[
        str,
        typer.Option(
            metavar="none|ideal|node", help="Prefix cache of tokens: none, all blocks seen before, or one per node."
        ),
    ] = "none",
    split: Annotated[
        bool, typer.Option("--split", help="Requests with tokens: prefill on nodes of its own, and decode on others.")
    ] = False,
    skip_malformed: Annotated[bool, typer.Option("--skip-malformed", help="Count malformed rows and go on.")] = False,
    spread: Annotated[
        bool, typer.Option("--spread", help="Spread requests evenly within the ticks of the log's clock.")
    ] = False,
    seed: Seed = 0,
    objective: Annotated[
        str | None, typer.Option(metavar="OBJECTIVE", help="Of the scenario (default: mean_slowdown).")
    ] = None,
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
    from truenorth.models.scenario import promise
    from truenorth.planner.command.console import rows_line
    from truenorth.planner.inputs.importers.catalogued import Catalogued
    from truenorth.planner.inputs.importers.format import Override
    from truenorth.planner.inputs.importers.streamed import Cache
    from truenorth.planner.inputs.importers.target import Driven
    from truenorth.planner.inputs.importers.trace import import_trace, promise_both

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
    if cache not in get_args(Cache):
        raise manners.UsageError(f"--cache: {cache[:40]!r} is no cache; allowed are {', '.join(get_args(Cache))}")
    line = rows_line()
    with line.shown():
        made = import_trace(
            format_,
            files,
            window=window,
            rate_factor=_number(rate_factor),
            runtime_classes=runtime_classes,
            override=override.apply if overrides else None,
            driven=None if workflows is None else Driven.load(workflows),
            catalogue=None if catalogue is None else Catalogued.load(catalogue),
            cache=cast("Cache", cache),
            split=split,
            skip_malformed=skip_malformed,
            spread=spread,
            seed=seed,
            objective=objective,
            watch=line.watch,
        )
    written = [] if output is None else made.save(output)
    if figure is not None:
        written.append(_draw(made, files, figure))
    manners.show(made.as_dict(written), manners.lazily("inputs.imported_view", made), as_json, written)
    return manners.DONE


def _draw(made: Imported, files: list[Path], path: Path) -> Path:
    """Write the summary as a picture; return where."""
    from truenorth.models.scenario import write_atomically
    from truenorth.planner.show.canvas import png
    from truenorth.planner.show.inputs import figure

    write_atomically(path, png(figure(made.summary, f"{made.format.name}: {', '.join(file.name for file in files)}")))
    return path


def _number(text: str) -> Fraction:
    from truenorth.models.scenario.quantities import MAX_JOBS, read_number
    from truenorth.models.units import QuantityError

    try:
        return read_number(text)
    except QuantityError:
        problem = f"--rate-factor: {text[:40]!r} is no rate factor; allowed is a number from 1e-9 to {MAX_JOBS}"
        raise manners.UsageError(problem) from None


def estimate(
    history: Annotated[
        Path, typer.Argument(metavar="HISTORY", help="Past tasks: CSV, CSV.GZ, Parquet, or what import -o wrote.")
    ],
    requests: Annotated[
        Path, typer.Argument(metavar="REQUESTS", help="A table with the same columns, or a scenario file.")
    ],
    output: Output = None,
    runtime: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Run times; in s, or what the name ends in: _ms, _us (default: runtime_s)."
        ),
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="When each was submitted (default: rows stand oldest first).")
    ] = None,
    starts: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="When REQUESTS begin on the clock of an imported HISTORY (default: its last release)."
        ),
    ] = None,
    key: Annotated[
        str, typer.Option(metavar="A,B,...", help="What makes tasks the same, the most telling first: the model.")
    ] = "",
    text: Annotated[str, typer.Option(metavar="A,B,...", help="Columns whose words are compared.")] = "",
    source_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Paths of sources and configurations, from the table's folder.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Use only such rows of the history; repeatable.")
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What truenorth profile -o wrote; it goes first.")
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(metavar="MODULE:FUNCTION", help="Turns texts into vectors, in place of TF-IDF.")
    ] = None,
    ask: Annotated[
        str | None, typer.Option(metavar="MODULE:FUNCTION", help="Asked when all else is silent, before the default.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keeps what was read of sources, by content.")
    ] = None,
    skip_malformed: Annotated[bool, typer.Option("--skip-malformed", help="Count malformed rows and go on.")] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> int:
    """Estimate run times from past tasks: quantiles, where each comes from, and what should be profiled."""
    from truenorth.models.errors import require_extra

    require_extra("estimates")
    from truenorth.models.scenario import promise
    from truenorth.planner.inputs.estimate import run
    from truenorth.planner.inputs.estimate.table import Naming

    if output is not None:
        promise(output)
    naming = Naming(runtime, time, _names(key), _names(text), source_column, _only(only or []))
    starts_us = None if starts is None else _time("--starts", starts)
    asked = _own("encoder", encoder), _own("ask", ask)
    options = run.EstimateOptions(profile, *asked, cache, skip_malformed, seed, starts_us)
    made = run.estimate(history, requests, naming, options)
    if output is not None:
        run.save(made, output)
    manners.show(run.as_dict(made, output), manners.lazily("inputs.estimates_view", made), as_json, [output])
    return manners.DONE


def _time(option: str, text: str) -> int:
    from truenorth.models.units import QuantityError, parse_time

    try:
        return parse_time(text)
    except QuantityError as error:
        raise manners.UsageError(f"{option}: {error}") from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _only(texts: list[str]) -> tuple[tuple[str, str], ...]:
    pairs = [text.partition("=") for text in texts]
    for text, (name, equals, _) in zip(texts, pairs, strict=True):
        if not (name and equals):
            raise manners.UsageError(f"--only {text!r}: allowed is COLUMN=VALUE, such as status=SUCCEEDED")
    return tuple((name, value) for name, _, value in pairs)


def _own(option: str, text: str | None) -> Any:
    """Return a function of the user's, or None."""
    if text is None:
        return None
    from truenorth.executor.policies.options import Kind
    from truenorth.planner.inputs.estimate.rungs import AnswerError

    module, _, attribute = text.partition(":")
    if not (module and attribute):
        raise manners.UsageError(f"--{option} {text!r}: allowed is module:function")
    found = Kind(option, AnswerError).load(module, attribute)
    if not callable(found):
        raise manners.UsageError(f"--{option} {text}: cannot be called; allowed is a function")
    return found


def fit(
    log: Annotated[
        list[Path],
        typer.Argument(
            metavar="REQUESTS...",
            help="Requests that engines served, CSV or JSON Lines; or what vllm bench serve saved, a file for each "
            "concurrency; or AIConfigurator's CSV; or CSV of batch sizes and step times.",
        ),
    ],
    seats: Annotated[int, typer.Option(min=1, max=9999, help="Most requests at once (vLLM: max_num_seqs).")],
    budget: Annotated[int, typer.Option(min=2, help="Tokens of an iteration (vLLM: max_num_batched_tokens).")],
    output: Output = None,
    kv_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of KV of an engine (default: what the log tells).")
    ] = None,
    engines: Annotated[
        int, typer.Option(min=1, max=1000, help="Engines that took turns, unless a column says which served.")
    ] = 1,
    block: Annotated[int, typer.Option(min=1, max=4096, help="Tokens of a block of KV.")] = 16,
    columns: Annotated[
        str,
        typer.Option(
            metavar="KEY=COLUMN,...",
            help="Columns: release, prompt, output, first, last, engine, or batch, step; unit=s|ms|us.",
        ),
    ] = "",
    prefill: Annotated[
        str | None, typer.Option(metavar="RATE", help="Prompt tokens per second, beside step times: '8000 /s'.")
    ] = None,
    tp: Annotated[
        int | None, typer.Option(min=1, help="Of AIConfigurator's rows those of so many GPUs per engine.")
    ] = None,
    skip_malformed: Annotated[bool, typer.Option("--skip-malformed", help="Count malformed rows and go on.")] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> int:
    """Fit an engine's step law to a log of what it served, or to benchmarks; write a catalogue, say how wrong it is."""
    from truenorth.models.scenario import promise
    from truenorth.planner.answers.fit import fit as ask
    from truenorth.planner.answers.fit_table import fit_table

    if output is not None:
        promise(output)
    table = fit_table(
        log, seats=seats, budget=budget, prefill=prefill, kv_tokens=kv_tokens, block=block, columns=columns, tp=tp
    )
    if table is not None:
        if output is not None:
            table.save(output)
        manners.show(table.as_dict(output), manners.lazily("fit.table_view", table), as_json, [output])
        return manners.DONE
    if prefill is not None:
        raise manners.UsageError("--prefill: is given with a log, which tells it; allowed is to leave it out")
    if tp is not None:
        raise manners.UsageError("--tp: is given with a log of one engine; allowed is to leave it out")
    made = ask(
        log[0],
        seats=seats,
        budget=budget,
        kv_tokens=kv_tokens,
        engines=engines,
        block=block,
        columns=columns,
        skip_malformed=skip_malformed,
        seed=seed,
    )
    if output is not None:
        made.save(output)
    manners.show(made.as_dict(output), manners.lazily("fit.fit_view", made), as_json, [output])
    return manners.DONE


def progress(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="What the job printed, plain or gzip.")],
    steps: Annotated[
        float | None, typer.Option(min=1, help="Steps of the whole job, where the log does not say it.")
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(min=1, help="Epochs of the whole job, where the log does not say it.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Read a job's log: progress, remaining time, why it failed and whether to start it again."""
    from truenorth.planner.command.console import log_line
    from truenorth.planner.inputs.estimate.logs import read_log

    totals = {"step": steps, "epoch": epochs}
    for unit, total in totals.items():
        if total is not None and not math.isfinite(total):
            raise manners.UsageError(f"--{unit}s: {total} is no number of {unit}s; allowed is a number of at least 1")
    line = log_line(log.stat().st_size if log.is_file() else 0)
    with line.shown():
        reading = read_log(log, steps, epochs, line.watch)
    manners.show(reading.as_dict(), manners.lazily("inputs.log_view", reading), as_json)
    for unit, total in totals.items():
        if total is not None:
            _say_unless_used(reading, unit, total)
    silent = not reading.counts and not reading.finished and reading.failure is None
    return manners.ended(not silent)


def _say_unless_used(reading: LogReading, unit: str, total: float) -> None:
    """Say that a total from outside is ignored where the log states another, or counts no such unit."""
    count = next((count for count in reading.counts if count.unit == unit), None)
    if count is None:
        manners.say(f"--{unit}s {total:g} is ignored: the log counts no {unit}s")
    elif count.total is not None and count.total != total:
        manners.say(f"--{unit}s {total:g} is ignored: the log states {count.total:g} {unit}s")
