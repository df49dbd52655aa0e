"""Philly: training jobs of Microsoft's internal clusters, August to December 2017.

Schema: github.com/msr-fiddle/philly-traces, README, section cluster_job_log (commit 29a1b87f): one JSON list of objects
with status, vc, jobid, attempts (start_time, end_time, detail: ip, gpus), submitted_time and user. A time that was not
recorded is null, empty, or the text None. Times have no zone; they are read as UTC. The utilisation logs beside it are
in Pacific time, so a run across the end of daylight saving on 5 November 2017 may be an hour off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from models.scenario.errors import FieldError, Where, quote
from models.scenario.section import kind_of
from planner.inputs.importers.csv_files import CHUNK_ROWS
from planner.inputs.importers.format import Format, Hardware
from planner.inputs.importers.formats.cluster_jobs import SHARED_BY_OWNER, OwnerOptions
from planner.inputs.importers.json_files import Entries, items_at, mapping_at, member, name_at, refuse
from planner.inputs.importers.rows import MAX_GPUS_PER_REQUEST, Tally
from planner.inputs.importers.source import open_text
from planner.inputs.importers.tables import Requests

_EPOCH = datetime(1970, 1, 1)
_LAST_YEAR = 2200
_US = timedelta(microseconds=1)
_SHORTEST_MOMENT = len("2017-10-07 01:12")


class _LeftOutError(Exception):
    """A job is well formed, but no part of the workload; the message says why."""


class _LoggedJob(NamedTuple):
    release_us: int
    model: str
    runtime_us: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Philly(OwnerOptions):
    """Reads ``cluster_job_log``."""

    def hardware(self, files: Sequence[Path], tally: Tally) -> Hardware:
        """Return two servers of eight GPUs of 24 GB, as the larger machines have, and models of 6 GB."""
        return Hardware(
            memory_bytes=24 * 10**9,
            weight_bytes=6 * 10**9,
            load_bandwidth=Fraction(10**10),
            servers=2,
            gpus_per_server=8,
        )

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the jobs of the files."""
        for path in files:
            jobs = self._jobs(path, tally)
            while chunk := list(islice(jobs, CHUNK_ROWS)):
                release_us, model, runtime_us, gpus = zip(*chunk, strict=True)
                yield Requests(
                    np.array(release_us, np.int64),
                    np.array(model, np.object_),
                    np.array(runtime_us, np.int64),
                    gpus=np.array(gpus, np.int64) if self.gpus == "split" else None,
                )

    def _jobs(self, path: Path, tally: Tally) -> Iterator[_LoggedJob]:
        """Yield the jobs of a file that count."""
        seen: set[str] = set()
        with open_text(path) as file:
            entries = Entries(file, str(path))
            for entry in entries:
                tally.read += 1
                try:
                    job = self._job(entry, seen)
                except _LeftOutError as reason:
                    tally.left_out[str(reason)] += 1
                except FieldError as error:
                    refuse(entries.text, error, tally)
                else:
                    yield job

    def _job(self, entry: dict[str, object], seen: set[str]) -> _LoggedJob:
        """Return a job that counts; `seen` are the ids of those before it."""
        job_id = name_at(member(entry, "jobid"), ("jobid",))
        if job_id in seen:
            raise FieldError(("jobid",), f"{quote(job_id)} stands in an earlier job; allowed is a new id")
        seen.add(job_id)
        status = name_at(member(entry, "status"), ("status",))
        if self.state == "completed" and status != "Pass":
            raise _LeftOutError(f"status {status[:30]}")
        release_us = _moment(member(entry, "submitted_time"), ("submitted_time",))
        if release_us is None:
            raise _LeftOutError("no submitted_time")
        runtime_us, gpus = _ran(items_at(member(entry, "attempts"), ("attempts",)), release_us)
        if gpus > 1 and self.gpus == "single":
            raise _LeftOutError("several GPUs")
        return _LoggedJob(release_us, name_at(member(entry, self.model), (self.model,)), runtime_us, gpus)


def _ran(attempts: list[object], release_us: int) -> tuple[int, int]:
    """Return how long a job ran in all its attempts together, and on how many GPUs at most."""
    runtime_us = gpus = 0
    for position, value in enumerate(attempts):
        try:
            attempt_us, attempt_gpus = _attempt(value, release_us)
        except FieldError as error:
            raise FieldError(("attempts", position, *error.where), error.problem) from None
        runtime_us, gpus = runtime_us + attempt_us, max(gpus, attempt_gpus)
    if not attempts:
        raise _LeftOutError("no attempt")
    if not gpus:
        raise _LeftOutError("no GPU")
    if not runtime_us:
        raise _LeftOutError("ran for 0 s")
    return runtime_us, gpus


def _attempt(value: object, release_us: int) -> tuple[int, int]:
    """Return how long an attempt ran, and on how many GPUs."""
    attempt = mapping_at(value, ())
    start_us = _moment(member(attempt, "start_time"), ("start_time",))
    end_us = _moment(member(attempt, "end_time"), ("end_time",))
    gpus = _gpus(items_at(member(attempt, "detail"), ("detail",)))
    if start_us is None or end_us is None:
        raise _LeftOutError("an attempt without start or end")
    if start_us < release_us:
        raise FieldError(("start_time",), "is before submitted_time; allowed is a time from then on")
    if end_us < start_us:
        raise FieldError(("end_time",), "is before start_time; allowed is a time from then on")
    return end_us - start_us, gpus


def _gpus(detail: list[object]) -> int:
    """Return how many GPUs an attempt had."""
    gpus = 0
    for position, server in enumerate(detail):
        try:
            gpus += len(items_at(member(mapping_at(server, ()), "gpus"), ("gpus",)))
        except FieldError as error:
            raise FieldError(("detail", position, *error.where), error.problem) from None
    if gpus > MAX_GPUS_PER_REQUEST:
        raise FieldError(("detail",), f"names {gpus} GPUs; allowed are {MAX_GPUS_PER_REQUEST}")
    return gpus


def _moment(value: object, where: Where) -> int | None:
    """Return a date with a time of day in microseconds since 1970, or None where none was recorded."""
    if isinstance(value, str) and len(value) >= _SHORTEST_MOMENT:
        try:
            read = datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            if _EPOCH.year <= read.year <= _LAST_YEAR:
                return ((read.astimezone(UTC).replace(tzinfo=None) if read.tzinfo else read) - _EPOCH) // _US
    if value in (None, "", "None"):
        return None
    problem = f"is no date and time; allowed is such as 2017-10-07 01:12:09, {_EPOCH.year} to {_LAST_YEAR}"
    raise FieldError(where, f"{kind_of(value)} {problem}")


FORMAT = Format(
    name="philly",
    title="training jobs of Microsoft's Philly clusters, 2017",
    source="github.com/msr-fiddle/philly-traces (CC-BY 4.0); Jeon et al., USENIX ATC 2019",
    notes=(
        SHARED_BY_OWNER,
        "jobs on several GPUs are left out (gpus=split: they become as many tasks on one GPU each, side by side); what "
        "counts is the attempt with the most",
        "a run time is the sum over the attempts of end_time - start_time, also of jobs that failed or were killed "
        "(state=completed: without them); a job that starts again runs on at once here",
    ),
    sizes="the log has no sizes: every model weighs 6 GB, a GPU has 24 GB for weights",
    reader=Philly,
    dated=True,
)
