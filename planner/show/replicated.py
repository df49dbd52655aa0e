"""Comparisons over replications, shown: their table, a picture of the intervals, their files and their page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from textwrap import fill

from matplotlib.figure import Figure
from rich.console import Group
from rich.text import Text

from truenorth.models.record import encode
from truenorth.models.scenario import write_atomically
from truenorth.planner.answers.replications import Replicated, ReplicatedPolicy, ReplicatedRecord
from truenorth.planner.show import sweep
from truenorth.planner.show.canvas import AS_DATA, COLOURS, COLUMN_INCHES, IN_A_COLUMN, blank, write_figure
from truenorth.planner.show.comparison import name_with_marks
from truenorth.planner.show.regret import in_words
from truenorth.planner.show.section import PageSection
from truenorth.planner.show.table import Column, Table, csv_text, terminal, write_table
from truenorth.planner.show.written import read_record

FILE = "intervals.json"
_ROW_INCHES, _LINE_SHARE = 0.22, 0.65
"""Height of a row, and of each line of its name in parts of that."""
_NAME_CHARACTERS = 24
"""A line of a name takes less than half of a column."""


def contenders(record: ReplicatedRecord) -> Table[ReplicatedPolicy]:
    """Return a row per contender, means over the replications, each with its interval; and the lower bound."""
    converged = record.warning is None
    columns: list[Column[ReplicatedPolicy]] = [
        Column("policy", lambda row: name_with_marks(row.policy, row.twin, row.problem, converged), words=True),
        Column("clairvoyant", lambda row: "yes" if row.clairvoyant else "no", words=True),
        Column(in_words(record.objective), lambda row: row.objective, str),
        Column("ratio to best", lambda row: row.ratio_to_best, str),
        Column("ratio to bound", lambda row: row.ratio_to_bound, str),
        Column(f"minus {record.against or '-'}", lambda row: row.difference, str),
        Column("better in", lambda row: None if row.better_in is None else f"{row.better_in} of {row.replications}"),
        Column("gap to bound", lambda row: row.gap_to_bound, ".1%"),
        Column("hit rate", lambda row: row.figures["hit_rate"], ".3f"),
    ]
    last = [] if record.lower_bound.mean is None else ["lower bound", "-", record.lower_bound]
    return Table(record.note, columns, record.rows, last)


def replicated_table(made: Replicated) -> Table[ReplicatedPolicy]:
    """Return the contenders under the scenario's name; below stand what is proved, and that ratios understate."""
    objective = made.scenario.objective
    unit = f" in {objective.unit}" if objective.unit else ""
    title = f"{made.scenario.name}: {in_words(objective)}{unit}, {made.what}"
    note = made.proof + ("" if made.warning is None else f"\n{made.warning}")
    return replace(contenders(made.record), title=title, note=note)


def replicated_view(made: Replicated) -> Group:
    """Return the table with the remark that belongs to it."""
    return Group(terminal(replicated_table(made)), Text(made.note, style="italic"))


def section(folder: Path) -> PageSection:
    """Return what a page says of a folder that ``compare --replications -o`` wrote.

    Raises
    ------
    InputError
        If a file in it cannot be read.
    """
    one_by_one, found = sweep.section(folder), read_record(folder / FILE, ReplicatedRecord)
    best = next((row for row in found.rows if row.policy == found.against), None)
    answer = one_by_one.answer
    if best is not None:
        times = f"{best.ratio_to_best} times the best of each replication"
        answer = f"The best online policy, {best.policy}, is at {times}."
    return replace(one_by_one, answer=answer, tables=[contenders(found), *one_by_one.tables])


@AS_DATA
@IN_A_COLUMN
def draw_intervals(made: Replicated) -> Figure:
    """Return a dot and its interval per contender, as wide as a column: times the best of each replication.

    A thin line goes on to the upper end of the ratio to the bound: no plan, however clever, moves the truth beyond it.
    """
    rows = [row for row in made.rows if row.ratio_to_best.mean is not None]
    names = [_in_lines(f"{row.policy} (knows the future)" if row.clairvoyant else row.policy) for row in rows]
    lines = max((name.count("\n") + 1 for name in names), default=1)
    height = 0.9 + _ROW_INCHES * max(1, _LINE_SHARE * lines) * len(rows)
    figure, axes = blank(COLUMN_INCHES, height)
    for place, row in enumerate(rows):
        best, colour = row.ratio_to_best, "black" if row.clairvoyant else COLOURS[0]
        bound = row.ratio_to_bound.high or row.ratio_to_bound.mean
        if best.low is not None:
            axes.plot([best.low, best.high], [place, place], color=colour, linewidth=1.5, solid_capstyle="butt")  # type: ignore[arg-type]
        if bound is not None:
            axes.plot([best.mean, bound], [place, place], color=colour, linewidth=0.5)  # type: ignore[arg-type]
        axes.plot([best.mean], [place], "o", color=colour, markersize=4)  # type: ignore[arg-type]
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    if rows and max(row.ratio_to_best.high or row.ratio_to_best.mean or 0.0 for row in rows) > 5:
        axes.set_xscale("log")
    words = in_words(made.scenario.objective)
    axes.set_xlabel(f"{words}, times the best of the same replication (thin: times the bound)")
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def _in_lines(name: str) -> str:
    r"""Return a name in lines, broken after commas, too.

    >>> _in_lines("compass:prefetch=0,period=100ms")
    'compass:prefetch=0,\nperiod=100ms'
    """
    return fill(name.replace(",", ", "), _NAME_CHARACTERS).replace(", ", ",")


def write(made: Replicated, folder: Path) -> list[Path]:
    """Write the intervals as table and picture beside the replications of the sweep; return the paths."""
    paths = [folder / "intervals.csv", folder / FILE]
    write_atomically(paths[0], csv_text(made.frame()))
    write_atomically(paths[1], json.dumps(encode(made.record) | {"settings": dict(made.settings)}, indent=1))
    paths += write_table(replicated_table(made), folder / "intervals")
    return paths + write_figure(draw_intervals(made), folder / "intervals")
