"""Timelines and summaries as tables: the data frames that notebooks, figures and files start from."""

from __future__ import annotations

import pandas as pd

from truenorth.planner.answers.shown import WithRows, WithTimelines


def frame(answer: WithRows) -> pd.DataFrame:
    """Return an answer's rows as a tidy table: `answer.frame()`."""
    return answer.frame()


def tasks(answer: WithTimelines, of: str | None = None) -> pd.DataFrame:
    """Return one row per task of a timeline: `answer.tasks(of)`."""
    return answer.tasks(of)


def residencies(answer: WithTimelines, of: str | None = None) -> pd.DataFrame:
    """Return one row per residency of a timeline: `answer.residencies(of)`."""
    return answer.residencies(of)


def jobs(answer: WithTimelines, of: str | None = None) -> pd.DataFrame:
    """Return one row per job of a timeline: `answer.jobs(of)`."""
    return answer.jobs(of)
