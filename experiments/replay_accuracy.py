"""Profile the paper's workflows with small models, try a plan and Compass, and compare with what samples foretell."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean
from typing import Annotated

import yaml
from rich.console import Console

from experiments.bench import ask
from truenorth.executor.devices.run import LiveSettings
from truenorth.executor.devices.runner import MakeRunner
from truenorth.executor.runners.factory import runner_named
from truenorth.executor.samples import Spread
from truenorth.models.scenario import Scenario, load_scenario
from truenorth.planner.answers.profile import profile
from truenorth.planner.answers.trial import Trial, trial
from truenorth.planner.inputs.samples import Samples, read_samples
from truenorth.planner.show.trial import trial_view

SCENARIO = Path(__file__).parent / "scenarios" / "paper_small.yaml"
Key = tuple[str, str]


def replay_accuracy(
    gpus: Annotated[int, "planned GPUs, each a core"] = 2,
    jobs: int = 60,
    rate: Annotated[float, "jobs per second and GPU"] = 4.0,
    repeats: int = 5,
    runner: str = "transformers",
    rounds: Annotated[int, "rounds of the profile"] = 12,
) -> None:
    """Print the trial, and how far run times in it are from the profile's, and the profile's from one another."""
    chosen = runner_named(runner)
    data = yaml.safe_load(SCENARIO.read_text())
    data["cluster"]["servers"] = gpus
    data["workload"]["poisson"] |= {"rate": f"{rate * gpus} /s", "jobs": jobs}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "scenario.yaml").write_text(yaml.safe_dump(data))
        before, samples = _profile(load_scenario(folder / "scenario.yaml"), chosen, rounds, gpus - 1, folder)
        made = trial(
            before,
            ["plan", "compass"],
            chosen,
            LiveSettings(),
            runner_name=runner,
            repeats=repeats,
            time_limit_s=5.0,
            samples=samples,
        )
        Console(width=200).print(trial_view(made))
        _, after = _profile(before, chosen, rounds, gpus - 1, folder)
        _, alone = _profile(before, chosen, rounds, 0, folder)
    profiled = {key: mean(spread.samples_us) for key, spread in samples.runs.items()}
    print("run times, weighted by how long they are, against the means of the profile:")
    for contender in made.contenders:
        print(f"  means of the runs of {contender.name:<12}{_astray(_ran(made, contender.name), profiled):>26.1%}")
    print(f"  means of the profile repeated afterwards     {_astray(_means(after.runs), profiled):>10.1%}")
    print(f"  means of tasks alone, nothing beside them     {_astray(_means(alone.runs), profiled):>10.1%}")
    print(f"  a single sample of a task alone, off its mean {_scatter(alone.runs.values()):>9.1%}")
    print(f"  a single sample of the profile, off its mean  {_scatter(samples.runs.values()):>9.1%}")


def _profile(
    scenario: Scenario, runner: MakeRunner, rounds: int, beside: int, folder: Path
) -> tuple[Scenario, Samples]:
    """Return the measured scenario and the samples."""
    made = profile(scenario, runner, device="cpu", rounds=rounds, beside=beside)
    _, samples = made.save(folder / "profiled.yaml")
    return made.measured, read_samples(samples)


def _means(runs: Mapping[Key, Spread]) -> dict[Key, float]:
    return {key: mean(spread.samples_us) for key, spread in runs.items()}


def _ran(made: Trial, contender: str) -> dict[Key, float]:
    """Return the mean run time of every task of every workflow over all runs of a contender."""
    instance, taken = made.scenario.instance, defaultdict[Key, list[int]](list)
    for run in made.runs[contender]:
        for record in run.live.records.runs:
            job = int(instance.task_job[record.subject])
            workflow = instance.jobs[job].workflow
            taken[workflow.name, workflow.tasks[record.subject - instance.tasks_of(job).start].name].append(
                record.took_us
            )
    return {key: mean(times) for key, times in taken.items()}


def _astray(means: Mapping[Key, float], profiled: Mapping[Key, float]) -> float:
    """Return how far means are off, over the tasks of the first, together and in absolute value."""
    return sum(abs(means[key] - profiled[key]) for key in means) / sum(profiled[key] for key in means)


def _scatter(spreads: Iterable[Spread]) -> float:
    """Return how far a sample is off the mean of its task, weighted by that mean."""
    known = list(spreads)
    off = sum(mean(abs(us - mean(spread.samples_us)) for us in spread.samples_us) for spread in known)
    return off / sum(mean(spread.samples_us) for spread in known)


if __name__ == "__main__":
    ask(replay_accuracy)
