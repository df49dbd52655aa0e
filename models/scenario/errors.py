"""What is wrong with an input, said in one line: file, line, field, the problem and what is allowed.

The lines come from a document's tree of nodes (`Node`); a `Source` knows the way from a field to its line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truenorth.models.errors import UserError

Where = tuple[str | int, ...]
"""The way to a value in a document: keys of mappings and positions in lists."""

MAX_DEPTH = 50
"""Deepest nesting of a document; a scenario needs eight."""
MAX_VALUES = 5_000_000
"""Most values of a document once its aliases are written out."""
_LONGEST_SHOWN = 60
_MOST_NAMES = 24


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
        # Some say themselves what is allowed.
        said = str(error)
        raise FieldError(where, said if "; allowed " in said else f"{said}; allowed is {allowed}") from None


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


class Plain(str):
    """A scalar that stands without quotes: perhaps a number or a truth value, which its reader decides."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A value and the line it starts on.

    Parameters
    ----------
    line
        From 1.
    content
        None for null, text for any other scalar (`Plain` without quotes), a list of nodes, or a
        mapping from a key to the key's line and the value.
    """

    line: int
    content: str | list[Node] | dict[str, tuple[int, Node]] | None

    def data(self) -> object:
        """Return the value as None, text, lists and dictionaries."""
        if isinstance(self.content, dict):
            return {key: node.data() for key, (_, node) in self.content.items()}
        if isinstance(self.content, list):
            return [node.data() for node in self.content]
        return self.content


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Where a document comes from.

    Parameters
    ----------
    file
        As errors name it.
    folder
        What relative paths in the document are relative to.
    root
        The values with their lines; None for a document that comes from no file.
    content
        Of such a document, its values.
    """

    file: str
    folder: Path
    root: Node | None = None
    content: Mapping[str, object] | None = field(default=None, repr=False)

    def data(self) -> Any:
        """Return the document's values afresh: mappings, lists, text and None.

        Raises
        ------
        InputError
            If nobody kept them.
        """
        if self.root is not None:
            return self.root.data()
        if self.content is None:
            raise self.error((), "comes from no file; allowed is one of load_scenario")
        return deepcopy(self.content)

    def error(self, where: Where, problem: str) -> InputError:
        """Return the error that blames the value at `where`, with its line or that of its nearest parent."""
        line, node, names = (self.root.line if self.root else None), self.root, ""
        for part in where:
            content = node.content if node else None
            node = None
            if isinstance(content, dict) and part in content:
                line, node = content[str(part)]
            elif part in ("*", "[key]"):
                continue  # put there by the document's own reading, not by the user
            elif isinstance(content, list):
                node = _item(content, part)
                line = node.line if node else line
            names += f"[{part}]" if isinstance(part, int) else f".{_name(part)}"
        return InputError(self.file, line, names.lstrip(".") or "document", problem)


def _item(items: list[Node], part: str | int) -> Node | None:
    """Return the item at a position, or the one that is this text."""
    if isinstance(part, int):
        return items[part] if 0 <= part < len(items) else None
    return next((item for item in items if item.content == part), None)


def _name(part: str) -> str:
    return part if len(part) <= 60 and part.isprintable() and " " not in part else quote(part)
