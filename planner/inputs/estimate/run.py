"""From files to estimates and out again: a history, the requests or the scenario, and what is written of them.

Estimates leave as a CSV file and as the object of ``estimate --json``, which says how far they were from what happened.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from truenorth.models.errors import QuestionError
from truenorth.models.record import guard
from truenorth.models.scenario import InputError, Scenario, load_scenario, write_atomically
from truenorth.models.scenario.work import build_workflows
from truenorth.models.units import seconds
from truenorth.planner.inputs.estimate.ladder import NOMINAL, Ladder, Recipe, RungCalibration, fit_ladder
from truenorth.planner.inputs.estimate.learned import SentenceEncoder
from truenorth.planner.inputs.estimate.rungs import TASK, WORKFLOW, Answerer, Asked, Estimate, read_profile
from truenorth.planner.inputs.estimate.sources import DescriptionCache
from truenorth.planner.inputs.estimate.table import (
    ESTIMATE_COLUMNS,
    GPUS,
    JOB,
    JOB_COLUMNS,
    LINE,
    MICROSECONDS,
    MODEL,
    RUNTIMES,
    SCENARIO_COLUMNS,
    HistoryTable,
    Naming,
    Wanted,
    columns_of,
    describe_columns,
    read_table,
    roles,
    unit_of,
)
from truenorth.planner.inputs.estimate.tasks import Floats, History, Tasks, Texts
from truenorth.planner.inputs.importers.rows import Tally

_SCENARIO_FILES = (".yaml", ".yml", ".json")
_BETWEEN = "; "
_LAST_RELEASE = ", its last release (--starts says when the requests begin on its clock)"


@dataclass(frozen=True, slots=True)
class EstimateOptions:
    """What can be chosen beside the columns.

    Parameters
    ----------
    profile
        What ``truenorth profile -o`` wrote.
    encoder
        Compares texts in place of TF-IDF.
    answerer
        Asked before the default.
    cache
        File that keeps what was read of sources, by the hash of their content.
    skip_malformed
        Whether malformed rows of the history are counted and left out.
    seed
        Equal seeds give equal estimates.
    starts_us
        When the requests begin, on the clock of a history that is an import; of it counts what was over by then. None:
        with its last release, before which a later window cannot begin.
    """

    profile: Path | None = None
    encoder: SentenceEncoder | None = None
    answerer: Answerer | None = None
    cache: Path | None = None
    skip_malformed: bool = False
    seed: int = 0
    starts_us: int | None = None


DEFAULTS = EstimateOptions()


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Estimates of requests, and what they rest on.

    Parameters
    ----------
    history, requests
        The files.
    ladder
        Who answered.
    names
        What tells the requests apart, by column: workflow and task, or line or job and the key. Shape [requests]
        each.
    found
        One per request.
    unseen
        Of each request, whether no past task has the first value of its key. Shape [requests].
    tally
        What became of the history's rows.
    truth_us
        What the requests really took, if their table says so; NaN where it does not. Shape [requests].
    """

    history: Path
    requests: Path
    ladder: Ladder
    names: Mapping[str, Texts]
    found: list[Estimate]
    unseen: NDArray[np.bool_]
    tally: Tally
    truth_us: Floats | None

    @property
    def to_profile(self) -> dict[str, int]:
        """First values of keys that no past task has and no profile measured: how many requests have each."""
        values = self.names[self.ladder.columns.key[0]]
        asked = [
            str(v) for v, new, e in zip(values, self.unseen, self.found, strict=True) if new and e.source != "profile"
        ]
        return {value: asked.count(value) for value in dict.fromkeys(asked)}


def estimate(history: Path, requests: Path, naming: Naming, options: EstimateOptions = DEFAULTS) -> Estimates:
    """Estimate the run times of requests, or of a scenario's tasks, from past tasks.

    Parameters
    ----------
    history
        A table of past tasks, or the scenario of an imported log, whose jobs have run.
    requests
        A table with the history's columns, or a scenario (``.yaml``, ``.yml``, ``.json``): its tasks are estimated, or
        its jobs where they are of an imported log.

    Raises
    ------
    InputError
        With the line, if a file cannot be used.
    AnswerError
        If the answerer gives no quantiles.
    """
    scenario, ran = _loaded(requests), _loaded(history)
    if ran is None and options.starts_us is not None:
        raise QuestionError("is about a history that is an import; allowed is time for a table's submissions", "starts")
    jobs = None if scenario is None else _jobs_of(scenario)
    if scenario is not None and jobs is None and any(job.label is not None for job in scenario.instance.jobs):
        problem = "has jobs of several tasks (retries=, gpus=split), which no file of estimates can tell apart"
        raise InputError(str(requests), None, "workload", f"{problem}; allowed is the log imported without")
    of_scenario = list(SCENARIO_COLUMNS) if jobs is None else [*JOB_COLUMNS, RUNTIMES[0]]
    asked_columns = columns_of(requests) if scenario is None else of_scenario
    header = columns_of(history) if ran is None else [*JOB_COLUMNS, RUNTIMES[0]]
    meaning = roles(history, header, requests, asked_columns, naming)
    cache = None if options.cache is None else DescriptionCache(options.cache)
    of_past = Wanted(meaning.shared, meaning.runtime, naming.time, naming.only)
    if ran is None:
        past = _read(history, of_past, naming.source, cache, options.skip_malformed)
    else:
        past = _past_of(history, ran, naming, options.starts_us)
    first = () if options.profile is None else (read_profile(options.profile),)
    asked = () if options.answerer is None else (Asked(options.answerer),)
    recipe = Recipe(meaning.columns, first, asked, options.encoder, seed=options.seed)
    if past.runtime_us is None:
        raise ValueError("a history has run times")
    timed = ran is not None or naming.time is not None
    ladder = fit_ladder(History.of(past.tasks, past.runtime_us, timed=timed), recipe)
    truth_us = None
    if scenario is None:
        compared = (meaning.runtime,) if meaning.compared else ()
        read = _read(requests, Wanted((*meaning.shared, *compared)), naming.source, cache)
        tasks, names = read.tasks, {LINE: read.line.astype(str).astype(object)}
        names |= {name: tasks.text(name) for name in meaning.columns.key}
        if meaning.compared:
            truth_us = tasks.numbers(meaning.runtime) * MICROSECONDS[unit_of(meaning.runtime)]
    elif jobs is not None:
        tasks, names = jobs.tasks, {JOB: jobs.line.astype(str).astype(object)}
        names |= {name: tasks.text(name) for name in meaning.columns.key}
        truth_us = None if jobs.runtime_us is None else jobs.runtime_us.astype(np.float64)
    else:
        tasks = scenario_tasks(scenario)
        names = {name: tasks.text(name) for name in (WORKFLOW, TASK, MODEL)}
    if cache is not None:
        cache.save()
    found, unseen = ladder.predict_all(tasks), ~ladder.known.seen(tasks)
    return Estimates(history, requests, ladder, names, found, unseen, past.tally, truth_us)


def _loaded(path: Path) -> Scenario | None:
    """Return the scenario of a file; None if its name is that of a table."""
    return load_scenario(path) if path.suffix.lower() in _SCENARIO_FILES else None


def _jobs_of(scenario: Scenario) -> HistoryTable | None:
    """Return the jobs of an imported log, by their numbers, with their run times; None of other scenarios.

    What is known of them is not the workflow, whose name has the run time in it.
    """
    jobs = scenario.instance.jobs
    if any(job.label is None or len(job.workflow.tasks) > 1 for job in jobs):
        return None
    ran = [job.workflow.tasks[0] for job in jobs]
    known = ({MODEL: job.label, GPUS: task.gpus} for job, task in zip(jobs, ran, strict=True))
    runtime_us = np.array([task.fastest_us for task in ran], np.int64)
    return HistoryTable(Tasks.of(known, JOB_COLUMNS), np.arange(len(jobs)), runtime_us, Tally())


def _past_of(history: Path, ran: Scenario, naming: Naming, starts_us: int | None) -> HistoryTable:
    """Return the jobs of a scenario that were over at a time as a history, each known once it has run.

    Raises
    ------
    InputError
        If they are of no imported log, or none was over.
    QuestionError
        If the options are about a table.
    """
    found = _jobs_of(ran)
    if found is None or found.runtime_us is None:
        problem = "is no import of a log with jobs of one task each; write a table of past tasks, or such a scenario"
        raise InputError(str(history), None, "workload", problem)
    if naming.time or naming.source or naming.only:
        raise QuestionError(
            "the history is a scenario, whose jobs stand by release; allowed is without time, only and source columns"
        )
    release_us = np.array([job.release_us for job in ran.instance.jobs], np.int64)
    end_us = release_us + found.runtime_us
    starts = int(release_us.max()) if starts_us is None else starts_us
    at = f"{seconds(starts)}{_LAST_RELEASE if starts_us is None else ''}"
    over, tally = end_us <= starts, Tally()
    if not over.any():
        problem = f"no job was over at {at}; the first ends at {seconds(int(end_us.min()))}"
        raise InputError(str(history), None, "workload", f"{problem}; allowed is a history that has ended")
    if not over.all():
        tally.left_out[f"not over at {at}"] = int((~over).sum())
    tasks = Tasks(found.tasks.columns, release_us)
    return HistoryTable(tasks.take(over), found.line[over], found.runtime_us[over], tally)


def scenario_tasks(scenario: Scenario) -> Tasks:
    """Return a scenario's tasks in the order of the file, a model's name, or several joined by ``+``, each."""
    return Tasks.of(
        (
            {WORKFLOW: workflow.name, TASK: task.name, MODEL: "+".join(task.models)}
            for workflow in build_workflows(scenario.document).values()
            for task in workflow.tasks
        ),
        SCENARIO_COLUMNS,
    )


def _read(
    path: Path, wanted: Wanted, source: str | None, cache: DescriptionCache | None, skip: bool = False
) -> HistoryTable:
    """Return the tasks of a table, with the columns that the sources make that one of its columns names."""
    if source is None:
        return read_table(path, wanted, skip_malformed=skip)
    table = read_table(path, replace(wanted, columns=(*wanted.columns, source)), skip_malformed=skip)
    made = describe_columns(path, table.line, table.tasks.text(source), cache)
    return replace(table, tasks=Tasks({**table.tasks.columns, **made}, table.tasks.asked_us))


def as_dict(made: Estimates, path: Path | None = None) -> dict[str, Any]:
    """Return estimates, what they rest on and how good they were, with the keys of ``estimate --json``."""
    ladder, compared = made.ladder, None if made.truth_us is None else score(made.found, made.truth_us)
    return {
        "history": str(made.history),
        "requests": str(made.requests),
        "past_tasks": len(ladder.known.history),
        "left_out": dict(made.tally.left_out + made.tally.refused),
        "key": list(ladder.columns.key),
        "nominal": NOMINAL,
        "rungs": [
            {
                "name": rung.name,
                "answered": sum(estimate.source == rung.name for estimate in made.found),
                **_calibration(ladder.calibrations.get((rung.name, None))),
            }
            for rung in ladder.rungs
        ],
        "unseen": made.to_profile,
        "score": None if compared is None else _plain(asdict(compared)),
        "requests_estimated": len(made.found),
        "estimates": [_plain(row) for row in _rows(made)] if path is None else str(path),
    }


def save(made: Estimates, path: Path) -> None:
    """Write estimates as CSV, a row per request in their order.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    text = io.StringIO()
    rows = list(_rows(made))
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        cells = row | {"neighbours": _BETWEEN.join(row["neighbours"]), "profile": str(row["profile"]).lower()}
        writer.writerow({name: guard(cell) if isinstance(cell, str) else cell for name, cell in cells.items()})
    write_atomically(path, text.getvalue())


def _rows(made: Estimates) -> Iterator[dict[str, Any]]:
    """Yield, per request, its names and the columns of an estimate."""
    names = tuple(made.names) if {LINE, JOB} & made.names.keys() else (WORKFLOW, TASK)
    profile = made.to_profile
    first = made.names[made.ladder.columns.key[0]]
    for row, estimate in enumerate(made.found):
        told = {name: int(made.names[name][row]) if name in (LINE, JOB) else made.names[name][row] for name in names}
        unmeasured = first[row] in profile and estimate.source != "profile"
        quantiles = [time_us / 1e6 for time_us in (estimate.p10_us, estimate.p50_us, estimate.p90_us)]
        values = (*quantiles, estimate.source, estimate.confidence, list(estimate.neighbours), unmeasured)
        yield told | dict(zip(ESTIMATE_COLUMNS, values, strict=True))


def _calibration(found: RungCalibration | None) -> dict[str, Any]:
    """Return what calibration found of a rung; null where it had no cases."""
    names = [of.name for of in fields(RungCalibration) if of.name != "shift"]
    return dict.fromkeys(names) if found is None else _plain({name: getattr(found, name) for name in names})


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return values with NaN as None and shares rounded."""
    return {
        name: (None if math.isnan(value) else round(value, 6)) if isinstance(value, float) else value
        for name, value in values.items()
    }


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of p50, and what the intervals hold.

    Parameters
    ----------
    cases
        Estimates with a known truth.
    spearman
        Rank correlation of p50 and the truth; NaN if either is constant.
    r2
        Of p50 in seconds: 1 - sum of squared errors / sum of squares around the mean; NaN if the truth is constant.
    median_error
        Median of the relative errors.
    covered
        Share of truths from p10 to p90, both ends included.
    below, above
        Share below p10, and above p90.
    width
        Median of p90 / p10.
    """

    cases: int
    spearman: float
    r2: float
    median_error: float
    covered: float
    below: float
    above: float
    width: float


def score(estimates: Sequence[Estimate], truth_us: Floats) -> Score | None:
    """Return the errors of estimates; None if no truth is known. NaN is unknown. Shape [estimates]."""
    known = np.flatnonzero(truth_us > 0)
    if len(known) == 0:
        return None
    quantiles = np.array([[e.p10_us, e.p50_us, e.p90_us] for e in estimates], np.float64)[known]
    truth = truth_us[known]
    low, middle, high = quantiles.T
    off, around = float(((truth - middle) ** 2).sum()), float(((truth - truth.mean()) ** 2).sum())
    ranks = pd.Series(middle).rank(), pd.Series(truth).rank()
    constant = any(rank.nunique() < 2 for rank in ranks)
    below, above = float((truth < low).mean()), float((truth > high).mean())
    return Score(
        len(known),
        float("nan") if constant else float(ranks[0].corr(ranks[1])),
        1 - off / around if around > 0 else float("nan"),
        float(np.median(np.abs(middle - truth) / truth)),
        1 - below - above,
        below,
        above,
        float(np.median(high / low)),
    )
