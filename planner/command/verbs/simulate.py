"""The verb ``simulate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from planner.answers.questions import SimulateQuestion
from planner.command import manners
from planner.command.asking import Before, asks
from planner.command.verbs.options import Json, Output, ScenarioPath

if TYPE_CHECKING:
    from models.scenario import Scenario


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
    from models.scenario import load_scenario, promise
    from planner.answers.simulate import write_simulation

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
        from planner.show.tables import simulation_table

        return simulation_table(simulation)

    manners.show(simulation.as_dict(), view, as_json)
    return manners.DONE


def _try_futures(loaded: Scenario, policy: str, draws: int, seed: int, as_json: bool) -> int:
    """Say whether a policy's past depends on the future."""
    from planner.answers.change_future import try_changed_futures

    made = try_changed_futures(loaded, policy, draws, seed=seed)

    def view() -> object:
        from rich.text import Text

        from planner.show.futures import futures_summary

        return Text(futures_summary(made))

    manners.show(made.as_dict(), view, as_json)
    return manners.DONE if made.passed else manners.NOT_ACHIEVED
