"""Answers as data frames and as files: calls that know what each leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

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
from truenorth.planner.answers.servers.answer import write as write_servers
from truenorth.planner.answers.shown import WithRows, WithTimelines
from truenorth.planner.answers.simulate import Simulation, write_simulation
from truenorth.planner.answers.uncertain.planning import UncertainPlan
from truenorth.planner.answers.whatif.result import Sweep
from truenorth.planner.show import comparison, replay, replicated
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
    write = next((how for kind, how in _WRITERS.items() if isinstance(answer, kind)), None)
    if Path(path).suffix in (".png", ".svg", ".pdf") and not isinstance(answer, Figure):
        name = type(answer).__name__
        raise TypeError(f"{name} is no picture; save its chart, such as answer.gantt(), or name a folder")
    if write is None:
        from truenorth.planner.answers.replayed import Replayed  # with the packages of devices, which its answers have

        if not isinstance(answer, Replayed):
            raise TypeError(f"{type(answer).__name__} cannot be saved; allowed are answers of planner's calls")
        return replay.write(answer, Path(path))
    return write(answer, Path(path)) or [Path(path)]


def _write_bound(answer: Bound, path: Path) -> list[Path]:
    """Write a certificate, and beside it what a schedule loses."""
    write_certificate(answer, path)
    if answer.regret is None:
        return [path]
    stem, regret = path.with_name(f"{path.stem}_regret"), answer.regret
    return [path, *write_figure(regret_bars([regret]), stem), *write_table(regret_table(regret.record), stem)]


_WRITERS: Mapping[type[Any], Callable[[Any, Path], list[Path] | None]] = {
    Plan: write_plan,
    UncertainPlan: lambda answer, path: write_plan(answer.plan, path),
    Simulation: write_simulation,
    Bound: _write_bound,
    Comparison: comparison.write,
    Replicated: replicated.write,
    Sweep: Sweep.save,
    ServersAnswer: write_servers,
    Figure: save_figure,
}
