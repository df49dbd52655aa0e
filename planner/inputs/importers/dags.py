"""Whole workflows from files: when their jobs are released, and what makes a DAG malformed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from executor.policies.options import count, duration, option
from models.errors import QuestionError
from models.scenario.errors import FieldError, Where, quote
from models.scenario.quantities import MAX_TIME_US
from models.workload import Task, Workflow, WorkflowCycleError
from planner.inputs.importers.tables import DagJobs

_MOST_SHOWN = 6


@dataclass(frozen=True, slots=True)
class DAGOptions:
    """Which jobs a file of workflows without arrivals makes.

    Parameters
    ----------
    copies
        How many jobs of each workflow.
    interval
        Time from one release to the next, in the order of the files; 0: all are released at once.
    """

    copies: int = option(1, count)
    interval: int = option(0, duration)

    def jobs(self, workflows: Sequence[Workflow], before: int) -> DagJobs:
        """Return the jobs of workflows of which others, `before` in number, come earlier.

        Raises
        ------
        QuestionError
            If the last release is too late.
        """
        first, last = before * self.copies, (before + len(workflows)) * self.copies
        if last * self.interval > MAX_TIME_US:
            raise QuestionError(f"releases go beyond {MAX_TIME_US} us; allowed are fewer copies or a shorter interval")
        copied = tuple(workflow for workflow in workflows for _ in range(self.copies))
        return DagJobs(copied, np.arange(first, last, dtype=np.int64) * self.interval)


def build_workflow(name: str, tasks: Sequence[Task], where: Mapping[str, Where]) -> Workflow:
    """Return tasks as a workflow.

    Parameters
    ----------
    where
        The way to each task, by name.

    Raises
    ------
    FieldError
        At a task of a cycle, if there is one.
    """
    try:
        return Workflow(name, tuple(tasks))
    except WorkflowCycleError as error:
        way = " -> ".join(quote(task) for task in error.cycle[:_MOST_SHOWN])
        way += " -> ..." if len(error.cycle) > _MOST_SHOWN else ""
        raise FieldError(where[error.cycle[0]], f"is part of a cycle: {way}; allowed is a DAG") from None
