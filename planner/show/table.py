"""Tables: what is said of each row is one list of columns, and each way of showing it is one function.

A column is its name, how it takes its value from a row's record, and how that is written. Terminal, Markdown, LaTeX,
page, notebook, data frame and CSV all follow from that, so that a column is added in one place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rich.box import HEAVY_HEAD, Box
from rich.table import Table as TerminalTable
from rich.text import Text

from truenorth.models.record import guard
from truenorth.models.scenario import write_atomically
from truenorth.models.units import without_exponent

if TYPE_CHECKING:
    import pandas as pd

Row = TypeVar("Row")
_KEPT_WHOLE, _HEADING = 20, 11
"""A terminal does not break words up to so many characters over lines, and headings beyond so many."""
_SPECIAL = re.compile(r"[&%$#_{}~^\\]")
_ESCAPED = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def say(value: Any, how: str | Callable[[Any], str] = "", unit: str = "") -> str:
    """Return a value by a format or a function, with its unit; a dash for nothing, and text as it is.

    >>> say(0.25, ".0%"), say(1.5, ".3f", "s"), say(None, ".3f", "s")
    ('25%', '1.500 s', '-')
    >>> say(109_623.4, ".5g", "s")
    '109,620 s'
    """
    if value is None or isinstance(value, str):
        return "-" if value is None else value
    said = without_exponent(how(value) if callable(how) else format(value, how))
    return f"{said} {unit}".rstrip()


@dataclass(frozen=True)
class Column(Generic[Row]):
    """What is said of every row.

    Parameters
    ----------
    value
        What it takes from a row; None: there is nothing to say.
    how
        How a value is written, unless it is text: a format, or a function.
    unit
        Of a value; a page names it in the heading.
    words
        Whether it stands flush left.
    """

    name: str
    value: Callable[[Row], Any]
    how: str | Callable[[Any], str] = ""
    unit: str = ""
    words: bool = False

    @property
    def heading(self) -> str:
        """The name with the unit, for tables whose cells leave it out."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def say(self, value: Any, unit: bool = True) -> str:
        """Return a value as it is written, with its unit if asked for; a dash for nothing, and text as it is."""
        return say(value, self.how, self.unit if unit else "")


@dataclass(frozen=True)
class Table(Generic[Row]):
    """Rows and what is said of them.

    Parameters
    ----------
    last
        What the first columns say in a last row, below a line.
    note
        Stands below, in every copy.
    """

    title: str
    columns: Sequence[Column[Row]]
    rows: Sequence[Row]
    last: Sequence[Any] = ()
    note: str = ""

    def _repr_html_(self) -> str:
        """Show the table in a notebook."""
        return html(self)

    def cells(self, unit: bool = True) -> list[list[str]]:
        """Return every row in words, the last one included."""
        filled = [[column.say(column.value(row), unit) for column in self.columns] for row in self.rows]
        if not self.last:
            return filled
        last = [column.say(value, unit) for column, value in zip(self.columns, self.last, strict=False)]
        return [*filled, [*last, *[""] * (len(self.columns) - len(last))]]


def html(table: Table[Any]) -> str:
    """Return a table as a notebook shows it."""
    import pandas as pd

    names = [column.name for column in table.columns]
    said = str(pd.DataFrame(table.cells(), columns=names).to_html(index=False, header=any(names)))
    return said + (f"<p>{escape(table.note)}</p>" if table.note else "")


def terminal(table: Table[Any], lines: Box | None = HEAVY_HEAD) -> TerminalTable:
    """Return a table as a terminal shows it, with lines of a kind; names are data there, never markup."""
    made = TerminalTable(
        title=Text(table.title, "table.title") if table.title else None,
        title_justify="left",
        caption=Text(table.note, "table.caption") if table.note else None,
        caption_justify="left",
        box=lines,
        pad_edge=lines is not None,
    )
    cells = table.cells()
    for at, column in enumerate(table.columns):
        longest = max((len(row[at]) for row in cells), default=0)
        whole = longest if column.words and longest <= _KEPT_WHOLE else None  # headings give way before short words do
        heading = _in_lines(column.name, longest)
        made.add_column(Text(heading), justify="left" if column.words else "right", min_width=whole)
    for number, row in enumerate(cells):
        made.add_row(*map(Text, row), end_section=bool(table.last) and number == len(cells) - 2)
    return made


def _in_lines(heading: str, longest: int) -> str:
    r"""Return a heading in lines not much longer than the cells below it; a unit stays behind its "in".

    >>> _in_lines("mean latency in s", 5), _in_lines("ratio to best", 5), _in_lines("policy", 30)
    ('mean\nlatency\nin s', 'ratio to\nbest', 'policy')
    """
    return fill(heading.replace(" in ", " in~"), max(_HEADING, longest), break_long_words=False).replace("~", " ")


def facts(rows: Mapping[str, str]) -> TerminalTable:
    """Return facts with their names, as a terminal shows them."""
    made = TerminalTable(show_header=False, box=None, pad_edge=False)
    made.add_column(style="bold")
    made.add_column()
    for name, value in rows.items():
        made.add_row(name, Text(value))
    return made


def facts_html(rows: Mapping[str, str]) -> str:
    """Return facts with their names, as a notebook shows them."""
    import pandas as pd

    return str(pd.Series(rows).to_frame().to_html(header=False))


def csv_text(table: pd.DataFrame) -> str:
    """Return a data frame as CSV; text that a spreadsheet would compute is guarded."""
    guarded = table.map(_guarded).rename(index=_guarded, columns=_guarded)
    text: str = guarded.to_csv()
    return text


def _guarded(cell: object) -> object:
    return guard(cell) if isinstance(cell, str) else cell


def write_table(table: Table[Any], stem: Path) -> list[Path]:
    """Write a table as Markdown and as LaTeX (package booktabs); return the paths, the stem with their endings."""
    paths = [stem.with_name(f"{stem.name}.md"), stem.with_name(f"{stem.name}.tex")]
    for path, text in zip(paths, (markdown(table), latex(table)), strict=True):
        write_atomically(path, text)
    return paths


def markdown(table: Table[Any]) -> str:
    r"""Return a table as Markdown.

    >>> print(markdown(Table("", [Column("policy", str, words=True)], ["a|b"])), end="")
    | policy |
    | --- |
    | a\|b |
    """
    rules = ["---" if column.words else "--:" for column in table.columns]
    lines = [[_escape_markdown(column.name) for column in table.columns], rules]
    lines += [[_escape_markdown(cell) for cell in row] for row in table.cells()]
    below = f"\n{table.note}\n" if table.note else ""
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + below


def _escape_markdown(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")


def latex(table: Table[Any]) -> str:
    """Return a table as a LaTeX tabular; lines inside a cell stand in brackets behind the first.

    A note becomes a last row below the rule, so that no copy of the table loses it.
    """
    places = "".join("l" if column.words else "r" for column in table.columns)
    lines = [_latex_line(row) for row in table.cells()]
    if table.last:
        lines.insert(-1, r"\midrule")
    if table.note:
        said = _escape_latex(" ".join(table.note.split()))
        lines += [r"\bottomrule", rf"\multicolumn{{{len(places)}}}{{p{{0.95\linewidth}}}}{{{said}}} \\"]
    else:
        lines.append(r"\bottomrule")
    head = [rf"\begin{{tabular}}{{{places}}}", r"\toprule", _latex_line([c.name for c in table.columns]), r"\midrule"]
    return "\n".join([*head, *lines, r"\end{tabular}", ""])


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
