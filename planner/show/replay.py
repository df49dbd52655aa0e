"""A run on devices, shown: tables for the terminal, its section of a page, and what ``replay -o FOLDER`` leaves.

That is report, predicted and measured timelines, a picture, and a trace with both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from truenorth.executor.devices.records import SET_ASIDE
from truenorth.models.objective import reported_value, timeline_value
from truenorth.models.record import ABSENT, encode
from truenorth.models.scenario import TimelineHeader, write_atomically, write_timeline
from truenorth.models.units import say_bandwidth
from truenorth.planner.answers.replay_report import Both, ReplayRecord
from truenorth.planner.answers.versions import Origin
from truenorth.planner.show import timelines
from truenorth.planner.show.canvas import png
from truenorth.planner.show.gantt import predicted_over_measured
from truenorth.planner.show.regret import in_words
from truenorth.planner.show.section import PageSection
from truenorth.planner.show.table import Column, Table, facts, say, terminal
from truenorth.planner.show.timelines import trace_events
from truenorth.planner.show.written import read_both

if TYPE_CHECKING:  # whoever only reads a report has no devices
    from truenorth.planner.answers.replayed import Replayed

FILE = "replay.json"
_MOST_FAILURES = 10
Figure = tuple[str, Both, str]
"""A figure of a run: its name, the figure, and the key of its causes."""


@contextmanager
def show_elapsed(what: str) -> Iterator[None]:
    """Show what is going on, and for how long, while the block runs; silent unless standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        shown.add_task(what, total=None)
        yield


@contextmanager
def show_count(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how many of so many are done while the block runs; silent unless standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda done: progress.update(bar, completed=done)


def figures(found: ReplayRecord) -> list[Figure]:
    """Return the figures that are predicted and measured, the objective first."""
    return [
        (in_words(found.objective.name), found.objective.both, ""),
        ("mean latency in s", found.mean_latency_s, "mean_latency"),
        ("makespan in s", found.makespan_s, "makespan"),
        *((f"{name} in s", both, "") for name, both in _tokens(found)),
    ]


def _tokens(found: ReplayRecord) -> list[tuple[str, Both]]:
    """Return the figures of first tokens and time per token, if requests of streams were served."""
    return (
        []
        if found.tokens is None
        else [
            (each.name.removesuffix("_s").replace("_", " "), getattr(found.tokens, each.name))
            for each in fields(found.tokens)
        ]
    )


def predicted_and_measured(found: ReplayRecord) -> Table[Figure]:
    """Return a row per figure, predicted beside measured."""
    columns: list[Column[Figure]] = [
        Column("", lambda row: row[0], words=True),
        Column("predicted", lambda row: row[1].predicted, ".5g"),
        Column("measured", lambda row: row[1].measured, ".5g"),
        Column("error", lambda row: row[1].error, "+.1%"),
    ]
    return Table("Predicted and measured", columns, figures(found))


def replay_view(replayed: Replayed) -> Group:
    """Return what a person wants to know: predicted beside measured, where the error came from, what failed."""
    found = replayed.record
    parts: list[Any] = [terminal(_times(found), None), Text(), facts(_facts(replayed, found))]
    parts += [] if found.clocks is ABSENT else [Text(str(clock)) for clock in found.clocks]
    parts += [
        Text(f"job {failure.job} failed in {failure.task}{_on(failure.gpu)}: {failure.message}")
        for failure in found.failures[:_MOST_FAILURES]
    ]
    if len(found.failures) > _MOST_FAILURES:
        parts.append(Text(f"... and {len(found.failures) - _MOST_FAILURES} more jobs failed"))
    parts += [Text(violation) for violation in found.violations[:_MOST_FAILURES]]
    return Group(*parts)


def _times(found: ReplayRecord) -> Table[Figure]:
    """Return predicted and measured times, and what each cause adds."""
    from truenorth.planner.answers.replay import CAUSES  # with the packages of devices, which a run had

    causes: dict[str, Any] = {} if found.causes_s is None else encode(found.causes_s)
    columns: list[Column[Figure]] = [
        Column("", lambda row: row[0], words=True),
        Column("predicted s", lambda row: row[1].predicted, ".4f"),
        Column("measured s", lambda row: row[1].measured, ".4f"),
        Column("error", lambda row: row[1].error, "+.1%"),
        *(
            Column[Figure](
                f"{cause.replace('_', ' ')} s",
                lambda row, cause=cause: causes.get(row[2], {}).get(cause),  # type: ignore[misc]
                "+.4f",
            )
            for cause in CAUSES
        ),
    ]
    both = [("makespan", found.makespan_s, "makespan"), ("mean latency", found.mean_latency_s, "mean_latency")]
    both += [(name, of, "") for name, of in _tokens(found)]
    return Table("", columns, both)


def _facts(replayed: Replayed, found: ReplayRecord) -> dict[str, str]:
    copy, dispatch, outputs = found.copy, found.dispatch_us, found.outputs
    times = {"run time": found.run_times, "load": found.load_times, "transfer": found.transfer_times}
    if found.iteration_times is not None:
        times["iteration"] = found.iteration_times
    rows = {
        "policy": f"{found.policy} on {', '.join(dict.fromkeys(found.devices))}",
        "runner": found.runner,
        "rules": "all kept" if found.valid else f"{len(found.violations)} violations",
        "as predicted": f"placement {_yes(found.same_placement)}, order {_yes(found.same_order)}",
        "job latency, mean absolute error": say(found.latency_error, ".1%"),
        **{
            f"{name}, mean absolute error": f"{say(took.absolute_error, '.1%')} of {took.count}"
            for name, took in times.items()
        },
        "dispatch per task": f"{say(dispatch.p50, '.0f')} us median, {say(dispatch.p95, '.0f')} us p95",
        "load bandwidth": f"{say(copy.achieved_bytes_per_s, say_bandwidth)}, {say(copy.share_of_peak, '.0%')} of the "
        f"pinned-copy peak {say(copy.peak_bytes_per_s, say_bandwidth)}",
        "energy": "not measured" if found.energy_j is None else f"{found.energy_j:.0f} J",
    }
    if found.forecast is not None:
        rows["from samples"] = str(found.forecast)
    if outputs is not None:
        rows["outputs"] = f"{len(outputs.different)} of {outputs.compared} differ from those of models alone"
        if outputs.of_batches:
            rows["outputs"] += f"; {outputs.of_batches} ran in batches and may differ by rounding"
    if found.kv_sent is not ABSENT:
        rows["KV"] = str(found.kv_sent)
    if found.not_finite_outputs:
        rows["not finite"] = f"{len(found.not_finite_outputs)} outputs hold what is no finite number"
    if found.memory is not ABSENT:
        rows["memory"] = str(found.memory)
    if found.unpacked_gpus:
        rows["addresses"] = f"fits by bytes but not in pieces on {', '.join(found.unpacked_gpus)}"
    if found.moves:
        rows["moves"] = f"{len(found.moves)} models made way within a GPU's memory, in {found.moves_s:.4f} s"
    if found.faults:
        set_aside = [fault.gpu for fault in found.faults if fault.what == SET_ASIDE]
        rows["faults"] = f"{len(found.faults)}, {', '.join(set_aside) or 'no GPU'} set aside"
    if found.failures:
        rows["failed"] = f"{len(found.failures)} of {len(replayed.instance.jobs)} jobs"
    return rows


def _on(gpu: str | list[str] | None) -> str:
    return "" if gpu is None else f" on {gpu if isinstance(gpu, str) else ' '.join(gpu)}"


def _yes(value: bool) -> str:
    return "the same" if value else "different"


def section(folder: Path) -> PageSection:
    """Return what a page says of a folder that ``replay -o`` wrote.

    Raises
    ------
    InputError
        If a file in it cannot be read.
    """
    found, origin = read_both(folder / FILE, ReplayRecord, Origin)
    return PageSection(
        f"{origin.scenario.name}: does {Path(found.policy).name} hold on {found.device}?",
        _answer(found),
        [f"Devices: {', '.join(found.devices)}; the tasks are computed by {found.runner}."],
        [predicted_and_measured(found)],
        timelines=timelines.read(folder),
        reproduce=origin.steps,
    )


def _answer(found: ReplayRecord) -> str:
    if found.latency_error is None:
        return "Every job failed."
    kept = ("every rule held" if found.valid else "rules were broken") + (
        ", placement and order were as predicted"
        if found.same_placement and found.same_order
        else ", placement or order differed from the prediction"
    )
    failed = f"; {len(found.failures)} tasks failed" if found.failures else ""
    return f"Job latency was off by {found.latency_error:.1%} of its predicted mean; {kept}{failed}."


def write(replayed: Replayed, folder: Path) -> list[Path]:
    """Write every file of a run on devices; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    report, predicted, measured, picture, trace = (
        folder / name for name in (FILE, "predicted.json", "measured.json", "gantt.png", "trace.json")
    )
    write_atomically(report, json.dumps(encode(replayed.record) | encode(replayed.origin), indent=2))
    objective = replayed.scenario.objective
    value = reported_value(objective, timeline_value(objective, replayed.instance, replayed.predicted))
    header = TimelineHeader(objective=str(objective), value=value, policy=replayed.policy)
    write_timeline(predicted, replayed.instance, replayed.predicted, header)
    replayed.save_measured(measured)
    chart = predicted_over_measured(replayed.instance, replayed.predicted, replayed.timeline, _title(replayed))
    write_atomically(picture, png(chart))
    write_atomically(trace, json.dumps({"traceEvents": _events(replayed), "displayTimeUnit": "ms"}))
    return [report, predicted, measured, picture, trace, timelines.write(folder, replayed.shown)]


def _title(replayed: Replayed) -> str:
    error = replayed.latency_error
    said = "no job ran to its end" if error is None else f"mean absolute error of job latency {error:.1%}"
    name = replayed.policy if replayed.plan is None else Path(replayed.policy).name
    return f"{name} on {replayed.settings.device}, {replayed.scenario.name}: predicted over measured, {said}"


def _events(replayed: Replayed) -> list[dict[str, object]]:
    """Return the events of both timelines, the GPUs of each as processes of their own."""
    instance = replayed.instance
    predicted = trace_events(instance, replayed.predicted, "predicted", 1)
    return predicted + trace_events(instance, replayed.timeline, "measured", 1 + instance.n_gpus)
