"""Answers as data frames and as files: calls that know what each leaves behind."""

from __future__ import annotations

from functools import singledispatch
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.scenario import Scenario
from truenorth.planner.answers.bound import Bound, write_certificate
from truenorth.planner.answers.compare import Comparison
from truenorth.planner.answers.plan import Plan, write_plan
from truenorth.planner.answers.replications import Replicated
from truenorth.planner.answers.servers.answer import ServersAnswer
from truenorth.planner.answers.servers.written import write as write_servers
from truenorth.planner.answers.shown import WithRows, WithTimelines
from truenorth.planner.answers.simulate import Simulation, write_simulation
from truenorth.planner.answers.uncertain.planning import UncertainPlan
from truenorth.planner.answers.whatif.result import Sweep
from truenorth.planner.show import comparison, replicated
from truenorth.planner.show.canvas import save_figure, write_figure
from truenorth.planner.show.regret import regret_bars, regret_table
from truenorth.planner.show.table import write_table


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


@singledispatch
def save(answer: object, path: str | Path) -> list[Path]:
    """Write an answer, each file whole or not at all; return the paths.

    A plan, a simulation or a bound is one file, beside it pictures and tables of a schedule's regret; a comparison, an
    answer about servers or a run on devices a folder of files, with pictures and what ``truenorth report`` makes a page
    of. A sweep is a table in CSV or Parquet, a figure a PNG, SVG or PDF, whichever the name says.

    Raises
    ------
    TypeError
        If it is no such answer.
    InputError
        If a file cannot be written.
    """
    from truenorth.planner.answers.replay import (
        Replayed,  # needs the packages of devices, which an answer of its kind has
    )
    from truenorth.planner.show import replay

    if isinstance(answer, Replayed):
        return replay.write(answer, Path(path))
    raise TypeError(f"{type(answer).__name__} cannot be saved; allowed are answers of planner's calls")


@save.register
def _(answer: Plan, path: str | Path) -> list[Path]:
    write_plan(answer, Path(path))
    return [Path(path)]


@save.register
def _(answer: UncertainPlan, path: str | Path) -> list[Path]:
    return save(answer.plan, path)


@save.register
def _(answer: Simulation, path: str | Path) -> list[Path]:
    write_simulation(answer, Path(path))
    return [Path(path)]


@save.register
def _(answer: Bound, path: str | Path) -> list[Path]:
    certificate = Path(path)
    write_certificate(answer, certificate)
    if answer.regret is None:
        return [certificate]
    stem = certificate.with_name(f"{certificate.stem}_regret")
    return [
        certificate,
        *write_figure(regret_bars([answer.regret]), stem),
        *write_table(regret_table(answer.regret.record), stem),
    ]


@save.register
def _(answer: Replicated, path: str | Path) -> list[Path]:
    return replicated.write(answer, Path(path))


@save.register
def _(answer: Comparison, path: str | Path) -> list[Path]:
    return comparison.write(answer, Path(path))


@save.register
def _(answer: Sweep, path: str | Path) -> list[Path]:
    return answer.save(Path(path))


@save.register
def _(answer: Figure, path: str | Path) -> list[Path]:
    return save_figure(answer, Path(path))


@save.register
def _(answer: ServersAnswer, path: str | Path) -> list[Path]:
    return write_servers(answer, Path(path))
