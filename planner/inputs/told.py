"""What planners and policies are told of run times: a median for every task, and an interval around it; their files.

A run time is taken as two-piece log-normal: on either side of the median its logarithm is normal, with the spread that
puts the 10 % and the 90 % quantile where the estimate has them.

Files have rows with the quantiles of a run time in seconds. What ``truenorth estimate`` writes: CSV, plain or gzip,
with the columns p10_s, p50_s, p90_s, and what tells the rows apart; further ones are skipped. A row speaks of a task of
a workflow (columns workflow, task), of one request of an imported log (line: where it stands in the log), or of one job
(job: its number in release order, from 0). What ``truenorth profile`` writes beside its scenario, ``*.samples.json``,
serves as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorth.executor import NoiseError, replay, simulate
from truenorth.models.instance import NONE, Instance, InstanceError
from truenorth.models.record import unguard
from truenorth.models.scenario import InputError, Scenario
from truenorth.models.scenario.errors import allowed, quote
from truenorth.models.timeline import Timeline
from truenorth.models.workload import Job, Task, Workflow
from truenorth.planner.inputs.samples import outer_quantiles_us, read_samples

Floats = NDArray[np.float64]

_NORMAL = NormalDist()
OUTER = _NORMAL.inv_cdf(0.9)
"""Standard deviations between the median and the 90 % quantile."""
SAMPLES, TRUTH = 2, 3
"""Random streams: what a plan samples must say nothing of what will hold, even if both have the same seed."""


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """An instance whose run times are estimates.

    Parameters
    ----------
    instance
        With the medians as run times.
    low, high
        Per task: its 10 % and 90 % quantile as multiples of the median, the same for all of a batch class. Shape
        [tasks].
    by_job
        Whether the tasks of a job are off together, by the same quantile; otherwise each for itself. Those of a batch
        class always are.
    """

    instance: Instance
    low: Floats
    high: Floats
    by_job: bool = False

    def __post_init__(self) -> None:
        if not self.instance.n_tasks == len(self.low) == len(self.high):
            raise ValueError("an estimate needs one interval per task")
        if not bool(np.all((self.low > 0) & (self.low <= 1) & (self.high >= 1) & np.isfinite(self.high))):
            raise ValueError("the interval of every task must contain its median")

    @classmethod
    def exactly(cls, instance: Instance) -> Told:
        """Return an instance's own run times as certain."""
        one = np.ones(instance.n_tasks)
        return cls(instance, one, one)

    def at(self, level: float) -> Instance:
        """Return the instance in which every run time is its quantile at a level, 0 to 1 without the ends."""
        return self._at(np.full(self.instance.n_tasks, _NORMAL.inv_cdf(level)))

    def draw(self, seed: int, stream: int = SAMPLES) -> Instance:
        """Return the instance with run times drawn from the estimates; equal seeds draw the same quantiles."""
        draws = np.random.default_rng([seed, stream])
        if self.by_job:
            return self._at(draws.standard_normal(len(self.instance.jobs))[self.instance.task_job])
        return self._at(draws.standard_normal(self.instance.n_tasks))

    def _at(self, deviations: Floats) -> Instance:
        deviations = alike_in_classes(self.instance, deviations)
        side = np.where(deviations < 0, -np.log(self.low), np.log(self.high))
        return stretch(self.instance, np.exp(deviations * side / OUTER))

    def limits_us(self, task: int, run_us: int) -> tuple[int, int]:
        """Return the 10 % and the 90 % quantile of a task in microseconds where its median is `run_us`."""
        return round_time(run_us * self.low[task]), round_time(run_us * self.high[task])

    def remaining_us(self, task: int, run_us: int, elapsed_us: int) -> int:
        """Return the median of what is left of a task that has run for a time, given that it still runs.

        Parameters
        ----------
        run_us
            Its median where it runs.

        Returns
        -------
        int
            Microseconds, at least 0: for an exact estimate what the estimate leaves, otherwise the median of the run
            times above `elapsed_us`, less that time.
        """
        deviation = self._deviation(task, elapsed_us / run_us)
        beyond = _NORMAL.cdf(-deviation) / 2  # half of those that are left
        if not math.isfinite(deviation) or beyond < 1e-12:
            return max(0, run_us - elapsed_us)
        middle = -_NORMAL.inv_cdf(beyond)
        side = -math.log(self.low[task]) if middle < 0 else math.log(self.high[task])
        return max(0, round_time(run_us * math.exp(middle * side / OUTER)) - elapsed_us)

    def _deviation(self, task: int, factor: float) -> float:
        """Return how many standard deviations a factor on the median lies from it; infinite if it cannot occur."""
        side = -math.log(self.low[task]) if factor < 1 else math.log(self.high[task])
        if factor <= 0 or factor == 1:
            return -math.inf if factor <= 0 else 0.0
        return math.log(factor) * OUTER / side if side else math.copysign(math.inf, factor - 1)


def alike_in_classes(instance: Instance, values: Floats) -> Floats:
    """Return values per task that the tasks of a batch class share, the first one's: a class has one table of times."""
    batch = instance.template_batch[instance.task_template]
    in_class = np.flatnonzero(batch != NONE)
    _, first, of_class = np.unique(batch[in_class], return_index=True, return_inverse=True)
    shared = values.copy()
    shared[in_class] = values[in_class[first[of_class]]]
    return shared


def stretch(instance: Instance, factor: Floats) -> Instance:
    """Return an instance with other run times; its catalogue stays, for what single jobs take is not known beforehand.

    Tasks of a batch class that differ in their factor are of different classes then.

    Parameters
    ----------
    factor
        Per task, on its run times on every kind of GPU; they are rounded to the nearest microsecond, at least 1.

    Returns
    -------
    Instance
        The same one if every factor is 1.

    Raises
    ------
    NoiseError
        If the run times become so long that no instance can have them.
    """
    if bool((factor == 1).all()):
        return instance
    jobs = with_workflows(instance, factor, lambda workflow, _, own: stretch_workflow(workflow, own))
    try:
        return replace(instance, jobs=jobs)
    except InstanceError as error:
        most = float(factor.max())
        raise NoiseError(f"run times up to {most:.3g} times as long: {error}; allowed are smaller ones") from None


def with_workflows(
    instance: Instance, values: NDArray[Any], change: Callable[[Workflow, range, NDArray[Any]], Workflow]
) -> tuple[Job, ...]:
    """Return the jobs with workflows changed by a value per task; those of one workflow and alike values share one."""
    made: dict[tuple[int, bytes], Workflow] = {}
    jobs = []
    for index, job in enumerate(instance.jobs):
        tasks = instance.tasks_of(index)
        own = values[tasks.start : tasks.stop]
        key = id(job.workflow), own.tobytes()
        if key not in made:
            made[key] = change(job.workflow, tasks, own)
        jobs.append(replace(job, workflow=made[key]))
    return tuple(jobs)


def stretch_workflow(workflow: Workflow, factor: Floats) -> Workflow:
    """Return a workflow with other run times; `factor` is per task."""
    by = dict(zip(workflow.position, factor.tolist(), strict=True))
    return workflow.with_tasks(lambda task: _stretch_task(task, by.get(task.name, 1.0)))


def _stretch_task(task: Task, by: float) -> Task:
    if task.batch is None:
        return task.with_times(lambda us: _stretch_time(us, by))
    if by == 1:
        return task
    tables = {
        kind: {size: _stretch_time(us, by) for size, us in table.items()}
        for kind, table in task.batch.runtime_us.items()
    }
    batch = replace(task.batch, name=f"{task.batch.name} x {by!r}", runtime_us=tables)
    return Task.of_class(task.name, batch, task.inputs, task.input_bytes)


def _stretch_time(time_us: int, by: float) -> int:
    return max(1, round_time(time_us * by))


def round_time(time_us: float) -> int:
    """Return the nearest whole number of microseconds, halves upwards."""
    return math.floor(time_us + 0.5)


def retime(told: Instance, plan: Timeline, truth: Instance) -> Timeline:
    """Return the timeline of `truth` that a plan leads to.

    Parameters
    ----------
    told
        The instance that the plan was made for.
    truth
        The same with the run times that hold.

    Raises
    ------
    PolicyError
        If the plan breaks a rule.
    """
    if told is truth:
        return plan
    return simulate(told, replay(told, plan), truth=truth)


QUANTILES = ("p10_s", "p50_s", "p90_s")
_NAMES = ("workflow", "task")
_REQUESTS = ("line", "job")
"""Columns that tell the requests of a file apart, in place of workflow and task."""

Quantiles = Mapping[tuple[str, str], tuple[int, int, int]]
"""The 10 %, 50 % and 90 % quantile of a run time in microseconds by the names of workflow and task."""
_Row = tuple[int | None, str, str, tuple[int, int, int]]
"""Line, workflow, task, and its quantiles in microseconds."""


def read_told(path: Path, scenario: Scenario) -> Told:
    """Return what a file of estimates tells of a scenario's run times.

    A row speaks of a run time on the fastest kind of GPU; the other kinds are taken to be off by the same factor.
    Where rows speak of tasks, tasks without one keep the scenario's run times, as certain. Each task of each job is
    uncertain by itself, but a batch class as a whole: a row of one of its tasks, alone in a batch, holds for all of
    them at every size. Where rows speak of requests, each job needs one: its true run time would be told otherwise.

    Raises
    ------
    InputError
        If the file cannot be read, or a row is wrong; with its line.
    """
    column = None if path.suffix == ".json" else _request_column(path)
    if column is None:
        return tell_instance(read_quantiles(path, scenario), scenario.instance)
    return _tell_jobs(path, column, scenario.instance)


def _request_column(path: Path) -> str | None:
    """Return the column that tells requests apart; None where workflow and task do, or nothing does."""
    from truenorth.planner.inputs.importers.csv_files import header_of

    header = header_of(path, QUANTILES)
    if not {"workflow", *_REQUESTS} & set(header):
        problem = "does not say whose run times it has; write columns workflow and task, or line, or job"
        raise InputError(str(path), 1, "header", problem)
    return None if "workflow" in header else next(name for name in _REQUESTS if name in header)


def _tell_jobs(path: Path, column: str, instance: Instance) -> Told:
    """Return what a file with a row per request tells of an instance's jobs."""
    rows, jobs = _read_requests(path, column), instance.jobs
    low, middle, high = np.ones((3, instance.n_tasks))
    for number, job in enumerate(jobs):
        named = number if column == "job" else job.line
        if named is None:
            problem = "the scenario does not say which lines of a log its jobs come from"
            raise InputError(str(path), 1, "line", f"{problem}; import the log again (one file), or write a column job")
        if named not in rows:
            where = f"job {number} of the scenario" + ("" if column == "job" else f", line {named} of its log,")
            problem = f"{where} has no row; write an estimate for each of the {len(jobs)} jobs"
            raise InputError(str(path), None, column, problem)
        (task, *more) = job.workflow.tasks
        if more or task.batch is not None:
            problem = f"{named} is a job of several tasks, or of a batch class; write rows by workflow and task"
            raise InputError(str(path), None, column, problem)
        at, row = instance.tasks_of(number).start, rows[named]
        low[at], middle[at], high[at] = row[0] / row[1], row[1] / task.fastest_us, row[2] / row[1]
    # Lines may be of jobs outside the window; numbers of jobs are of this one.
    if column == "job" and len(rows) > len(jobs):
        problem = f"{max(rows)} is no job of the scenario; write those from 0 to {len(jobs) - 1}"
        raise InputError(str(path), None, column, problem)
    return Told(stretch(instance, middle), low, high)


def _read_requests(path: Path, column: str) -> dict[int, tuple[int, int, int]]:
    """Return the quantiles of requests by the number that tells them apart."""
    found: dict[int, tuple[int, int, int]] = {}
    for line, (text,), times in _rows(path, (column,)):
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise InputError(str(path), line, column, f"{quote(text)} is no number; write a whole one, from 0")
        if int(text) in found:
            raise InputError(str(path), line, column, f"{text} has a row already; write one per request")
        found[int(text)] = times
    return found


def read_quantiles(path: Path, scenario: Scenario) -> Quantiles:
    """Return the rows of a file of estimates; InputError as `read_told`."""
    known = {
        (name, task): given.batch
        for name, workflow in scenario.document.workflows.items()
        for task, given in workflow.tasks.items()
    }
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    of_class: dict[str, tuple[int, int, int]] = {}
    for line, workflow, task, times in _read_measured(path) if path.suffix == ".json" else _read_rows(path):
        if workflow not in scenario.document.workflows:
            names = allowed(workflow, scenario.document.workflows)
            raise InputError(str(path), line, "workflow", f"unknown workflow {quote(workflow)}; {names}")
        if (workflow, task) not in known:
            names = allowed(task, scenario.document.workflows[workflow].tasks)
            raise InputError(str(path), line, "task", f"unknown task {quote(task)} of {workflow}; {names}")
        if (workflow, task) in found:
            raise InputError(str(path), line, "task", f"{workflow}/{task} has a row already; allowed is one per task")
        found[workflow, task] = times
        batch = known[workflow, task]
        if batch is not None and of_class.setdefault(batch, times) != times:
            problem = f"{workflow}/{task} is of batch class {batch}, for which another row says something else"
            raise InputError(str(path), line, "task", f"{problem}; allowed is one estimate per class")
    return found | {name: of_class[batch] for name, batch in known.items() if batch in of_class}


def tell_instance(quantiles: Quantiles, instance: Instance) -> Told:
    """Return what these quantiles tell of an instance."""
    low, middle, high = np.ones((3, instance.n_tasks))
    position = np.arange(instance.n_tasks) - instance.job_first_task[instance.task_job]
    for index, workflow in enumerate(instance.workflows):
        of_workflow = instance.job_workflow[instance.task_job] == index
        for place, task in enumerate(workflow.tasks):
            row = quantiles.get((workflow.name, task.name))
            if row is not None:
                here = of_workflow & (position == place)
                low[here], middle[here], high[here] = row[0] / row[1], row[1] / task.fastest_us, row[2] / row[1]
    catalogue = tuple(_by_its_medians(workflow, quantiles) for workflow in instance.catalogue)
    return Told(replace(stretch(instance, middle), catalogue=catalogue), low, high)


def _by_its_medians(workflow: Workflow, quantiles: Quantiles) -> Workflow:
    """Return a workflow of the catalogue as the estimates tell of it."""
    rows = [quantiles.get((workflow.name, task.name)) for task in workflow.tasks]
    factor = [1.0 if row is None else row[1] / task.fastest_us for row, task in zip(rows, workflow.tasks, strict=True)]
    return stretch_workflow(workflow, np.array(factor))


def _read_measured(path: Path) -> list[_Row]:
    """Return the quantiles of every task in a file of samples."""
    found: list[_Row] = []
    for (workflow, task), spread in read_samples(path).runs.items():
        low, middle, high = (max(1, round_time(us)) for us in outer_quantiles_us(spread))
        found.append((None, workflow, task, (low, middle, high)))
    return found


def _read_rows(path: Path) -> list[_Row]:
    """Return the rows of tasks of workflows."""
    return [(line, workflow, task, times) for line, (workflow, task), times in _rows(path, _NAMES)]


def _rows(path: Path, names: Sequence[str]) -> list[tuple[int, tuple[str, ...], tuple[int, int, int]]]:
    """Return the line of each row, the names in it, and quantiles that are times in order."""
    # pandas, which the reader needs, is not imported where nobody has estimates.
    from truenorth.planner.inputs.importers.csv_files import csv_rows
    from truenorth.planner.inputs.importers.rows import Tally

    found: list[tuple[int, tuple[str, ...], tuple[int, int, int]]] = []
    for rows in csv_rows(path, (*names, *QUANTILES), Tally()):
        low, middle, high = (rows.times(name, least_us=1) for name in QUANTILES)
        rows.refuse((low > middle) | (middle > high), "p50_s", "is not in order", "p10_s <= p50_s <= p90_s")
        quantiles = zip(low.tolist(), middle.tolist(), high.tolist(), strict=True)
        said = zip(*(map(unguard, rows.text(name).tolist()) for name in names), strict=True)
        found += zip(rows.line.tolist(), said, quantiles, strict=True)
    return found
