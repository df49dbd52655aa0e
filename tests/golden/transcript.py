"""Transcripts: what is typed, one line each behind ``$``, and under it, indented, everything that it answers.

- ``$ truenorth ...`` runs the command; lines of standard error start with ``!``, an exit code but 0 comes last.
- ``$ measured truenorth ...`` is one whose numbers are measured: only the shape of its answer is kept.
- ``$ show FILE`` prints a file that was written, ``$ measured show FILE`` its shape; ``$ list FOLDER`` names files.
- ``$ change FILE OLD NEW`` writes ``changed.yaml`` from an input with one text in place of another.
- ``$ write FILE TEXT`` writes a file.

What depends on the clock, the machine and the version is replaced by ``<time>`` and the like.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from truenorth.planner.command.cli import app
from truenorth.planner.command.manners import run

WIDTH = 120
_TIMES = {"runtime_s", "cpu_s", "wall_s", "elapsed_s", "time_to_first_s"}
_STAMPS = {"versions": "<versions>", "commit": "<commit>", "machine": "<machine>"}
_IN_TEXT = (
    (re.compile(r"truenorth \d+\.\d+\.\d+[^\n<]*"), "truenorth <versions>"),
    (re.compile(r"took(\s+)[\d.]+ s, [\d.]+ s of CPU"), r"took\1<time>"),
    (re.compile(r"(?m)^.*no time was left to build it\s*?\n"), ""),
    (re.compile(r"svg: [\d. ]+ (?=time of search)"), "svg: <time> "),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?= · |$)", re.MULTILINE), "<day>"),
    (re.compile(r"(at the end of|took|after|within|for) [\d.]+ s\b"), r"\1 <time>"),
)
_NUMBER = re.compile(r"[-+]?\d[\d,.]*(?:e[-+]?\d+)?")
_KEY = re.compile(r"[0-9a-f]{64}")
_MEASURED = re.compile(_NUMBER.pattern + r"( (us|ms|s|[KMG]?B|[KMG]?B/s)\b)?")
_RUN_OF_NUMBERS = re.compile(r"(\bto )?#(\s*(#|%|to\b|of\b))*")  # an interval may break before its "to"
_RULES = re.compile(r"[\u2500-\u257f]")

Output = Callable[[], tuple[str, str]]


def typed(transcript: str) -> list[str]:
    """Return the lines that are typed in a transcript."""
    return [line[2:] for line in transcript.splitlines() if line.startswith("$ ")]


def replayed(transcript: str, output: Output) -> str:
    """Type what a transcript types, in the current folder, and return the transcript of that.

    `output` returns what was printed since it was last asked: standard output and standard error.
    """
    return "\n".join(part for line in typed(transcript) for part in _typed(line, output)) + "\n"


def _typed(line: str, output: Output) -> Iterator[str]:
    """Yield the line and, indented, what it answers."""
    yield f"$ {line}"
    words = shlex.split(line)
    measured = words[0] == "measured"
    with pytest.MonkeyPatch.context() as patch:
        # On a narrow page the heads of a table break as the measured numbers under them leave room.
        if measured:
            patch.setattr("truenorth.planner.command.manners._PIPE_WIDTH", 400)
        answer = _answer(words[1:] if measured else words, _shape if measured else _plain, output)
        yield from (f"  {row}".rstrip() for row in answer)


def _answer(words: list[str], tell: Callable[[str, str], str], output: Output) -> Iterator[str]:
    verb, *rest = words
    match verb:
        case "truenorth":
            code = run(app, rest)
            out, err = output()
            yield from tell("json" if "--json" in rest and out.startswith("{") else "", out).splitlines()
            yield from (f"! {row}" for row in tell("", err).splitlines())
            if code:
                yield f"exit {code}"
        case "show":
            path = Path(rest[0])
            yield from tell(path.suffix.lstrip("."), path.read_text()).splitlines()
        case "list":
            files = [str(path.relative_to(rest[0])) for path in Path(rest[0]).rglob("*") if path.is_file()]
            yield from sorted(_KEY.sub("<key>", file) for file in files)  # a key changes with the version
        case "change":
            source, old, new = (word.encode().decode("unicode_escape") for word in rest)
            text = Path(source).read_text()
            assert text.count(old) >= 1, f"{old!r} is not in {source}"
            Path("changed.yaml").write_text(text.replace(old, new, 1))
        case "write":
            Path(rest[0]).write_text(rest[1].encode().decode("unicode_escape"))
        case _:
            raise AssertionError(f"{verb}: a transcript knows truenorth, measured, show, list, change and write")


def _plain(kind: str, text: str) -> str:
    """Return a text of a kind (a file's suffix) with what changes from run to run replaced."""
    if kind == "json":
        return _laid_out(_stamped(json.loads(text)))
    if kind == "jsonl":
        return "\n".join(_laid_out(_stamped(json.loads(line))) for line in text.splitlines())
    if kind == "html":
        return _page(text)
    if kind == "csv":
        return _table(text)
    return _worded(text)


def _worded(text: str) -> str:
    for pattern, replacement in _IN_TEXT:
        text = pattern.sub(replacement, text)
    return text


def _shape(kind: str, text: str) -> str:
    """Return the rows of a text, every number replaced, without sentences and in no order: these hang on numbers, too.

    Of JSON return the keys.
    """
    if kind == "json":
        return _laid_out(_keys(_stamped(json.loads(text))))
    text = _page(text, shape=True) if kind == "html" else text
    words = (" ".join(_MEASURED.sub("#", _RULES.sub(" ", row)).split()) for row in _worded(text).splitlines())
    rows = {_RUN_OF_NUMBERS.sub("#", row) for row in words}
    left_out = ("svg", "as predicted", "p:")
    bare = {"", "to", "of", "%"}  # of an interval that a narrow column broke in two
    told = (row for row in rows if row.strip("# ") not in bare and not row.startswith(left_out) and row[-1] != ".")
    return "\n".join(sorted(told))


def _table(text: str) -> str:
    """Return a CSV file with its columns of times emptied."""
    head, *rows = text.splitlines()
    timed = [place for place, name in enumerate(head.split(",")) if name in _TIMES]
    if not timed:
        return _worded(text)
    cells = [row.split(",") for row in rows]
    for row in cells:
        for place in timed:
            row[place] = "<time>"
    return "\n".join([head, *(",".join(row) for row in cells)])


def _stamped(value: Any, key: str = "") -> Any:
    """Return a JSON value with times, versions and the last digits of numbers replaced."""
    if value is not None and (key in _TIMES or (key == "time_limit_s" and value % 1)):  # what was left of a limit
        return "<time>"
    if key in _STAMPS:
        return _STAMPS[key]
    if key == "left_out" and isinstance(value, dict):
        return {name: why for name, why in value.items() if not str(why).startswith("no time")}
    if key == "incumbents" and isinstance(value, list):
        return [["<time>", *(_stamped(part) for part in row[1:])] for row in value]
    match value:
        case dict():
            return {name: _stamped(part, name) for name, part in sorted(value.items())}
        case list():
            return [_stamped(part, key) for part in value]
        case float():
            return float(f"{value:.9g}")
        case str():
            return _worded(value)
    return value


def _keys(value: Any) -> Any:
    """Return a JSON value's keys, with the sorts of value that stand under each; a list is one of them together."""
    match value:
        case dict():
            return {name: _keys(part) for name, part in value.items()}
        case [dict(), *_]:
            names = sorted({name for part in value for name in part})
            return [{name: _keys([part[name] for part in value if name in part]) for name in names}]
        case list():
            sorts = {json.dumps(_keys(part)) for part in value}
            return [json.loads(sort) for sort in sorted(sorts)]
        case bool() | float() | int() | None:
            return "#"
    return _NUMBER.sub("#", value)


def _laid_out(value: Any, indent: str = "") -> str:
    """Return JSON over as few lines as are no wider than the page."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + len(indent) <= WIDTH or not isinstance(value, dict | list):
        return line
    deeper = indent + "  "
    if isinstance(value, Mapping):
        rows = [f"{json.dumps(name, ensure_ascii=False)}: {_laid_out(part, deeper)}" for name, part in value.items()]
        start, end = "{", "}"
    else:
        rows = [_laid_out(part, deeper) for part in value]
        start, end = "[", "]"
    return f"{start}\n{deeper}" + f",\n{deeper}".join(rows) + f"\n{indent}{end}"


def _page(text: str, shape: bool = False) -> str:
    """Return what a reader finds on a page: headings, sentences, rows of tables; of charts the data, or its shape."""
    reader = _Reader(shape)
    reader.feed(text)
    reader.close()
    return _worded("\n".join(reader.rows))


class _Reader(HTMLParser):
    """Collects a page's words, one block a row."""

    _BLOCKS = ("title", "h1", "h2", "h3", "p", "caption", "tr", "li", "figcaption", "dt", "dd", "summary", "label")

    def __init__(self, shape: bool) -> None:
        super().__init__()
        self._shape = shape
        self.rows: list[str] = []
        self._tags: list[str] = []
        self._data: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a row."""
        self._tags.append(tag)
        self._data = "" if tag == "script" and ("type", "application/json") in attrs else None
        if tag in self._BLOCKS:
            self.rows.append(f"{tag}:")
        elif tag in {"td", "th"}:
            self.rows[-1] += " |"
        elif tag == "svg":
            self.rows.append("svg:")

    def handle_endtag(self, tag: str) -> None:
        """End an element and those in it that nobody ended."""
        if self._data is not None:
            data = _stamped(json.loads(self._data))
            self.rows.append(_laid_out(_keys(data) if self._shape else data))
            self._data = None
        while self._tags and self._tags.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        """Add words to the row, or the data of a chart."""
        words = " ".join(data.split())
        if self._data is not None:
            self._data += data
        elif words and not {"style", "script"} & set(self._tags) and self.rows:
            self.rows[-1] += f" {words}"
