"""Logs in JSON: long lists and files of lines, read entry by entry, and what values of an entry may be.

Numbers stay text, as in scenario files, so that times are rounded once and exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count, islice
from json import JSONDecodeError
from pathlib import Path
from typing import TextIO

import numpy as np

from models.scenario.errors import FieldError, InputError, Plain, Where, quote
from models.scenario.files import LONGEST_LINE, read_bounded_lines
from models.scenario.json_text import EXACT, JSONText
from models.scenario.quantities import MAX_SIZE_BYTES, MAX_TIME_US
from models.scenario.section import kind_of
from models.units import QuantityError, microseconds
from planner.inputs.importers.csv_files import CHUNK_ROWS
from planner.inputs.importers.rows import LONGEST_NAME, Refusal, Rows, Tally
from planner.inputs.importers.source import open_text

LONGEST_ENTRY = 16_000_000
"""Most characters of one entry of a list that is read entry by entry."""
_CHUNK = 1 << 20
_LONGEST_TOKEN = len("\\u0000") * 2
"""An error so near to the end of the text may come from a token that goes on."""
_SPACE = re.compile(r"[ \t\r\n]*+")
_TO_NEXT = re.compile(r"[ \t\r\n]*+,[ \t\r\n]*+(?=\{)")


def json_lines(file: TextIO, name: str) -> Iterator[JSONText]:
    """Yield the lines of a file that are not blank.

    Raises
    ------
    InputError
        If a line is longer than `LONGEST_ENTRY` characters.
    """
    for line, text in enumerate(read_bounded_lines(file, name, LONGEST_ENTRY), 1):
        if text.strip():
            yield JSONText(text.rstrip("\r\n"), name, line)


class Entries:
    """The entries of a file that is one list of objects, read one by one.

    Memory holds one entry and about a megabyte of text, however long the list is.

    Parameters
    ----------
    file
        Open, at its start.
    name
        As errors name it.
    """

    def __init__(self, file: TextIO, name: str) -> None:
        self._file, self._name = file, name
        self._text, self._line, self._at = "", 1, 0
        self._position, self._start = -1, 0

    def __iter__(self) -> Iterator[dict[str, object]]:
        """Yield the entries.

        Raises
        ------
        InputError
            Where the file is no such list.
        """
        self._expect("[")
        if self._peek() != "]":
            for self._position in count():
                yield self._entry()
                if step := _TO_NEXT.match(self._text, self._at):
                    self._at = step.end()
                elif self._peek() == "]":
                    break
                else:
                    self._expect(",")
        self._expect("]")
        if self._peek():
            raise self._wrong("text follows the list")

    @property
    def text(self) -> JSONText:
        """The entry that was yielded last, with its place."""
        return self._from(self._start, self._at)

    def _entry(self) -> dict[str, object]:
        """Read the object that starts here."""
        if not self._text.startswith("{", self._at) and self._peek() != "{":
            raise self._wrong("an object is missing")
        while True:
            try:
                value: dict[str, object]
                value, end = EXACT.raw_decode(self._text, self._at)
                break
            except (ValueError, RecursionError) as error:
                if not (self._may_go_on(error) and self._read(max(_CHUNK, len(self._text)))):
                    raise self._from(self._at, len(self._text)).refusal() from None
        self._start, self._at = self._at, end
        return value

    def _peek(self) -> str:
        """Return the next character that is no space, or nothing at the end of the file."""
        while True:
            if space := _SPACE.match(self._text, self._at):
                self._at = space.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read(_CHUNK):
                return ""

    def _expect(self, mark: str) -> None:
        """Step over this character, or refuse the file."""
        if self._peek() != mark:
            raise self._wrong(f"{mark} is missing")
        self._at += 1

    def _from(self, start: int, end: int) -> JSONText:
        """Return a part of the text in memory, with its place."""
        line = self._line + self._text.count("\n", 0, start)
        return JSONText(self._text[start:end], self._name, line, (self._position,))

    def _wrong(self, problem: str) -> InputError:
        """Return the error at this place."""
        here = self._from(self._at, self._at + 20)
        found = here.text.split("\n")[0]
        at = f" at {quote(found)}" if found else ", the text ends"
        return InputError(self._name, here.first_line, "file", f"{problem}{at}; allowed is a JSON list of objects")

    def _may_go_on(self, error: Exception) -> bool:
        """Say whether an object that cannot be read may only have its end outside of memory."""
        if not isinstance(error, JSONDecodeError):
            return False
        if not error.msg.startswith("Unterminated") and error.pos < len(self._text) - _LONGEST_TOKEN:
            return False
        if len(self._text) - self._at < LONGEST_ENTRY:
            return True
        problem = f"is longer than {LONGEST_ENTRY} characters; allowed are shorter entries"
        line = self._from(self._at, self._at).first_line
        raise InputError(self._name, line, f"[{self._position}]", problem) from None

    def _read(self, characters: int) -> bool:
        """Forget what has been read, and fetch more; say whether there was more."""
        more = self._file.read(characters)
        self._line += self._text.count("\n", 0, self._at)
        self._text, self._at = self._text[self._at :] + more, 0
        return bool(more)


def mapping_at(value: object, where: Where) -> dict[str, object]:
    """Return a mapping as such.

    Raises
    ------
    FieldError
        If the value is none.
    """
    if not isinstance(value, dict):
        raise FieldError(where, f"{kind_of(value)} stands here; allowed is a mapping")
    return value


def items_at(value: object, where: Where) -> list[object]:
    """Return a list as such.

    Raises
    ------
    FieldError
        If the value is none.
    """
    if not isinstance(value, list):
        raise FieldError(where, f"{kind_of(value)} stands here; allowed is a list")
    return value


def member(mapping: dict[str, object], key: str, where: Where = ()) -> object:
    """Return the value of a key; `where` is the way to the mapping.

    Raises
    ------
    FieldError
        If the key is missing.
    """
    try:
        return mapping[key]
    except KeyError:
        raise FieldError(where, f"key {key!r} is missing; allowed is a mapping that has it") from None


def name_at(value: object, where: Where) -> str:
    """Return text that can be a name.

    Raises
    ------
    FieldError
        If the value is none.
    """
    if type(value) is not str or not 0 < len(value) <= LONGEST_NAME:  # Plain text, a number, is a str, too
        raise FieldError(where, f"{kind_of(value)} stands here; allowed is text of 1 to {LONGEST_NAME} characters")
    if not value.isprintable():
        raise FieldError(where, f"{quote(value)} stands here; allowed are printable characters of UTF-8")
    return value


def time_at(value: object, where: Where, most_us: int = MAX_TIME_US) -> int:
    """Return a number of seconds in microseconds, rounded half up; it is at most `most_us`.

    Raises
    ------
    FieldError
        If the value is no number, is negative or too large.
    """
    if isinstance(value, Plain):
        with suppress(QuantityError):
            time_us = microseconds(value, "s")
            if 0 <= time_us <= most_us:
                return time_us
    problem = f"is no time in range; allowed is a number of seconds from 0 to {most_us / 1e6:g}"
    raise FieldError(where, f"{kind_of(value)} {problem}")


def size_at(value: object, where: Where) -> int:
    """Return a number of bytes.

    Raises
    ------
    FieldError
        If the value is no whole number, is negative or too large.
    """
    if isinstance(value, Plain) and value.isdigit() and len(value) < 20 and int(value) <= MAX_SIZE_BYTES:
        return int(value)
    raise FieldError(where, f"{kind_of(value)} is no size; allowed is a whole number of bytes to {MAX_SIZE_BYTES:g}")


def refuse(text: JSONText, error: FieldError, tally: Tally) -> None:
    """Count a malformed entry by its field.

    Raises
    ------
    InputError
        With its line, unless malformed entries are skipped.
    """
    if not tally.skip_malformed:
        raise text.error(error.where, error.problem) from None
    field = ".".join(part for part in error.where if isinstance(part, str))
    tally.refused[f"{field or 'entry'}: is malformed"] += 1


def holds_json_lines(path: Path) -> bool:
    """Say whether the first line of a file that is not blank begins an object.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    with open_text(path) as file:
        lines = read_bounded_lines(file, str(path), LONGEST_LINE)
        return next((line for line in lines if line.strip()), "").lstrip().startswith("{")


def json_rows(path: Path, required: Sequence[str], tally: Tally, optional: Sequence[str] = ()) -> Iterator[Rows]:
    """Yield the rows of a file in chunks, and settle each chunk with the tally afterwards.

    Parameters
    ----------
    required
        Keys that every object must have.
    optional
        Keys that count as empty where they are missing. Others are ignored.

    Raises
    ------
    InputError
        If the file cannot be read or, unless the tally skips malformed rows, for the first row that is malformed.
    """
    wanted = dict.fromkeys((*required, *optional))
    with open_text(path) as file:
        texts = json_lines(file, str(path))
        while chunk := list(islice(texts, CHUNK_ROWS)):
            line, found, broken = [], [], []
            for text in chunk:
                try:
                    found.append(_values(text, wanted, optional))
                    line.append(text.first_line)
                except InputError as error:
                    broken.append(Refusal(error, f"{error.field}: is malformed"))
            columns = {key: np.array([row[at] for row in found], np.object_) for at, key in enumerate(wanted)}
            rows = Rows(str(path), np.array(line, np.int64), columns, tally, broken)
            yield rows
            rows.settle()


def _values(text: JSONText, wanted: dict[str, None], optional: Sequence[str]) -> list[str]:
    """Return the values of some keys as text, numbers as they stand."""
    row = text.data()
    if not isinstance(row, dict):
        raise InputError(text.file, text.first_line, "row", f"{kind_of(row)} stands here; allowed is an object")
    found = []
    for key in wanted:
        value = row.get(key, None if key in optional else Ellipsis)
        if value is Ellipsis:
            known = f"its keys: {', '.join(map(quote, row))[:200]}; allowed is an object with {', '.join(wanted)}"
            raise InputError(text.file, text.first_line, "row", f"has no key {key!r}; {known}")
        if value is not None and not isinstance(value, str):
            raise text.error((key,), f"{kind_of(value)} stands here; allowed is text, a number or null")
        found.append(value or "")
    return found
