"""The verb ``compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.command import manners
from planner.command.verbs.options import Json, ScenarioPath, Seed, TimeLimit, Warmup, Workers


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
    from planner.answers import compare as comparing
    from planner.command.console import ProgressLine, interruptible
    from planner.show.saving import save

    share = manners.fraction(warmup, "--warmup")
    if output is not None:
        manners.prepare_folder(output)
    loaded = load_scenario(scenario)
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
    written = [] if output is None else save(made, output)

    def view() -> object:
        from planner.show.tables import comparison_view

        return comparison_view(made)

    manners.show(made.as_dict(), view, as_json)
    for path in written:
        manners.say(f"wrote {path}")
    if not made.plan.result.within_limit:
        manners.say(manners.MISSED_LIMIT)
    if stop.is_set():
        manners.say("truenorth: interrupted; the best plan found is kept")
        return manners.INTERRUPTED
    return manners.DONE if made.plan.timeline is not None else manners.NOT_ACHIEVED
