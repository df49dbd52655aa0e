"""Logs in JSON: lists and files of lines, read entry by entry, documents, and what values of an entry may be.

Numbers stay text, as in scenario files, so that times are rounded once and exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from io import StringIO
from itertools import count, islice
from json import JSONDecodeError
from pathlib import Path
from typing import Annotated, NamedTuple, TextIO, TypeVar

import numpy as np
from pydantic import PlainValidator, ValidationError
from pydantic_core import PydanticCustomError

from truenorth.models.scenario.errors import FieldError, InputError, Plain, Where, quote
from truenorth.models.scenario.files import read_bounded_lines
from truenorth.models.scenario.limits import MAX_HORIZON_US
from truenorth.models.scenario.quantities import MAX_SIZE_BYTES, MAX_TIME_US
from truenorth.models.scenario.reading import EXACT, JSONText
from truenorth.models.scenario.section import faults_of, kind_of, problem
from truenorth.models.units import QuantityError, microseconds
from truenorth.planner.inputs.importers.csv_files import CHUNK_ROWS, open_text
from truenorth.planner.inputs.importers.rows import LONGEST_NAME, Refusal, Rows, Tally

Made = TypeVar("Made")
LONGEST_ENTRY = 16_000_000
"""Most characters of one entry of a list that is read entry by entry."""
MOST_OF_A_DOCUMENT = 256 << 20
"""Most characters of a document, which is read at once."""
_LOOKED_AT = 100
"""So many objects are looked at for the keys of all."""
_CHUNK = 1 << 20
_LONGEST_TOKEN = len("\\u0000") * 2
"""An error so near to the end of the text may come from a token that goes on."""
_HOLD_ROWS = ("scopeSpans", "spans", "requests")
"""Keys of lists that hold the rows, in objects of a list: of OpenTelemetry, Jaeger, and benchmarks."""
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
    line, to_the_end
        On which line of the file the list begins, and whether nothing may follow it.
    """

    def __init__(self, file: TextIO, name: str, line: int = 1, to_the_end: bool = True) -> None:
        self._file, self._name, self._to_the_end = file, name, to_the_end
        self._text, self._at, self._position = "", 0, -1
        self._line, self._counted = line, 0

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
        if self._to_the_end and self._peek():
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


class JSONSort(Enum):
    """How the rows of a log stand in JSON."""

    LINES = "holds JSON Lines"
    LIST = "is a JSON list"
    DOCUMENT = "is a JSON document"


def json_sort(path: Path) -> JSONSort | None:
    """Return how a file holds rows in JSON; None if it begins as no JSON does.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    with open_text(path) as file:
        text = file.read(_CHUNK).lstrip()
        if text.startswith("["):
            return JSONSort.LIST
        if not text.startswith("{"):
            return None
        if "\n" not in text:
            text += file.read(LONGEST_ENTRY)
        first, _, rest = (part.strip() for part in text.partition("\n"))
        if first.startswith('{"resourceSpans"'):
            return JSONSort.DOCUMENT
        try:
            EXACT.decode(first)
        except (ValueError, RecursionError) as error:
            # An object that only goes on is a document; what is wrong before the line ends is a malformed line, and so
            # is one whose rest is lost: an object follows where none may.
            goes_on = isinstance(error, JSONDecodeError) and error.pos >= len(first)
            lost = rest.startswith("{") and not (goes_on and "Expecting value" in str(error))
            return JSONSort.DOCUMENT if goes_on and not lost else JSONSort.LINES
        return JSONSort.LINES if rest or file.read(_CHUNK).strip() else JSONSort.DOCUMENT


def json_values(path: Path, sort: JSONSort) -> Iterator[JSONText | ReadEntry]:
    """Yield the objects of a file that are its rows, each with its place.

    Those of a document are its longest list of objects (``items``, ``data``), or else the object itself; documents may
    also follow each other, as indented lines do.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    with open_text(path) as file:
        if sort is JSONSort.LINES:
            yield from json_lines(file, str(path))
        elif sort is JSONSort.LIST:
            yield from Entries(file, str(path))
        else:
            yield from _documents(file.read(MOST_OF_A_DOCUMENT + 1), str(path))


def _documents(text: str, name: str) -> Iterator[JSONText | ReadEntry]:
    """Yield the rows of documents that follow each other."""
    if len(text) > MOST_OF_A_DOCUMENT:
        problem = f"is a document of more than {MOST_OF_A_DOCUMENT:,} characters; allowed are JSON Lines (jq -c '.[]')"
        raise InputError(name, 1, "file", problem)
    at, line, end = 0, 1, len(text.rstrip())
    while at < end:
        start = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        line += text.count("\n", at, start)
        try:
            value, at = EXACT.raw_decode(text, start)
        except (ValueError, RecursionError):
            raise JSONText(text[start:], name, line).refusal() from None
        listed = _longest_list(value)
        inner = _rows_within(value[listed]) if listed and isinstance(value, dict) else None
        if inner is not None:
            yield from (ReadEntry(row, text[start:at], name, line, (listed,)) for row in inner)
        elif listed:
            begin = _place_of(listed, text, start)
            yield from Entries(StringIO(text[begin:at]), name, line + text.count("\n", start, begin), to_the_end=False)
        elif not _is_empty(value):
            yield ReadEntry(value, text[start:at], name, line, ())
        line += text.count("\n", start, at)


def _place_of(key: str, text: str, start: int) -> int:
    """Return where the value of a key begins, in the text of an object that begins at `start` and can be read."""
    at, name = start + 1, None
    while name != key:
        at = at if name is None else EXACT.raw_decode(text, at)[1]
        name, at = EXACT.raw_decode(text, _past(text, at))
        at = _past(text, at)
    return at


def _past(text: str, at: int) -> int:
    """Return the place of the next character that is neither space nor between values."""
    while text[at] in " \t\r\n,:":
        at += 1
    return at


def _longest_list(value: object) -> str:
    """Return the key of an object's longest list of objects, or nothing."""
    lists = value.items() if isinstance(value, Mapping) else ()
    lengths = {key: len(of) for key, of in lists if isinstance(of, list) and of and isinstance(of[0], Mapping)}
    return max(lengths, key=lengths.__getitem__, default="")


def _is_empty(value: object) -> bool:
    """Say whether an object holds nothing but empty lists, and objects that say of what."""
    held = list(value.values()) if isinstance(value, Mapping) else []
    return [] in held and all(isinstance(of, Mapping) or of == [] for of in held)


def _rows_within(listed: Iterable[object]) -> list[object] | None:
    """Return the rows that objects of a list hold in lists of their own, as traces hold spans; None if there are none.

    Runs of a benchmark hold requests by how they ended, of which those that succeeded are rows.
    """
    inner: list[object] = []
    for each in listed:
        key = next((key for key in _HOLD_ROWS if isinstance(each, Mapping) and key in each), "")
        if not isinstance(each, Mapping) or not key:
            return None
        held = each[key]
        held = held.get("successful", []) if isinstance(held, Mapping) else held
        if not isinstance(held, list):
            return None
        within = _rows_within(held) if held else None
        inner += held if within is None else within
    return inner


def json_keys(path: Path, sort: JSONSort) -> list[str]:
    """Return the keys of the first objects of a file, as columns are named.

    A key of an object in an object is written behind that one's and a point, and so is the place in a list of objects:
    ``usage.prompt_tokens``, ``containers.0.image``.
    """
    found: dict[str, None] = {}
    for row in islice(json_values(path, sort), _LOOKED_AT):
        with suppress(InputError):  # who reads the rows refuses it, or counts it
            found |= dict.fromkeys(_keys(_object(row)))
    return list(found)


def _keys(row: Mapping[str, object], before: str = "") -> Iterator[str]:
    for key, of in row.items():
        yield before + key
        if isinstance(of, list) and of and isinstance(of[0], Mapping):
            yield from _keys(of[0], f"{before}{key}.0.")
            yield from (f"{before}{key}.{name}" for name in _named(of))
        elif isinstance(of, Mapping):
            yield from _keys(of, f"{before}{key}.")


def json_rows(
    path: Path,
    required: Sequence[str],
    tally: Tally,
    optional: Sequence[str] = (),
    lists: Collection[str] = (),
    sort: JSONSort = JSONSort.LINES,
) -> Iterator[Rows]:
    """Yield the rows of a file in chunks, and settle each chunk with the tally afterwards.

    An object whose keys hold lists is as many rows as these are long; what is no list there holds for each of them.

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
    texts = json_values(path, sort)
    while chunk := list(islice(texts, CHUNK_ROWS)):
        line, found, broken = [], [], []
        for text in chunk:
            try:
                made = [_texts(row, text, wanted, optional, lists) for row in _spread(_object(text), wanted, lists)]
                found += made
                line += [text.first_line] * len(made)
            except InputError as error:
                broken.append(Refusal(error, f"{error.field}: is malformed"))
        columns = {key: np.array([row[at] for row in found], np.object_) for at, key in enumerate(wanted)}
        rows = Rows(str(path), np.array(line, np.int64), columns, tally, broken)
        yield rows
        rows.settle()


def _object(text: JSONText | ReadEntry) -> Mapping[str, object]:
    row = text.data()
    if not isinstance(row, dict):
        raise InputError(text.file, text.first_line, "row", f"{kind_of(row)} stands here; allowed is an object")
    return row


def _spread(row: Mapping[str, object], wanted: Collection[str], lists: Collection[str]) -> list[Mapping[str, object]]:
    """Return the rows of an object whose keys hold lists, two at least; otherwise the object."""
    lengths = [len(of) for key in wanted if key not in lists and isinstance(of := row.get(key), list)]
    if len(lengths) < 2:
        return [row]
    columns = {key: of for key in wanted if isinstance(of := row.get(key), list) and len(of) == lengths[0]}
    return [{**row, **dict(zip(columns, of, strict=True))} for of in zip(*columns.values(), strict=True)]


def _texts(
    row: Mapping[str, object],
    text: JSONText | ReadEntry,
    wanted: Collection[str],
    optional: Sequence[str],
    lists: Collection[str],
) -> list[str]:
    """Return the values of some keys as text, numbers as they stand."""
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
        elif isinstance(value, bool):
            value = str(value).lower()
        elif key in optional and isinstance(value, Mapping):
            # What failed, as an object: its words are the status.
            value = " ".join(of for of in value.values() if isinstance(of, str)) or "{}"
        if isinstance(value, list) and key in optional:
            value = _resources(value)
        if value is not None and not isinstance(value, str):
            where = (key,) if key in row else tuple(key.split("."))
            raise text.error(where, f"{kind_of(value)} stands here; allowed is text, a number or null")
        found.append(value or "")
    return found


def _value_at(row: object, key: str) -> object:
    """Return the value of a key, or of one in an object or list under it; null within null, Ellipsis if missing."""
    if isinstance(row, list) and key in (named := _named(row)):
        return named[key]
    if isinstance(row, list):
        place, _, inner = key.partition(".")
        within = row[int(place)] if place.isdecimal() and int(place) < len(row) else Ellipsis
        return _value_at(within, inner) if inner and within is not Ellipsis else within
    if not isinstance(row, Mapping):
        return None if row is None else Ellipsis
    if key in row:
        return row[key]
    outer, _, inner = key.partition(".")
    return _value_at(row[outer], inner) if inner and outer in row else Ellipsis


def _named(row: Sequence[object]) -> dict[str, object]:
    """Return the values of a list of keys and values, as attributes of spans are.

    >>> _named([{"key": "tokens", "value": {"intValue": "7"}}, {"key": "kind", "value": "server"}])
    {'tokens': '7', 'kind': 'server'}
    """
    pairs = [
        (each["key"], each["value"]) for each in row if isinstance(each, Mapping) and {"key", "value"} <= each.keys()
    ]
    return {
        str(key): next(iter(of.values()), None) if isinstance(of, Mapping) and len(of) == 1 else of for key, of in pairs
    }


def _resources(value: Sequence[object]) -> object:
    """Return Slurm's list of trackable resources as it writes them elsewhere; any other list as it is.

    >>> _resources([{"type": "cpu", "name": "", "count": "8"}, {"type": "gres", "name": "gpu", "count": "2"}])
    'cpu=8,gres/gpu=2'
    """
    if not all(isinstance(each, Mapping) and {"type", "count"} <= each.keys() for each in value):
        return value
    names = [(each, "/".join(filter(None, (each["type"], each.get("name"))))) for each in value]  # type: ignore[index, attr-defined]
    return ",".join(f"{name}={each['count']}" for each, name in names)  # type: ignore[index]
