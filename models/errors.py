"""What a person is told in one line; nothing here imports anything of the house, so that everybody may raise it."""

from __future__ import annotations

import shlex
import sys
from difflib import get_close_matches
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

Word = TypeVar("Word", bound=StrEnum)


class UserError(Exception):
    """What was given or asked for cannot be used; the message says what is wrong and what is allowed."""


class QuestionError(UserError):
    """A question cannot be answered as it is asked.

    Attributes
    ----------
    problem
        What is wrong, and what is allowed.
    argument
        The argument of the Python call that is at fault, empty if it is none; the command names its own option for it.

    >>> str(QuestionError("nobody answers", "ray"))
    'ray: nobody answers'
    """

    def __init__(self, problem: str, argument: str = "") -> None:
        super().__init__(problem, argument)
        self.problem, self.argument = problem, argument

    def __str__(self) -> str:
        return f"{self.argument}: {self.problem}" if self.argument else self.problem


def no_attribute(owner: object, name: str) -> AttributeError:
    """Return the error of an attribute that an object of ours does not have, with the nearest one."""
    known = [each for each in dir(type(owner)) if not each.startswith("_")]
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    said = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
    return AttributeError(f"{type(owner).__name__} has no {name!r}; {said}")


def chosen(words: type[Word], word: str, argument: str) -> Word:
    """Return the word that is meant by its text, so that calls take what the command takes.

    Raises
    ------
    QuestionError
        If there is no such word; it lists those that there are.

    >>> class Colour(StrEnum):
    ...     RED = "red"
    >>> chosen(Colour, "red", "colour") is Colour.RED
    True
    >>> chosen(Colour, "rot", "colour")
    Traceback (most recent call last):
    truenorth.models.errors.QuestionError: colour: 'rot' is unknown; allowed are red
    """
    if word not in tuple(words):
        raise QuestionError(f"{word!r} is unknown; allowed are {', '.join(words)}", argument)
    return words(word)


_NEEDS = {"cluster": ("ray", "Ray"), "devices": ("torch", "PyTorch"), "estimates": ("sklearn", "scikit-learn")}
_TREE = Path(__file__).resolve().parents[1]  # of a checkout, where this folder is imported through a link


def require_extra(extra: str) -> None:
    """Refuse to go on without the packages of an extra of this distribution.

    Raises
    ------
    UserError
        If they are not installed; it names the command that installs them.
    """
    module, name = _NEEDS[extra]
    if find_spec(module) is None:
        raise UserError(f"{name} is not installed; this adds it: {_command(extra)}")


def _command(extra: str) -> str:
    """Return what installs an extra into the environment that runs."""
    words = [sys.executable, "-m", "pip", "install"]
    constraints = _TREE / "constraints.txt"
    if not constraints.is_file():
        return shlex.join([*words, f"truenorth[{extra}]"])
    return shlex.join([*words, "--constraint", str(constraints), "--editable", f"{_TREE}[{extra}]"])


class ScenarioWarning(UserWarning):
    """A scenario says something that is allowed and has no effect; the message names file and field."""
