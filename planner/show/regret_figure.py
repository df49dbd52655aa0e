"""A picture of regret: per policy a bar from the lower bound to its value, in parts that are named where they are."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from models.objective import reported_value
from planner.answers.regret import BATCHES, OPEN, ORDER, PLACEMENT, RESIDENCY, TOGETHER, Regret
from planner.show.picture import AS_DATA

_STYLE = {
    OPEN: ("#888888", "still open"),
    PLACEMENT: ("#4477AA", "placement: lost by its choice of GPUs"),
    TOGETHER: ("#4477AA", "order and placement"),
    ORDER: ("#228833", "order: lost by the order of its tasks"),
    BATCHES: ("#AA3377", "batches: lost by what runs together"),
    RESIDENCY: ("#EE6677", "residency: lost by its loads and evictions"),
}
"""Colour and words of each part, in the order in which they are stacked upon the lower bound."""
_LINE, _BAR = 0.30, 0.42
"""Heights in rows: a line of text below a bar, and the bar."""
_LETTERS = 130
"""Letters of a line of the title."""
_ROOM = 0.4
"""Room for words right of the longest bar, as a share of its length."""


@AS_DATA
def regret_bars(regrets: Sequence[Regret]) -> Figure:
    """Return a stacked horizontal bar per policy, on one axis: that of the objective, from the lower bound on."""
    rows = [_parts(regret) for regret in regrets]
    height = sum(_height(parts) for parts in rows)
    figure = Figure(figsize=(12, 1.9 + 0.85 * height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    top = 0.0
    objective = regrets[0].scenario.objective
    unit = f" {objective.unit}".rstrip()
    for regret, parts in zip(regrets, rows, strict=True):
        _draw(axes, regret, parts, top, unit)
        top -= _height(parts)
    axes.set_ylim(top + 0.25, 0.55)
    low = min(reported_value(objective, regret.lower_bound) for regret in regrets)
    high = max(reported_value(objective, regret.steps[0].value) for regret in regrets)
    width = high - low or max(high, 1.0)
    axes.set_xlim(low - 0.02 * width, high + _ROOM * width)
    axes.set_yticks([])
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    words = str(objective).replace("_", " ")
    axes.set_xlabel(f"{words}{f' in {unit.strip()}' if unit else ''}; bars begin at the lower bound")
    axes.set_title(
        f"{regrets[0].scenario.name}: what stands between online policies and the optimum in {words}\n"
        "The plan, and every step towards it, knows the future; the policies do not. Parts are freed from right to "
        "left,\nas far as search found; where that is no proof, the interval of the exact loss follows."
        + ("" if regrets[0].warning is None else f"\n{fill(regrets[0].warning, _LETTERS)}"),
        loc="left",
        fontsize=11,
    )
    return figure


def _parts(regret: Regret) -> list[dict[str, Any]]:
    """Return the parts from the lower bound upwards, those that are proved to cost nothing left out."""
    losses = {loss["part"]: loss for loss in regret.as_dict()["losses"]}
    return [losses[part] for part in _STYLE if part in losses and losses[part]["at_most"] > 0]


def _height(parts: Sequence[dict[str, Any]]) -> float:
    return _BAR + _LINE * len(parts) + 0.75


def _draw(axes: Axes, regret: Regret, parts: Sequence[dict[str, Any]], top: float, unit: str) -> None:
    """Draw one bar with the policy's name above, its value at its end and a line of words per part below.

    The rightmost part has the first line and every text lies right of its leader, so that no leader crosses a text.
    """
    objective = regret.scenario.objective
    bound = reported_value(objective, regret.lower_bound)
    value, planned = (reported_value(objective, regret.steps[step].value) for step in (0, -1))
    axes.text(bound, top + 0.08, regret.policy, fontsize=12, fontweight="bold", va="bottom")
    axes.text(value, top - _BAR / 2, f"  {value:.4g}{unit}", fontsize=11, fontweight="bold", va="center")
    left = bound
    for line, part in zip(reversed(range(len(parts))), parts, strict=True):
        colour, words = _STYLE[part["part"]]
        if part["part"] == OPEN:
            words += f": lower bound {bound:.4g}{unit}, best plan {planned:.4g}{unit}"
        middle, baseline = left + part["lost"] / 2, top - _BAR - _LINE * (line + 0.7)
        axes.broken_barh([(left, part["lost"])], (top - _BAR, _BAR), facecolor=colour, edgecolor="white")
        axes.plot([middle, middle], [top - _BAR, baseline], color=colour, linewidth=1.2)
        text = f"  {part['lost']:.3g}{unit} ({part['share']:.0%}) {words}"
        if part["part"] != OPEN and part["at_least"] < part["at_most"]:
            text += f"; exactly {part['at_least']:.3g} to {part['at_most']:.3g}{unit}"
        axes.text(middle, baseline, text, va="center", fontsize=9.5, color=colour)
        left += part["lost"]
