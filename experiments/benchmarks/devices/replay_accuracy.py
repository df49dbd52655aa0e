"""Profile small models, run a plan and Compass, and compare with the prediction from samples.

With ``--milliseconds`` tasks are so short that it matters how late they start; where errors come from is said, too.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Annotated

import yaml
from rich.console import Console
from torch import Tensor

from experiments.bench import ask, markdown
from truenorth.executor import simulate
from truenorth.executor.devices.runner import MakeRunner, RunnerCall
from truenorth.executor.runners.factory import runner_named
from truenorth.executor.runners.synthetic import SyntheticOptions, SyntheticRunner
from truenorth.executor.samples import Spread
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.objective import completion_us
from truenorth.models.scenario import Scenario, load_scenario
from truenorth.planner.answers.intervals import Interval
from truenorth.planner.answers.profile import profile
from truenorth.planner.answers.replay import CAUSES, causes_of_error
from truenorth.planner.answers.trial import Contender, Trial, trial
from truenorth.planner.inputs.samples import Dispatch, Samples, read_samples, samples_path
from truenorth.planner.questions.devices import ProfileQuestion, TrialQuestion
from truenorth.planner.show.trial import trial_view

SCENARIOS = Path(__file__).parents[2] / "scenarios"
PROFILED = "profiled.yaml"
Key = tuple[str, str]
_SIMULATED = 20
"""How often a policy is simulated to see what it computes."""


class AsGiven(SyntheticRunner):
    """Work of the times that a scenario gave before it was profiled: equal in the profile and behind it.

    Parameters
    ----------
    calibration
        Where it is kept how much work fills a time.
    given_us
        By workflow and task.
    """

    def __init__(self, calibration: str, given_us: Mapping[Key, int]) -> None:
        super().__init__(SyntheticOptions(calibration=calibration))
        self._given_us = given_us

    def run_batch(self, calls: Sequence[RunnerCall]) -> Sequence[Tensor]:
        """Fold and work as long as was given."""
        return super().run_batch([replace(call, run_us=self._given_us[call.workflow, call.task]) for call in calls])


def replay_accuracy(
    gpus: Annotated[int, "planned GPUs, each a core"] = 2,
    jobs: int = 60,
    rate: Annotated[float, "jobs per second and GPU"] = 4.0,
    repeats: int = 5,
    runner: str = "transformers",
    rounds: Annotated[int, "rounds of the profile"] = 12,
    milliseconds: Annotated[bool, "synthetic tasks of milliseconds on one GPU, under three contenders"] = False,
) -> None:
    """Print the trial, and how far run times in it are from the profile's, and the profile's from one another."""
    if milliseconds:
        _try_milliseconds(repeats, rounds)
        return
    chosen = runner_named(runner)
    data = yaml.safe_load((SCENARIOS / "paper_small.yaml").read_text())
    data["cluster"]["servers"] = gpus
    data["workload"]["poisson"] |= {"rate": f"{rate * gpus} /s", "jobs": jobs}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "scenario.yaml").write_text(yaml.safe_dump(data))
        before, samples = _profile(load_scenario(folder / "scenario.yaml"), chosen, rounds, gpus - 1, folder)
        made = _try(before, ["plan", "compass"], chosen, runner, repeats, folder)
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


def _try_milliseconds(repeats: int, rounds: int) -> None:
    """Print a trial of milliseconds.yaml, and by contender what its errors are made of."""
    scenario = load_scenario(SCENARIOS / "milliseconds.yaml")
    given_us = {(of.name, task.name): task.fastest_us for of in scenario.instance.workflows for task in of.tasks}
    with tempfile.TemporaryDirectory() as name:
        chosen = partial(AsGiven, f"{name}/work.json", given_us)
        measured, samples = _profile(scenario, chosen, rounds, 0, Path(name))
        made = _try(measured, ["plan", "jit", "compass"], chosen, "synthetic, as given", repeats, Path(name))
        _, after = _profile(scenario, chosen, rounds, 0, Path(name))
    columns = {one.name: _split(made, one, samples) for one in made.contenders}
    rows = [[row, *(columns[name][row] for name in columns)] for row in next(iter(columns.values()))]
    print(markdown(["", *columns], rows))
    profiled, again = samples.dispatch or Dispatch(), after.dispatch or Dispatch()
    late = [f"{sort} {_us(getattr(profiled, sort))}, {_us(getattr(again, sort))}" for sort in Dispatch.model_fields]
    print(f"mean lateness in us, in the profile and in another one afterwards: {'; '.join(late)}")
    print(f"run times in another profile afterwards: {_off(_means(after.runs), _means(samples.runs)):+.1%}")


def _us(spread: Spread | None) -> str:
    return "-" if spread is None else f"{mean(spread.samples_us):.0f}"


def _ms(of: Interval) -> str:
    return f"{1000 * (of.mean or 0):.2f} ({1000 * (of.low or 0):.2f} to {1000 * (of.high or 0):.2f}) ms"


def _split(made: Trial, contender: Contender, samples: Samples) -> dict[str, str]:
    """Return, by what it is, of what a contender's error is made; shares are of the latency predicted from medians."""
    instance, runs = made.scenario.instance, [run.live for run in made.runs[contender.name]]
    row = next(row for row in made.rows if row.policy == contender.name)
    if row.forecast is None or row.forecast.error is None or row.error is None:
        raise SystemExit(f"no run of {contender.name} counts")
    predicted = contender.predicted
    causes = [causes_of_error(instance, contender.policy, predicted, live, 0).mean_latency for live in runs]
    given_s = float((completion_us(instance, predicted) - instance.job_release_us).mean()) / MICROSECONDS_PER_SECOND
    said = {
        "mean latency from medians": f"{given_s * 1000:.2f} ms",
        "from samples (middle 90 %)": _ms(row.forecast.mean_latency_s),
        "measured (95 % of the mean)": _ms(row.objective),
        "measured over medians": f"{row.error:+.1%}",
        "measured over samples": f"{row.forecast.error:+.1%}",
    }
    said |= {f"of medians: {cause}": f"{mean(each[cause] for each in causes) / given_s:+.1%}" for cause in CAUSES}
    records = [live.records for live in runs]
    starts = [run for of in records for run in of.runs]
    late = {sort: [run.dispatch_us for run in starts if run.ahead == (sort == "queued")] for sort in ("idle", "queued")}
    late["load"] = [load.dispatch_us for of in records for load in of.loads]
    said |= {
        f"late, {sort}": f"{len(us)}: mean {mean(us):.0f}, median {median(us):.0f} us" if us else "none"
        for sort, us in late.items()
    }
    said["run times over the profile's"] = f"{_off(_ran(made, contender.name), _means(samples.runs)):+.1%}"
    before_s = time.process_time()
    for _ in range(_SIMULATED):
        simulate(instance, contender.policy)
    decided_s = (time.process_time() - before_s) / _SIMULATED / len(instance.jobs)
    return said | {"engine and policy compute, per job": f"{decided_s / given_s:.1%}, {decided_s * 1_000_000:.0f} us"}


def _try(
    scenario: Scenario, contenders: Sequence[str], chosen: MakeRunner, runner: str, repeats: int, folder: Path
) -> Trial:
    """Run a trial with the samples of a profile, and print its table."""
    samples = samples_path(folder / PROFILED)
    asked = TrialQuestion(tuple(contenders), runner=runner, repeats=repeats, time_limit_s=5.0, samples=samples)
    made = trial(asked, scenario, chosen)
    Console(width=240).print(trial_view(made))
    return made


def _profile(
    scenario: Scenario, runner: MakeRunner, rounds: int, beside: int, folder: Path
) -> tuple[Scenario, Samples]:
    """Return the measured scenario and the samples."""
    made = profile(ProfileQuestion("cpu", rounds=rounds, beside=beside), scenario, runner)
    _, samples = made.save(folder / PROFILED)
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


def _off(means: Mapping[Key, float], profiled: Mapping[Key, float]) -> float:
    """Return how far means are off together, those above and below the others cancelling out."""
    return sum(means.values()) / sum(profiled[key] for key in means) - 1


def _scatter(spreads: Iterable[Spread]) -> float:
    """Return how far a sample is off the mean of its task, weighted by that mean."""
    known = list(spreads)
    off = sum(mean(abs(us - mean(spread.samples_us)) for us in spread.samples_us) for spread in known)
    return off / sum(mean(spread.samples_us) for spread in known)


main = partial(ask, replay_accuracy)
