"""The first rung: run times that ``truenorth profile`` measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from models.scenario import load_scenario
from models.scenario.work import build_workflows
from planner.inputs.estimate.answers import Answers
from planner.inputs.estimate.known import KnownTimes
from planner.inputs.estimate.tasks import Tasks
from planner.inputs.samples import Runs, outer_quantiles_us, read_runs, samples_path

WORKFLOW, TASK = "workflow", "task"
"""Columns by which a task is found in a profile."""


class Measured(NamedTuple):
    """A task's measured quantiles in microseconds: 10 %, 50 %, 90 %."""

    p10_us: float
    p50_us: float
    p90_us: float


@dataclass(frozen=True, slots=True)
class MeasuredProfile:
    """Measured quantiles.

    Parameters
    ----------
    tasks
        By workflow and task.
    """

    tasks: Mapping[tuple[str, str], Measured]
    name: str = "profile"

    def answer(self, tasks: Tasks, known: KnownTimes) -> Answers:
        """Return the quantiles of tasks whose workflow and name were measured."""
        answers = Answers.silent(len(tasks))
        for row, at in enumerate(zip(tasks.text(WORKFLOW), tasks.text(TASK), strict=True)):
            found = self.tasks.get(at)
            if found is not None:
                answers.quantiles[row] = np.log(found)
        return answers


def read_profile(path: Path) -> MeasuredProfile:
    """Read the scenario that ``truenorth profile -o`` wrote, and the samples beside it.

    Without samples of a task its run time stands for all three quantiles, unless calibration widens them.

    Raises
    ------
    InputError
        If it is no scenario, or the file beside it is none of samples.
    """
    scenario, samples = load_scenario(path), samples_path(path)
    runs: Runs = read_runs(samples) if samples.is_file() else {}
    measured: dict[tuple[str, str], Measured] = {}
    kind = scenario.instance.cluster.gpus[0].kind
    for workflow in build_workflows(scenario.document).values():
        for task in workflow.tasks:
            at = workflow.name, task.name
            given_us = float(task.runtime_on(kind) or task.fastest_us)
            measured[at] = Measured(*(outer_quantiles_us(runs[at]) if at in runs else (given_us,) * 3))
    return MeasuredProfile(measured)
