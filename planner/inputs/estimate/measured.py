"""The first rung: run times that ``truenorth profile`` measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from models.scenario import load_scenario
from models.scenario.source import read_text
from models.scenario.work import build_workflows
from models.workload import Workflow
from planner.inputs.estimate.answers import Answers
from planner.inputs.estimate.known import KnownTimes
from planner.inputs.estimate.tasks import Tasks

WORKFLOW, TASK = "workflow", "task"
"""Columns by which a task is found in a profile."""
_TAIL = NormalDist().inv_cdf(0.9) / NormalDist().inv_cdf(0.95)
_TAILS = re.compile(r"#     (?P<workflow>[^\n]+?): (?P<tails>[^\n]+)")


class Measured(NamedTuple):
    """A task's measured median and 95 % quantile, in microseconds."""

    median_us: float
    p95_us: float


@dataclass(frozen=True, slots=True)
class MeasuredProfile:
    """Measured medians, with an interval as wide as the measured 95 % quantile says.

    The interval takes the logarithm of run times as normal: p90 lies 0.78 times as far above the median as p95, and p10
    as far below.

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
                wide = _TAIL * np.log(found.p95_us / found.median_us)
                answers.quantiles[row] = np.log(found.median_us) + np.array([-wide, 0.0, wide])
        return answers


def read_profile(path: Path) -> MeasuredProfile:
    """Read the scenario that ``truenorth profile -o`` wrote: its run times, and the 95 % quantiles in its comments.

    A run time without such a comment counts as its own 95 % quantile, unless calibration widens it.

    Raises
    ------
    InputError
        If it is no scenario.
    """
    scenario, tails = (
        load_scenario(path),
        {match["workflow"]: match["tails"] for match in _TAILS.finditer(read_text(path))},
    )
    measured: dict[tuple[str, str], Measured] = {}
    kind = scenario.instance.cluster.gpus[0].kind
    for workflow in build_workflows(scenario.document).values():
        p95_us = _tails(workflow, tails.get(workflow.name, ""))
        for task in workflow.tasks:
            median_us = task.runtime_on(kind) or task.fastest_us
            measured[workflow.name, task.name] = Measured(median_us, max(median_us, p95_us.get(task.name, 0.0)))
    return MeasuredProfile(measured)


def _tails(workflow: Workflow, text: str) -> dict[str, float]:
    """Return the 95 % quantile of each task in microseconds, from a comment such as ``opt 328.361, marian 129.731``."""
    found = {}
    for task in workflow.tasks:
        match = re.search(rf"(?:^|, ){re.escape(task.name)} (\d+\.\d+)(?:,|$)", text)
        if match:
            found[task.name] = float(match[1]) * 1000
    return found
