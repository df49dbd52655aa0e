"""Pictures of what-ifs and of searches, drawn on axes of one's own or as a figure, and of workflows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from truenorth.models.branches import likelihoods
from truenorth.models.errors import QuestionError
from truenorth.models.scenario.work import workflow_graph
from truenorth.models.workload import Workflow
from truenorth.planner.answers.intervals import Interval, interval_of
from truenorth.planner.answers.plan import Plan
from truenorth.planner.answers.whatif.result import UNITS, Sweep
from truenorth.planner.show.canvas import AS_DATA, COLOURS, blank, ink_on
from truenorth.planner.show.curves import Curve, Curves, draw_on, lines
from truenorth.planner.show.styles import styles
from truenorth.planner.show.sweep import say_column, say_value

if TYPE_CHECKING:
    import pandas as pd


_SIZE = (8.0, 4.5)
_MAP, _LINE = "viridis", 80
_ENDINGS = {ending: unit.axis for ending, unit in UNITS.items()} | {"_factor": " (factor)"}
"""How columns' names end that hold quantities, and how axes say it."""


@AS_DATA
def curve(
    found: Sweep, over: str | None = None, of: str | None = None, best: bool = False, ax: Axes | None = None
) -> Figure:
    """Return a figure over one axis of a grid, a line for whatever else varies.

    Of replications a line is their mean, with its 95 % interval as a band.

    Parameters
    ----------
    over
        The column across, the first numeric axis that varies if none is given.
    of
        The column upwards, what the verb was asked for if none is given.
    best
        One line, the least of all else: the best value against servers or price.

    Raises
    ------
    QuestionError
        If there is no such column, or none of numbers.
    """
    rows, keys, of = _rows_of(found, of)
    numeric = [key for key in keys if rows[key].dtype.kind in "if"]
    across = _chosen("over", over, numeric) if over else next(iter(numeric), "")
    if not across:
        raise QuestionError("no axis of numbers varies; allowed is a grid over one", "over")
    others = [key for key in keys if key != across]
    groups = rows.groupby(others, sort=False, dropna=False) if others else [((), rows)]
    spread = {_said(others, name): _spread(part, across, of) for name, part in groups}
    if best:
        least: dict[float, float] = {}
        for at, found_there in (each for points in spread.values() for each in points.items()):
            least[at] = min(least.get(at, math.inf), found_there.mean or 0.0)
        series = {"": list(least.items())}
    else:
        series = {name: [(at, each.mean or 0.0) for at, each in points.items()] for name, points in spread.items()}
    what = _what(rows, of)
    title = f"{'best ' if best else ''}{what} over {_label(across)}{_repeated(found, rows)}"
    shown = lines(title, _label(across), what, series)
    axes = _axes(ax)
    draw_on(axes, shown)
    for name, points in {} if best else spread.items():
        _draw_band(axes, points, styles(spread)[name].colour or "black")
    if len(series) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9)
    return _titled(axes, shown.title)


def _spread(rows: pd.DataFrame, across: str, of: str) -> dict[float, Interval]:
    """Return the mean of a column, and its interval, at every value of an axis, in their order."""
    parts = sorted(rows.groupby(across, sort=False, dropna=False)[of], key=lambda part: float(part[0]))  # type: ignore[arg-type]
    return {float(at): interval_of(values.tolist()) for at, values in parts}  # type: ignore[arg-type]


def _repeated(found: Sweep, rows: pd.DataFrame) -> str:
    """Return over how many replications figures are means, if they are."""
    count = rows[found.replicated].nunique() if found.replicated else 1
    return f", mean of {count} replications with its 95 % interval" if count > 1 else ""


def _draw_band(axes: Axes, points: Mapping[float, Interval], colour: str) -> None:
    """Shade the intervals of a line's points, where they have any."""
    known = [(at, each.low, each.high) for at, each in points.items() if each.low is not None and each.high is not None]
    if known:
        at, low, high = zip(*known, strict=True)
        axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set_ylim(top=max(axes.get_ylim()[1], 1.05 * max(high)))


@AS_DATA
def heat_map(
    found: Sweep, x: str | None = None, y: str | None = None, of: str | None = None, ax: Axes | None = None
) -> Figure:
    """Return a figure of two axes of a grid, each field the mean over all else, which the title names.

    `curve` says what `of` is.

    Raises
    ------
    QuestionError
        If there is no such column, or no second axis varies.
    """
    rows, keys, of = _rows_of(found, of)
    if len(keys) < 2:
        raise QuestionError(f"a heat map has two axes; allowed is a grid in which more than {keys} varies", "found")
    named = {_chosen(argument, given, keys) for argument, given in (("x", x), ("y", y)) if given}
    free = (key for key in keys if key not in named)
    across = _chosen("x", x, keys) if x else next(free)
    up = _chosen("y", y, keys) if y else next(free)
    table = rows.pivot_table(index=up, columns=across, values=of, sort=False)
    axes = _axes(ax)
    values = table.to_numpy(float)
    image = axes.imshow(values, aspect="auto", origin="lower", cmap=_MAP)
    colours = image.to_rgba(values).tolist()
    for (row, column), value in np.ndenumerate(values):
        ink = ink_on(to_hex(colours[row][column]))
        axes.text(column, row, f"{value:.4g}", ha="center", va="center", color=ink, fontsize=9)
    axes.set_xticks(range(table.shape[1]), [_written(across, value) for value in table.columns])
    axes.set_yticks(range(table.shape[0]), [_written(up, value) for value in table.index])
    axes.set_xlabel(_words(across, [across, up]))
    axes.set_ylabel(_words(up, [across, up]))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure = _titled(
        axes, f"{_what(rows, of)}{_averaged(found, rows, [key for key in keys if key not in (across, up)])}"
    )
    bar = figure.colorbar(image, ax=axes, label=_what(rows, of))
    bar.outline.set_visible(False)
    return figure


def _averaged(found: Sweep, rows: pd.DataFrame, others: Sequence[str]) -> str:
    """Return what the fields of a heat map are means over."""
    over = [f"{rows[key].nunique()} values of {_words(key, others)}" for key in others]
    count = rows[found.replicated].nunique() if found.replicated else 1
    over += [f"{count} replications"] if count > 1 else []
    return f", mean over {' and '.join(over)}" if over else ""


def _words(key: str, keys: Sequence[str]) -> str:
    return say_column(key, keys).replace("_", " ")


@AS_DATA
def parallel(found: Sweep, of: str | None = None, ax: Axes | None = None) -> Figure:
    """Return a figure of parallel coordinates: a line per row through its values, coloured by what it came to."""
    rows, keys, of = _rows_of(found, of)
    axes = _axes(ax)
    places, heights = range(len(keys) + 1), []
    for place, key in enumerate((*keys, of)):
        marks = _marks(rows[key])
        heights.append([marks[value] for value in rows[key]])
        shown = {min(marks, key=marks.get): 0, max(marks, key=marks.get): 1} if key == of else marks  # type: ignore[arg-type]
        for value in shown:
            axes.annotate(
                _written(key, value), (place, marks[value]), (4, 0), textcoords="offset points", fontsize=8,
                va="center", bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}, zorder=4,
            )  # fmt: skip
        axes.axvline(place, color="#999999", linewidth=1)
    for line in np.array(heights).T:
        axes.plot(places, line, color=colormaps[_MAP](line[-1]), linewidth=1.6, alpha=0.85)
    axes.set_xticks(places, [*(say_column(key, keys) for key in keys), _what(rows, of)])
    axes.set_yticks([])
    axes.set_xlim(-0.1, len(keys) + 0.35)
    axes.spines[:].set_visible(False)
    return _titled(axes, f"{_what(rows, of)}: dark is low")


@AS_DATA
def importance(found: Sweep, of: str | None = None, ax: Axes | None = None) -> Figure:
    """Return a figure of which axis matters most: shares of the variance, as `Sweep.importance` has them."""
    shares = found.importance(of)[::-1]
    axes = _axes(ax)
    bars = axes.barh([_short(str(name)) for name in shares.index], shares, color=COLOURS[0])
    axes.bar_label(bars, [f"{share:.0%}" for share in shares], padding=4)
    axes.set_xlim(0, 1.08)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return _titled(axes, "Share of the variance that each axis alone explains")


@AS_DATA
def history(plan: Plan, ax: Axes | None = None) -> Figure:
    """Return a figure of a plan's search: the best plan and the highest bound known at every second.

    Raises
    ------
    QuestionError
        If nothing was found.
    """
    trail = plan.incumbents
    curves: list[Curve] = []
    for place, name in ((1, "best plan"), (2, "lower bound")):
        known = [(moment[0], moment[place]) for moment in trail if moment[place] is not None]
        points = [(float(at), float(value)) for at, value in known if value is not None]
        if points:
            end = (max(plan.result.runtime_s, points[-1][0]), points[-1][1])
            colour = COLOURS[0] if place == 1 else COLOURS[1]
            curves.append(Curve(f"{name}: {points[-1][1]:.5g}", [*points, end], colour, steps=True))
    if not curves:
        raise QuestionError("the search found neither a plan nor a bound; allowed is one with a trail", "plan")
    objective = plan.scenario.objective
    what = _in_words(str(objective), objective.unit)
    shown = Curves(f"Search of {plan.scenario.name}", "time of search in s", what, curves, x_from=0.0)
    axes = _axes(ax)
    draw_on(axes, shown)
    axes.legend(frameon=False)
    return _titled(axes, shown.title)


def _axes(given: Axes | None) -> Axes:
    return blank(*_SIZE)[1] if given is None else given


def _titled(axes: Axes, title: str) -> Figure:
    axes.set_title(fill(title, _LINE), loc="left")
    figure: Any = axes.get_figure(root=True)
    return figure  # type: ignore[no-any-return]


def _rows_of(found: Sweep, of: str | None) -> tuple[pd.DataFrame, list[str], str]:
    """Return the rows without an error, the columns that tell them apart, and the column that is drawn."""
    keys, figure = found.keys, found.figure(of)
    rows = found.frame()
    rows = rows[rows[figure].notna()]
    return rows, [key for key in keys if rows[key].nunique(dropna=False) > 1], figure


def _chosen(argument: str, given: str, known: Sequence[str]) -> str:
    """Return a column that is there, by its name or the path that it is over, or the last part of either."""
    paths = {name: name.removesuffix(next((end for end in _ENDINGS if name.endswith(end)), "")) for name in known}
    found = [name for name, path in paths.items() if given in (name, path, _short(name), _short(path))]
    if len(found) != 1:
        raise QuestionError(f"{given!r} is no axis that varies; allowed are {', '.join(known)}", argument)
    return found[0]


def _short(name: str) -> str:
    """Return the last part of a column's path."""
    return name.rpartition(".")[2]


def _label(name: str) -> str:
    """Return what an axis of numbers says: the last part of a column's path, and its unit.

    >>> _label("workload.poisson.rate_per_s"), _label("models.*.weights_factor"), _label("cluster.servers")
    ('rate per s', 'weights (factor)', 'servers')
    """
    last = _short(name)
    for ending, unit in _ENDINGS.items():
        if last.endswith(ending):
            return f"{last.removesuffix(ending)}{unit}".replace("_", " ")
    return last.replace("_", " ")


def _said(names: Sequence[str], values: Any) -> str:
    """Return what tells a line from others: names by themselves, quantities with what they are of."""
    values = values if isinstance(values, tuple) else (values,)
    parts = [
        value if isinstance(value, str) else f"{say_column(name, names)} {_written(name, value)}"
        for name, value in zip(names, values, strict=True)
    ]
    return ", ".join(parts)


def _written(name: str, value: object) -> str:
    """Return a value of a column with its unit."""
    said = say_value(name, str(value))
    return f"{value:.4g}" if isinstance(value, float) and said == str(value) else said


def _what(rows: pd.DataFrame, of: str) -> str:
    """Return what a column holds, in words: of values the objective and its unit."""
    if of != "value" or rows["objective"].nunique() != 1:
        return _short(of).replace("_", " ")
    objective, unit = rows["objective"].iloc[0], rows["unit"].iloc[0]
    return _in_words(objective, unit)


def _in_words(objective: str, unit: str) -> str:
    return f"{objective.replace('_', ' ')}{' in s' if unit == 's' else ''}"


def _marks(column: pd.Series[Any]) -> dict[Any, float]:
    """Return the height of each value between 0 and 1: numbers in proportion, names evenly."""
    values = list(dict.fromkeys(column))
    if column.dtype.kind not in "if":
        return {value: at / max(1, len(values) - 1) for at, value in enumerate(values)}
    least, most = min(values), max(values)
    return {value: (value - least) / (most - least or 1) for value in values}


_COLUMN_INCHES, _ROW_INCHES = 2.4, 1.1


def draw_workflow(workflow: Workflow) -> Figure:
    """Return a drawing of a workflow: a box per task, an arrow per edge, predecessors to the left.

    Of branches, each has a colour, and its tasks say how likely they are.
    """
    import networkx as nx

    graph = workflow_graph(workflow)
    layers = nx.topological_generations(graph)
    columns = [sorted(layer, key=workflow.position.__getitem__) for layer in layers]
    for column, names in enumerate(columns):
        for name in names:
            graph.nodes[name]["column"] = column
    figure, axes = blank(_COLUMN_INCHES * len(columns), _ROW_INCHES * max(map(len, columns)) + 0.5)
    box = {"boxstyle": "round,pad=0.5", "facecolor": "white"}
    colours = {name: COLOURS[1 + i % 10] for i, branch in enumerate(workflow.branches) for name in branch.tasks}
    likely = dict(zip(workflow.position, likelihoods(workflow), strict=True))
    place = nx.multipartite_layout(graph, subset_key="column", scale=1.0)
    for name, (x, y) in place.items():
        # A name is data: dollar signs in it are no mathematics.
        label = _task_in_words(workflow, name) + (f"\n{float(likely[name]):.3g} of jobs" if likely[name] < 1 else "")
        own = {**box, "edgecolor": colours.get(name, COLOURS[0])}
        axes.text(x, y, label, ha="center", va="center", fontsize=9, bbox=own, parse_math=False)
    nx.draw_networkx_edges(graph, place, ax=axes, node_size=4000, edge_color="#667788")
    axes.set_title(workflow.name, loc="left", fontsize=11, parse_math=False)
    axes.margins(0.25)
    axes.set_axis_off()
    return figure


def _task_in_words(workflow: Workflow, name: str) -> str:
    task = workflow.tasks[workflow.position[name]]
    times = sorted({runtime_us / 1000 for runtime_us in task.runtime_us.values()})
    span = f"{times[0]:g} ms" if len(times) == 1 else f"{times[0]:g} to {times[-1]:g} ms"
    needs = "" if task.models in ((), (name,)) else f"\n{' + '.join(task.models)}"
    return f"{name}{needs}\n{span}"
