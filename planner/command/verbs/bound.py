"""The verb ``bound``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.command import manners
from planner.command.faults import name_untested
from planner.command.verbs.options import Json, Ray, ScenarioPath, Seed, TimeLimit, Workers


def bound(
    scenario: ScenarioPath,
    time_limit: TimeLimit = 60.0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="CERTIFICATE", help="Write the certificate to this file.")
    ] = None,
    schedule: Annotated[
        Path | None, typer.Option(metavar="TIMELINE", help="Also say what this plan or timeline loses, and to what.")
    ] = None,
    workers: Workers = 2,
    seed: Seed = 0,
    ray: Ray = None,
    as_json: Json = False,
) -> int:
    """Find a value that no plan lies below, with a certificate that anyone can check."""
    from models.scenario import load_scenario, promise
    from planner.answers import bound as bounding
    from planner.command.console import ProgressLine, interruptible
    from planner.show.saving import save

    if output is not None:
        promise(output)
    loaded = load_scenario(scenario)
    manners.compile_kernels(loaded.instance)
    line = ProgressLine(loaded.objective, "bounding")
    with interruptible() as stop, line.shown():
        made = bounding.bound(
            loaded,
            schedule=schedule,
            time_limit_s=time_limit,
            workers=workers,
            seed=seed,
            watch=line.watch,
            stop=stop,
            ray=ray,
        )
    written = [] if output is None else save(made, output)

    def view() -> object:
        from planner.show.summaries import bound_view

        return bound_view(made)

    manners.show(name_untested(made.record(output)), view, as_json, written[1:])
    if stop.is_set():
        manners.say("truenorth: interrupted; the best bound found is kept")
        return manners.INTERRUPTED
    return manners.DONE
