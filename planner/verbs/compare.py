"""The verb ``compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner import command
from planner.verbs.options import Json, ScenarioPath, Seed, TimeLimit, Warmup, Workers


def compare(
    scenario: ScenarioPath,
    policies: Annotated[str | None, typer.Option(help="Policies, separated by commas (default: all).")] = None,
    noise: Annotated[
        str | None, typer.Option(metavar="SPEC", help="How wrong the run times are that policies are told.")
    ] = None,
    time_limit: TimeLimit = 60.0,
    warmup: Warmup = "0",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="Write table, pictures and trace here.")
    ] = None,
    workers: Workers = 2,
    seed: Seed = 0,
    as_json: Json = False,
) -> int:
    """Set a plan, which knows the future, beside online policies, which do not."""
    from models.scenario import load_scenario
    from planner import compare as comparing
    from planner.console import ProgressLine, interruptible

    share = command.fraction(warmup, "--warmup")
    loaded = load_scenario(scenario)
    if output is not None:
        command.prepare_folder(output)
    names = None if policies is None else comparing.split_policies(policies)
    line = ProgressLine(loaded.objective, "comparing")
    with interruptible() as stop, line.shown():
        made = comparing.compare(
            loaded,
            names,
            noise=noise,
            time_limit_s=time_limit,
            warmup=share,
            workers=workers,
            seed=seed,
            watch=line.watch,
            stop=stop,
        )
    written = [] if output is None else made.save(output)

    def view() -> object:
        from planner.tables import comparison_view

        return comparison_view(made)

    command.show(made.as_dict(), view, as_json)
    for path in written:
        command.say(f"wrote {path}")
    if stop.is_set():
        command.say("truenorth: interrupted; the best plan found is kept")
        return command.INTERRUPTED
    return command.DONE if made.plan.timeline is not None else command.NOT_ACHIEVED
