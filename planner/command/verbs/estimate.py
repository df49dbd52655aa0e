"""The verb ``estimate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from planner.command import manners
from planner.command.verbs.options import Json, Output, Seed


def estimate(
    history: Annotated[Path, typer.Argument(metavar="HISTORY", help="Past tasks: CSV, CSV.GZ or Parquet.")],
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
    from models.extras import require_extra

    require_extra("estimates")
    from models.scenario import promise
    from planner.inputs.estimate import run, written
    from planner.inputs.estimate.table import Naming

    if output is not None:
        promise(output)
    naming = Naming(runtime, time, _names(key), _names(text), source_column, _only(only or []))
    options = run.EstimateOptions(profile, _own("encoder", encoder), _own("ask", ask), cache, skip_malformed, seed)
    made = run.estimate(history, requests, naming, options)
    if output is not None:
        written.save(made, output)

    def view() -> object:
        from planner.show.estimate import estimates_view

        return estimates_view(made)

    manners.show(written.as_dict(made, output), view, as_json, [output])
    return manners.DONE


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
    from executor.named import Kind
    from planner.inputs.estimate.rungs import AnswerError

    module, _, attribute = text.partition(":")
    if not (module and attribute):
        raise manners.UsageError(f"--{option} {text!r}: allowed is module:function")
    found = Kind(option, AnswerError).load(module, attribute)
    if not callable(found):
        raise manners.UsageError(f"--{option} {text}: cannot be called; allowed is a function")
    return found
