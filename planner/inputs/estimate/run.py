"""From files to estimates: a history, and the requests or the scenario whose run times are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.scenario import Scenario, load_scenario
from models.scenario.work import build_workflows
from planner.inputs.estimate.estimate import Estimate
from planner.inputs.estimate.ladder import Ladder, Recipe, fit_ladder
from planner.inputs.estimate.retrieval import SentenceEncoder
from planner.inputs.estimate.rungs import TASK, WORKFLOW, Answerer, Asked, read_profile
from planner.inputs.estimate.sources import DescriptionCache
from planner.inputs.estimate.table import (
    LINE,
    MICROSECONDS,
    MODEL,
    SCENARIO_COLUMNS,
    HistoryTable,
    Naming,
    Roles,
    Wanted,
    columns_of,
    describe_columns,
    read_table,
    roles,
    unit_of,
)
from planner.inputs.estimate.tasks import Floats, History, Tasks, Texts
from planner.inputs.importers.rows import Tally

_SCENARIO_FILES = (".yaml", ".yml", ".json")


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
    """

    profile: Path | None = None
    encoder: SentenceEncoder | None = None
    answerer: Answerer | None = None
    cache: Path | None = None
    skip_malformed: bool = False
    seed: int = 0


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
        What tells the requests apart, by column: workflow and task, or the line and the key. Shape [requests] each.
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
    requests
        A table with the history's columns, or a scenario (``.yaml``, ``.yml``, ``.json``).

    Raises
    ------
    InputError
        With the line, if a file cannot be used.
    AnswerError
        If the answerer gives no quantiles.
    """
    scenario = load_scenario(requests) if requests.suffix.lower() in _SCENARIO_FILES else None
    asked_columns = columns_of(requests) if scenario is None else list(SCENARIO_COLUMNS)
    meaning = roles(history, columns_of(history), requests, asked_columns, naming)
    cache = None if options.cache is None else DescriptionCache(options.cache)
    past = _past(history, naming, meaning, options.skip_malformed, cache)
    first = () if options.profile is None else (read_profile(options.profile),)
    asked = () if options.answerer is None else (Asked(options.answerer),)
    recipe = Recipe(meaning.columns, first, asked, options.encoder, seed=options.seed)
    ladder = fit_ladder(_history(past, timed=naming.time is not None), recipe)
    truth_us = None
    if scenario is None:
        read = _read_requests(requests, naming, meaning, cache)
        tasks, names = read.tasks, {LINE: read.line.astype(str).astype(object)}
        names |= {name: tasks.text(name) for name in meaning.columns.key}
        if meaning.compared:
            truth_us = tasks.numbers(meaning.runtime) * MICROSECONDS[unit_of(meaning.runtime)]
    else:
        tasks = scenario_tasks(scenario)
        names = {name: tasks.text(name) for name in (WORKFLOW, TASK, MODEL)}
    if cache is not None:
        cache.save()
    found, unseen = ladder.predict_all(tasks), ~ladder.known.seen(tasks)
    return Estimates(history, requests, ladder, names, found, unseen, past.tally, truth_us)


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


def _past(path: Path, naming: Naming, meaning: Roles, skip: bool, cache: DescriptionCache | None) -> HistoryTable:
    columns = meaning.shared if naming.source is None else (*meaning.shared, naming.source)
    wanted = Wanted(columns, meaning.runtime, naming.time, naming.only)
    return _with_sources(path, read_table(path, wanted, skip_malformed=skip), naming, cache)


def _read_requests(path: Path, naming: Naming, meaning: Roles, cache: DescriptionCache | None) -> HistoryTable:
    more = [*([naming.source] if naming.source else []), *([meaning.runtime] if meaning.compared else [])]
    return _with_sources(path, read_table(path, Wanted((*meaning.shared, *more))), naming, cache)


def _with_sources(path: Path, table: HistoryTable, naming: Naming, cache: DescriptionCache | None) -> HistoryTable:
    if naming.source is None:
        return table
    tasks = table.tasks
    made = describe_columns(path, table.line, tasks.text(naming.source), cache)
    return HistoryTable(Tasks({**tasks.columns, **made}, tasks.asked_us), table.line, table.runtime_us, table.tally)


def _history(table: HistoryTable, *, timed: bool) -> History:
    if table.runtime_us is None:
        raise ValueError("a history has run times")
    return History.of(table.tasks, table.runtime_us, timed=timed)
