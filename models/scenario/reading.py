"""Documents from files, YAML or JSON as the name says, with the line of every value.

YAML becomes nodes: scalars stay text, nothing is constructed, and nothing nests or repeats without limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from pydantic import ValidationError

from truenorth.models.scenario.errors import MAX_DEPTH, MAX_VALUES, InputError, Node, Plain, Source, quote
from truenorth.models.scenario.files import PACKED, read_text
from truenorth.models.scenario.json_text import NUMBERS, JSONText, parse_json
from truenorth.models.scenario.section import Document, validate

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
