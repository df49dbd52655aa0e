"""Tidy tables of a sweep: a column per axis, with its unit, then a column per figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from models.cells import guard
from models.cluster import MICROSECONDS_PER_SECOND
from models.units import QuantityError, parse_bandwidth, parse_number, parse_rate, parse_size, parse_time
from planner.answers.whatif.grid import Axis
from planner.answers.whatif.paths import factor
from planner.answers.whatif.verbs import Row

if TYPE_CHECKING:
    import pyarrow as pa

Value = str | int | float | bool | None

_READERS: Mapping[str, Callable[[str], Fraction | int]] = {
    "": parse_number,
    "_s": lambda text: Fraction(parse_time(text), MICROSECONDS_PER_SECOND),
    "_bytes": parse_size,
    "_bytes_per_s": parse_bandwidth,
    "_per_s": parse_rate,
}
"""How a quantity is read, by what its unit adds to the name of its column."""
_FLAGS = {"true": True, "false": False}
_WHOLE = ("", "_bytes")
"""What is counted: whole numbers where all of them are."""


def axis_column(axis: Axis) -> tuple[str, list[Value]]:
    """Return the name of an axis's column and its points' values.

    Plain numbers stay what they are; quantities of one sort become numbers in seconds, bytes, bytes/s or 1/s and name
    that unit; factors such as ``x2`` become numbers; anything else stays as it is written.
    """
    labels = [point.label for point in axis.points]
    if all(str(label).lower() in _FLAGS for label in labels):
        return axis.name, [_FLAGS[str(label).lower()] for label in labels]
    factors = [factor(label) for label in labels]
    if None not in factors:
        return f"{axis.name}_factor", [float(times) for times in factors if times is not None]
    for suffix, read in _READERS.items():
        values = _numbers(labels, read)
        if values is not None:
            whole = suffix in _WHOLE and all(value == int(value) for value in values)
            return f"{axis.name}{suffix}", [int(value) if whole else float(value) for value in values]
    return axis.name, [label if label is None or isinstance(label, str) else json.dumps(label) for label in labels]


def _numbers(labels: Sequence[object], read: Callable[[str], Fraction | int]) -> list[Fraction | int] | None:
    """Return what the labels say as quantities of one sort, or None if one of them is none."""
    if not all(isinstance(label, (str, int, float)) and not isinstance(label, bool) for label in labels):
        return None
    try:
        return [read(str(label)) for label in labels]
    except QuantityError:
        return None


def table_of(rows: Sequence[Row], first: Sequence[str]) -> pa.Table:
    """Return rows as an Arrow table; columns come in the order in which they first occur, errors last.

    Parameters
    ----------
    first
        Columns that are there even without rows.
    """
    import pyarrow as pa

    names = dict.fromkeys(first)
    for row in rows:
        names |= dict.fromkeys(row)
    ordered = sorted(names, key="error".__eq__)
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in ordered})


def csv_bytes(table: pa.Table) -> bytes:
    """Return a table as CSV; text that a spreadsheet would compute is guarded."""
    import pyarrow as pa
    from pyarrow import csv

    names = [guard(name) for name in table.column_names]
    columns = [
        pa.array([cell if cell is None else guard(cell) for cell in column.to_pylist()])
        if pa.types.is_string(column.type)
        else column
        for column in table.columns
    ]
    sink = pa.BufferOutputStream()
    csv.write_csv(pa.table(columns, names=names), sink)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def parquet_bytes(table: pa.Table) -> bytes:
    """Return a table as Parquet."""
    import pyarrow as pa
    from pyarrow import parquet

    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
