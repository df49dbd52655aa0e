"""Regret, shown: what a policy loses to each part, as tables and as a picture of bars with their parts named."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from truenorth.models.objective import Objective
from truenorth.planner.answers.regret import (
    AS_IT_RAN,
    BATCHES,
    OPEN,
    ORDER,
    PLACEMENT,
    RESIDENCY,
    TOGETHER,
    LossRow,
    Regret,
    RegretRecord,
)
from truenorth.planner.show.canvas import AS_DATA, blank
from truenorth.planner.show.table import Column, Table, say

_MEANING = {
    AS_IT_RAN: "as it ran",
    RESIDENCY: "its GPUs and order, loads and evictions with the window known",
    BATCHES: "its GPUs and order, which neighbours run together free as well",
    ORDER: "its GPUs, order free",
    PLACEMENT: "everything free: the plan",
    TOGETHER: "everything free: the plan (order and GPUs not told apart on so wide a cluster)",
}
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


def in_words(objective: Objective) -> str:
    """Return an objective as a heading has it."""
    return str(objective).replace("_", " ")


def regret_table(regret: RegretRecord) -> Table[tuple[str, float, LossRow | None]]:
    """Return what a policy's timeline loses to each part, from its value down to the lower bound."""
    unit, known = regret.objective.unit, regret.clairvoyance
    values = [*(step.value for step in regret.steps), regret.lower_bound]
    names = [_MEANING[step.free] for step in regret.steps]
    names.append(f"lower bound of all plans ({regret.bound_method})")

    def between(loss: LossRow | None) -> str:
        if loss is None or loss.part == OPEN:
            return ""
        return f"{say(loss.at_least, '.5g', unit)} and {say(loss.at_most, '.5g', unit)}"

    columns: list[Column[tuple[str, float, LossRow | None]]] = [
        Column("", lambda row: row[0], words=True),
        Column("value", lambda row: row[1], ".5g", unit),
        Column("lost", lambda row: "" if row[2] is None else row[2].lost, ".5g", unit),
        Column("share", lambda row: "" if row[2] is None else row[2].share, ".1%"),
        Column("exactly between", lambda row: between(row[2])),
    ]
    last: list[str | float] = []
    if known is not None:
        both = (columns[1].say(value) for value in (known.online, known.all_known))
        last = [f"beside the chain: {known.policy}, arrivals unknown, and all known", ", ".join(both), known.worth]
    title = f"{regret.policy}: what its {in_words(regret.objective)} is made of"
    rows = list(zip(names, values, [None, *regret.losses], strict=True))
    return Table(title, columns, rows, last, regret.warning or "")


def losses_table(regrets: Sequence[RegretRecord]) -> Table[RegretRecord]:
    """Return one row per policy: its value, what each part costs, and the lower bound that is left.

    A part that is only bounded shows what search found and, below, the interval in which the exact loss lies.
    """
    objective, words = regrets[0].objective, in_words(regrets[0].objective)
    unit = objective.unit
    parts: list[Column[RegretRecord]] = [
        Column(loss.part, partial(_loss, place, unit)) for place, loss in enumerate(regrets[0].losses)
    ]
    title = (
        f"What stands between a policy and the lower bound of {words}\n"
        "Losses as far as search found them; where that is no proof, the exact one lies in the interval below."
    )
    columns: list[Column[RegretRecord]] = [
        Column("policy", lambda regret: regret.policy, words=True),
        Column(words, lambda regret: regret.steps[0].value, ".5g", unit),
        *parts,
        Column("lower bound", lambda regret: regret.lower_bound, ".5g", unit),
    ]
    return Table(title, columns, regrets, note=regrets[0].warning or "")


def _loss(place: int, unit: str, regret: RegretRecord) -> str:
    loss = regret.losses[place]
    lost, least, most = (say(value, ".5g", unit) for value in (loss.lost, loss.at_least, loss.at_most))
    found = f"{lost}  {say(loss.share, '.1%')}"
    return found if loss.at_least == loss.at_most else f"{found}\n{least} to {most}"


def parts_table(regrets: Sequence[RegretRecord]) -> Table[tuple[str, LossRow]]:
    """Return a row per policy and part, as a page shows them."""
    columns: list[Column[tuple[str, LossRow]]] = [
        Column("policy", lambda row: row[0], words=True),
        Column("lost by", lambda row: row[1].part, words=True),
        Column(f"{in_words(regrets[0].objective)} lost", lambda row: row[1].lost, ".4g"),
        Column("share", lambda row: row[1].share, ".1%"),
        Column("exactly between", lambda row: f"{row[1].at_least:.4g} and {row[1].at_most:.4g}"),
    ]
    rows = [(regret.policy, loss) for regret in regrets for loss in regret.losses]
    note = " ".join(said for said in (regrets[0].warning, regrets[0].note) if said)
    return Table("What stands between a policy and the lower bound", columns, rows, note=note)


@AS_DATA
def regret_bars(regrets: Sequence[Regret]) -> Figure:
    """Return a stacked horizontal bar per policy, on one axis: that of the objective, from the lower bound on."""
    found = [regret.record for regret in regrets]
    rows = [_parts(regret) for regret in found]
    height = sum(_height(parts) for parts in rows)
    figure, axes = blank(12, 1.9 + 0.85 * height)
    top, unit = 0.0, f" {found[0].objective.unit}".rstrip()
    for regret, parts in zip(found, rows, strict=True):
        _draw(axes, regret, parts, top, unit)
        top -= _height(parts)
    axes.set_ylim(top + 0.25, 0.55)
    low, high = min(regret.lower_bound for regret in found), max(regret.steps[0].value for regret in found)
    width = high - low or max(high, 1.0)
    axes.set_xlim(low - 0.02 * width, high + _ROOM * width)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
    words = in_words(found[0].objective)
    axes.set_xlabel(f"{words}{f' in {unit.strip()}' if unit else ''}; bars begin at the lower bound")
    axes.set_title(
        f"{regrets[0].scenario.name}: what stands between online policies and the optimum in {words}\n"
        "The plan, and every step towards it, knows the future; the policies do not. Parts are freed from right to "
        "left,\nas far as search found; where that is no proof, the interval of the exact loss follows."
        + ("" if found[0].warning is None else f"\n{fill(found[0].warning, _LETTERS)}"),
        loc="left",
        fontsize=11,
    )
    return figure


def _parts(regret: RegretRecord) -> list[LossRow]:
    """Return the parts from the lower bound upwards, those that are proved to cost nothing left out."""
    losses = {loss.part: loss for loss in regret.losses}
    return [losses[part] for part in _STYLE if part in losses and losses[part].at_most > 0]


def _height(parts: Sequence[LossRow]) -> float:
    return _BAR + _LINE * len(parts) + 0.75


def _draw(axes: Axes, regret: RegretRecord, parts: Sequence[LossRow], top: float, unit: str) -> None:
    """Draw one bar with the policy's name above, its value at its end and a line of words per part below.

    The rightmost part has the first line and every text lies right of its leader, so that no leader crosses a text.
    """
    bound, value, planned = regret.lower_bound, regret.steps[0].value, regret.steps[-1].value
    axes.text(bound, top + 0.08, regret.policy, fontsize=12, fontweight="bold", va="bottom")
    axes.text(value, top - _BAR / 2, f"  {say(value, '.4g')}{unit}", fontsize=11, fontweight="bold", va="center")
    left = bound
    for line, part in zip(reversed(range(len(parts))), parts, strict=True):
        colour, words = _STYLE[part.part]
        if part.part == OPEN:
            words += f": lower bound {say(bound, '.4g')}{unit}, best plan {say(planned, '.4g')}{unit}"
        middle, baseline = left + part.lost / 2, top - _BAR - _LINE * (line + 0.7)
        axes.broken_barh([(left, part.lost)], (top - _BAR, _BAR), facecolor=colour, edgecolor="white")
        axes.plot([middle, middle], [top - _BAR, baseline], color=colour, linewidth=1.2)
        text = f"  {say(part.lost, '.3g')}{unit} ({part.share:.0%}) {words}"
        if part.part != OPEN and part.at_least < part.at_most:
            text += f"; exactly {say(part.at_least, '.3g')} to {say(part.at_most, '.3g')}{unit}"
        axes.text(middle, baseline, text, va="center", fontsize=9.5, color=colour)
        left += part.lost
