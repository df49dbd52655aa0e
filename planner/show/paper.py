"""Tables as Markdown and LaTeX, and figures as PDF and SVG: what an answer leaves for a paper."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from rich.table import Table

from models.scenario import write_atomically
from planner.show.canvas import lay_out, png

COLUMN_INCHES = 3.4
"""Width of a column of a paper with two; a figure as wide as this is set in 8 points."""
IN_A_COLUMN = rc_context({"font.size": 8})
"""Decorates what draws a figure for one."""
_SPECIAL = re.compile(r"[&%$#_{}~^\\]")
_ESCAPED = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def write_table(table: Table, stem: Path) -> list[Path]:
    """Write a table as Markdown and as LaTeX (package booktabs); return the paths, the stem with their endings."""
    paths = [stem.with_name(f"{stem.name}.md"), stem.with_name(f"{stem.name}.tex")]
    for path, text in zip(paths, (markdown(table), latex(table)), strict=True):
        write_atomically(path, text)
    return paths


def write_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG, PDF and SVG, the same bytes for the same figure; return the paths."""
    paths = [stem.with_name(f"{stem.name}.png")]
    write_atomically(paths[0], png(figure))
    return paths + write_vectors(figure, stem)


def write_vectors(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PDF and SVG, whose texts stay texts."""
    paths = []
    lay_out(figure)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": stem.name, "pdf.fonttype": 42}):
        for ending, dated in (("pdf", "CreationDate"), ("svg", "Date")):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=ending, metadata={dated: None})
            paths.append(stem.with_name(f"{stem.name}.{ending}"))
            write_atomically(paths[-1], buffer.getvalue())
    return paths


def markdown(table: Table) -> str:
    r"""Return a table as Markdown.

    >>> table = Table("policy", "value")
    >>> table.add_row("a|b", "1")
    >>> print(markdown(table), end="")
    | policy | value |
    | --- | --- |
    | a\|b | 1 |
    """
    rules = ["--:" if column.justify == "right" else "---" for column in table.columns]
    lines = [[_escape_markdown(name) for name in _header(table)], rules]
    lines += [[_escape_markdown(cell) for cell in row] for row, _ in _rows(table)]
    below = "" if table.caption is None else f"\n{table.caption!s}\n"
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + below


def _escape_markdown(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")


def latex(table: Table) -> str:
    """Return a table as a LaTeX tabular; lines inside a cell stand in brackets behind the first.

    A caption becomes a last row below the rule, so that no copy of the table loses it.
    """
    places = "".join("r" if column.justify == "right" else "l" for column in table.columns)
    lines = [rf"\begin{{tabular}}{{{places}}}", r"\toprule", _latex_line(_header(table)), r"\midrule"]
    for row, ends in _rows(table):
        lines += [_latex_line(row), *([r"\midrule"] if ends else [])]
    lines.append(r"\bottomrule")
    if table.caption is not None:
        said = _escape_latex(" ".join(str(table.caption).split()))
        lines.append(rf"\multicolumn{{{len(places)}}}{{p{{0.95\linewidth}}}}{{{said}}} \\")
    return "\n".join([*lines, r"\end{tabular}", ""])


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(_escape_latex(cell) for cell in cells) + r" \\"


def _escape_latex(text: str) -> str:
    r"""Return text as LaTeX sets it.

    >>> print(_escape_latex("50 %_$"))
    50 \%\_\$
    """
    first, *others = text.split("\n")
    joined = f"{first} ({'; '.join(others)})" if others else first
    return _SPECIAL.sub(lambda match: _ESCAPED.get(match[0], f"\\{match[0]}"), joined)


def _header(table: Table) -> list[str]:
    return [str(column.header) for column in table.columns]


def _rows(table: Table) -> Iterator[tuple[list[str], bool]]:
    """Yield the cells of every row, and whether a section ends with it."""
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    for index, row in enumerate(table.rows):
        yield [column[index] for column in columns], row.end_section
