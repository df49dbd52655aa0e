"""JSON whose errors name the line: numbers may stay text, duplicate keys are refused.

Lines cost time. So where speed matters (`JSONText`) the standard library reads, and only a text at fault is read again
with the line of every value (`parse_json`).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

from truenorth.models.scenario.errors import MAX_DEPTH, InputError, Node, Plain, Source, Where, quote

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
    reader = _JsonTokens(text, file, first_line)
    root = reader.value(0)
    if reader.kind != "end":
        raise reader.error("text follows the document")
    return root


class _JsonTokens:
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
        if found and not self._start:  # whatever file this is, it is none of ours to quote
            at = " at the beginning"
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


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a key occurs twice")
    return mapping


def _no_number(text: str) -> object:
    raise ValueError(f"{text} is no number")


NUMBERS = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_no_number)
"""Reads numbers as numbers."""
CLAIMS = json.JSONDecoder(object_pairs_hook=_distinct)
"""Reads NaN and infinities besides, which whoever weighs a claim refuses as such."""
EXACT = json.JSONDecoder(object_pairs_hook=_distinct, parse_float=Plain, parse_int=Plain, parse_constant=_no_number)
"""Leaves numbers as they stand, as `Plain` text, so that quantities are rounded once."""


@dataclass(frozen=True, slots=True)
class JSONText:
    """A JSON text, and where it stands.

    Parameters
    ----------
    text
        The document.
    file
        As errors name it.
    first_line
        Line of the file on which the text starts, from 1.
    path
        The way from the file's document to this text.
    """

    text: str
    file: str
    first_line: int = 1
    path: Where = ()

    def data(self, decoder: json.JSONDecoder = EXACT) -> object:
        """Return the value; `decoder` says what becomes of numbers.

        Raises
        ------
        InputError
            With the line of the first thing that is wrong.
        """
        try:
            return decoder.decode(self.text)
        except (ValueError, RecursionError):
            raise self.refusal() from None

    def nodes(self) -> Node:
        """Return the value with lines; InputError as `data`."""
        return parse_json(self.text, self.file, self.first_line)

    def error(self, where: Where, problem: str) -> InputError:
        """Return the error that blames the value at `where`, with its line and the way to it."""
        line = Source(self.file, Path(), self.nodes()).error(where, problem).line
        field = Source(self.file, Path()).error((*self.path, *where), problem).field
        return InputError(self.file, line, field, problem)

    def refusal(self) -> InputError:
        """Return why a text cannot be read that the standard library does not read."""
        try:
            self.nodes()
        except InputError as known:
            return known
        problem = "holds a number too long to read; allowed are usual numbers"
        return InputError(self.file, self.first_line, "file", problem)
