"""The command ``truenorth``: every verb mirrors one Python call; heavy imports wait until a verb needs them."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from planner import command


class MethodChoice(StrEnum):
    """The values of ``--method``."""

    AUTO = "auto"
    CP_SAT = "cp-sat"
    MILP = "milp"
    SEARCH = "search"


app = typer.Typer(
    name="truenorth",
    help="Plan GPU inference clusters: task placement and model residency, with bounds, beside online policies.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ScenarioPath = Annotated[Path, typer.Argument(metavar="SCENARIO", help="Scenario file, YAML or JSON.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the result to this file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
TimeLimit = Annotated[float, typer.Option(min=0.1, help="Seconds for plan and bound together.")]
Workers = Annotated[int, typer.Option(min=1, max=64, help="Processes or threads to search with.")]
Seed = Annotated[int, typer.Option(min=0, max=2**31 - 1, help="The same seed repeats a run.")]
Warmup = Annotated[str, typer.Option(help="Share of the earliest jobs that the metrics leave out, such as 0.1.")]


@app.command()
def plan(
    scenario: ScenarioPath,
    output: Output = None,
    time_limit: TimeLimit = 60.0,
    method: Annotated[MethodChoice, typer.Option(help="How to search.")] = MethodChoice.AUTO,
    workers: Workers = 2,
    seed: Seed = 0,
    iterations: Annotated[int | None, typer.Option(min=1, help="Steps of local search, for repeatable runs.")] = None,
    hint: Annotated[Path | None, typer.Option(metavar="PLAN", help="A plan or timeline file to start from.")] = None,
    as_json: Json = False,
) -> int:
    """Plan a window: task placement and model residency together, with a lower bound."""
    from models.scenario import assert_writable, load_scenario
    from planner import plan as planning
    from planner.check import feasible_timeline
    from planner.console import ProgressLine, interruptible
    from planner.stages import Method

    loaded = load_scenario(scenario)
    if output is not None:
        assert_writable(output)
    given = None if hint is None else feasible_timeline(loaded.instance, hint)
    line = ProgressLine(loaded.objective, "planning")
    with interruptible() as stop, line.shown():
        made = planning.plan(
            loaded,
            time_limit_s=time_limit,
            method=Method(method.value),
            workers=workers,
            seed=seed,
            iterations=iterations,
            hint=given,
            watch=line.watch,
            stop=stop,
        )
    found = made.timeline is not None
    if output is not None and found:
        made.save(output)

    def view() -> object:
        from planner.tables import plan_table

        return plan_table(made)

    command.show(made.as_dict(output if found else None), view, as_json)
    if stop.is_set():
        command.say(f"truenorth: interrupted; {'the best plan found is kept' if found else 'no plan was found yet'}")
        return command.INTERRUPTED
    return command.DONE if found else command.NOT_ACHIEVED


@app.command()
def check(
    scenario: ScenarioPath,
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan or timeline file.")],
    as_json: Json = False,
) -> int:
    """Check a plan or timeline against every rule."""
    from models.feasibility import check as violations_of
    from models.scenario import load_scenario
    from planner.check import read, verdict

    loaded = load_scenario(scenario)
    instance, timeline = read(loaded.instance, plan)
    violations = violations_of(instance, timeline)

    def view() -> object:
        return "valid: every rule holds" if not violations else "\n".join(str(violation) for violation in violations)

    command.show(verdict(loaded.objective, instance, timeline, violations), view, as_json)
    return command.NOT_ACHIEVED if violations else command.DONE


@app.command()
def simulate(
    scenario: ScenarioPath,
    policy: Annotated[str, typer.Option(help="A policy with parameters, module:Class, or a plan or timeline file.")],
    output: Output = None,
    noise: Annotated[str | None, typer.Option(metavar="SPEC", help="Seeded noise on run times and loads.")] = None,
    warmup: Warmup = "0",
    seed: Seed = 0,
    as_json: Json = False,
) -> int:
    """Run an online policy, or replay a plan, in simulated time."""
    from models.scenario import assert_writable, load_scenario
    from planner import simulate as simulating

    share = command.fraction(warmup, "--warmup")
    loaded = load_scenario(scenario)
    if output is not None:
        assert_writable(output)
    simulation = simulating.simulate(loaded, policy, seed=seed, noise=noise, warmup=share)
    if output is not None:
        simulation.save(output)

    def view() -> object:
        from planner.tables import simulation_table

        return simulation_table(simulation)

    command.show(simulation.as_dict(), view, as_json)
    return command.DONE


@app.command()
def compare(
    scenario: ScenarioPath,
    policies: Annotated[str | None, typer.Option(help="Policies, separated by commas (default: all).")] = None,
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
    names = comparing.DEFAULT_POLICIES if policies is None else comparing.split_policies(policies)
    line = ProgressLine(loaded.objective, "comparing")
    with interruptible() as stop, line.shown():
        made = comparing.compare(
            loaded,
            names,
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


@app.command()
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
    as_json: Json = False,
) -> int:
    """Find a value that no plan lies below, with a certificate that anyone can check."""
    from models.scenario import assert_writable, load_scenario
    from planner import bound as bounding
    from planner.console import ProgressLine, interruptible

    loaded = load_scenario(scenario)
    if output is not None:
        assert_writable(output)
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
        )
    if output is not None:
        made.save(output)

    def view() -> object:
        from planner.tables import bound_view

        return bound_view(made)

    command.show(made.as_dict(output), view, as_json)
    if stop.is_set():
        command.say("truenorth: interrupted; the best bound found is kept")
        return command.INTERRUPTED
    return command.DONE


@app.command()
def verify(
    scenario: ScenarioPath,
    certificate: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="What bound -o wrote.")],
    as_json: Json = False,
) -> int:
    """Compute a certificate's bound again, without a solver, and accept or refuse it."""
    from models.scenario import load_scenario
    from planner.bound import verdict_dict, verify_file

    loaded = load_scenario(scenario)
    verdict = verify_file(loaded, certificate)
    document = verdict_dict(loaded, verdict)

    def view() -> object:
        proved = f"the lower bound {document['lower_bound']} of {loaded.objective} is proved"
        return f"valid: {proved}" if verdict.valid else f"refused: {verdict.reason}"

    command.show(document, view, as_json)
    return command.DONE if verdict.valid else command.NOT_ACHIEVED


@app.command()
def schema(as_json: Json = False) -> int:
    """Print the JSON Schema of scenario files, for editors."""
    from models.scenario import json_schema

    print(json.dumps(json_schema(), indent=None if as_json else 2))
    return command.DONE


def main() -> None:
    """Run the command."""
    sys.exit(command.run(app))
