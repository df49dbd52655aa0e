"""Profile the paper's workflows with small models, try a plan and Compass, and compare with what samples foretell."""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean

import yaml
from rich.console import Console

from executor.devices.run import LiveSettings
from executor.runners.factory import parse_runner
from executor.runners.runner import Runner
from executor.samples import Spread
from models.scenario import Scenario, load_scenario
from planner.answers.profile import profile
from planner.answers.trial import Trial, trial
from planner.inputs.samples import Samples, read_samples
from planner.show.trial import trial_view

SCENARIO = Path(__file__).parents[1] / "scenarios" / "paper_small.yaml"
Key = tuple[str, str]


def main() -> None:
    """Print the trial, and how far run times in it are from the profile's, and the profile's from one another."""
    options = argparse.ArgumentParser(prog="python -m experiments.replay_accuracy", description=__doc__)
    options.add_argument("--gpus", type=int, default=2, help="planned GPUs, each a core")
    options.add_argument("--jobs", type=int, default=60)
    options.add_argument("--rate", type=float, default=4.0, help="jobs per second and GPU")
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--runner", default="transformers")
    options.add_argument("--rounds", type=int, default=12, help="rounds of the profile")
    given = options.parse_args()
    runner = parse_runner(given.runner)
    data = yaml.safe_load(SCENARIO.read_text())
    data["cluster"]["servers"] = given.gpus
    data["workload"]["poisson"] |= {"rate": f"{given.rate * given.gpus} /s", "jobs": given.jobs}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "scenario.yaml").write_text(yaml.safe_dump(data))
        before, samples = _profile(
            load_scenario(folder / "scenario.yaml"), runner, given.rounds, given.gpus - 1, folder
        )
        made = trial(
            before,
            ["plan", "compass"],
            runner,
            LiveSettings(),
            runner_name=given.runner,
            repeats=given.repeats,
            time_limit_s=5.0,
            samples=samples,
        )
        Console(width=200).print(trial_view(made))
        _, after = _profile(before, runner, given.rounds, given.gpus - 1, folder)
        _, alone = _profile(before, runner, given.rounds, 0, folder)
    profiled = {key: mean(spread.samples_us) for key, spread in samples.runs.items()}
    print("run times, weighted by how long they are, against the means of the profile:")
    for contender in made.contenders:
        print(f"  means of the runs of {contender.name:<12}{_astray(_ran(made, contender.name), profiled):>26.1%}")
    print(f"  means of the profile repeated afterwards     {_astray(_means(after.runs), profiled):>10.1%}")
    print(f"  means of tasks alone, nothing beside them     {_astray(_means(alone.runs), profiled):>10.1%}")
    print(f"  a single sample of a task alone, off its mean {_scatter(alone.runs.values()):>9.1%}")
    print(f"  a single sample of the profile, off its mean  {_scatter(samples.runs.values()):>9.1%}")


def _profile(scenario: Scenario, runner: Runner, rounds: int, beside: int, folder: Path) -> tuple[Scenario, Samples]:
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
    main()
