"""Logs of what engines served: when requests came, and when their first and last tokens did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from truenorth.executor.policies.options import Kind, one_of, option
from truenorth.models.errors import QuestionError
from truenorth.models.scenario.quantities import MAX_TOKENS
from truenorth.planner.inputs.importers.formats.shapes import VLLM_RUN
from truenorth.planner.inputs.importers.formats.table import UNITS, Clock
from truenorth.planner.inputs.importers.log_files import table_rows
from truenorth.planner.inputs.importers.rows import Rows, Tally
from truenorth.solvers.fitting.engine_kernel import LoggedRequests
from truenorth.solvers.fitting.law import ServedLog

_LEAST_REQUESTS = 20


@dataclass(frozen=True, slots=True)
class LogColumns:
    """Columns of a log, or keys of JSON Lines; those of vLLM's runs unless others are named.

    Parameters
    ----------
    release, first, last
        When a request came, and its first and last token.
    prompt, output
        Tokens.
    engine
        Which engine served it; empty: the log does not say.
    unit
        Of times that are plain numbers.
    batch, step
        Of a table of step times in place of a log: requests at once, and time of a step; empty: it names them itself.
    """

    release: str = option(str(VLLM_RUN.columns["release"]), str)
    prompt: str = option(str(VLLM_RUN.columns["prompt"]), str)
    output: str = option(str(VLLM_RUN.columns["output"]), str)
    first: str = option("first_token_ts", str)
    last: str = option("last_token_ts", str)
    engine: str = option("", str)
    unit: str = option("s", one_of(*UNITS))
    batch: str = option("", str)
    step: str = option("", str)

    @classmethod
    def parse(cls, text: str) -> LogColumns:
        """Read ``release=COLUMN,first=COLUMN``; QuestionError for an unknown key."""
        made = Kind("columns", QuestionError).options("columns", cls, text)
        return made if isinstance(made, LogColumns) else cls()


def read_engine_log(path: Path, columns: LogColumns, engines: int, tally: Tally) -> ServedLog:
    """Return a log, its requests in the order of arrival.

    Parameters
    ----------
    engines
        How many took turns in serving (round robin), where no column says which.

    Raises
    ------
    InputError
        For the first row that is malformed, unless the tally skips these.
    QuestionError
        If too few requests are left.
    """
    chunks = list(_columns(path, columns, tally))
    if not chunks or sum(len(chunk[0]) for chunk in chunks) < _LEAST_REQUESTS:
        problem = f"fewer than {_LEAST_REQUESTS} requests are left, which say nothing of an engine"
        raise QuestionError(f"{problem}; allowed is a longer log", str(path))
    release, prompt, output, first, last, names = (np.concatenate(column) for column in zip(*chunks, strict=True))
    order = np.argsort(release, kind="stable")
    begin = release.min()
    engine = np.unique(names[order].astype(str), return_inverse=True)[1].reshape(-1)
    if not columns.engine:
        engine = np.arange(len(order)) % engines
    arrival_us, first_us, end_us = ((column[order] - begin).astype(np.float64) for column in (release, first, last))
    return ServedLog(LoggedRequests(arrival_us, prompt[order], output[order]), first_us, end_us, engine)


def _columns(path: Path, columns: LogColumns, tally: Tally) -> Iterator[Sequence[np.ndarray]]:
    clock = Clock(columns.release, columns.unit, True, "unit=").look(path)
    times = (columns.release, columns.first, columns.last)
    named = list(dict.fromkeys(filter(None, (*times, columns.prompt, columns.output, columns.engine))))
    for rows in table_rows(path, named, tally):
        yield _settled(rows, columns, clock)


def _settled(rows: Rows, columns: LogColumns, clock: Clock) -> Sequence[np.ndarray]:
    """Return the columns of the rows that are well formed and were served."""
    release, first, last = (clock.times(rows, column) for column in (columns.release, columns.first, columns.last))
    prompt, output = (rows.wholes(column, 0, MAX_TOKENS) for column in (columns.prompt, columns.output))
    names = rows.names(columns.engine) if columns.engine else np.full(len(release), "", np.object_)
    rows.leave_out((prompt == 0) | (output == 0), "of 0 tokens")
    rows.refuse(first < release, columns.first, "is before the request came", "a time after its arrival")
    rows.refuse(last < first, columns.last, "is before the first token", "a time after it")
    kept = rows.kept
    rows.settle()
    return [column[kept] for column in (release, prompt, output, first, last, names)]
