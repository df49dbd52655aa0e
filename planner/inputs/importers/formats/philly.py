"""Philly: training jobs of Microsoft's internal clusters, August to December 2017.

Schema: github.com/msr-fiddle/philly-traces, README, section cluster_job_log (commit 29a1b87f): one JSON list of objects
with status, vc, jobid, attempts (start_time, end_time, detail: ip, gpus), submitted_time and user. A time that was not
recorded is null, empty, or the text None. Times have no zone; they are read as UTC. The utilisation logs beside it are
in Pacific time, so a run across the end of daylight saving on 5 November 2017 may be an hour off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, PlainValidator, create_model
from typing_extensions import TypedDict

from truenorth.models.scenario.errors import FieldError, quote
from truenorth.models.scenario.section import Record, kind_of, problem
from truenorth.planner.inputs.importers.csv_files import CHUNK_ROWS, open_text
from truenorth.planner.inputs.importers.formats.cluster_jobs import OwnerOptions
from truenorth.planner.inputs.importers.json_files import Entries, LeftOutError, LogName, read_entries
from truenorth.planner.inputs.importers.rows import MAX_GPUS_PER_REQUEST, Tally
from truenorth.planner.inputs.importers.tables import Requests

_EPOCH = datetime(1970, 1, 1)
_LAST_YEAR = 2200
_NEVER = datetime.min
_US = timedelta(microseconds=1)
_SHORTEST_MOMENT = len("2017-10-07 01:12")


def _moment(value: object) -> int | None:
    """Return a date with a time of day in microseconds since 1970, or None where none was recorded."""
    if isinstance(value, str) and len(value) >= _SHORTEST_MOMENT:
        try:  # `suppress` would take longer than all the rest, three times for every job
            read = datetime.fromisoformat(value)
        except ValueError:
            read = _NEVER
        if _EPOCH.year <= read.year <= _LAST_YEAR:
            return ((read.astimezone(UTC).replace(tzinfo=None) if read.tzinfo else read) - _EPOCH) // _US
    if value in (None, "", "None"):
        return None
    allowed = f"such as 2017-10-07 01:12:09, {_EPOCH.year} to {_LAST_YEAR}"
    raise problem(f"{kind_of(value)} is no date and time; allowed is {allowed}")


_Moment = Annotated[int | None, PlainValidator(_moment)]


class _Server(TypedDict):
    gpus: list[Any]


class _Attempt(TypedDict):  # plain mappings: there are many, and records take half as long again
    start_time: _Moment
    end_time: _Moment
    detail: list[_Server]


class _LoggedJob(Record):
    """A job of the log; the owner is what an option says."""

    jobid: LogName
    status: LogName
    submitted_time: _Moment
    attempts: list[_Attempt]
    owner: LogName


class _Job(NamedTuple):
    release_us: int
    model: str
    runtime_us: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Philly(OwnerOptions):
    """Reads ``cluster_job_log``."""

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the jobs of the files."""
        for path in files:
            with open_text(path) as file:
                jobs = read_entries(Entries(file, str(path)), self._jobs(), tally)
                while chunk := list(islice(jobs, CHUNK_ROWS)):
                    release_us, model, runtime_us, gpus = zip(*chunk, strict=True)
                    yield Requests(
                        np.array(release_us, np.int64),
                        np.array(model, np.object_),
                        np.array(runtime_us, np.int64),
                        gpus=np.array(gpus, np.int64) if self.gpus == "split" else None,
                    )

    def _jobs(self) -> Callable[[object], _Job]:
        """Return what makes jobs that count of the entries of one file."""
        entry = create_model("_OwnedJob", __base__=_LoggedJob, owner=(LogName, Field(alias=self.model)))
        seen: set[str] = set()

        def make(value: object) -> _Job:
            """Return a job that counts."""
            logged = entry.model_validate(value)
            if logged.jobid in seen:
                raise FieldError(("jobid",), f"{quote(logged.jobid)} stands in an earlier job; allowed is a new id")
            seen.add(logged.jobid)
            if self.state == "completed" and logged.status != "Pass":
                raise LeftOutError(f"status {logged.status[:30]}")
            if logged.submitted_time is None:
                raise LeftOutError("no submitted_time")
            runtime_us, gpus = _ran(logged.attempts, logged.submitted_time)
            if gpus > 1 and self.gpus == "single":
                raise LeftOutError("several GPUs")
            return _Job(logged.submitted_time, logged.owner, runtime_us, gpus)

        return make


def _ran(attempts: Sequence[_Attempt], release_us: int) -> tuple[int, int]:
    """Return how long a job ran in all its attempts together, and on how many GPUs at most."""
    runtime_us = most = 0
    for position, attempt in enumerate(attempts):
        where, start_us, end_us = ("attempts", position), attempt["start_time"], attempt["end_time"]
        gpus = sum(len(server["gpus"]) for server in attempt["detail"])
        if gpus > MAX_GPUS_PER_REQUEST:
            raise FieldError((*where, "detail"), f"names {gpus} GPUs; allowed are {MAX_GPUS_PER_REQUEST}")
        if start_us is None or end_us is None:
            raise LeftOutError("an attempt without start or end")
        if start_us < release_us:
            raise FieldError((*where, "start_time"), "is before submitted_time; allowed is a time from then on")
        if end_us < start_us:
            raise FieldError((*where, "end_time"), "is before start_time; allowed is a time from then on")
        runtime_us, most = runtime_us + end_us - start_us, max(most, gpus)
    if not attempts:
        raise LeftOutError("no attempt")
    if not most:
        raise LeftOutError("no GPU")
    if not runtime_us:
        raise LeftOutError("ran for 0 s")
    return runtime_us, most
