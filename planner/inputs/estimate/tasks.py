"""Tasks as columns: what is known of each before it runs, and, of past tasks, how long they took."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from truenorth.models.instance import Ints

Floats: TypeAlias = NDArray[np.float64]
Texts: TypeAlias = NDArray[np.object_]
Features = Mapping[str, object]
"""What is known of a task before it runs: a value per column of the history; None or no entry where it is unknown."""
UNKNOWN = ""
"""A value that is not known."""
ALWAYS_US = np.iinfo(np.int64).max
"""When a task is asked about that has no time: after everything."""
_BETWEEN, _NONE = " / ", "-"
_WHOLE = re.compile(r"[+-]?[0-9]+\.0+")


@dataclass(frozen=True, slots=True)
class TaskColumns:
    """Which columns say what.

    Parameters
    ----------
    key
        What makes two tasks the same, the most telling first: back-offs drop columns from the end, and a task whose
        first value no past task has is unseen.
    text
        Whose words are compared, beside the key: names, configuration, source.
    features
        Every column that the fit may use; those whose values are all numbers are numbers.
    """

    key: tuple[str, ...]
    text: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.key:
            raise ValueError("a key needs at least one column")

    @property
    def all(self) -> tuple[str, ...]:
        """Every column, each once."""
        return tuple(dict.fromkeys((*self.key, *self.text, *self.features)))


@dataclass(frozen=True, slots=True, eq=False)
class Tasks:
    """Tasks whose run times are asked for.

    Parameters
    ----------
    columns
        Text of each task by column, `UNKNOWN` where there is none. Shape [tasks] each.
    asked_us
        When each is asked about; only what was known by then counts. Shape [tasks].
    """

    columns: Mapping[str, Texts]
    asked_us: Ints

    def __post_init__(self) -> None:
        if any(len(values) != len(self.asked_us) for values in self.columns.values()):
            raise ValueError("every column of tasks has one value per task")

    def __len__(self) -> int:
        return len(self.asked_us)

    @classmethod
    def of(cls, features: Iterable[Features], names: Sequence[str]) -> Tasks:
        """Return tasks that are asked about after everything; values are numbers or text."""
        rows = list(features)
        columns = {name: np.array([plain(row.get(name)) for row in rows], np.object_) for name in names}
        return cls(columns, np.full(len(rows), ALWAYS_US))

    def take(self, rows: Ints | NDArray[np.bool_]) -> Tasks:
        """Return some of the tasks."""
        return Tasks({name: values[rows] for name, values in self.columns.items()}, self.asked_us[rows])

    def text(self, name: str) -> Texts:
        """Return a column; unknown everywhere if there is none of that name. Shape [tasks]."""
        found = self.columns.get(name)
        return np.full(len(self), UNKNOWN, np.object_) if found is None else found

    def keys(self, names: Sequence[str]) -> Texts:
        """Return the values of some columns as one text per task, a dash for unknown ones. Shape [tasks]."""
        values = [np.where(self.text(name) == UNKNOWN, _NONE, self.text(name)) for name in names]
        joined = values[0].astype(object)
        for value in values[1:]:
            joined = joined + _BETWEEN + value
        return np.asarray(joined, np.object_)

    def numbers(self, name: str) -> Floats:
        """Return a column as numbers; NaN where it is none. Shape [tasks]."""
        codes, texts = pd.factorize(self.text(name))
        values = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").to_numpy(np.float64)
        return np.asarray(values[codes], np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Past tasks, ordered by when they were asked about.

    Parameters
    ----------
    runtime_us
        How long each ran, at least 1. Shape [tasks].
    known_us
        When each run time was known. Shape [tasks].
    """

    tasks: Tasks
    runtime_us: Ints
    known_us: Ints

    def __post_init__(self) -> None:
        if not len(self.tasks) == len(self.runtime_us) == len(self.known_us):
            raise ValueError("every past task has one run time")
        if len(self.tasks) == 0:
            raise ValueError("a history needs at least one task")
        if int(self.runtime_us.min()) < 1:
            raise ValueError("run times are at least 1 us")

    def __len__(self) -> int:
        return len(self.tasks)

    @classmethod
    def of(cls, tasks: Tasks, runtime_us: Ints, *, timed: bool) -> History:
        """Return past tasks in the order of their times.

        Parameters
        ----------
        timed
            Whether `asked_us` are times: a run time is then known once it has passed from there. Otherwise the tasks
            stand in order, and each is known to the next.
        """
        if timed:
            order = np.argsort(tasks.asked_us, kind="stable")
            tasks, runtime_us = tasks.take(order), runtime_us[order]
            return cls(tasks, runtime_us, tasks.asked_us + runtime_us)
        order = np.arange(len(tasks))
        return cls(replace(tasks, asked_us=order), runtime_us, order + 1)

    def take(self, rows: Ints | NDArray[np.bool_]) -> History:
        """Return some of the past tasks."""
        return History(self.tasks.take(rows), self.runtime_us[rows], self.known_us[rows])

    @property
    def log_runtime(self) -> Floats:
        """Natural logarithm of the run times in microseconds. Shape [tasks]."""
        return np.log(self.runtime_us.astype(np.float64))


def plain(value: object) -> str:
    """Return a value as text, so that equal ones are equal: no needless blanks, no decimals of whole numbers.

    >>> plain(4.0), plain("4.00"), plain(None), plain(" opt  1.3b")
    ('4', '4', '', 'opt 1.3b')
    """
    if value is None or value != value:
        return UNKNOWN
    text = " ".join(str(value).split())
    return text.rstrip("0").rstrip(".") if _WHOLE.fullmatch(text) else text
