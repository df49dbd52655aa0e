"""A log of whatever sort, as rows: CSV of any separator, JSON in lines, lists and documents, SWF, and Slurm's tables.

What is none of these, or empty, is refused with what to write instead.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from html import unescape
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from truenorth.models.scenario import InputError
from truenorth.models.scenario.files import read_bounded_lines
from truenorth.planner.inputs.importers.csv_files import LONGEST_ROW, csv_rows, header_of, open_text
from truenorth.planner.inputs.importers.json_files import json_keys, json_rows, json_sort
from truenorth.planner.inputs.importers.rows import Rows, Tally

SWF_COLUMNS = (
    "job", "submit", "wait", "run", "processors", "cpu", "memory", "requested_processors", "requested_time",
    "requested_memory", "status", "user", "group", "executable", "queue", "partition", "preceding", "think",
)  # fmt: skip
"""Columns of the standard workload format (cs.huji.ac.il/labs/parallel/workload/swf.html), which has no header."""


JMETER_COLUMNS = (
    "timeStamp", "elapsed", "label", "responseCode", "responseMessage", "threadName", "dataType", "success",
    "failureMessage", "bytes", "sentBytes", "grpThreads", "allThreads", "URL", "Latency", "IdleTime", "Connect",
)  # fmt: skip
"""Columns that JMeter writes unless it is told otherwise, also where it is told to leave the header out."""
_NO_TEXT = {
    "PK\x03\x04": "is a ZIP archive or an Excel workbook; save the sheet, or what is in it, as CSV",
    "PAR1": "is Parquet; write it as CSV, for instance with pandas.read_parquet(FILE).to_csv(CSV)",
    "SQLite format 3": "is an SQLite database; write the table as CSV, for instance with sqlite3 -header -csv",
    "(\udcb5/\udcfd": "is packed with zstd; unpack it (unzstd), or pack it with gzip",
    "BZh": "is packed with bzip2; unpack it (bunzip2), or pack it with gzip",
    "\udcfd7zXZ": "is packed with xz; unpack it (unxz), or pack it with gzip",
}
"""What files begin with that hold no text, and what to do with them."""
_XML = "is XML or HTML; allowed are CSV and JSON, and of XML what JMeter writes (testResults), each sample on a line"
_SAMPLE = re.compile(r'<(/?)(?:httpSample|sample)\b((?:\s+\w+="[^"]*")*)\s*(/?)>')
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_SEVERAL = "not one sample\n"
"""A line that is not as JMeter writes it: it has too few fields, so that it is refused."""
_OF_SAMPLES = {"timeStamp": "ts", "elapsed": "t", "label": "lb", "success": "s"}
_RULE = re.compile(r"-+(?: +-+)+ *")


class _Lines(NamedTuple):
    """How the lines of a file become CSV of columns that no header names, and what to say of that."""

    columns: tuple[str, ...]
    as_csv: Callable[[str], str] | None
    said: str


def table_rows(
    path: Path, columns: Sequence[str], tally: Tally, sparse: Sequence[str] = (), lists: Collection[str] = ()
) -> Iterator[Rows]:
    """Return the rows of a log; of what sort it is is a note of the tally, unless it is CSV with commas.

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
    sort = json_sort(path)
    if sort is not None:
        tally.notes.append(f"{path.name} {sort.value}")
        return json_rows(path, [name for name in columns if name not in sparse], tally, sparse, lists, sort)
    lines = _lines_of(path)
    if lines is not None:
        tally.notes.append(f"{path.name} {lines.said}")
        return csv_rows(path, columns, tally, lines.columns, as_csv=lines.as_csv)
    return csv_rows(path, columns, tally)


def columns_of(path: Path, known: Sequence[str]) -> list[str]:
    """Return the columns of a log, of whatever sort it is; of JSON the keys of its first objects.

    Parameters
    ----------
    known
        Names by which what separates the fields of CSV is told.

    Raises
    ------
    InputError
        If the file cannot be read, is empty, or its first line is malformed.
    """
    _refuse_other_sorts(path)
    sort = json_sort(path)
    if sort is not None:
        keys = json_keys(path, sort)
        if not keys:
            raise InputError(
                str(path), 1, "file", "has no rows; allowed is a JSON object for each request, at least one"
            )
        return keys
    lines = _lines_of(path)
    return list(lines.columns) if lines is not None else header_of(path, known)


def _refuse_other_sorts(path: Path) -> None:
    """Refuse a file that is neither CSV nor JSON with what to do with it, and one that holds nothing."""
    with open_text(path) as file:
        start = file.read(4096)
    said = next((said for mark, said in _NO_TEXT.items() if start.startswith(mark)), "")
    if not start.strip():
        said = "is empty; allowed is CSV with a header"
    samples = re.search("<testResults.*?>(.*)", start, re.DOTALL)
    several = samples and any(line.count("<httpSample") + line.count("<sample") > 1 for line in samples[1].splitlines())
    if said or (start.lstrip().startswith("<") and (several or not samples)):
        raise InputError(str(path), 1, "file", said or _XML)


def _lines_of(path: Path) -> _Lines | None:
    """Return how the lines of a file are read where no header in CSV says so; None for other files."""
    if is_swf(path):
        return _Lines(SWF_COLUMNS, _swf_as_csv, "is in the standard workload format")
    with open_text(path) as file:
        start = read_bounded_lines(file, str(path), LONGEST_ROW)
        first, second = (next(start, "").rstrip("\r\n") for _ in range(2))
    if first.lstrip().startswith("<"):
        return _Lines(tuple(_OF_SAMPLES), _samples_as_csv(), "is XML: samples within a sample are parts of it")
    if _RULE.fullmatch(second):
        spans = [slice(*match.span()) for match in re.finditer("-+", second)]
        said = "is a table of fixed width, whose long values may be cut off; sacct --parsable2 writes them whole"
        return _Lines(tuple(first[span].strip() for span in spans), _fixed_as_csv(spans, (first, second)), said)
    fields = next(csv.reader([first]), []) if re.match(r"\d{13},\d+,[^\r]*$", first) else []
    if len(fields) == len(JMETER_COLUMNS) and fields[7].lower() in ("true", "false"):
        return _Lines(JMETER_COLUMNS, None, "has no header: its columns are taken to be those that JMeter writes")
    return None


def is_swf(path: Path) -> bool:
    """Say whether the first lines of a file are comments behind semicolons, and then numbers of 18 columns.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    with open_text(path) as file:
        lines = read_bounded_lines(file, str(path), LONGEST_ROW)
        rows = (line.split() for line in islice(lines, 10_000) if line.strip() and not line.startswith(";"))
        first = next(rows, [])
    return len(first) == len(SWF_COLUMNS) and all(field.lstrip("-").replace(".", "", 1).isdecimal() for field in first)


def _swf_as_csv(line: str) -> str:
    fields = [] if line.startswith(";") else line.split()
    if len(fields) == len(SWF_COLUMNS) and fields[4] == "-1":
        # What it was given is not known, so that it counts with what it asked for.
        fields[4] = fields[7]
    return ",".join(fields) + "\n"


def _fixed_as_csv(spans: Sequence[slice], header: Collection[str]) -> Callable[[str], str]:
    def as_csv(line: str) -> str:
        """Return a line of fixed width as CSV; a blank one for those of the header."""
        row = line.rstrip("\r\n")
        if row in header or not row.strip():
            return "\n"
        return _csv_line([row[span].strip() for span in spans])

    return as_csv


def _samples_as_csv() -> Callable[[str], str]:
    depth = 0

    def as_csv(line: str) -> str:
        """Return the outermost sample that begins on a line as CSV; a blank one where none does."""
        nonlocal depth
        tags = _SAMPLE.findall(line)
        found = "\n" if tags or not re.search("<(httpSample|sample)\\b", line) else _SEVERAL
        for ends, attributes, is_whole in tags:
            if not ends and not depth:
                given = {name: unescape(value) for name, value in _ATTRIBUTE.findall(attributes)}
                found = _SEVERAL if found != "\n" else _csv_line([given.get(name, "") for name in _OF_SAMPLES.values()])
            depth += -1 if ends else not is_whole
        return found

    return as_csv


def _csv_line(fields: Sequence[str]) -> str:
    made = StringIO()
    csv.writer(made, lineterminator="\n").writerow(fields)
    return made.getvalue()
