"""How run times become workflows: as they are, or rounded up to a few of each model, the slowest as they are.

What rounding costs is measured: how much work it adds to a log, and how far each percentile rises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pandas as pd

from truenorth.models.errors import QuestionError
from truenorth.models.instance import Ints
from truenorth.models.slo import quantile_rank

MOST_EXACT = 20_000
"""Up to so many distinct pairs of model and run time, run times stay as they are unless classes are asked for."""
DEFAULT_CLASSES = 1_000
"""Classes per model where there are more: run times a thousandfold apart are rounded up by less than 1 %."""
MOST_WORKFLOWS = 50_000
"""More would make a scenario file that nobody loads."""
SLOWEST = Fraction(99, 100)
"""Requests from this quantile of their model's run times on stay as they are."""
_BISECTIONS = 16
MEMORY = "memory_bytes"
"""Column of what a request holds while it runs."""
_DIGITS = 10**4


@dataclass(frozen=True, slots=True)
class Classes:
    """How many run times a model may have.

    Parameters
    ----------
    most
        Classes per model; 0: every run time as it is; None: as it is, or where that would make more than `MOST_EXACT`
        workflows, `DEFAULT_CLASSES`, or for many models as many as make `MOST_EXACT` together.
    """

    most: int | None = None

    @classmethod
    def parse(cls, text: str) -> Classes:
        """Read ``auto``, ``exact`` or a number of classes.

        Raises
        ------
        QuestionError
            If the text is none of these.

        >>> Classes.parse("exact"), Classes.parse("8")
        (Classes(most=0), Classes(most=8))
        """
        if text in ("auto", "exact"):
            return cls(None if text == "auto" else 0)
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST_WORKFLOWS and len(text) < 9):
            allowed = f"auto, exact, or a number from 1 to {MOST_WORKFLOWS}"
            raise QuestionError(f"{text[:40]!r} is no number of classes; allowed is {allowed}", "runtime_classes")
        return cls(int(text))

    def per_group(self, exact: int, groups: int) -> int:
        """Return how many classes each group of requests gets; 0: every run time as it is.

        Parameters
        ----------
        exact, groups
            Distinct run times of all groups, and groups.

        Raises
        ------
        QuestionError
            If run times as they are would make more than `MOST_WORKFLOWS` workflows.
        """
        if self.most == 0 or (self.most is None and exact <= MOST_EXACT):
            refuse_more(exact)
            return 0
        return self.most or max(1, min(DEFAULT_CLASSES, MOST_EXACT // groups))


def round_up(figures: Ints, most: int) -> Ints:
    """Return the figures that stand for each request of a group: never less than its own.

    Requests whose figures are all alike to within a factor make a class, which is represented by the largest of every
    figure; the factor is as small as `most` classes allow. Requests from the 99th percentile of run time on keep their
    figures, so that what was slowest is as slow as it was.

    Parameters
    ----------
    figures
        One row for each request; the first column is a run time. Shape [requests, figures].
    """
    runtimes = figures[:, 0]
    place = quantile_rank(SLOWEST, len(runtimes))
    quick = runtimes < np.partition(runtimes, place)[place]
    if not quick.any() or _number(figures[quick]).max() < most:
        return figures
    classes, made = _classes_of(figures[quick], most), figures.copy()
    largest = np.zeros((classes.max() + 1, figures.shape[1]), np.int64)
    np.maximum.at(largest, classes, figures[quick])
    made[quick] = largest[classes]
    return made


def words(most: int, exact: int) -> str:
    """Return how workflows were made of so many distinct run times, in words."""
    if not most:
        return "run times as they are"
    cut = f"{most:,} class{'' if most == 1 else 'es'} per model"
    return f"run times rounded up to {cut}, the slowest per cent as they are ({exact:,} distinct before)"


def refuse_more(workflows: int) -> None:
    """Refuse more workflows than a scenario file may have.

    Raises
    ------
    QuestionError
        If there are more.
    """
    if workflows > MOST_WORKFLOWS:
        raise QuestionError(
            f"run times make {workflows:,} workflows; allowed are {MOST_WORKFLOWS:,}: ask for fewer runtime classes, "
            "a window, or models that more requests share"
        )


def _classes_of(figures: Ints, most: int) -> Ints:
    """Return which class each row is of: a grid of equal ratios over all columns, as fine as `most` classes allow."""
    logs = np.log(np.maximum(figures, 1))
    below = logs.max(axis=0) - logs
    coarse, fine = float(below.max()) + 1, 0.0
    classes = np.zeros(len(figures), np.int64)
    for _ in range(_BISECTIONS):
        step = (coarse + fine) / 2
        finer = _number((below / step).astype(np.int64))
        if finer.max() < most:
            coarse, classes = step, finer
        else:
            fine = step
    return classes


def _number(rows: Ints) -> Ints:
    """Return the number of each row among the distinct ones, from 0. Shape [rows]."""
    distinct = rows[:, 0] if rows.shape[1] == 1 else rows
    return np.asarray(np.unique(distinct, axis=0, return_inverse=True)[1], np.int64).reshape(-1)


@dataclass(frozen=True, slots=True)
class Rounding:
    """Run times of a log's requests as they are, and rounded up.

    Parameters
    ----------
    exact_us, rounded_us
        Of each request, on the kind of GPU where it is quickest. Shape [requests].
    most
        No run time is raised by more than this share of itself, on any kind and at any batch size; to four places,
        rounded up.
    """

    exact_us: Ints
    rounded_us: Ints
    most: float

    @classmethod
    def of(cls, parts: Sequence[tuple[pd.DataFrame, pd.DataFrame]]) -> Rounding | None:
        """Return the cost of rounding some tables up; None if nothing was.

        Parameters
        ----------
        parts
            Tables of figures before and after: run times by kind of GPU or size of batch, and perhaps `MEMORY`.
        """
        if all((before.to_numpy() == after.to_numpy()).all() for before, after in parts):
            return None
        runtimes = [[table.drop(columns=MEMORY, errors="ignore") for table in part] for part in parts]
        most = max((after / before).max().max() for before, after in runtimes)
        exact, rounded = (np.concatenate([part[side].min(axis=1) for part in runtimes]) for side in (0, 1))
        return cls(exact, rounded, math.ceil((most - 1) * _DIGITS) / _DIGITS)

    @property
    def work_added(self) -> float:
        """Share by which rounding raises the run times of all requests together."""
        return float(self.rounded_us.sum()) / float(self.exact_us.sum()) - 1

    def quantiles_s(self, share: Fraction) -> tuple[float, float]:
        """Return a quantile of the run times before and after."""
        rank = quantile_rank(share, len(self.exact_us))
        before, after = (np.partition(times, rank)[rank] / 1e6 for times in (self.exact_us, self.rounded_us))
        return float(before), float(after)
