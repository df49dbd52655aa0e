"""Documents from files, YAML or JSON as the name says, with the line of every value.

YAML becomes nodes: scalars stay text, nothing is constructed, and nothing nests or repeats without limit. Of JSON
numbers may stay text, and duplicate keys are refused. Lines cost time: so where speed matters (`JSONText`) the standard
library reads, and only a text at fault is read again with the line of every value (`parse_json`).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from pydantic import ValidationError

from truenorth.models.scenario.errors import MAX_DEPTH, MAX_VALUES, InputError, Node, Plain, Source, Where, quote
from truenorth.models.scenario.files import PACKED, read_text
from truenorth.models.scenario.section import Document, validate

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


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_HIDDEN_BREAKS = "\x85\u2028\u2029"
"""YAML 1.1 counts them as ends of lines, editors do not."""
_NULL = ("", "~", "null", "Null", "NULL")


def read_document(path: Path) -> Source:
    """Return a document with its lines.

    Raises
    ------
    InputError
        With file and line of what is wrong.
    """
    suffix = Path(path.stem).suffix if path.suffix == PACKED else path.suffix
    return Source(str(path), path.parent, parse_document(read_text(path), str(path), suffix))


def read_record(path: Path, record: type[Document]) -> Document:
    """Return what a JSON file says, checked.

    Raises
    ------
    InputError
        With file and line of what is wrong.
    """
    text = JSONText(read_text(path), str(path))
    data = text.data(NUMBERS)
    try:
        return record.model_validate(data)
    except ValidationError:  # lines cost time, so only a file that is wrong is read a second time, with them
        return validate(record, data, Source(str(path), path.parent, text.nodes()))


def parse_document(text: str, file: str, suffix: str) -> Node:
    """Return the nodes of a text: JSON if the name of its file ends so, else YAML; InputError as `read_document`."""
    return parse_json(text, file) if suffix.lower() == ".json" else parse_yaml(text, file)


def parse_yaml(text: str, file: str) -> Node:
    """Return the nodes of the one document in a YAML text.

    Anchors and aliases are followed; tags, merge keys, several documents and duplicate keys are refused.

    Raises
    ------
    InputError
        With the line of the first thing that is wrong.
    """
    for letter in _HIDDEN_BREAKS:
        if letter in text:
            raise _control_character(text, file, letter)
    composer = _Composer(file)
    try:
        composer.compose(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = f"{error.problem or error.context}; allowed is YAML"
        raise InputError(file, mark.line + 1 if mark else 1, "file", problem) from None
    except yaml.reader.ReaderError as error:
        raise _control_character(text, file, chr(error.character)) from None
    if composer.root is None:
        raise InputError(file, 1, "file", "is empty; allowed is a mapping of keys to values")
    return composer.root


def _control_character(text: str, file: str, letter: str) -> InputError:
    line = text.count("\n", 0, text.index(letter)) + 1
    return InputError(file, line, "file", f"control character {letter!r}; allowed is YAML")


@dataclass(slots=True)
class _Open:
    """A collection whose end has not been read yet; `size` and `height` count what its aliases stand for."""

    line: int
    anchor: str | None
    content: list[Node] | dict[str, tuple[int, Node]]
    key: tuple[str, int] | None = None
    size: int = 1
    height: int = 1


@dataclass(slots=True)
class _Composer:
    """Puts events together, without recursion."""

    file: str
    root: Node | None = None
    open: list[_Open] = field(default_factory=list)
    anchors: dict[str, tuple[Node, int, int]] = field(default_factory=dict)

    def compose(self, events: Iterable[yaml.Event]) -> None:
        """Read all events; leave the document in `root`."""
        for event in events:
            line = event.start_mark.line + 1 if event.start_mark else 1
            if isinstance(event, yaml.ScalarEvent):
                self._refuse_tag(event.tag, line)
                self._add(Node(line, _scalar(event)), event.anchor, 1, 1)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._refuse_tag(event.tag, line)
                self._start(event, line)
            elif isinstance(event, yaml.CollectionEndEvent):
                done = self.open.pop()
                self._add(Node(done.line, done.content), done.anchor, done.size, done.height)
            elif isinstance(event, yaml.AliasEvent):
                self._repeat(str(event.anchor), line)
            elif isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
                raise self._error(line, "a second document starts; allowed is one document")

    def _start(self, event: yaml.CollectionStartEvent, line: int) -> None:
        if len(self.open) >= MAX_DEPTH:
            raise self._error(line, f"is nested too deeply; allowed are {MAX_DEPTH} levels")
        self.open.append(_Open(line, event.anchor, {} if isinstance(event, yaml.MappingStartEvent) else []))

    def _repeat(self, anchor: str, line: int) -> None:
        if anchor not in self.anchors:
            raise self._error(line, f"alias {quote(anchor)} has no anchor before it; allowed are aliases of anchors")
        node, size, height = self.anchors[anchor]
        self._add(node, None, size, height, line)

    def _add(self, node: Node, anchor: str | None, size: int, height: int, line: int | None = None) -> None:
        """Put a finished node where it belongs: the root, a key, a value or an item."""
        if anchor is not None:
            self.anchors[anchor] = (node, size, height)
        if not self.open:
            self.root = node
            return
        parent = self.open[-1]
        parent.size += size
        parent.height = max(parent.height, height + 1)
        if parent.size > MAX_VALUES or len(self.open) + height > MAX_DEPTH:
            raise self._error(line or node.line, f"is too large; allowed are {MAX_DEPTH} levels, {MAX_VALUES} values")
        if isinstance(parent.content, list):
            parent.content.append(node)
        elif parent.key is None:
            parent.key = self._key(node, parent.content), line or node.line
        else:
            key, key_line = parent.key
            parent.content[key], parent.key = (key_line, node), None

    def _key(self, node: Node, siblings: dict[str, tuple[int, Node]]) -> str:
        if node.content is not None and not isinstance(node.content, str):
            raise self._error(node.line, "a list or mapping stands as a key; allowed is text")
        key = str(node.content or "")
        if key in siblings:
            raise InputError(self.file, node.line, key, f"duplicate key; it already stands in line {siblings[key][0]}")
        return key

    def _refuse_tag(self, tag: str | None, line: int) -> None:
        if tag is not None and tag != "!":
            raise self._error(line, f"tag {quote(tag)}; allowed are values without tags")

    def _error(self, line: int, problem: str) -> InputError:
        return InputError(self.file, line, "file", problem)


def _scalar(event: yaml.ScalarEvent) -> str | None:
    if event.style:
        return str(event.value)
    return None if event.value in _NULL else Plain(event.value)
