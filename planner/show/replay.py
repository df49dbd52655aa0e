"""The report of a run on devices as tables for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from executor.devices.records import SET_ASIDE
from models.units import say_bandwidth
from planner.answers.replay import Replayed
from planner.answers.time_causes import CAUSES
from planner.show.forecast import say_forecast

_MOST_FAILURES = 10


@contextmanager
def show_elapsed(what: str) -> Iterator[None]:
    """Show what is going on, and for how long, while the block runs; silent unless standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        shown.add_task(what, total=None)
        yield


def replay_view(replayed: Replayed) -> Group:
    """Return what a person wants to know: predicted beside measured, where the error came from, what failed."""
    report = replayed.as_dict()
    parts: list[Any] = [_times(report), Text(), _facts(replayed, report)]
    parts += [
        Text(f"job {failure['job']} failed in {failure['task']}{_on(failure['gpu'])}: {failure['message']}")
        for failure in report["failures"][:_MOST_FAILURES]
    ]
    if len(report["failures"]) > _MOST_FAILURES:
        parts.append(Text(f"... and {len(report['failures']) - _MOST_FAILURES} more jobs failed"))
    parts += [Text(violation) for violation in report["violations"][:_MOST_FAILURES]]
    return Group(*parts)


def _times(report: dict[str, Any]) -> Table:
    """Return predicted and measured times, and what each cause adds."""
    table = Table(box=None, pad_edge=False)
    for column in ("", "predicted s", "measured s", "error", *(f"{cause.replace('_', ' ')} s" for cause in CAUSES)):
        table.add_column(column, justify="left" if not column else "right")
    for name, key in (("makespan", "makespan_s"), ("mean latency", "mean_latency_s")):
        row, causes = report[key], report["causes_s"]
        added = ["-"] * len(CAUSES)
        if causes is not None:
            added = [f"{causes[name.replace(' ', '_')][cause]:+.4f}" for cause in CAUSES]
        measured, error = _number(row["measured"], ".4f"), _number(row["error"], "+.1%")
        table.add_row(name, _number(row["predicted"], ".4f"), measured, error, *added)
    return table


def _facts(replayed: Replayed, report: dict[str, Any]) -> Table:
    copy, dispatch, outputs = report["copy"], report["dispatch_us"], report["outputs"]
    rows = {
        "policy": f"{report['policy']} on {', '.join(dict.fromkeys(report['devices']))}",
        "runner": report["runner"],
        "rules": "all kept" if report["valid"] else f"{len(report['violations'])} violations",
        "as predicted": f"placement {_yes(report['same_placement'])}, order {_yes(report['same_order'])}",
        "job latency, mean absolute error": _number(report["latency_error"], ".1%"),
        **{
            f"{name}, mean absolute error": f"{_number(report[key]['absolute_error'], '.1%')} of {report[key]['count']}"
            for name, key in (("run time", "run_times"), ("load", "load_times"), ("transfer", "transfer_times"))
        },
        "dispatch per task": f"{_number(dispatch['p50'], '.0f')} us median, {_number(dispatch['p95'], '.0f')} us p95",
        "load bandwidth": f"{_bandwidth(copy['achieved_bytes_per_s'])}, {_number(copy['share_of_peak'], '.0%')} of the "
        f"pinned-copy peak {_bandwidth(copy['peak_bytes_per_s'])}",
        "energy": "not measured" if report["energy_j"] is None else f"{report['energy_j']:.0f} J",
    }
    if report["forecast"] is not None:
        rows["from samples"] = say_forecast(report["forecast"])
    if outputs is not None:
        rows["outputs"] = f"{len(outputs['different'])} of {outputs['compared']} differ from those of models alone"
        if outputs["of_batches"]:
            rows["outputs"] += f"; {outputs['of_batches']} ran in batches and may differ by rounding"
        if outputs["not_finite"]:
            rows["outputs"] += f"; {len(outputs['not_finite'])} hold what is no finite number"
    if report["unpacked_gpus"]:
        rows["memory"] = f"fits by bytes but not in pieces on {', '.join(report['unpacked_gpus'])}"
    if report["moves"]:
        rows["moves"] = f"{len(report['moves'])} models made way within a GPU's memory, in {report['moves_s']:.4f} s"
    if report["faults"]:
        set_aside = [fault["gpu"] for fault in report["faults"] if fault["what"] == SET_ASIDE]
        rows["faults"] = f"{len(report['faults'])}, {', '.join(set_aside) or 'no GPU'} set aside"
    if replayed.live.records.failures:
        rows["failed"] = f"{len(report['failures'])} of {len(replayed.instance.jobs)} jobs"
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def _on(gpu: str | None) -> str:
    return "" if gpu is None else f" on {gpu}"


def _number(value: float | None, how: str) -> str:
    return "-" if value is None else format(value, how)


def _bandwidth(value: float | None) -> str:
    return "-" if value is None else say_bandwidth(value)


def _yes(value: bool) -> str:
    return "the same" if value else "different"
