"""What a person sees of estimates, who answered and how good that was, what to profile; and what a job's log says."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.planner.inputs.estimate.calibration import NOMINAL
from truenorth.planner.inputs.estimate.logs.progress import Remaining
from truenorth.planner.inputs.estimate.logs.reading import LogReading
from truenorth.planner.inputs.estimate.run import Estimates, as_dict
from truenorth.planner.inputs.estimate.table import ESTIMATE_COLUMNS, LINE

_MOST_ROWS, _MOST_NAMES = 20, 10


def estimates_view(made: Estimates) -> Group:
    """Return the summary of estimates."""
    document = as_dict(made)
    parts: list[Text | Table] = [_head(document), _rungs(document["rungs"])]
    if document["score"] is not None:
        parts.append(_score(document["score"]))
    if document["unseen"]:
        parts.append(_unseen(made, document["unseen"]))
    return Group(*parts, _first(document["estimates"]))


def _head(document: dict[str, Any]) -> Text:
    left_out = ", ".join(f"{count} {reason}" for reason, count in document["left_out"].items())
    return Text.assemble(
        (f"{document['requests_estimated']} requests from {document['past_tasks']} past tasks", "bold"),
        f" (left out: {left_out})" if left_out else "",
        f"\nkey: {', '.join(document['key'])}",
    )


def _rungs(rungs: list[dict[str, Any]]) -> Table:
    table = Table(
        title=f"Rungs as they are asked; nominal {NOMINAL:.0%} intervals on the latest fifth of the history",
        title_justify="left",
    )
    table.add_column("rung")
    for name in ("answered", "judged by", "covered as it comes", "calibrated", "median error", "within a factor of 2"):
        table.add_column(name, justify="right")
    for rung in rungs:
        names = ("covered_before", "covered_after", "median_error", "within_factor_two")
        cases = "-" if rung["cases"] is None else str(rung["cases"])
        table.add_row(rung["name"], str(rung["answered"]), cases, *(_share(rung[name]) for name in names))
    return table


def _score(score: dict[str, Any]) -> Text:
    return Text(
        f"Against the run times of {score['cases']} requests: median error {_share(score['median_error'])}, "
        f"covered {_share(score['covered'])}, Spearman {_number(score['spearman'])}, R2 {_number(score['r2'])}"
    )


def _unseen(made: Estimates, unseen: dict[str, int]) -> Text:
    column = made.ladder.columns.key[0]
    named = [f"{value or '(none)'} ({count})" for value, count in unseen.items()]
    more = f" and {len(named) - _MOST_NAMES} more" if len(named) > _MOST_NAMES else ""
    return Text(
        f"Profile first, no past task has this {column}: {', '.join(named[:_MOST_NAMES])}{more}", style="yellow"
    )


def _first(rows: list[dict[str, Any]]) -> Table:
    more = f", the first {_MOST_ROWS} of {len(rows)}" if len(rows) > _MOST_ROWS else ""
    table = Table(title=f"Estimates{more}", title_justify="left")
    names = [name for name in rows[0] if name not in ESTIMATE_COLUMNS]
    for name in names:
        table.add_column(name, justify="right" if name == LINE else "left")
    for name in ("p10 in s", "p50", "p90"):
        table.add_column(name, justify="right")
    for name in _LAST:
        table.add_column(name)
    for row in rows[:_MOST_ROWS]:
        told = [str(row[name]) for name in names]
        seconds = [f"{row[name]:.4g}" for name in ("p10_s", "p50_s", "p90_s")]
        table.add_row(*told, *seconds, row["source"], f"{row['confidence']:.2f}", "; ".join(row["neighbours"][:1]))
    return table


_LAST = ("source", "confidence", "neighbours")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def describe_log(reading: LogReading) -> str:
    """Return what a log says, a line each for progress, speed, remaining time and failure."""
    share = "" if reading.fraction is None else f", {reading.fraction:.1%} done"
    parts = [f"{reading.state}{share}"]
    for count in reading.counts:
        of = "" if count.total is None else f" of {count.total:g}"
        parts.append(f"{count.done:g}{of} {count.unit}s, line {count.line}")
    if reading.rates:
        parts.append(", ".join(f"{rate.per_second:.4g} {rate.unit}s/s" for rate in reading.rates))
    if reading.state == "unfinished":
        parts.append(f"remaining: {_left(reading.remaining)}")
    failure = reading.failure
    if failure is not None:
        again = "may succeed if started again" if failure.retry else "fails again unless something is changed"
        where = ", ".join(map(str, failure.lines))
        parts += [f"{failure.failure}: {failure.reason}", f"line {where}; {again}"]
    return "\n".join(parts)


def _left(remaining: Remaining | None) -> str:
    if remaining is None:
        return "cannot be known from this log"
    if remaining.low_us is None or remaining.high_us is None:
        return f"{_duration(remaining.expected_us)}; too little is logged for an interval"
    low, high = _duration(remaining.low_us), _duration(remaining.high_us)
    return f"{_duration(remaining.expected_us)}, from {low} to {high} at the recent window's fast and slow pace"


def _duration(microseconds: int) -> str:
    """Return a time as a person says it.

    >>> _duration(1_500_000), _duration(3_725_000_000)
    ('1.5 s', '62 min')
    """
    seconds = microseconds / MICROSECONDS_PER_SECOND
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
