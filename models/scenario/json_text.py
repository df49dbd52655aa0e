"""JSON text to nodes: numbers stay text, duplicate keys are refused, every value keeps its line."""

from __future__ import annotations

import json
import re
from bisect import bisect_left

from models.scenario.errors import InputError, quote
from models.scenario.source import MAX_DEPTH, Node, Plain

_TOKEN = re.compile(
    r"""[ \t\n\r]*+(?:
        (?P<mark>[{}\[\]:,])
      | (?P<text>"(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+")
      | (?P<word>(?:true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)(?![\w.+-]))
      | (?P<end>\Z)
      | (?P<wrong>)
    )""",
    re.VERBOSE,
)


def parse_json(text: str, file: str, first_line: int = 1) -> Node:
    """Return the nodes of a JSON text that starts on a line of a file.

    Raises
    ------
    InputError
        With the line of the first thing that is wrong.
    """
    reader = _Reader(text, file, first_line)
    root = reader.value(0)
    if reader.kind != "end":
        raise reader.error("text follows the document")
    return root


class _Reader:
    """The token at hand: what kind it is, its text, and where it starts."""

    def __init__(self, text: str, file: str, first_line: int) -> None:
        self._text, self._file, self._first_line = text, file, first_line
        self._breaks = [match.start() for match in re.finditer("\n", text)]
        self._next = 0
        self._advance()

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._next)
        assert match is not None, "one of the alternatives matches everywhere"  # noqa: S101
        self.kind = str(match.lastgroup)
        self._start, self._next = match.span(self.kind)
        self._symbol = match[self.kind]

    @property
    def _line(self) -> int:
        return bisect_left(self._breaks, self._start) + self._first_line

    def error(self, problem: str) -> InputError:
        """Return the error at this token."""
        found = self._text[self._start : self._start + 20].split("\n")[0]
        at = f" at {quote(found)}" if found else " at the end of the line" if self.kind != "end" else ", the text ends"
        return InputError(self._file, self._line, "file", f"{problem}{at}; allowed is JSON")

    def value(self, depth: int) -> Node:
        """Read one value."""
        line, symbol = self._line, self._symbol
        if self.kind == "mark" and symbol in "{[":
            if depth >= MAX_DEPTH:
                raise self.error(f"is nested deeper than {MAX_DEPTH} levels")
            self._advance()
            return Node(line, self._members(depth) if symbol == "{" else self._items(depth))
        if self.kind == "text":
            return Node(line, self._string())
        if self.kind != "word":
            raise self.error("a value is missing")
        self._advance()
        return Node(line, None if symbol == "null" else Plain(symbol))

    def _members(self, depth: int) -> dict[str, tuple[int, Node]]:
        members: dict[str, tuple[int, Node]] = {}
        while self._more("}", bool(members)):
            if self.kind != "text":
                raise self.error("a key in double quotes is missing")
            line, key = self._line, self._string()
            if key in members:
                raise InputError(self._file, line, key, f"duplicate key; it already stands in line {members[key][0]}")
            if self._symbol != ":":
                raise self.error("a colon is missing")
            self._advance()
            members[key] = (line, self.value(depth + 1))
        return members

    def _items(self, depth: int) -> list[Node]:
        items: list[Node] = []
        while self._more("]", bool(items)):
            items.append(self.value(depth + 1))
        return items

    def _more(self, end: str, comma: bool) -> bool:
        """Step over the end of a collection, or over the comma before an entry; say whether an entry follows."""
        if self._symbol == end:
            self._advance()
            return False
        if comma:
            if self._symbol != ",":
                raise self.error(f"a comma or {end} is missing")
            self._advance()
        return True

    def _string(self) -> str:
        text = str(json.loads(self._symbol))
        self._advance()
        return text
