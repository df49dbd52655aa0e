"""Files of estimates: one row per task of a workflow, with the quantiles of its run time in seconds.

What ``truenorth estimate`` writes: CSV, plain or gzip, with the columns workflow, task, p10_s, p50_s, p90_s; further
ones are skipped. What ``truenorth profile`` writes beside its scenario, ``*.samples.json``, serves as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from truenorth.models.instance import Instance
from truenorth.models.record import unguard
from truenorth.models.scenario import InputError, Scenario
from truenorth.models.scenario.errors import allowed, quote
from truenorth.models.workload import Workflow
from truenorth.planner.answers.uncertain.told import Told, round_time, stretch, stretch_workflow
from truenorth.planner.inputs.samples import outer_quantiles_us, read_samples

QUANTILES = ("p10_s", "p50_s", "p90_s")
_NAMES = ("workflow", "task")

Quantiles = Mapping[tuple[str, str], tuple[int, int, int]]
"""The 10 %, 50 % and 90 % quantile of a run time in microseconds by the names of workflow and task."""
_Row = tuple[int | None, str, str, tuple[int, int, int]]
"""Line, workflow, task, and its quantiles in microseconds."""


def read_told(path: Path, scenario: Scenario) -> Told:
    """Return what a file of estimates tells of a scenario's run times.

    A row speaks of a task's run time on its fastest kind of GPU; the other kinds are taken to be off by the same
    factor. Tasks without a row keep the scenario's run times, as certain. Each task of each job is uncertain by itself,
    but a batch class as a whole: a row of one of its tasks, alone in a batch, holds for all of them at every size.

    Raises
    ------
    InputError
        If the file cannot be read, or a row is wrong; with its line.
    """
    return tell_instance(read_quantiles(path, scenario), scenario.instance)


def read_quantiles(path: Path, scenario: Scenario) -> Quantiles:
    """Return the rows of a file of estimates; InputError as `read_told`."""
    known = {
        (name, task): given.batch
        for name, workflow in scenario.document.workflows.items()
        for task, given in workflow.tasks.items()
    }
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    of_class: dict[str, tuple[int, int, int]] = {}
    for line, workflow, task, times in _read_measured(path) if path.suffix == ".json" else _rows(path):
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


def _rows(path: Path) -> list[_Row]:
    """Return every row of a file whose quantiles are times in order."""
    # pandas, which the reader needs, is not imported where nobody has estimates.
    from truenorth.planner.inputs.importers.csv_files import csv_rows
    from truenorth.planner.inputs.importers.rows import Tally

    found: list[_Row] = []
    for rows in csv_rows(path, (*_NAMES, *QUANTILES), Tally()):
        low, middle, high = (rows.times(name, least_us=1) for name in QUANTILES)
        rows.refuse((low > middle) | (middle > high), "p50_s", "is not in order", "p10_s <= p50_s <= p90_s")
        quantiles = zip(low.tolist(), middle.tolist(), high.tolist(), strict=True)
        names = (map(unguard, rows.text(name).tolist()) for name in _NAMES)
        found += zip(rows.line.tolist(), *names, quantiles, strict=True)
    return found
