"""The verb ``compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.command import manners
from planner.command.faults import name_untested
from planner.command.verbs.options import Json, ScenarioPath, Seed, Warmup, Workers, assert_finite

if TYPE_CHECKING:
    from models.scenario import Scenario


def compare(
    scenario: ScenarioPath,
    policies: Annotated[str | None, typer.Option(help="Policies, separated by commas (default: all).")] = None,
    noise: Annotated[
        str | None, typer.Option(metavar="SPEC", help="How wrong the run times are that policies are told.")
    ] = None,
    time_limit: Annotated[
        float,
        typer.Option(
            min=0.1,
            callback=assert_finite,
            help="Seconds for plan, bound and taking policies apart, per replication; simulations are not counted.",
        ),
    ] = 60.0,
    warmup: Warmup = "0",
    regret: Annotated[
        str | None, typer.Option(help="Policies to take apart, separated by commas (default: the best, and compass).")
    ] = None,
    replications: Annotated[
        int, typer.Option(min=1, max=10_000, help="Compare on so many seeds, or windows of the trace, with intervals.")
    ] = 1,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Search on this Ray cluster, too; replications on it alone.")
    ] = None,
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
    apart = None if regret is None else comparing.split_policies(regret)
    if replications > 1:
        told = {"noise": noise, "regret": apart, "time_limit_s": time_limit, "warmup": share, "seed": seed}
        return _replicate(loaded, replications, names, output, as_json, workers=workers, ray=ray, **told)
    manners.compile_kernels(loaded.instance)
    line = ProgressLine(loaded.objective, "comparing")
    with interruptible() as stop, line.shown():
        made = comparing.compare(
            loaded,
            names,
            noise=noise,
            regret=apart,
            time_limit_s=time_limit,
            warmup=share,
            workers=workers,
            seed=seed,
            watch=line.watch,
            stop=stop,
            ray=ray,
        )
    written = [] if output is None else save(made, output)

    def view() -> object:
        from planner.show.comparison import comparison_view

        return comparison_view(made)

    manners.show(name_untested(made.record), view, as_json, written)
    if stop.is_set():
        manners.say("truenorth: interrupted; the best plan found is kept")
        return manners.INTERRUPTED
    manners.say_if_late(made.plan.result)
    return manners.DONE if made.plan.timeline is not None else manners.NOT_ACHIEVED


def _replicate(
    loaded: Scenario,
    count: int,
    names: list[str] | None,
    output: Path | None,
    as_json: bool,
    **told: Any,
) -> int:
    """Compare over replications."""
    from planner.answers.replications import replicate
    from planner.command.console import interruptible
    from planner.command.sweep_progress import SweepLine
    from planner.show import replicated

    line = SweepLine()
    with interruptible() as stop, line.shown():
        made = replicate(loaded, count, names, folder=output, watch=line.watch, stop=stop, **told)
    written = [] if output is None or not made.replications else replicated.write(made, output)
    manners.show(name_untested(made.record), lambda: replicated.replicated_view(made), as_json, written)
    for error in made.sweep.errors:
        manners.say(f"replication {error.cell}: {error.error}")
    if not made.sweep.complete:
        manners.say(f"truenorth: interrupted; {len(made.replications)} finished replications are kept")
        return manners.INTERRUPTED
    return manners.NOT_ACHIEVED if made.sweep.counts.failed else manners.DONE
