"""Timelines and summaries as tables: the data frames that notebooks, figures and files start from."""

from __future__ import annotations

import numpy as np
import pandas as pd

from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.scenario import Scenario
from truenorth.planner.answers.plan import Plan
from truenorth.planner.answers.shown import WithRows, WithTimelines
from truenorth.planner.answers.simulate import Simulation


def frame(answer: WithRows | Plan | Simulation | Scenario) -> pd.DataFrame:
    """Return an answer's rows as a tidy table, `answer.frame()`, or a scenario's jobs; times are in seconds."""
    if not isinstance(answer, Scenario):
        return answer.frame()
    instance = answer.instance
    deadlines = [np.nan if job.deadline_us is None else job.deadline_us for job in instance.jobs]
    return pd.DataFrame(
        {
            "workflow": [job.workflow.name for job in instance.jobs],
            "tasks": np.diff(instance.job_first_task),
            "release_s": instance.job_release_us / MICROSECONDS_PER_SECOND,
            "deadline_s": np.array(deadlines, float) / MICROSECONDS_PER_SECOND,
            "weight": [float(job.weight) for job in instance.jobs],
            "critical_path_s": instance.job_critical_us / MICROSECONDS_PER_SECOND,
            "ideal_s": instance.job_ideal_us / MICROSECONDS_PER_SECOND,
        },
        index=pd.RangeIndex(len(instance.jobs), name="job"),
    )


def tasks(answer: WithTimelines, of: str | None = None) -> pd.DataFrame:
    """Return one row per task of a timeline: `answer.tasks(of)`."""
    return answer.tasks(of)


def residencies(answer: WithTimelines, of: str | None = None) -> pd.DataFrame:
    """Return one row per residency of a timeline: `answer.residencies(of)`."""
    return answer.residencies(of)


def jobs(answer: WithTimelines, of: str | None = None) -> pd.DataFrame:
    """Return one row per job of a timeline: `answer.jobs(of)`."""
    return answer.jobs(of)
