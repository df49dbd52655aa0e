"""Files of estimates: one row per task of a workflow, with the quantiles of its run time in seconds.

What ``truenorth estimate`` writes: CSV with the columns workflow, task, p10_s, p50_s, p90_s; further ones are skipped.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from models.instance import Instance
from models.scenario import InputError, Scenario
from models.scenario.errors import allowed, shown
from models.units import QuantityError, parse_time
from planner.uncertain.told import Told, stretched

QUANTILES = ("p10_s", "p50_s", "p90_s")
_NAMES = ("workflow", "task")

Quantiles = Mapping[tuple[str, str], tuple[int, int, int]]
"""The 10 %, 50 % and 90 % quantile of a run time in microseconds by the names of workflow and task."""


def read_told(path: Path, scenario: Scenario) -> Told:
    """Return what a file of estimates tells of a scenario's run times.

    A row speaks of a task's run time on its fastest kind of GPU; the other kinds are taken to be off by the same
    factor. Tasks without a row keep the scenario's run times, as certain. Each task of each job is uncertain by itself.

    Raises
    ------
    InputError
        If the file cannot be read, or a row is wrong; with its line.
    """
    return told_of(read_quantiles(path, scenario), scenario.instance)


def read_quantiles(path: Path, scenario: Scenario) -> Quantiles:
    """Return the rows of a file of estimates; InputError as `read_told`."""
    known = {(name, task) for name, workflow in scenario.document.workflows.items() for task in workflow.tasks}
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    for line, row in _rows(path):
        workflow, task = row["workflow"], row["task"]
        if workflow not in scenario.document.workflows:
            names = allowed(workflow, scenario.document.workflows)
            raise InputError(str(path), line, "workflow", f"unknown workflow {shown(workflow)}; {names}")
        if (workflow, task) not in known:
            names = allowed(task, scenario.document.workflows[workflow].tasks)
            raise InputError(str(path), line, "task", f"unknown task {shown(task)} of {workflow}; {names}")
        if (workflow, task) in found:
            raise InputError(str(path), line, "task", f"{workflow}/{task} has a row already; allowed is one per task")
        found[workflow, task] = _quantiles(str(path), line, row)
    return found


def told_of(quantiles: Quantiles, instance: Instance) -> Told:
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
    return Told(stretched(instance, middle), low, high)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line number and cells of every row that has as many cells as the header."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, strict=True)
            for name in (*_NAMES, *QUANTILES):
                if name not in (rows.fieldnames or ()):
                    wanted = ", ".join((*_NAMES, *QUANTILES))
                    raise InputError(str(path), 1, "header", f"has no column {name}; needed are {wanted}")
            for row in rows:
                if None in row or None in row.values():
                    count = len(rows.fieldnames or ())
                    raise InputError(str(path), rows.line_num, "row", f"has not {count} fields as the header has")
                yield rows.line_num, row
    except OSError as error:
        raise InputError(str(path), 1, "file", f"cannot be read: {error.strerror}; allowed is a CSV file") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(str(path), 1, "file", f"{error}; allowed is CSV in UTF-8") from None


def _quantiles(file: str, line: int, row: Mapping[str, str]) -> tuple[int, int, int]:
    times = []
    for name in QUANTILES:
        try:
            times.append(parse_time(f"{row[name].strip()} s"))
        except QuantityError:
            problem = f"{shown(row[name])} is no time; allowed is a plain number of seconds"
            raise InputError(file, line, name, problem) from None
    low, middle, high = times
    if not 1 <= low <= middle <= high:
        problem = f"{low}, {middle}, {high} us are not in order; allowed are p10 <= p50 <= p90, of at least 1 us each"
        raise InputError(file, line, "p50_s", problem)
    return low, middle, high
