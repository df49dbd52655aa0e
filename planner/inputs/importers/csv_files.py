"""CSV files as rows in chunks, and how log files are opened: plain or gzip, whatever their names.

A row is a line, or several where quotes hold line breaks, as prompts do; it stands where it begins. A quote that opens
such a row and one that stands in a field by mistake look alike; the lines up to the next quote tell, if they are one
row together. Otherwise the stray quote spoils one line. Whatever is read must be UTF-8; what stands in other columns
may be anything.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress, islice
from pathlib import Path
from typing import TextIO

import numpy as np

from truenorth.models.scenario import InputError, admit, open_now
from truenorth.models.scenario.files import read_bounded_lines
from truenorth.planner.inputs.importers.rows import Refusal, Rows, Tally

_GZIP = b"\x1f\x8b"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@contextmanager
def open_bytes(path: Path) -> Iterator[tuple[io.BufferedReader | gzip.GzipFile, io.BufferedReader]]:
    """Open a file, unpacking gzip: what is in it, and the file itself, whose position says how much has been read.

    Raises
    ------
    InputError
        If it cannot be opened, or, while the block reads it, turns out to be damaged.
    """
    admit(path)
    try:
        with open(path, "rb", opener=open_now) as raw:
            # A look ahead, since a pipe cannot be wound back.
            packed = raw.peek(len(_GZIP)).startswith(_GZIP)
            yield gzip.GzipFile(fileobj=raw) if packed else raw, raw
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(str(path), 1, "file", f"is damaged: {error}; allowed is a whole gzip file") from None
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}; allowed is a readable file"
        raise InputError(str(path), 1, "file", problem) from None


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a file as text; bytes that are not UTF-8 become lone surrogates, so that their row is known.

    Raises
    ------
    InputError
        If it cannot be opened, is UTF-16, or, while the block reads it, turns out to be damaged.
    """
    with open_bytes(path) as (file, _):
        if file.peek(len(_UTF_16[0])).startswith(_UTF_16):
            raise InputError(str(path), 1, "file", f"is UTF-16; allowed is {utf_8_from('UTF-16')}")
        with io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="") as text:
            yield text


def utf_8_from(encoding: str) -> str:
    """Return what is allowed in place of another encoding, and the remedy."""
    return f"UTF-8: convert the file, for instance with iconv -f {encoding} -t UTF-8"


def assert_each_once(files: Sequence[Path]) -> None:
    """Refuse a file that is named twice, whose rows would count twice.

    Raises
    ------
    InputError
        For the second of the two.
    """
    known: set[str] = set()
    for path in files:
        real = os.path.realpath(path)
        if real in known:
            raise InputError(str(path), None, "file", "is named twice; allowed is each file once")
        known.add(real)


CHUNK_ROWS = 65_536
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
"""What may stand between two fields."""
_CONVERTED = utf_8_from("LATIN1")
LONGEST_ROW = 1 << 20
"""Most characters of a row: a prompt of 100,000 tokens is half of it."""
csv.field_size_limit(LONGEST_ROW)
_QUOTED = re.compile('"[^"]*"')
_OPEN = "unexpected end of data"
"""What Python's reader says where a quote is not closed."""


def csv_rows(
    path: Path,
    required: Sequence[str],
    tally: Tally,
    header: Sequence[str] | None = None,
    as_csv: Callable[[str], str] | None = None,
) -> Iterator[Rows]:
    """Yield the rows of a CSV file in chunks, and settle each chunk with the tally afterwards.

    Parameters
    ----------
    required
        Columns that the header must have; any other is ignored.
    header
        Names of the columns of a file that has no header, whose fields commas separate; else the header says what does.
    as_csv
        What makes a line of CSV of each line of another sort; blank ones are no rows.

    Raises
    ------
    InputError
        If the file cannot be read, has no such header or no rows, or, unless the tally skips malformed rows, for the
        first row that is malformed.
    """
    before = tally.read
    with open_text(path) as file:
        line, separator = (1, ",") if header else (2, "")
        if not header:
            header, separator = _header(file, path, required)
            tally.notes += _say_separator(path, separator)
        positions = _positions(header, required, str(path))
        read = read_bounded_lines(file, str(path), LONGEST_ROW, line)
        source = map(as_csv, read) if as_csv else read
        while lines := list(islice(source, CHUNK_ROWS)):
            found = take_apart(lines, source, len(header), separator)
            rows = _rows(lines, found, line, str(path), len(header), positions, tally)
            yield rows
            rows.settle()
            line += len(lines)
    if tally.read == before:
        raise InputError(str(path), 1, "file", "has no rows; allowed is at least one row below the header")


def header_of(path: Path, known: Sequence[str] = ()) -> list[str]:
    """Return the names of a CSV file's columns, to tell files apart.

    Parameters
    ----------
    known
        Names by which what separates the fields is told.

    Raises
    ------
    InputError
        If the file cannot be read or is empty.
    """
    with open_text(path) as file:
        return _header(file, path, known)[0]


def _header(file: TextIO, path: Path, known: Sequence[str]) -> tuple[list[str], str]:
    """Return the names of columns, and what separates fields."""
    line = next(read_bounded_lines(file, str(path), LONGEST_ROW), "")
    if not _is_utf_8(line):
        raise InputError(str(path), 1, "header", f"is not UTF-8; allowed is {_CONVERTED}")
    separator = _separator(line.strip(), known)
    try:
        names = next(csv.reader([line], strict=True, delimiter=separator), [])
    except csv.Error as error:
        raise InputError(str(path), 1, "header", f"{say_error(error, line)}; allowed is CSV") from None
    if not names:
        raise InputError(str(path), 1, "file", "is empty; allowed is CSV with a header")
    return [name.strip() for name in names], separator


def _separator(line: str, known: Sequence[str]) -> str:
    """Return what separates the names of a header: what makes the most known ones, or else the most."""
    found = {mark: [name.strip(' "') for name in line.split(mark)] for mark in SEPARATORS}
    unquoted = _QUOTED.sub("", line)
    return max(SEPARATORS, key=lambda mark: (sum(name in found[mark] for name in known), unquoted.count(mark)))


def _say_separator(path: Path, separator: str) -> list[str]:
    return [] if separator == "," else [f"fields of {path.name} are separated by {SEPARATORS[separator]}"]


def _positions(header: Sequence[str], required: Sequence[str], file: str) -> dict[str, int]:
    """Return the position of each column that is read."""
    for name in required:
        if name not in header:
            remedy = f"{_columns(header, required)}allowed is a header with {', '.join(required)}"
            raise InputError(file, 1, "header", f"has no column {name!r}; {remedy}")
        if header.count(name) > 1:
            raise InputError(file, 1, "header", f"column {name!r} occurs twice; allowed is once")
    return {name: header.index(name) for name in required}


def _columns(header: Sequence[str], known: Sequence[str]) -> str:
    """Return the columns of a header; none if it has none of those looked for: that file is none of ours to quote."""
    return f"its columns: {', '.join(header)[:200]}; " if any(name in known for name in header) else ""


def _rows(
    lines: Sequence[str],
    found: list[list[str] | str],
    line: int,
    file: str,
    width: int,
    positions: dict[str, int],
    tally: Tally,
) -> Rows:
    """Return lines as rows; those that have no fields, or not so many, are left out or broken."""
    fits = [len(row) == width and isinstance(row, list) for row in found]
    numbers = np.arange(line, line + len(lines), dtype=np.int64)
    broken: list[Refusal] = []
    if not all(fits):
        numbered = zip(numbers.tolist(), found, fits, strict=True)
        broken = [_broken(row, file, number, width) for number, row, fit in numbered if row and not fit]
        numbers, found = numbers[fits], list(compress(found, fits))
    columns = {name: np.array([row[at] for row in found], dtype=np.object_) for name, at in positions.items()}
    rows = Rows(file, numbers, columns, tally, broken)
    if not all(map(_is_utf_8, lines)):
        for name, texts in columns.items():
            foreign = np.array([not _is_utf_8(text) for text in texts], np.bool_)
            rows.refuse(foreign, name, "is not UTF-8", _CONVERTED)
    return rows


def _is_utf_8(text: str) -> bool:
    """Say whether text holds none of the lone surrogates that other bytes become."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _broken(row: list[str] | str, file: str, line: int, width: int) -> Refusal:
    problem, reason = row, "row: is not CSV"
    if isinstance(row, list):
        problem, reason = f"has {len(row)} fields", "row: has too few or many fields"
    return Refusal(InputError(file, line, "row", f"{problem}; allowed are {width} fields of CSV"), reason)


def take_apart(lines: list[str], more: Iterator[str], width: int, separator: str) -> list[list[str] | str]:
    """Return the fields of the row that begins on each line, none where none begins, or what is wrong.

    Parameters
    ----------
    lines
        Grows by lines of `more` where a row that begins in it does not end in it.
    width
        How many fields a row has.
    """
    try:
        rows: list[list[str] | str] = list(csv.reader(lines, strict=True, delimiter=separator))
        if len(rows) == len(lines):
            return rows
    except csv.Error:
        pass
    found: list[list[str] | str] = []
    while len(found) < len(lines):
        at = len(found)
        row = _fields(lines[at : at + 1], separator)
        within = _lines_within(lines, at, more, width, separator) if isinstance(row, str) and _OPEN in row else 0
        found.append(_fields(lines[at : at + 1 + within], separator) if within else row)
        found += [[] for _ in range(within)]
    return found


def say_error(error: csv.Error, line: str) -> str:
    """Return what Python's reader has to say of a line, and what it cannot know."""
    return f"{error} (a quote has no end)" if line.count('"') % 2 else str(error)


def _fields(lines: list[str], separator: str) -> list[str] | str:
    try:
        return next(csv.reader(lines, strict=True, delimiter=separator), [])
    except csv.Error as error:
        return f"is not CSV: {say_error(error, lines[0])}"


def _lines_within(lines: list[str], start: int, more: Iterator[str], width: int, separator: str) -> int:
    """Return how many lines after one with an open quote end its row; 0: it is no row of several lines."""
    end, length = start + 1, len(lines[start])
    while length <= LONGEST_ROW:
        if end == len(lines):
            lines.extend(line for line in [next(more, None)] if line is not None)
        if end == len(lines):
            return 0
        length += len(lines[end])
        end += 1
        if lines[end - 1].count('"') % 2:
            return end - 1 - start if _is_row(lines[start:end], width, separator) else 0
    return 0


def _is_row(lines: list[str], width: int, separator: str) -> bool:
    try:
        rows = list(csv.reader(lines, strict=True, delimiter=separator))
    except csv.Error:
        return False
    return len(rows) == 1 and len(rows[0]) == width
