"""A document with its line numbers: a tree of nodes, and the way from a field to its line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TextIO

from models.scenario.atomic import admit, open_now
from models.scenario.errors import InputError, Where, quote

MAX_DEPTH = 50
"""Deepest nesting of a document; a scenario needs eight."""
MAX_VALUES = 5_000_000
"""Most values of a document once its aliases are written out."""
MAX_FILE_BYTES = 64_000_000


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
    """

    file: str
    folder: Path
    root: Node | None = None

    def data(self) -> Any:
        """Return the document's values afresh: mappings, lists, text and None.

        Raises
        ------
        InputError
            If it comes from no file.
        """
        if self.root is None:
            raise self.error((), "comes from no file; allowed is one of load_scenario")
        return self.root.data()

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


def read_beginning(path: Path, most_bytes: int, line: int | None = None) -> bytes:
    """Return the bytes of a file, at most so many.

    Parameters
    ----------
    line
        Where errors point to.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    admit(path)
    try:
        with open(path, "rb", opener=open_now) as file:
            return file.read(most_bytes)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(str(path), line, "file", f"cannot be read: {reason}; allowed is a readable file") from None


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises
    ------
    InputError
        If it cannot be read, is too large, or is not UTF-8.
    """
    data = read_beginning(path, MAX_FILE_BYTES + 1, 1)
    if len(data) > MAX_FILE_BYTES:
        raise InputError(str(path), 1, "file", f"is too large; allowed are {MAX_FILE_BYTES} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(str(path), line, "file", "is not UTF-8 text; allowed is UTF-8") from None


def read_bounded_lines(file: TextIO, name: str, longest: int, first: int = 1) -> Iterator[str]:
    """Yield the lines of an open file from the one at hand on.

    Parameters
    ----------
    name
        As errors name the file.
    longest
        A line with so many characters threatens the memory and is refused.
    first
        Number of the line at hand.

    Raises
    ------
    InputError
        For a line that is too long.
    """
    read = file.readline
    for line in count(first):
        text = read(longest)
        if not text:
            return
        if len(text) == longest:
            raise InputError(name, line, "row", f"is longer than {longest} characters; allowed are shorter lines")
        yield text
