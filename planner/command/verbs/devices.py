"""The verbs ``profile``, ``replay`` and ``trial``: what runs on devices, in real time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from truenorth.planner.command import manners
from truenorth.planner.command.options import (
    Device,
    DeviceChoice,
    DevicesOnRay,
    Json,
    Output,
    Patience,
    Runner,
    SamplesPath,
    ScenarioPath,
    Seed,
    TimeLimit,
    Virtual,
    stoppable,
    to,
)


def profile(
    scenario: ScenarioPath,
    device: Annotated[DeviceChoice, typer.Option(help="What is measured.")],
    output: Output = None,
    runner: Runner = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often every workflow is run, after the warm-up.")] = 10,
    beside: Annotated[int, typer.Option(min=0, help="How many more GPUs do the same meanwhile.")] = 0,
    memory: Annotated[
        bool, typer.Option("--memory", help="Let tasks hold, as `memory`, what they take beside the weights.")
    ] = False,
    ray: DevicesOnRay = None,
    as_json: Json = False,
) -> int:
    """Measure run times, loads and transfers on this machine, and write the scenario with them."""
    from truenorth.models.errors import require_extra

    require_extra("devices")
    from truenorth.executor import StoppedError
    from truenorth.executor.devices.profiling import WARMUP_ROUNDS
    from truenorth.executor.runners.factory import default_runner, runner_named
    from truenorth.models.scenario import load_scenario, promise
    from truenorth.planner.answers import profile as profiling
    from truenorth.planner.answers.kept import forget
    from truenorth.planner.inputs.samples import samples_path
    from truenorth.planner.show.profile import profile_view
    from truenorth.planner.show.replay import show_count

    if output is not None:
        if output.suffix.lower() == ".json":
            raise manners.UsageError(f"{output}: a profile is written as YAML; name it {output.with_suffix('.yaml')}")
        promise(output)
        promise(samples_path(output))
    loaded = load_scenario(scenario)
    runner = runner or default_runner(loaded.instance)
    computing = runner_named(runner)
    try:
        with stoppable(show_count("profiling, in rounds", WARMUP_ROUNDS + rounds)) as (stop, watch):
            made = profiling.profile(
                loaded,
                computing,
                device=device.value,
                runner_name=runner,
                rounds=rounds,
                beside=beside,
                with_memory=memory,
                folder=None if output is None else output.with_suffix(".rounds"),
                watch=watch,
                stop=stop.is_set,
                ray=ray,
            )
    except StoppedError as error:
        return manners.ended(False, str(error))
    written = _show(
        made.record(output), lambda: profile_view(made), as_json, lambda: [] if output is None else made.save(output)
    )
    if made.rounds < rounds:
        manners.say(f"truenorth: {made.ended}; {made.rounds} of {rounds} rounds had ended")
        return manners.INTERRUPTED if stop.is_set() else manners.NOT_ACHIEVED
    if written and output is not None:
        forget(output.with_suffix(".rounds"))  # all of them are in the samples
    return manners.ended(written)


def replay(
    scenario: ScenarioPath,
    plan: Annotated[Path | None, typer.Argument(metavar="PLAN", help="Plan or timeline file to carry out.")] = None,
    policy: Annotated[str | None, typer.Option(help="An online policy in place of a plan.")] = None,
    device: Device = DeviceChoice.CPU,
    runner: Runner = None,
    virtual: Virtual = None,
    ray: DevicesOnRay = None,
    limit: Patience = 30.0,
    samples: SamplesPath = None,
    check_outputs: Annotated[
        bool, typer.Option("--check-outputs", help="Afterwards run every task alone and compare its output.")
    ] = False,
    output: Annotated[Path | None, to("FOLDER", "Write report, picture and trace here.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> int:
    """Carry out a plan or an online policy on devices, in real time; report predicted against measured."""
    from truenorth.models.errors import require_extra

    if (plan is None) == (policy is None):
        raise manners.UsageError("replay: allowed is either a PLAN or --policy, and one of them is needed")
    require_extra("devices")
    from truenorth.models.scenario import load_scenario

    if output is not None:
        manners.prepare_folder(output)
    loaded = load_scenario(scenario)
    from truenorth.executor.devices.run import LiveSettings
    from truenorth.executor.runners.factory import default_runner, runner_named
    from truenorth.planner.answers.replay import replay_on_devices
    from truenorth.planner.inputs.samples import read_samples
    from truenorth.planner.show.replay import replay_view, show_elapsed, write

    runner = runner or default_runner(loaded.instance)
    settings = LiveSettings(device.value, None if virtual is None else virtual.value, limit, ray=ray)
    with show_elapsed("setting up, then running in real time"):
        replayed = replay_on_devices(
            loaded,
            plan or str(policy),
            runner_named(runner),
            settings,
            runner_name=runner,
            seed=seed,
            check_outputs=check_outputs,
            samples=None if samples is None else read_samples(samples),
        )
    written = _show(
        replayed.record,
        lambda: replay_view(replayed),
        as_json,
        lambda: [] if output is None else write(replayed, output),
    )
    return manners.ended(replayed.achieved and written)


def trial(
    scenario: ScenarioPath,
    policies: Annotated[
        str, typer.Option(help="Contenders, separated by commas: plan, policies, plan files; the first is compared to.")
    ] = "plan,compass,srpt",
    repeats: Annotated[int, typer.Option(min=1, help="How often all of them run.")] = 5,
    device: Device = DeviceChoice.CPU,
    runner: Runner = None,
    virtual: Virtual = None,
    ray: DevicesOnRay = None,
    limit: Patience = 30.0,
    samples: SamplesPath = None,
    count_faults: Annotated[
        bool, typer.Option("--count-faults", help="Let runs with faults count in the means, too.")
    ] = False,
    time_limit: TimeLimit = 60.0,
    output: Annotated[Path | None, to("FOLDER", "Write report and timelines here.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> int:
    """Run plans and policies on the same devices, again and again in random order; give paired differences."""
    from truenorth.models.errors import require_extra

    require_extra("devices")
    from truenorth.executor import StoppedError
    from truenorth.executor.devices.run import LiveSettings
    from truenorth.executor.runners.factory import default_runner, runner_named
    from truenorth.models.scenario import load_scenario
    from truenorth.planner.answers.policies.parse import split_policies
    from truenorth.planner.answers.trial import trial as run_trial
    from truenorth.planner.inputs.samples import read_samples
    from truenorth.planner.show.replay import show_count
    from truenorth.planner.show.trial import RUNS, trial_view, write

    if output is not None:
        manners.prepare_folder(output)
    loaded, names = load_scenario(scenario), split_policies(policies)
    runner = runner or default_runner(loaded.instance)
    settings = LiveSettings(device.value, None if virtual is None else virtual.value, limit, ray=ray)
    try:
        with stoppable(show_count("planning, then running in real time", repeats * len(names))) as (stop, watch):
            made = run_trial(
                loaded,
                names,
                runner_named(runner),
                settings,
                runner_name=runner,
                repeats=repeats,
                time_limit_s=time_limit,
                samples=None if samples is None else read_samples(samples),
                count_faults=count_faults,
                seed=seed,
                folder=None if output is None else output / RUNS,
                watch=watch,
                stop=stop,
            )
    except StoppedError:
        return manners.ended(False, "no run had ended")
    written = _show(
        made.record, lambda: trial_view(made), as_json, lambda: [] if output is None else write(made, output)
    )
    said = f"{sum(map(len, made.runs.values()))} of {repeats * len(names)} runs had ended"
    return manners.ended(made.achieved and written, said if stop.is_set() else None)


def _show(record: object, view: Callable[[], object], as_json: bool, write: Callable[[], Sequence[Path]]) -> bool:
    """Write an answer and show it; say whether it was written: a full disk takes nothing away from what is shown."""
    from truenorth.models.scenario import InputError

    problem = None
    try:
        written = write()
    except InputError as error:
        written, problem = [], error
    manners.show(record, view, as_json, written)
    if problem is not None:
        manners.say(f"truenorth: {problem}")
    return problem is None
