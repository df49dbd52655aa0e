"""A trial, shown: a row per contender, predicted beside measured; its section of a page, and its files.

``trial -o FOLDER`` leaves a report of every run, one of all, and timelines of the first repeat.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group
from rich.text import Text

from truenorth.models.record import ABSENT, encode
from truenorth.models.scenario import write_atomically
from truenorth.planner.answers.trial_report import ContenderRow, TrialOrigin, TrialRecord
from truenorth.planner.show import timelines
from truenorth.planner.show.curves import Curve, Curves
from truenorth.planner.show.regret import in_words
from truenorth.planner.show.section import PageSection
from truenorth.planner.show.styles import styles
from truenorth.planner.show.table import Column, Table, terminal
from truenorth.planner.show.written import read_both

if TYPE_CHECKING:  # whoever only reads a report has no devices
    from truenorth.planner.answers.trial import Trial

FILE = "trial.json"
RUNS = "runs"
"""The folder of the runs."""


def contenders(found: TrialRecord) -> Table[ContenderRow]:
    """Return a row per contender; intervals are of 95 %, and differences are to the first contender."""
    first = found.rows[0]
    columns: list[Column[ContenderRow]] = [
        Column("", lambda row: row.policy, words=True),
        Column("predicted", lambda row: row.predicted, ".4g"),
        Column("measured", lambda row: "none" if row.objective.mean is None else row.objective.mean, ".4g"),
        Column("95 % interval", lambda row: row.objective.ends),
        Column("error", lambda row: row.error, "+.1%"),
        Column("less the first", lambda row: "" if row is first else row.difference.mean, "+.4g"),
        Column("95 % interval", lambda row: "" if row is first else row.difference.ends),
        Column("mean latency s", lambda row: row.mean_latency_s, ".4g"),
        Column("realised bound s", lambda row: row.realised_bound_s, ".4g"),
        Column("dispatch us", lambda row: row.dispatch_us, ".0f"),
        Column("as predicted", lambda row: f"{row.same_order} of {row.runs}"),
        Column("outputs differ", lambda row: row.different_outputs),
        Column("failed jobs", lambda row: row.failed_jobs),
        Column("faults", lambda row: row.faults),
        Column("runs counted", lambda row: f"{row.counted} of {row.runs}"),
    ]
    return Table(f"Predicted and measured: {in_words(found.objective)}", columns, found.rows)


def trial_view(made: Trial) -> Group:
    """Return the table of a trial."""
    found, devices = made.record, next(run for runs in made.runs.values() for run in runs).live.devices
    head = f"{found.objective} on {', '.join(dict.fromkeys(devices))}, runner {found.runner}, "
    head += f"{found.repeats} repeats" + (f", ended early: {found.ended}" if found.ended else "")
    lines = [*say_uncounted(found.rows), *say_not_finite(found.rows)]
    lines += [f"from samples, {row.policy}: {row.forecast}" for row in found.rows if row.forecast is not None]
    lines += () if found.clocks is ABSENT else map(str, found.clocks)
    lines += () if found.memory is ABSENT else [f"memory: {found.memory}"]
    table = terminal(replace(contenders(found), title=""), None)
    return Group(Text(head, style="bold"), table, *map(Text, lines))


def section(folder: Path) -> PageSection:
    """Return what a page says of a folder that ``trial -o`` wrote.

    Raises
    ------
    InputError
        If a file in it cannot be read.
    """
    found, origin = read_both(folder / FILE, TrialRecord, TrialOrigin)
    return PageSection(
        f"{origin.scenario.name}: who is best on {found.device}, and does it go as predicted?",
        _answer(found),
        [
            f"{found.repeats} repeats, all contenders in each, in random order; the tasks are computed by "
            f"{found.runner}. Intervals are of 95 %; differences are to {found.rows[0].policy}, within a repeat.",
            *([f"It ended early: {found.ended}."] if found.ended else []),
            *say_uncounted(found.rows),
            *say_not_finite(found.rows),
            *(() if found.clocks is ABSENT else (f"{clock}." for clock in found.clocks)),
            *(() if found.memory is ABSENT else (f"Memory: {found.memory}.",)),
            *(f"From samples, {row.policy}: {row.forecast}." for row in found.rows if row.forecast is not None),
        ],
        [contenders(found)],
        [figure for figure in [_latencies(origin)] if figure.curves],
        timelines=timelines.read(folder),
        reproduce=origin.steps,
    )


def _answer(found: TrialRecord) -> str:
    measured = [(row.objective.mean, row) for row in found.rows if row.objective.mean is not None]
    if not measured:
        return "No contender has a run without faults and failed jobs."
    least, best = min(measured, key=lambda pair: pair[0])
    error = "" if best.error is None else f", {best.error:+.1%} off its prediction"
    return f"{best.policy} has the least {in_words(found.objective)}, {least:.4g}{error}."


def say_uncounted(rows: Iterable[ContenderRow]) -> list[str]:
    """Say which contenders have no run that counts, if any."""
    without = ", ".join(row.policy for row in rows if row.objective.mean is None)
    return [f"No run of {without} counts: none ended without faults and failed jobs."] if without else []


def say_not_finite(rows: Iterable[ContenderRow]) -> list[str]:
    """Say how many outputs of which contenders hold something that is no finite number, if any."""
    found = [(row.policy, row.not_finite_outputs) for row in rows]
    return [f"{count} outputs of {policy} hold what is no finite number." for policy, count in found if count]


def _latencies(found: TrialOrigin) -> Curves:
    """Return every job's latency, the mean of all runs over the predicted one, and where both are equal."""
    curves, most = [], 0.0
    own = styles(found.jobs)
    for policy, jobs in found.jobs.items():
        if not jobs.measured_s:
            continue
        measured = np.array(jobs.measured_s).mean(axis=0).tolist()
        points = sorted(zip(jobs.predicted_s, measured, strict=True))
        most = max([most, *jobs.predicted_s])
        curves.append(Curve(policy, points, own[policy].colour, stroke=own[policy].stroke, joined=False))
    if curves:
        curves.append(Curve("as predicted", [(0.0, 0.0), (most, most)], stroke="dashed"))
    return Curves("Latency of every job", "predicted in s", "measured in s, mean of all runs", curves)


def write(made: Trial, folder: Path) -> list[Path]:
    """Write every file of a trial; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    document = encode(made.record) | encode(made.origin)
    write_atomically(folder / FILE, json.dumps(document, indent=1) + "\n")
    return [folder / FILE, timelines.write(folder, list(made.shown))]
