"""Timelines and summaries as tables: the data frames that notebooks, figures and files start from."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from models.cluster import MICROSECONDS_PER_SECOND
from models.instance import Instance
from models.objective import completion_us
from models.timeline import Timeline


def tasks_frame(instance: Instance, timeline: Timeline) -> pd.DataFrame:
    """Return one row per task: job, workflow, task, models, gpu, start_s, end_s."""
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


def residencies_frame(instance: Instance, timeline: Timeline) -> pd.DataFrame:
    """Return one row per residency: gpu, model, slot, load_start_s, ready_s, end_s (NaN: never), initial."""
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


def jobs_frame(instance: Instance, timeline: Timeline) -> pd.DataFrame:
    """Return one row per job: workflow, release_s, completion_s, latency_s, critical_path_s, slowdown."""
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


def summary_html(summary: Mapping[str, str]) -> str:
    """Return a summary in words as the two-column table that a notebook shows."""
    return str(pd.Series(summary).to_frame().to_html(header=False))
