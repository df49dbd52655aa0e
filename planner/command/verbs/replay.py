"""The verb ``replay``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.command import manners
from planner.command.verbs.options import (
    Device,
    DeviceChoice,
    Json,
    Patience,
    Runner,
    SamplesPath,
    ScenarioPath,
    Seed,
    Virtual,
)


def replay(
    scenario: ScenarioPath,
    plan: Annotated[Path | None, typer.Argument(metavar="PLAN", help="Plan or timeline file to carry out.")] = None,
    policy: Annotated[str | None, typer.Option(help="An online policy in place of a plan.")] = None,
    device: Device = DeviceChoice.CPU,
    runner: Runner = "synthetic",
    virtual: Virtual = None,
    limit: Patience = 30.0,
    samples: SamplesPath = None,
    check_outputs: Annotated[
        bool, typer.Option("--check-outputs", help="Afterwards run every task alone and compare its output.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="Write report, picture and trace here.")
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> int:
    """Carry out a plan or an online policy on devices, in real time; report predicted against measured."""
    from models.extras import require_extra

    if (plan is None) == (policy is None):
        raise manners.UsageError("replay: allowed is either a PLAN or --policy, and one of them is needed")
    require_extra("devices")
    from models.scenario import load_scenario

    if output is not None:
        manners.prepare_folder(output)
    loaded = load_scenario(scenario)
    from executor.devices.run import LiveSettings
    from executor.runners.factory import parse_runner
    from planner.answers.replay import replay_on_devices
    from planner.inputs.samples import read_samples
    from planner.show import replay_files
    from planner.show.replay import replay_view, show_elapsed

    settings = LiveSettings(device.value, None if virtual is None else virtual.value, limit)
    with show_elapsed("setting up, then running in real time"):
        replayed = replay_on_devices(
            loaded,
            plan or str(policy),
            parse_runner(runner),
            settings,
            runner_name=runner,
            seed=seed,
            check_outputs=check_outputs,
            samples=None if samples is None else read_samples(samples),
        )
    written = [] if output is None else replay_files.write(replayed, output)
    manners.show(replayed.as_dict(), lambda: replay_view(replayed), as_json, written)
    return manners.DONE if replayed.achieved else manners.NOT_ACHIEVED
