"""Logs in JSON: long lists and files of lines, read entry by entry, and what values of an entry may be.

Numbers stay text, as in scenario files, so that times are rounded once and exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from json import JSONDecodeError
from pathlib import Path
from typing import Annotated, NamedTuple, TextIO, TypeVar

import numpy as np
from pydantic import PlainValidator, ValidationError
from pydantic_core import PydanticCustomError

from truenorth.models.scenario.errors import FieldError, InputError, Plain, Where, quote
from truenorth.models.scenario.files import LONGEST_LINE, read_bounded_lines
from truenorth.models.scenario.limits import MAX_HORIZON_US
from truenorth.models.scenario.quantities import MAX_SIZE_BYTES, MAX_TIME_US
from truenorth.models.scenario.reading import EXACT, JSONText
from truenorth.models.scenario.section import faults_of, kind_of, problem
from truenorth.models.units import QuantityError, microseconds
from truenorth.planner.inputs.importers.csv_files import (
    CHUNK_ROWS,
    SEPARATORS,
    csv_rows,
    header_of,
    open_text,
    separator_of,
)
from truenorth.planner.inputs.importers.rows import LONGEST_NAME, Refusal, Rows, Tally

Made = TypeVar("Made")
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


class ReadEntry(NamedTuple):
    """An entry of a list, read, and its text with its place: the fields of a `JSONText`, which takes longer to make."""

    value: object
    text: str
    file: str
    first_line: int
    path: Where

    def data(self) -> object:
        """Return the value."""
        return self.value

    def error(self, where: Where, problem: str) -> InputError:
        """Return the error that blames the value at `where`."""
        return JSONText(*self[1:]).error(where, problem)


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
        self._text, self._at, self._position = "", 0, -1
        self._line, self._counted = 1, 0

    def __iter__(self) -> Iterator[ReadEntry]:
        """Yield the entries, read, each with its place.

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

    def _entry(self) -> ReadEntry:
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
        start, self._at = self._at, end
        return ReadEntry(value, self._text[start:end], self._name, self._line_at(start), (self._position,))

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
        return JSONText(self._text[start:end], self._name, self._line_at(start), (self._position,))

    def _line_at(self, place: int) -> int:
        """Return the line of a place that is none before those asked about so far."""
        self._line += self._text.count("\n", self._counted, place)
        self._counted = place  # a megabyte for every entry would take long
        return self._line

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
        self._line += self._text.count("\n", self._counted, self._at)
        self._text, self._at, self._counted = self._text[self._at :] + more, 0, 0
        return bool(more)


def name_at(value: object, where: Where) -> str:
    """Return text that can be a name.

    Raises
    ------
    FieldError
        If the value is none.
    """
    try:
        return _name(value)
    except PydanticCustomError as error:
        raise FieldError(where, error.message()) from None


def _name(value: object) -> str:
    if type(value) is not str or not 0 < len(value) <= LONGEST_NAME:  # Plain text, a number, is a str, too
        raise problem(f"{kind_of(value)} stands here; allowed is text of 1 to {LONGEST_NAME} characters")
    if not value.isprintable():
        raise problem(f"{quote(value)} stands here; allowed are printable characters of UTF-8")
    return value


def _seconds(most_us: int) -> PlainValidator:
    def read_seconds(value: object) -> int:
        """Return a number of seconds in microseconds, rounded half up."""
        try:
            time_us = microseconds(value, "s") if isinstance(value, Plain) else -1
        except QuantityError:
            time_us = -1
        if 0 <= time_us <= most_us:
            return time_us
        allowed = f"a number of seconds from 0 to {most_us / 1e6:g}"
        raise problem(f"{kind_of(value)} is no time in range; allowed is {allowed}")

    return PlainValidator(read_seconds)


def _bytes(value: object) -> int:
    if isinstance(value, Plain) and value.isdigit() and len(value) < 20 and int(value) <= MAX_SIZE_BYTES:
        return int(value)
    raise problem(f"{kind_of(value)} is no size; allowed is a whole number of bytes to {MAX_SIZE_BYTES:g}")


LogName = Annotated[str, PlainValidator(_name)]
Seconds = Annotated[int, _seconds(MAX_TIME_US)]
"""Microseconds, once read."""
LongSeconds = Annotated[int, _seconds(MAX_HORIZON_US)]
"""The same of what many tasks take one after the other."""
Bytes = Annotated[int, PlainValidator(_bytes)]


class LeftOutError(Exception):
    """An entry is well formed, but no part of the workload; the message says why."""


def read_entries(
    texts: Iterable[JSONText | ReadEntry], make: Callable[[object], Made], tally: Tally, unread: str = "row: is no JSON"
) -> Iterator[Made]:
    """Yield what is made of each entry; what is left out and what is malformed is counted.

    Parameters
    ----------
    make
        From an entry's value; raises LeftOutError, or FieldError or pydantic's ValidationError at what is malformed.
    unread
        Reason by which entries that are no JSON are counted.

    Raises
    ------
    InputError
        For a malformed entry with its line, unless such are skipped.
    """
    for text in texts:
        tally.read += 1
        try:
            made = make(text.data())
        except LeftOutError as reason:
            tally.left_out[str(reason)] += 1
        except ValidationError as refused:
            _refuse(text, faults_of(refused)[0], tally)
        except FieldError as fault:
            _refuse(text, fault, tally)
        except InputError as error:
            tally.refuse(error, unread)
        else:
            yield made


def _refuse(text: JSONText | ReadEntry, fault: FieldError, tally: Tally) -> None:
    """Count a malformed entry by its field, or raise an error with its line."""
    if not tally.skip_malformed:  # lines cost time
        raise text.error(fault.where, fault.problem) from None
    field = ".".join(part for part in fault.where if isinstance(part, str) and part != "[key]")
    tally.refused[f"{field or 'entry'}: is malformed"] += 1


def table_rows(
    path: Path, columns: Sequence[str], tally: Tally, sparse: Sequence[str] = (), lists: Collection[str] = ()
) -> Iterator[Rows]:
    """Return the rows of a log whatever it is: CSV of any separator, or JSON Lines, whose keys are columns.

    What is read is a note of the tally, unless it is CSV with commas.

    Parameters
    ----------
    columns
        Which are read.
    sparse
        Those of them that an object of JSON may leave out; they are empty then.
    lists
        Those that are lists in an object of JSON; what `Rows.lists` reads.

    Raises
    ------
    InputError
        If the file cannot be read or, unless the tally skips malformed rows, for the first row that is malformed.
    """
    if _holds_json_lines(path):
        tally.notes.append(f"{path.name} holds JSON Lines")
        return json_rows(path, [name for name in columns if name not in sparse], tally, sparse, lists)
    separator = separator_of(path, columns)
    if separator != ",":
        tally.notes.append(f"fields of {path.name} are separated by {SEPARATORS[separator]}")
    return csv_rows(path, columns, tally, separator=separator)


def columns_of(path: Path, known: Sequence[str]) -> list[str]:
    """Return the columns of a log, of whatever sort it is; of JSON Lines the keys of the first object.

    A key of an object in an object is written behind that one's and a point: ``usage.prompt_tokens``.

    Parameters
    ----------
    known
        Names by which what separates the fields of CSV is told.

    Raises
    ------
    InputError
        If the file cannot be read, is empty, or its first line is malformed.
    """
    if not _holds_json_lines(path):
        return header_of(path, separator_of(path, known))
    with open_text(path) as file:
        return _keys(_object(next(json_lines(file, str(path)))))


def _keys(row: Mapping[str, object], before: str = "") -> list[str]:
    own = [before + key for key in row]
    nested = ((key, of) for key, of in row.items() if isinstance(of, Mapping))
    return own + [name for key, of in nested for name in _keys(of, f"{before}{key}.")]


def _holds_json_lines(path: Path) -> bool:
    """Say whether the first line of a file that is not blank begins an object."""
    with open_text(path) as file:
        lines = read_bounded_lines(file, str(path), LONGEST_LINE)
        return next((line for line in lines if line.strip()), "").lstrip().startswith("{")


def json_rows(
    path: Path, required: Sequence[str], tally: Tally, optional: Sequence[str] = (), lists: Collection[str] = ()
) -> Iterator[Rows]:
    """Yield the rows of a file in chunks, and settle each chunk with the tally afterwards.

    Parameters
    ----------
    required
        Keys that every object must have.
    optional
        Keys that count as empty where they are missing. Others are ignored.
    lists
        Keys under which lists stand.

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
                    found.append(_values(text, wanted, optional, lists))
                    line.append(text.first_line)
                except InputError as error:
                    broken.append(Refusal(error, f"{error.field}: is malformed"))
            columns = {key: np.array([row[at] for row in found], np.object_) for at, key in enumerate(wanted)}
            rows = Rows(str(path), np.array(line, np.int64), columns, tally, broken)
            yield rows
            rows.settle()


def _object(text: JSONText) -> Mapping[str, object]:
    row = text.data()
    if not isinstance(row, dict):
        raise InputError(text.file, text.first_line, "row", f"{kind_of(row)} stands here; allowed is an object")
    return row


def _values(text: JSONText, wanted: dict[str, None], optional: Sequence[str], lists: Collection[str] = ()) -> list[str]:
    """Return the values of some keys as text, numbers as they stand."""
    row = _object(text)
    found = []
    for key in wanted:
        value = _value_at(row, key)
        if value is Ellipsis and key in optional:
            value = None
        if value is Ellipsis:
            known = f"its keys: {', '.join(map(quote, row))[:200]}; allowed is an object with {', '.join(wanted)}"
            raise InputError(text.file, text.first_line, "row", f"has no key {key!r}; {known}")
        if key in lists:
            if value is not None and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
                raise text.error(tuple(key.split(".")), f"{kind_of(value)} stands here; allowed is a list of hashes")
            value = None if value is None else f"[{', '.join(value)}]"
        if value is not None and not isinstance(value, str):
            where = (key,) if key in row else tuple(key.split("."))
            raise text.error(where, f"{kind_of(value)} stands here; allowed is text, a number or null")
        found.append(value or "")
    return found


def _value_at(row: Mapping[str, object], key: str) -> object:
    """Return the value of a key, or of one in an object under another; null within null, else Ellipsis if missing."""
    if key in row:
        return row[key]
    outer, _, inner = key.partition(".")
    within = row.get(outer) if inner else Ellipsis
    if isinstance(within, Mapping):
        return _value_at(within, inner)
    return None if within is None and outer in row else Ellipsis
