"""The verbs ``profile``, ``replay`` and ``trial``: what runs on devices, in real time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from truenorth.planner.answers.ask import ask
from truenorth.planner.command import manners
from truenorth.planner.command.options import Before, Json, Output, ScenarioPath, asks, stoppable, to
from truenorth.planner.questions.devices import ProfileQuestion, ReplayQuestion, TrialQuestion


@asks(ProfileQuestion)
def profile(
    asked: ProfileQuestion,
    scenario: ScenarioPath,
    output: Annotated[Output, Before("runner")] = None,
    as_json: Json = False,
) -> int:
    """Measure run times, loads and transfers on this machine, and write the scenario with them."""
    from truenorth.models.errors import require_extra

    require_extra("devices")
    from truenorth.executor import StoppedError
    from truenorth.executor.devices.profiling import WARMUP_ROUNDS
    from truenorth.models.scenario import load_scenario, promise
    from truenorth.planner.answers.kept import forget
    from truenorth.planner.inputs.samples import samples_path
    from truenorth.planner.show.profile import profile_view
    from truenorth.planner.show.replay import show_count

    if output is not None:
        if output.suffix.lower() == ".json":
            raise manners.UsageError(f"{output}: a profile is written as YAML; name it {output.with_suffix('.yaml')}")
        promise(output)
        promise(samples_path(output))
    loaded, folder = load_scenario(scenario), None if output is None else output.with_suffix(".rounds")
    try:
        with stoppable(show_count("profiling, in rounds", WARMUP_ROUNDS + asked.rounds)) as (stop, watch):
            made = ask(replace(asked, folder=folder, watch=watch, stop=stop), loaded)
    except StoppedError as error:
        return manners.ended(False, str(error))
    written = _show(
        made.record(output), lambda: profile_view(made), as_json, lambda: [] if output is None else made.save(output)
    )
    if made.ended is not None:
        manners.say(f"truenorth: {made.ended}; {made.rounds} of {asked.rounds} rounds had ended")
        return manners.INTERRUPTED if stop.is_set() else manners.NOT_ACHIEVED
    if written and folder is not None:
        forget(folder)  # all of them are in the samples
    return manners.ended(written)


@asks(ReplayQuestion)
def replay(
    asked: ReplayQuestion,
    scenario: ScenarioPath,
    plan: Annotated[Path | None, typer.Argument(metavar="PLAN", help="Plan or timeline file to carry out.")] = None,
    policy: Annotated[str | None, typer.Option(help="An online policy in place of a plan."), Before("device")] = None,
    output: Annotated[Path | None, to("FOLDER", "Write report, picture and trace here."), Before("seed")] = None,
    as_json: Json = False,
) -> int:
    """Carry out a plan or an online policy on devices, in real time; report predicted against measured."""
    from truenorth.models.errors import require_extra

    if (plan is None) == (policy is None):
        raise manners.UsageError("replay: allowed is either a PLAN or --policy, and one of them is needed")
    require_extra("devices")
    from truenorth.models.scenario import load_scenario
    from truenorth.planner.show.replay import replay_view, show_elapsed, write

    if output is not None:
        manners.prepare_folder(output)
    loaded = load_scenario(scenario)
    with show_elapsed("setting up, then running in real time"):
        replayed = ask(replace(asked, policy=plan or str(policy)), loaded)
    written = _show(
        replayed.record,
        lambda: replay_view(replayed),
        as_json,
        lambda: [] if output is None else write(replayed, output),
    )
    return manners.ended(replayed.achieved and written)


@asks(TrialQuestion)
def trial(
    asked: TrialQuestion,
    scenario: ScenarioPath,
    output: Annotated[Path | None, to("FOLDER", "Write report and timelines here."), Before("seed")] = None,
    as_json: Json = False,
) -> int:
    """Run plans and policies on the same devices, again and again in random order; give paired differences."""
    from truenorth.models.errors import require_extra

    require_extra("devices")
    from truenorth.executor import StoppedError
    from truenorth.models.scenario import load_scenario
    from truenorth.planner.show.replay import show_count
    from truenorth.planner.show.trial import RUNS, trial_view, write

    if output is not None:
        manners.prepare_folder(output)
    loaded, folder = load_scenario(scenario), None if output is None else output / RUNS
    runs = asked.repeats * len(asked.policies)
    try:
        with stoppable(show_count("planning, then running in real time", runs)) as (stop, watch):
            made = ask(replace(asked, folder=folder, watch=watch, stop=stop), loaded)
    except StoppedError:
        return manners.ended(False, "no run had ended")
    written = _show(
        made.record, lambda: trial_view(made), as_json, lambda: [] if output is None else write(made, output)
    )
    said = f"{sum(map(len, made.runs.values()))} of {runs} runs had ended"
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
