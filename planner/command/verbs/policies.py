"""The verbs that put one beside another: simulate, compare, sweep, and the page of what was found."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truenorth.planner.answers.questions import CompareQuestion, SimulateQuestion
from truenorth.planner.command import manners
from truenorth.planner.command.manners import name_untested
from truenorth.planner.command.options import Before, Json, Output, ScenarioPath, Workers, ask_shown, asks

if TYPE_CHECKING:
    from truenorth.models.scenario import Scenario


@asks(SimulateQuestion)
def simulate(
    ask: SimulateQuestion,
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
    from truenorth.planner.answers.simulate import write_simulation

    if change_future is not None:
        if output is not None or ask.noise is not None:
            raise manners.UsageError("--change-future goes without --noise and -o: it compares runs, and writes none")
        return _try_futures(load_scenario(scenario), ask.policy, change_future, ask.seed, as_json)
    if output is not None:
        promise(output)
    loaded = load_scenario(scenario)
    simulation = ask.ask(loaded)
    if output is not None:
        write_simulation(simulation, output, manners.typed())

    def view() -> object:
        from truenorth.planner.show.summaries import simulation_summary
        from truenorth.planner.show.table import facts

        return facts(simulation_summary(simulation))

    manners.show(simulation.record, view, as_json)
    return manners.DONE


def _try_futures(loaded: Scenario, policy: str, draws: int, seed: int, as_json: bool) -> int:
    """Say whether a policy's past depends on the future."""
    from truenorth.planner.answers.simulate import try_changed_futures

    made = try_changed_futures(loaded, policy, draws, seed=seed)

    def view() -> object:
        from rich.text import Text

        from truenorth.planner.show.summaries import futures_summary

        return Text(futures_summary(made))

    manners.show(made, view, as_json)
    return manners.DONE if made.passed else manners.NOT_ACHIEVED


@asks(CompareQuestion)
def compare(
    ask: CompareQuestion,
    scenario: ScenarioPath,
    replications: Annotated[
        int,
        typer.Option(min=1, max=10_000, help="Compare on so many seeds, or windows of the trace, with intervals."),
        Before("ray"),
    ] = 1,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FOLDER", help="Write table, pictures and trace here."),
        Before("workers"),
    ] = None,
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
        return _replicate(ask, loaded, replications, output, as_json)
    made, interrupted = ask_shown(ask, loaded, ProgressLine(loaded.objective, "comparing"))
    written = [] if output is None else save(made, output)

    def view() -> object:
        from truenorth.planner.show.comparison import comparison_view

        return comparison_view(made)

    manners.show(name_untested(made.record), view, as_json, written)
    if interrupted:
        manners.say("truenorth: interrupted; the best plan found is kept")
        return manners.INTERRUPTED
    manners.say_if_late(made.plan.result)
    achieved = made.plan.timeline is not None or loaded.instance.streams is not None
    return manners.DONE if achieved else manners.NOT_ACHIEVED


def _replicate(ask: CompareQuestion, loaded: Scenario, count: int, output: Path | None, as_json: bool) -> int:
    """Compare over replications."""
    from truenorth.planner.answers.replications import replicate_comparison
    from truenorth.planner.command.console import cells_line
    from truenorth.planner.show import replicated
    from truenorth.solvers.budget import interruptible

    line = cells_line()
    with interruptible(signal.SIGINT, signal.SIGTERM) as stop, line.shown():
        made = replicate_comparison(replace(ask, stop=stop), loaded, count, output, line.watch)
    written = [] if output is None or not made.replications else replicated.write(made, output)
    manners.show(name_untested(made.record), lambda: replicated.replicated_view(made), as_json, written)
    for error in made.sweep.errors:
        manners.say(f"replication {error.cell}: {error.error}")
    if not made.sweep.complete:
        manners.say(f"truenorth: interrupted; {len(made.replications)} finished replications are kept")
        return manners.INTERRUPTED
    return manners.NOT_ACHIEVED if made.sweep.counts.failed else manners.DONE


def sweep(
    sweep_file: Annotated[Path, typer.Argument(metavar="SWEEP", help="Sweep file, YAML or JSON.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="Keep finished cells and write the tables here.")
    ],
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Use this Ray cluster in place of local processes.")
    ] = None,
    workers: Workers = 2,
    as_json: Json = False,
) -> int:
    """Answer a grid of what-ifs; run it again to go on where it was stopped."""
    from truenorth.planner.answers import whatif
    from truenorth.planner.command.console import cells_line
    from truenorth.solvers.budget import interruptible

    manners.prepare_folder(output)
    line = cells_line()
    with interruptible(signal.SIGINT, signal.SIGTERM) as stop, line.shown():
        made = whatif.sweep(sweep_file, output, workers=workers, ray=ray, watch=line.watch, stop=stop)

    def view() -> object:
        from truenorth.planner.show.sweep import sweep_view

        return sweep_view(made)

    manners.show(made.record, view, as_json)
    if made.changed:
        manners.say(f"the sweep has changed since it last ran here; {made.counts.known} of its cells were known")
    if not made.complete:
        manners.say(f"truenorth: interrupted; {made.counts.cells - made.counts.left} finished cells are kept")
        return manners.INTERRUPTED
    return manners.NOT_ACHIEVED if made.counts.failed else manners.DONE


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="What compare, servers, sweep, replay, trial -o wrote.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Write the page to this file.")],
    as_json: Json = False,
) -> int:
    """Make one HTML page, for a browser without a network, of what other verbs wrote into folders."""
    from truenorth.models.scenario import promise
    from truenorth.planner.show import report as reporting

    promise(output)
    made = reporting.report(folders)
    made.save(output)

    def view() -> object:
        return "\n\n".join(f"{section.question}\n{section.answer}" for section in made.sections)

    manners.show(made.record(output), view, as_json, [output])
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
