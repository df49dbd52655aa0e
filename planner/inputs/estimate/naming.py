"""What the columns of a history and of requests mean: what the user names, and defaults for what is left open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.scenario import InputError
from models.scenario.errors import allowed, quote
from planner.inputs.estimate.described import SOURCE_FIELDS, SOURCE_MODEL, SOURCE_TEXT
from planner.inputs.estimate.measured import TASK, WORKFLOW
from planner.inputs.estimate.tasks import Columns

MODEL = "model"
"""Column of the models that a scenario's task needs, joined by ``+``."""
SCENARIO_COLUMNS = (MODEL, WORKFLOW, TASK)
"""What is known of a scenario's task; in this order its key."""
RUNTIMES = ("runtime_s", "runtime_ms", "runtime_us")


LINE = "line"
"""Column of an estimate that says where the request stands."""
ESTIMATE_COLUMNS = ("p10_s", "p50_s", "p90_s", "source", "confidence", "neighbours", "profile")
"""What follows it and the key."""


@dataclass(frozen=True, slots=True)
class Naming:
    """What the user says of the columns.

    Parameters
    ----------
    runtime
        Run time; None: ``runtime_s``, ``runtime_ms`` or ``runtime_us``.
    time
        When each task was asked about; None: rows stand in order, oldest first.
    key
        What makes tasks the same, the most telling first; none: model, workflow and task where the history has them,
        then the other shared columns in its order; of sources, what they say, too.
    text
        Whose words are compared.
    source
        Column of the paths of a task's sources and configurations, relative to the table.
    only
        Columns of the history and the value that its rows must have.
    """

    runtime: str | None = None
    time: str | None = None
    key: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    source: str | None = None
    only: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Roles:
    """What every column is.

    Parameters
    ----------
    columns
        For the ladder, columns made from sources included.
    shared
        Columns that are read from both tables.
    compared
        Whether the requests have the run time, too: estimates are compared with it, and do not use it.
    """

    runtime: str
    columns: Columns
    shared: tuple[str, ...]
    compared: bool


def roles(history: Path, header: Sequence[str], requests: Path, asked: Sequence[str], naming: Naming) -> Roles:
    """Return what every column is.

    Parameters
    ----------
    header, asked
        Columns of the history and of the requests.

    Raises
    ------
    InputError
        If a named column is missing, or nothing is left to tell tasks by.
    """
    runtime = _runtime(history, header, naming)
    named = dict.fromkeys(naming.key, "key") | dict.fromkeys(naming.text, "text")
    named |= {naming.source: "source column"} if naming.source else {}
    made = () if naming.source is None else (SOURCE_TEXT, *SOURCE_FIELDS)
    named = {name: option for name, option in named.items() if name not in made}
    _all_there(history, header, named | {name: "only" for name, _ in naming.only})
    _all_there(requests, asked, named)
    if naming.time is not None:
        _all_there(history, header, {naming.time: "time"})
    other = {runtime, naming.time, naming.source, *naming.text, *(name for name, _ in naming.only)}
    features = tuple(name for name in header if name in asked and name not in other)
    read = tuple(name for name in dict.fromkeys((*naming.key, *naming.text, *features)) if name not in made)
    known = (*features, *made[1:])
    telling = [name for name in (MODEL, SOURCE_MODEL, WORKFLOW, TASK) if name in known]
    key = naming.key or tuple(dict.fromkeys((*telling, *known)))
    if not key:
        problem = f"shares no column with {requests}; allowed is a history with a column of the requests"
        raise InputError(str(history), 1, "header", problem + f": {', '.join(asked)[:200]}")
    for name in key:
        if name in (LINE, *ESTIMATE_COLUMNS):
            problem = f"column {name!r} would stand twice in the estimates; allowed is a key without it"
            raise InputError(str(requests), 1, "header", problem)
    columns = Columns(key, (*naming.text, *made[:1]), known)
    return Roles(runtime, columns, read, runtime in asked)


def _runtime(history: Path, header: Sequence[str], naming: Naming) -> str:
    if naming.runtime is not None:
        _all_there(history, header, {naming.runtime: "runtime"})
        return naming.runtime
    found = [name for name in RUNTIMES if name in header]
    if len(found) != 1:
        problem = f"has {' and '.join(found) or 'no column'} of {', '.join(RUNTIMES)}; name the run time"
        columns = f"; its columns: {', '.join(header)[:200]}" if len(header) > 1 else ""  # else it is no table to quote
        raise InputError(str(history), 1, "header", problem + columns)
    return found[0]


def _all_there(file: Path, header: Sequence[str], named: Mapping[str, str]) -> None:
    for name, option in named.items():
        if name not in header:
            problem = f"has no column {quote(name)} ({option}); {allowed(name, header)}"
            raise InputError(str(file), 1, "header", problem)
