"""The verb ``simulate``."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.command import manners
from planner.command.verbs.options import Json, Output, ScenarioPath, Seed, Warmup


def simulate(
    scenario: ScenarioPath,
    policy: Annotated[str, typer.Option(help="A policy with parameters, module:Class, or a plan or timeline file.")],
    output: Output = None,
    noise: Annotated[
        str | None, typer.Option(metavar="SPEC", help="Seeded noise on runs and loads, or error of what is told.")
    ] = None,
    warmup: Warmup = "0",
    seed: Seed = 0,
    as_json: Json = False,
) -> int:
    """Run an online policy, or replay a plan, in simulated time."""
    from models.scenario import load_scenario, promise
    from planner.answers import simulate as simulating

    share = manners.fraction(warmup, "--warmup")
    if output is not None:
        promise(output)
    loaded = load_scenario(scenario)
    simulation = simulating.simulate(loaded, policy, seed=seed, noise=noise, warmup=share)
    if output is not None:
        simulating.write_simulation(simulation, output, manners.typed())

    def view() -> object:
        from planner.show.tables import simulation_table

        return simulation_table(simulation)

    manners.show(simulation.as_dict(), view, as_json)
    return manners.DONE
