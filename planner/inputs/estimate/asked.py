"""A rung of the user's own: any callable, for instance one that asks a language model. Nothing needs one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from models.errors import UserError
from planner.inputs.estimate.answers import Answers
from planner.inputs.estimate.known import KnownTimes
from planner.inputs.estimate.tasks import Tasks

Given = TypeVar("Given")
Answered = TypeVar("Answered")
Answerer: TypeAlias = Callable[[Mapping[str, str]], tuple[float, float, float] | None]
"""From the columns of a task to its 10 %, 50 % and 90 % quantiles in seconds, or None to pass it on."""


class AnswerError(UserError, ValueError):
    """What was asked gave no run times; the message says what is allowed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Quantiles that someone else gives, task by task.

    Parameters
    ----------
    answerer
        Is called once per task that reaches it.
    """

    answerer: Answerer
    name: str = "asked"

    def answer(self, tasks: Tasks, known: KnownTimes) -> Answers:
        """Return what the callable says.

        Raises
        ------
        AnswerError
            If it raises, or gives anything but three ascending positive numbers or None.
        """
        answers = Answers.silent(len(tasks))
        for row in range(len(tasks)):
            features = {name: str(values[row]) for name, values in tasks.columns.items()}
            given = ask_own("ask", self.answerer, features)
            if given is not None:
                answers.quantiles[row] = np.log(_check(given)) + math.log(1e6)
        return answers


def ask_own(option: str, function: Callable[[Given], Answered], given: Given) -> Answered:
    """Return what a function of the user's says.

    Raises
    ------
    AnswerError
        If it raises, whatever it raises.
    """
    try:
        return function(given)
    except Exception as error:  # a function of the user's may raise anything
        said = " ".join(str(error).split())[:200]
        raise AnswerError(
            f"--{option}: raised {type(error).__name__}: {said}; allowed is a function that does not"
        ) from error


def _check(given: tuple[float, float, float]) -> tuple[float, float, float]:
    try:
        low, middle, high = (float(value) for value in given)
    except (TypeError, ValueError):
        low = middle = high = math.nan
    if not 0 < low <= middle <= high < math.inf:
        raise AnswerError(f"asked: {given!r} are no quantiles; allowed are None or three ascending positive seconds")
    return low, middle, high
