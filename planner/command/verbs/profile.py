"""The verb ``profile``."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.command import manners
from planner.command.verbs.options import DeviceChoice, Json, Output, ScenarioPath


def profile(
    scenario: ScenarioPath,
    device: Annotated[DeviceChoice, typer.Option(help="What is measured.")],
    output: Output = None,
    runner: Annotated[
        str, typer.Option(help="Who computes: synthetic, transformers[:size=full,weights=FOLDER], module:factory.")
    ] = "synthetic",
    rounds: Annotated[int, typer.Option(min=1, help="How often every workflow is run, after the warm-up.")] = 10,
    beside: Annotated[int, typer.Option(min=0, help="How many more GPUs do the same meanwhile.")] = 0,
    as_json: Json = False,
) -> int:
    """Measure run times, loads and transfers on this machine, and write the scenario with them."""
    from models.extras import require_extra

    require_extra("devices")
    from executor.runners.factory import parse_runner
    from models.scenario import load_scenario, promise
    from planner.answers import profile as profiling
    from planner.inputs.samples import samples_path
    from planner.show.profile import profile_view, rounds_shown

    if output is not None:
        if output.suffix.lower() == ".json":
            raise manners.UsageError(f"{output}: a profile is written as YAML; name it {output.with_suffix('.yaml')}")
        promise(output)
        promise(samples_path(output))
    loaded = load_scenario(scenario)
    computing = parse_runner(runner)
    with rounds_shown(rounds) as watch:
        made = profiling.profile(
            loaded, computing, device=device.value, runner_name=runner, rounds=rounds, beside=beside, watch=watch
        )
    written = [] if output is None else made.save(output)
    manners.show(made.as_dict(output), lambda: profile_view(made), as_json, written)
    return manners.DONE
