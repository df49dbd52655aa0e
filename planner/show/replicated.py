"""Comparisons over replications: a table for the terminal, a picture of the intervals, and their files."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import fill

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Group
from rich.table import Table
from rich.text import Text

from models.scenario import write_atomically
from planner.answers.replications import Replicated
from planner.show.colours import COLOURS
from planner.show.frames import csv_text, frame
from planner.show.intervals import mean_with_interval
from planner.show.paper import COLUMN_INCHES, IN_A_COLUMN, write_figure, write_table
from planner.show.picture import AS_DATA
from planner.show.tables import caption_of, name_with_marks

_ROW_INCHES, _LINE_SHARE = 0.22, 0.65
"""Height of a row, and of each line of its name in parts of that."""
_NAME_CHARACTERS = 24
"""A line of a name takes less than half of a column."""


def replicated_view(made: Replicated) -> Group:
    """Return the table with the remark that belongs to it."""
    return Group(replicated_table(made), Text(made.note, style="italic"))


def replicated_table(made: Replicated) -> Table:
    """Return a row per contender: means over the replications, each with its interval."""
    objective = str(made.scenario.objective).replace("_", " ")
    unit = f" in {made.scenario.objective.unit}" if made.scenario.objective.unit else ""
    title = f"{made.scenario.name}: {objective}{unit}, {made.what}"
    table = Table(title=title, title_justify="left", caption=caption_of(made), caption_justify="left")
    table.add_column("policy")
    table.add_column("knows the future")
    against = made.against or "-"
    for name in (objective, "x best", "x bound", f"minus {against}", "better in", "gap to bound", "hit rate"):
        table.add_column(name, justify="right")
    for row in made.rows:
        better = "-" if row["better_in"] is None else f"{row['better_in']} of {row['replications']}"
        table.add_row(
            name_with_marks(row, made.warning is not None),
            "yes" if row["clairvoyant"] else "no",
            *(mean_with_interval(row, name) for name in ("objective", "ratio_to_best", "ratio_to_bound", "difference")),
            better,
            "-" if row["gap_to_bound"] is None else f"{row['gap_to_bound']:.1%}",
            "-" if row["hit_rate"] is None else f"{row['hit_rate']:.3f}",
        )
    if made.lower_bound is not None:
        table.add_section()
        table.add_row("lower bound", "-", mean_with_interval(made.lower_bound.named("bound"), "bound"))
    return table


@AS_DATA
@IN_A_COLUMN
def draw_intervals(made: Replicated) -> Figure:
    """Return a dot and its interval per contender, as wide as a column: times the best of each replication.

    A thin line goes on to the upper end of the ratio to the bound: no plan, however clever, moves the truth beyond it.
    """
    rows = [row for row in made.rows if row["ratio_to_best"] is not None]
    names = [_in_lines(f"{row['policy']} (knows the future)" if row["clairvoyant"] else row["policy"]) for row in rows]
    lines = max((name.count("\n") + 1 for name in names), default=1)
    height = 0.9 + _ROW_INCHES * max(1, _LINE_SHARE * lines) * len(rows)
    figure = Figure(figsize=(COLUMN_INCHES, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for place, row in enumerate(rows):
        mean, low, high = (row[f"ratio_to_best{end}"] for end in ("", "_low", "_high"))
        colour = "black" if row["clairvoyant"] else COLOURS[0]
        if low is not None:
            axes.plot([low, high], [place, place], color=colour, linewidth=1.5, solid_capstyle="butt")
        bound = row["ratio_to_bound_high"] or row["ratio_to_bound"]
        if bound is not None:
            axes.plot([mean, bound], [place, place], color=colour, linewidth=0.5)
        axes.plot([mean], [place], "o", color=colour, markersize=4)
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    if rows and max(row["ratio_to_best_high"] or row["ratio_to_best"] for row in rows) > 5:
        axes.set_xscale("log")
    words = str(made.scenario.objective).replace("_", " ")
    axes.set_xlabel(f"{words}, times the best of the same replication (thin: times the bound)")
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.5)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    return figure


def _in_lines(name: str) -> str:
    r"""Return a name in lines, broken after commas, too.

    >>> _in_lines("compass:prefetch=0,period=100ms")
    'compass:prefetch=0,\nperiod=100ms'
    """
    return fill(name.replace(",", ", "), _NAME_CHARACTERS).replace(", ", ",")


def write(made: Replicated, folder: Path) -> list[Path]:
    """Write the intervals as table and picture beside the replications of the sweep; return the paths."""
    paths = [folder / "intervals.csv", folder / "intervals.json"]
    write_atomically(paths[0], csv_text(frame(made)))
    write_atomically(paths[1], json.dumps(made.as_dict() | {"settings": dict(made.settings)}, indent=1))
    paths += write_table(replicated_table(made), folder / "intervals")
    return paths + write_figure(draw_intervals(made), folder / "intervals")
