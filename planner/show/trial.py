"""What a person sees of a trial: a row per contender, predicted beside measured, differences with their intervals."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from planner.answers.trial import Trial
from planner.show.forecast import say_forecast
from planner.show.report.trial import say_not_finite, say_uncounted

_COLUMNS = (
    *("", "predicted", "measured", "95 % interval", "error", "less the first", "95 % interval", "mean latency s"),
    *("realised bound s", "as predicted", "outputs differ", "failed jobs", "faults", "runs counted"),
)


@contextmanager
def runs_shown(runs: int) -> Iterator[Callable[[int], None]]:
    """Show how many runs are done for as long as the block runs; silent unless standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    columns = (TextColumn("planning, then running in real time"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("runs", total=runs)
        yield lambda done: progress.update(bar, completed=done)


def trial_view(made: Trial) -> Group:
    """Return the table of a trial."""
    table = Table(box=None, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column, justify="right" if column else "left")
    for row in made.rows:
        table.add_row(
            row["policy"],
            _number(row["predicted"]),
            "none" if row["objective"] is None else _number(row["objective"]),
            _ends(row["objective_low"], row["objective_high"]),
            "-" if row["error"] is None else f"{row['error']:+.1%}",
            "" if row is made.rows[0] else _number(row["difference"], "+.4g"),
            "" if row is made.rows[0] else _ends(row["difference_low"], row["difference_high"]),
            _number(row["mean_latency_s"]),
            _number(row["realised_bound_s"]),
            f"{row['same_order']} of {row['runs']}",
            _number(row["different_outputs"], "d"),
            str(row["failed_jobs"]),
            str(row["faults"]),
            f"{row['counted']} of {row['runs']}",
        )
    devices = next(run for runs in made.runs.values() for run in runs).live.devices
    head = f"{made.scenario.objective} on {', '.join(dict.fromkeys(devices))}, runner {made.runner}, "
    head += f"{len(made.order)} repeats" + (f", ended early: {made.ended}" if made.ended else "")
    foretold = [(row["policy"], row["forecast"]) for row in made.rows if row["forecast"] is not None]
    lines = [Text(said) for said in [*say_uncounted(made.rows), *say_not_finite(made.rows)]]
    lines += [Text(f"from samples, {policy}: {say_forecast(found)}") for policy, found in foretold]
    return Group(Text(head, style="bold"), table, *lines)


def _number(value: float | None, how: str = ".4g") -> str:
    return "-" if value is None else format(value, how)


def _ends(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:.4g} to {high:.4g}"
