"""The verb ``trial``."""

from __future__ import annotations

from functools import partial
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
    TimeLimit,
    Virtual,
)


def trial(
    scenario: ScenarioPath,
    policies: Annotated[
        str, typer.Option(help="Contenders, separated by commas: plan, policies, plan files; the first is compared to.")
    ] = "plan,compass,srpt",
    repeats: Annotated[int, typer.Option(min=1, help="How often all of them run.")] = 5,
    device: Device = DeviceChoice.CPU,
    runner: Runner = "synthetic",
    virtual: Virtual = None,
    limit: Patience = 30.0,
    samples: SamplesPath = None,
    count_faults: Annotated[
        bool, typer.Option("--count-faults", help="Let runs with faults count in the means, too.")
    ] = False,
    time_limit: TimeLimit = 60.0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="Write report and timelines here.")
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> int:
    """Run plans and policies on the same devices, again and again in random order; give paired differences."""
    from models.extras import require_extra

    require_extra("devices")
    from executor import StoppedError
    from executor.devices.run import LiveSettings
    from executor.runners.factory import parse_runner
    from models.scenario import load_scenario
    from planner.answers.policies.parse import split_policies
    from planner.answers.trial import trial as run_trial
    from planner.command.console import interruptible
    from planner.inputs.samples import read_samples
    from planner.show import trial_files
    from planner.show.trial import runs_shown, trial_view

    if output is not None:
        manners.prepare_folder(output)
    loaded, names = load_scenario(scenario), split_policies(policies)
    settings = LiveSettings(device.value, None if virtual is None else virtual.value, limit)
    if output is not None:
        trial_files.forget_runs(output)
    try:
        with interruptible() as stop, runs_shown(repeats * len(names)) as watch:
            made = run_trial(
                loaded,
                names,
                parse_runner(runner),
                settings,
                runner_name=runner,
                repeats=repeats,
                time_limit_s=time_limit,
                samples=None if samples is None else read_samples(samples),
                count_faults=count_faults,
                seed=seed,
                watch=watch,
                keep=(lambda number, run: None) if output is None else partial(trial_files.keep_run, output),
                stop=stop,
            )
    except StoppedError:
        manners.say("truenorth: interrupted; no run had ended")
        return manners.INTERRUPTED
    written = [] if output is None else trial_files.write(made, output)
    manners.show(made.as_dict(), lambda: trial_view(made), as_json, written)
    if stop.is_set():
        ended = sum(map(len, made.runs.values()))
        manners.say(f"truenorth: interrupted; {ended} of {repeats * len(names)} runs had ended")
        return manners.INTERRUPTED
    return manners.DONE if made.achieved else manners.NOT_ACHIEVED
