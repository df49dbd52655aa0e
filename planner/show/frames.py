"""Timelines and summaries as tables: the data frames that notebooks, figures and files start from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any, Protocol

import numpy as np
import pandas as pd

from models.cluster import MICROSECONDS_PER_SECOND
from models.objective import completion_us
from planner.answers.shown import Shown
from planner.answers.simulate import Simulation
from planner.answers.whatif.result import Sweep, table_of
from planner.show.table import frame_of
from planner.show.templates import WithTimelines


class WithRows(Protocol):
    """An answer that is a table: a comparison, a regret."""

    @property
    def rows(self) -> Sequence[Any]:
        """The rows; the first column names them."""


@singledispatch
def frame(answer: WithRows) -> pd.DataFrame:
    """Return an answer's rows as a tidy table, indexed by who or what each is about; metrics are columns."""
    return frame_of(answer.rows)


@frame.register
def _(answer: Sweep) -> pd.DataFrame:
    made: pd.DataFrame = table_of(answer.rows, ("cell", *answer.columns)).to_pandas()
    return made


def _chosen(answer: WithTimelines, of: str | None) -> Shown:
    """Return an answer's first timeline, or the one of that name.

    Raises
    ------
    ValueError
        If there is none.
    """
    for shown in answer.shown:
        if of in (None, shown.name):
            return shown
    names = ", ".join(shown.name for shown in answer.shown)
    raise ValueError(f"there is no timeline of {of}; allowed are {names}" if names else "no plan was found")


def tasks(answer: WithTimelines, of: str | None = None) -> pd.DataFrame:
    """Return one row per task of an answer's first timeline: job, workflow, task, models, gpu, start_s, end_s.

    Of a comparison, `of` names the contender whose timeline it is: the plan, a policy of the house or of your own.
    """
    instance, timeline = _chosen(answer, of).instance, _chosen(answer, of).timeline
    job = instance.task_job
    return pd.DataFrame(
        {
            "job": job,
            "workflow": [instance.jobs[j].workflow.name for j in job],
            "task": [instance.task_name(task) for task in range(instance.n_tasks)],
            "models": [
                "+".join(instance.models[model].name for model in instance.task_needs(task))
                for task in range(instance.n_tasks)
            ],
            "gpu": [instance.cluster.gpus[gpu].id for gpu in timeline.gpu],
            "start_s": timeline.start_us / MICROSECONDS_PER_SECOND,
            "end_s": timeline.end_us / MICROSECONDS_PER_SECOND,
        }
    )


def residencies(answer: WithTimelines, of: str | None = None) -> pd.DataFrame:
    """Return one row per residency: gpu, model, slot, load_start_s, ready_s, end_s (NaN: never), initial."""
    instance, timeline = _chosen(answer, of).instance, _chosen(answer, of).timeline
    rows = [
        (
            instance.cluster.gpus[residency.gpu].id,
            instance.models[residency.model].name,
            residency.slot,
            residency.load_start_us / MICROSECONDS_PER_SECOND,
            residency.ready_us / MICROSECONDS_PER_SECOND,
            np.nan if residency.end_us is None else residency.end_us / MICROSECONDS_PER_SECOND,
            residency.initial,
        )
        for residency in timeline.residencies
    ]
    columns = ["gpu", "model", "slot", "load_start_s", "ready_s", "end_s", "initial"]
    return pd.DataFrame(rows, columns=columns)


def jobs(answer: WithTimelines) -> pd.DataFrame:
    """Return one row per job: workflow, release_s, completion_s, latency_s, critical_path_s, slowdown.

    Slowdowns of a simulation with wrong estimates count by the run times that held.
    """
    first = _chosen(answer, None)
    instance, timeline = answer.truth if isinstance(answer, Simulation) else first.instance, first.timeline
    completion = completion_us(instance, timeline)
    latency = completion - instance.job_release_us
    return pd.DataFrame(
        {
            "job": np.arange(len(instance.jobs)),
            "workflow": [job.workflow.name for job in instance.jobs],
            "release_s": instance.job_release_us / MICROSECONDS_PER_SECOND,
            "completion_s": completion / MICROSECONDS_PER_SECOND,
            "latency_s": latency / MICROSECONDS_PER_SECOND,
            "critical_path_s": instance.job_critical_us / MICROSECONDS_PER_SECOND,
            "slowdown": latency / instance.job_critical_us,
        }
    )
