"""Columns of axes carry numbers and units; tables hold what the rows say."""

from __future__ import annotations

import io

import pandas as pd
import pytest

from truenorth.models.scenario.errors import Plain
from truenorth.planner.answers.whatif.grid import Axis, Point
from truenorth.planner.answers.whatif.result import Value, axis_column, csv_bytes, parquet_bytes, table_of


@pytest.mark.parametrize(
    ("labels", "name", "values"),
    [
        (["2 /s", "90 /min"], "a.b_per_s", [2.0, 1.5]),
        (["14 GB", "1 KiB"], "a.b_bytes", [14_000_000_000, 1024]),
        (["10 GB/s", "8 Gbit/s"], "a.b_bytes_per_s", [1e10, 1e9]),
        (["1 ms", "2 s"], "a.b_s", [0.001, 2.0]),
        ([Plain("3"), Plain("4")], "a.b", [3, 4]),
        ([3, 2.5], "a.b", [3.0, 2.5]),
        (["x2", "x0.5"], "a.b_factor", [2.0, 0.5]),
        (["14 GB", "x2"], "a.b", ["14 GB", "x2"]),
        ([Plain("true"), False], "a.b", [True, False]),
        (["compass", None], "a.b", ["compass", None]),
        ([{"w": Plain("1")}, ["jit"]], "a.b", ['{"w": "1"}', '["jit"]']),
    ],
)
def test_an_axis_becomes_a_column(labels: list[object], name: str, values: list[Value]) -> None:
    column = axis_column(Axis("a.b", tuple(Point(label, {}, ()) for label in labels)))
    assert column == (name, values)
    assert [type(value) for value in column[1]] == [type(value) for value in values]


def test_tables_keep_order_missing_figures_and_commas() -> None:
    table = table_of([{"cell": 0, "error": "a, b"}, {"cell": 1, "value": 1.5, "jobs": 2, "error": None}], ("cell", "x"))
    assert table.column_names == ["cell", "x", "value", "jobs", "error"]
    assert pd.read_parquet(io.BytesIO(parquet_bytes(table))).equals(table.to_pandas())
    assert csv_bytes(table) == b'"cell","x","value","jobs","error"\n0,,,,"a, b"\n1,,1.5,2,\n'
