"""The verb ``simulate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from planner.command import manners
from planner.command.verbs.options import Json, Output, ScenarioPath, Seed, Warmup

if TYPE_CHECKING:
    from models.scenario import Scenario


def simulate(
    scenario: ScenarioPath,
    policy: Annotated[str, typer.Option(help="A policy with parameters, module:Class, or a plan or timeline file.")],
    output: Output = None,
    noise: Annotated[
        str | None, typer.Option(metavar="SPEC", help="Seeded noise on runs and loads, or error of what is told.")
    ] = None,
    warmup: Warmup = "0",
    change_future: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, metavar="N", help="Try N other futures: the policy's past must stay the same."),
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> int:
    """Run an online policy, or replay a plan, in simulated time."""
    from models.scenario import load_scenario, promise
    from planner.answers import simulate as simulating

    share = manners.fraction(warmup, "--warmup")
    if change_future is not None:
        if output is not None or noise is not None:
            raise manners.UsageError("--change-future goes without --noise and -o: it compares runs, and writes none")
        return _try_futures(load_scenario(scenario), policy, change_future, seed, as_json)
    if output is not None:
        promise(output)
    loaded = load_scenario(scenario)
    simulation = simulating.simulate(loaded, policy, seed=seed, noise=noise, warmup=share)
    if output is not None:
        simulating.write_simulation(simulation, output, manners.typed())

    def view() -> object:
        from planner.show.summaries import simulation_summary
        from planner.show.table import facts

        return facts(simulation_summary(simulation))

    manners.show(simulation.record, view, as_json)
    return manners.DONE


def _try_futures(loaded: Scenario, policy: str, draws: int, seed: int, as_json: bool) -> int:
    """Say whether a policy's past depends on the future."""
    from planner.answers.change_future import try_changed_futures

    made = try_changed_futures(loaded, policy, draws, seed=seed)

    def view() -> object:
        from rich.text import Text

        from planner.show.summaries import futures_summary

        return Text(futures_summary(made))

    manners.show(made, view, as_json)
    return manners.DONE if made.passed else manners.NOT_ACHIEVED
