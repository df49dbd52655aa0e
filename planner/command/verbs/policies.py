"""The verbs that put one beside another: simulate, compare, sweep, and the page of what was found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truenorth.planner.answers.ask import ask
from truenorth.planner.command import manners
from truenorth.planner.command.manners import name_untested
from truenorth.planner.command.options import (
    Before,
    Json,
    Output,
    ScenarioPath,
    Workers,
    asks,
    stoppable,
    to,
    watched,
)
from truenorth.planner.questions.policies import CompareQuestion, SimulateQuestion

if TYPE_CHECKING:
    from truenorth.models.scenario import Scenario


@asks(SimulateQuestion)
def simulate(
    asked: SimulateQuestion,
    scenario: ScenarioPath,
    output: Annotated[Output, Before("noise")] = None,
    change_future: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, metavar="N", help="Try N other futures: the policy's past must stay the same."),
        Before("seed"),
    ] = None,
    as_json: Json = False,
) -> int:
    """Run an online policy, or replay a plan, in simulated time."""
    from truenorth.models.scenario import load_scenario, promise
    from truenorth.planner.answers.simulate import try_changed_futures, write_simulation

    if change_future is not None:
        if output is not None or asked.noise is not None:  # --estimates and --progress are noise by now
            raise manners.UsageError("--change-future goes without --noise and -o: it compares runs, and writes none")
        tried = try_changed_futures(load_scenario(scenario), asked.policy, change_future, seed=asked.seed)
        manners.show(tried, manners.lazily("summaries.futures_view", tried), as_json)
        return manners.ended(tried.passed)
    if output is not None:
        promise(output)
    loaded = load_scenario(scenario)
    simulation = ask(asked, loaded)
    if output is not None:
        write_simulation(simulation, output, manners.typed())
    manners.show(simulation, manners.lazily("summaries.simulation_view", simulation), as_json)
    return manners.DONE


@asks(CompareQuestion)
def compare(
    asked: CompareQuestion,
    scenario: ScenarioPath,
    replications: Annotated[
        int,
        typer.Option(min=1, max=10_000, help="Compare on so many seeds, or windows of the trace, with intervals."),
        Before("ray"),
    ] = 1,
    output: Annotated[Path | None, to("FOLDER", "Write table, pictures and trace here."), Before("workers")] = None,
    as_json: Json = False,
) -> int:
    """Set a plan, which knows the future, beside online policies, which do not."""
    from truenorth.models.scenario import load_scenario
    from truenorth.planner.command.console import ProgressLine
    from truenorth.planner.show.saving import save

    if output is not None:
        manners.prepare_folder(output)
    loaded = load_scenario(scenario)
    if replications > 1:
        return _replicate(asked, loaded, replications, output, as_json)
    with watched(asked, loaded, ProgressLine(loaded.objective, "comparing")) as (question, stop):
        made = ask(question, loaded)
    written = [] if output is None else save(made, output)
    manners.show(name_untested(made.record), manners.lazily("comparison.comparison_view", made), as_json, written)
    if not stop.is_set():
        manners.say_if_late(made.plan.result)
    achieved = made.plan.timeline is not None or loaded.instance.streams is not None
    return manners.ended(achieved, manners.kept("the best plan found", output) if stop.is_set() else None)


def _replicate(asked: CompareQuestion, loaded: Scenario, count: int, output: Path | None, as_json: bool) -> int:
    """Compare over replications."""
    from truenorth.planner.answers.replications import replicate_comparison
    from truenorth.planner.command.console import cells_line
    from truenorth.planner.show import replicated

    line = cells_line()
    with stoppable(line.shown()) as (stop, _):
        made = replicate_comparison(replace(asked, stop=stop), loaded, count, output, line.watch)
    written = [] if output is None or not made.replications else replicated.write(made, output)
    manners.show(name_untested(made.record), lambda: replicated.replicated_view(made), as_json, written)
    return manners.ended_replications(made.sweep, not made.sweep.counts.failed, len(made.replications))


def sweep(
    sweep_file: Annotated[Path, typer.Argument(metavar="SWEEP", help="Sweep file, YAML or JSON.")],
    output: Annotated[Path, to("FOLDER", "Keep finished cells and write the tables here.")],
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Use this Ray cluster in place of local processes.")
    ] = None,
    workers: Workers = 2,
    as_json: Json = False,
) -> int:
    """Answer a grid of what-ifs; run it again to go on where it was stopped."""
    from truenorth.planner.answers import whatif
    from truenorth.planner.command.console import cells_line

    manners.prepare_folder(output)
    line = cells_line()
    with stoppable(line.shown()) as (stop, _):
        made = whatif.sweep(sweep_file, output, workers=workers, ray=ray, watch=line.watch, stop=stop)
    manners.show(made.record, manners.lazily("sweep.sweep_view", made), as_json)
    if made.changed:
        manners.say(f"the sweep has changed since it last ran here; {made.counts.known} of its cells were known")
    kept = f"{made.counts.cells - made.counts.left} finished cells are kept"
    return manners.ended(not made.counts.failed, None if made.complete else kept)


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="What compare, servers, sweep, replay, trial -o wrote.")
    ],
    output: Annotated[Path, to("FILE", "Write the page to this file.")],
    by_line: Annotated[str, typer.Option(metavar="TEXT", help="Author named on the page.")] = "",
    as_json: Json = False,
) -> int:
    """Make one HTML page, for a browser without a network, of what other verbs wrote into folders."""
    from truenorth.models.scenario import promise
    from truenorth.planner.show import report as reporting

    promise(output)
    made = reporting.report(folders, by_line)
    made.save(output)
    said = "\n\n".join(f"{section.question}\n{section.answer}" for section in made.sections)
    manners.show(made.record(output), lambda: said, as_json, [output])
    return manners.DONE


def schema(
    catalogue: Annotated[bool, typer.Option("--catalogue", help="Of the catalogues of import instead.")] = False,
    as_json: Json = False,
) -> int:
    """Print the JSON Schema of scenario files, for editors."""
    if catalogue:
        from truenorth.planner.inputs.importers.catalogue import json_schema
    else:
        from truenorth.models.scenario import json_schema

    print(json.dumps(json_schema(), indent=None if as_json else 2))
    return manners.DONE
