"""The texts of ``--noise``: noise on what happens, errors of what is told, or both sides from a file of estimates.

Errors of estimates say how far what is told of run times lies from the truth. A gateway knows less: not the run time of
a request, but the mean over requests of its class.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist

import numpy as np

from truenorth.executor import Noise, NoiseError, parse_noise
from truenorth.executor.device import Progress
from truenorth.executor.noise import factor_quantile
from truenorth.models.instance import Instance
from truenorth.models.scenario import Scenario
from truenorth.models.workload import Mode, Task, Workflow
from truenorth.planner.inputs.told import TRUTH, Told, alike_in_classes, read_told, round_time, stretch

MEAN = "mean"
"""The text of ``--noise told=mean``."""
LARGEST = {"lognormal": 5.0, "published": 3.0}
"""Largest spread of each kind: 80 % of the factors are then within 600, or 72, either way."""
GRAMMAR = (
    f"'told={MEAN}', 'told=FILE' (of estimates, such as est.csv), 'told=KIND:SPREAD' or 'true=KIND:SPREAD', "
    "the last two followed by ':task' for an error of every "
    "task's own, with KIND lognormal (SPREAD at most 5) or published (at most 3), for instance 'told=published:1'"
)
_NORMAL = NormalDist()
_STREAM = 1
"""Keeps errors independent of the run times that `Told.draw` draws with the same seed."""
_Class = tuple[object, ...]
"""What workflows of one class have in common."""
_OWN = ("told", "true", "estimates")
_PROGRESS = "progress"
_ALLOWED = f"{GRAMMAR}, or 'estimates=FILE'; beside it 'progress=SHARE' or 'progress=LOGS', a folder of logs"


@dataclass(frozen=True, slots=True)
class Error:
    """How far told run times are from true ones: a random factor of median 1 between the two.

    Parameters
    ----------
    kind
        ``lognormal``, or ``published``: the errors of `executor.noise`.
    size
        Standard deviation of the factor's logarithm, or the power of the published factors; 0: no error. At most
        `LARGEST`.
    by_job
        Whether the tasks of a job share their factor, as the published errors are those of jobs; those of a batch
        class share theirs in any case.
    """

    kind: str
    size: float
    by_job: bool = True

    def __post_init__(self) -> None:
        if self.kind not in LARGEST:
            raise NoiseError(f"{self.kind!r} is no kind of error; allowed is {GRAMMAR}")
        if not 0 <= self.size <= LARGEST[self.kind]:
            allowed = f"a number from 0 to {LARGEST[self.kind]:g}"
            raise NoiseError(f"{self.kind}: a spread of {self.size} is not allowed; it is {allowed}")

    def __str__(self) -> str:
        return f"{self.kind}:{self.size:g}{'' if self.by_job else ':task'}"

    def factor(self, level: float) -> float:
        """Return the quantile of the factor at a level from 0 to 1 without the ends."""
        if self.kind == "published":
            return float(factor_quantile(level) ** self.size)
        return math.exp(self.size * _NORMAL.inv_cdf(level))

    def around(self, instance: Instance, seed: int) -> Instance:
        """Return an instance whose run times lie around those of another one; equal seeds draw the same quantiles."""
        draws = np.random.default_rng([seed, _STREAM]).random(len(instance.jobs) if self.by_job else instance.n_tasks)
        factors = np.array([self.factor(level) for level in draws.tolist()])
        return stretch(instance, alike_in_classes(instance, factors[instance.task_job] if self.by_job else factors))

    def told(self, medians: Instance) -> Told:
        """Return what is told if these run times are: they come with the interval that holds 80 % of the true ones.

        The factor is as likely as its reciprocal, so that the truth lies around what is told as that around the truth.
        """
        low, high = (np.full(medians.n_tasks, self.factor(level)) for level in (0.1, 0.9))
        return Told(medians, low, high, self.by_job)


def parse_error(text: str) -> Error:
    """Read an error: ``KIND:SPREAD``, or ``KIND:SPREAD:task`` for one of every task's own.

    >>> parse_error("lognormal:0.3:task")
    Error(kind='lognormal', size=0.3, by_job=False)

    Raises
    ------
    NoiseError
        If the text is none.
    """
    kind, _, rest = text.partition(":")
    size, _, each = rest.partition(":")
    if each not in ("", "job", "task"):
        raise NoiseError(f"{each!r} in {text!r} is neither job nor task; allowed is {GRAMMAR}")
    try:
        return Error(kind, float(size), each != "task")
    except NoiseError:
        raise
    except ValueError:
        raise NoiseError(f"{size!r} in {text!r} is no number; allowed is {GRAMMAR}") from None


def tell_means(instance: Instance) -> Instance:
    """Return an instance in which every run time is the mean, over the jobs, of its workflow's class on that kind.

    Workflows are of one class if their tasks come after each other, need models and run on kinds of GPU alike: a file
    made from a log lists one for every run time of a model. Workflows without models keep their names apart. What runs
    in batches has a table of run times for all of its class in any case, and keeps it.
    """
    # As jobs name them, without delays of their own, which nobody is told.
    asked = {id(job.workflow): job.workflow for job in instance.jobs}
    of_class = {key: _class_of(workflow) for key, workflow in asked.items()}
    alike: dict[_Class, list[Workflow]] = defaultdict(list)
    for job in instance.jobs:
        alike[of_class[id(job.workflow)]].append(job.workflow)
    means = {of: _means(workflows) for of, workflows in alike.items()}
    made = {key: _tell(workflow, means[of_class[key]]) for key, workflow in asked.items()}
    return replace(instance, jobs=tuple(replace(job, workflow=made[id(job.workflow)]) for job in instance.jobs))


def _class_of(workflow: Workflow) -> _Class:
    shape = tuple(
        (
            task.name,
            task.models,
            task.batch and task.batch.name,
            tuple((mode.gpus, mode.across, mode.copies, frozenset(mode.runtime_us)) for mode in task.choices),
            tuple(edge.source for edge in task.inputs),
        )
        for task in workflow.tasks
    )
    return shape if any(task.models for task in workflow.tasks) else (workflow.name, *shape)


def _means(workflows: list[Workflow]) -> list[list[Mode]]:
    """Return, per task, its modes with the mean run time on each kind; a workflow counts as often as it is listed."""
    return [
        [_mean(modes) for modes in zip(*(task.choices for task in tasks), strict=True)]
        for tasks in zip(*(workflow.tasks for workflow in workflows), strict=True)
    ]


def _mean(modes: Sequence[Mode]) -> Mode:
    times = {
        kind: round_time(sum(mode.runtime_us[kind] for mode in modes) / len(modes)) for kind in modes[0].runtime_us
    }
    return replace(modes[0], runtime_us=times)


def _tell(workflow: Workflow, means: list[list[Mode]]) -> Workflow:
    told = {task.name: times for task, times in zip(workflow.tasks, means, strict=True)}

    def tell(task: Task) -> Task:
        if task.batch is not None or task.name not in told:
            return task
        modes = told[task.name]
        if task.modes:
            return Task.of_modes(task.name, modes, task.memory_bytes)
        return replace(task, runtime_us=modes[0].runtime_us)

    return workflow.with_tasks(tell)


@dataclass(frozen=True, slots=True)
class Sides:
    """What is told of run times, and the instance whose run times hold."""

    told: Told
    truth: Instance


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """What a text of ``--noise`` asks for.

    Parameters
    ----------
    noise
        On runs and loads, whatever is told; None: there is none.
    wrongly_told
        The scenario's run times hold, and planners and policies are told wrong ones.
    straying
        Planners and policies are told the scenario's run times, and others hold.
    estimates
        A file of estimates: planners and policies are told its medians, and the run times that hold are drawn from it.
    told_means
        The scenario's run times hold, and planners and policies are told the mean of a task's class.
    told_by
        The scenario's run times hold, and planners and policies are told the medians of this file of estimates.
    progress
        Once this share of a run is done, policies are told when it will end; or they are told what the logs of this
        folder show of it; None: neither.
    """

    noise: Noise | None = None
    wrongly_told: Error | None = None
    straying: Error | None = None
    estimates: Path | None = None
    told_means: bool = False
    told_by: Path | None = None
    progress: Fraction | Path | None = None

    @property
    def keeps_truth(self) -> bool:
        """Whether the run and load times that hold are the scenario's, so that its bounds hold as well."""
        return self.noise is None and self.straying is None and self.estimates is None

    @property
    def keeps_runs(self) -> bool:
        """Whether the run times that hold are the scenario's."""
        as_given = self.noise is None or self.noise.run is None
        return as_given and self.straying is None and self.estimates is None

    def shown(self, instance: Instance) -> Progress | None:
        """Return what policies are shown of the ends of runs; None: nothing.

        Raises
        ------
        InputError
            If logs cannot be used.
        """
        if not isinstance(self.progress, Path):
            return self.progress
        from truenorth.planner.inputs.progress import read_progress

        return read_progress(self.progress, instance)

    @property
    def tells_exactly(self) -> bool:
        """Whether planners and policies are told the run times that hold."""
        as_given = self.noise is None or self.noise.run is None
        return as_given and not any(self._errors)

    @property
    def _errors(self) -> tuple[object, ...]:
        """What may set apart what is told of run times from what holds."""
        return self.told_means, self.told_by, self.wrongly_told, self.straying, self.estimates

    def sides(self, scenario: Scenario, seed: int) -> Sides:
        """Return what is told and what holds.

        Raises
        ------
        InputError
            If the file of estimates cannot be used.
        NoiseError
            If run times become too long.
        """
        try:
            return self._sides(scenario, seed)
        except NoiseError as error:
            raise NoiseError(f"noise {self._said}: {error}") from None

    @property
    def _said(self) -> str:
        """What tells of run times, as ``--noise`` has it."""
        said = {"told": self.wrongly_told or self.told_by, "true": self.straying, "estimates": self.estimates}
        return next(f"{what}={value}" for what, value in said.items() if value is not None)

    def _sides(self, scenario: Scenario, seed: int) -> Sides:
        given = scenario.instance
        if any(self._errors):
            given.require_no_streams("what is told of run times", "noise on them, such as run=lognormal:0.2")
        if self.told_means:
            return Sides(Told.exactly(tell_means(given)), given)
        if self.told_by is not None:
            return Sides(read_told(self.told_by, scenario), given)
        if self.wrongly_told is not None:
            return Sides(self.wrongly_told.told(self.wrongly_told.around(given, seed)), given)
        if self.straying is not None:
            return Sides(self.straying.told(given), self.straying.around(given, seed))
        if self.estimates is not None:
            told = read_told(self.estimates, scenario)
            return Sides(told, told.draw(seed, TRUTH))
        return Sides(Told.exactly(given), given)


def parse_uncertainty(text: str | None) -> Uncertainty:
    """Read the text of ``--noise``.

    >>> parse_uncertainty("told=published:0.5,load=normal:0.1").wrongly_told
    Error(kind='published', size=0.5, by_job=True)

    Raises
    ------
    NoiseError
        If the text is none; the message says what is allowed.
    """
    own: dict[str, str] = {}
    rest, progress = [], None
    for item in [] if text is None else [item.strip() for item in text.split(",")]:
        what, _, value = item.partition("=")
        if what == _PROGRESS and progress is None:
            progress = _parse_progress(value)
        elif what not in _OWN:
            rest.append(item)
        elif own:
            raise NoiseError(f"{text!r} tells of run times twice; allowed is one of {_ALLOWED}")
        elif not value:
            raise NoiseError(f"{text!r} says nothing after {what}=; allowed is {_ALLOWED}")
        else:
            own[what] = value
    try:
        noise = parse_noise(",".join(rest)) if rest else None
    except NoiseError as error:
        raise NoiseError(f"{error}; beside it {_ALLOWED}") from None
    told = own.get("told")
    told_by = Path(told) if told and ":" not in told and ("." in told or "/" in told) else None
    made = Uncertainty(
        noise,
        None if told in (None, MEAN) or told_by is not None else parse_error(told),
        parse_error(own["true"]) if "true" in own else None,
        Path(own["estimates"]) if "estimates" in own else None,
        told == MEAN,
        told_by,
        progress,
    )
    if isinstance(progress, Path) and not made.keeps_runs:
        raise NoiseError(f"progress={progress}: logs are of the scenario's run times; allowed is beside told=")
    if progress is not None and made.tells_exactly:
        raise NoiseError(
            "progress sharpens what is told of run times, which is exact; add --estimates FILE or told=mean"
        )
    return made


def _parse_progress(text: str) -> Fraction | Path:
    """Read a share of a run, or the folder of logs that what is no number names."""
    try:
        share = Fraction(text)
    except ValueError:
        if text:
            return Path(text)
        share = Fraction(1)
    except ZeroDivisionError:
        share = Fraction(1)
    if not 0 <= share < 1:
        raise NoiseError(f"progress={text}: allowed is a share of a run of at least 0 and below 1, such as 0.1")
    return share


def refuse_estimates(noise: str | None) -> None:
    """Refuse a file of estimates: it gives run times of the scenario itself, whatever size or growth is asked about.

    Raises
    ------
    NoiseError
        If the noise is one, or none at all.
    """
    if parse_uncertainty(noise).estimates is not None:
        raise NoiseError(f"{noise!r} names a file of estimates; servers allows told=, true=, run= and load=")
