"""JSON text to nodes: numbers stay text, duplicate keys are refused, every value keeps its line."""

from __future__ import annotations

import json
import re

from models.scenario.errors import InputError, shown
from models.scenario.source import MAX_DEPTH, Node, Plain

_SPACE = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+"')
_WORD = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.+-])|(?:true|false|null)\b")


def parse_json(text: str, file: str) -> Node:
    """Return the nodes of a JSON text.

    Raises
    ------
    InputError
        With the line of the first thing that is wrong.
    """
    reader = _Reader(text, file)
    root = reader.value(0)
    if reader.peek():
        raise reader.error("text follows the document")
    return root


class _Reader:
    """A position in the text, and its line."""

    def __init__(self, text: str, file: str) -> None:
        self._text, self._file = text, file
        self._at, self._line = 0, 1

    def peek(self) -> str:
        """Skip white space; return the next character, empty at the end."""
        match = _SPACE.match(self._text, self._at)
        self._move(match.end() if match else self._at)
        return self._text[self._at : self._at + 1]

    def error(self, problem: str) -> InputError:
        """Return the error at this position."""
        return InputError(self._file, self._line, "file", f"{problem}; allowed is JSON")

    def value(self, depth: int) -> Node:
        """Read one value."""
        first = self.peek()
        line = self._line
        if first in ("{", "[") and depth >= MAX_DEPTH:
            raise self.error(f"is nested deeper than {MAX_DEPTH} levels")
        if first == "{":
            return Node(line, self._members(depth))
        if first == "[":
            return Node(line, self._items(depth))
        if first == '"':
            return Node(line, self._string())
        word = self._take(_WORD)
        return Node(line, None if word == "null" else Plain(word))

    def _members(self, depth: int) -> dict[str, tuple[int, Node]]:
        members: dict[str, tuple[int, Node]] = {}
        while self._next("}", first=not members):
            if self.peek() != '"':
                raise self.error("a key in double quotes is missing")
            line, key = self._line, self._string()
            if key in members:
                raise InputError(self._file, line, key, f"duplicate key; it already stands in line {members[key][0]}")
            if self.peek() != ":":
                raise self.error(f"a colon is missing after key {shown(key)}")
            self._move(self._at + 1)
            members[key] = (line, self.value(depth + 1))
        return members

    def _items(self, depth: int) -> list[Node]:
        items: list[Node] = []
        while self._next("]", first=not items):
            items.append(self.value(depth + 1))
        return items

    def _next(self, end: str, first: bool) -> bool:
        """Step over the bracket that opens, or over a comma; say whether another entry follows."""
        if first:
            self._move(self._at + 1)
            more = self.peek() != end
        else:
            more = self.peek() == ","
            if not more and self.peek() != end:
                raise self.error(f"a comma or {end} is missing")
        if not more or not first:
            self._move(self._at + 1)
        return more

    def _string(self) -> str:
        return str(json.loads(self._take(_STRING)))

    def _take(self, token: re.Pattern[str]) -> str:
        match = token.match(self._text, self._at)
        if match is None:
            found = self._text[self._at : self._at + 20].split("\n")[0]
            raise self.error(f"no value at {shown(found)}" if found else "the text ends too early")
        self._move(match.end())
        return match[0]

    def _move(self, to: int) -> None:
        self._line += self._text.count("\n", self._at, to)
        self._at = to
