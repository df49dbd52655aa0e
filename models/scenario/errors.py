"""What is wrong with an input, said in one line: file, line, field, the problem and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from models.errors import UserError

Where = tuple[str | int, ...]
"""The way to a value in a document: keys of mappings and positions in lists."""

_LONGEST_SHOWN = 60
_MOST_NAMES = 12


class InputError(UserError):
    """A file cannot be used; the message is one line.

    Attributes
    ----------
    file, line
        Where it is wrong; the line counts from 1 and is None for a document that comes from no file.
    field
        The value at fault, such as ``cluster.gpu.memory``.
    problem
        What is wrong, and what is allowed.
    """

    def __init__(self, file: str, line: int | None, field: str, problem: str) -> None:
        super().__init__(file, line, field, problem)
        self.file, self.line, self.field, self.problem = file, line, field, problem

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return _one_line(f"{place}: {self.field}: {self.problem}")


class FieldError(Exception):
    """A value of a document is wrong; whoever knows the lines turns it into an `InputError`."""

    def __init__(self, where: Where, problem: str) -> None:
        super().__init__(where, problem)
        self.where, self.problem = where, problem


@contextmanager
def blame(where: Where, allowed: str) -> Iterator[None]:
    """Blame what a constructor of the core types refuses on the value at `where`, and say what is allowed there."""
    try:
        yield
    except ValueError as error:
        raise FieldError(where, f"{error}; allowed is {allowed}") from None


def quote(value: object) -> str:
    """Return a value as it is quoted in messages: on one line, and shortened.

    >>> quote("a" * 100)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...'"
    """
    text = str(value)
    return repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "...")


def allowed(word: str, known: Iterable[str]) -> str:
    """Return what is allowed in place of an unknown name, the nearest first.

    >>> allowed("serverz", ["servers", "gpu"])
    "did you mean 'servers'? allowed are servers, gpu"
    """
    names = list(known)
    if not names:
        return "allowed are names that the file defines, and it defines none"
    near = difflib.get_close_matches(word[:_LONGEST_SHOWN], names, 1)
    listed = ", ".join(name[:_LONGEST_SHOWN] for name in names[:_MOST_NAMES])
    if len(names) > _MOST_NAMES:
        listed += f" and {len(names) - _MOST_NAMES} more"
    return f"{f'did you mean {quote(near[0])}? ' if near else ''}allowed are {listed}"


def _one_line(text: str) -> str:
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
