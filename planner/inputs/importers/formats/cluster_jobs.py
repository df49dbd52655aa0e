"""Jobs of a cluster's scheduler: Helios, Acme, Philly, and the traces of RLTune and ElasticFlow.

A job on several GPUs is one run that takes them all together, unless the user asks for jobs on one GPU alone, or to
split: then a job on n GPUs becomes n tasks on one GPU each, which occupy as much GPU time but need not start together.

Schema of Helios: github.com/S-Lab-System-Group/HeliosData, README, section cluster_log.csv (commit 159f0cae): job_id,
user, vc, gpu_num, cpu_num, node_num, state, submit_time, start_time, end_time, duration, queue. Times have no zone;
they are read as UTC, which shifts all alike (they are local to a country without daylight saving).

Schema of Acme: github.com/InternLM/AcmeTrace, README, section Job Trace (commit 6d6ac9cd): job_id, user, node_num,
gpu_num, cpu_num, type, state, submit_time, start_time, end_time, duration, queue, gpu_time, and in Kalos four more.
Times carry their zone (+08:00 in Seren, +00:00 in Kalos). In the README's rows of Kalos the duration counts from
submit_time, so it is not used.

RLTune's traces are jobs of Helios, Philly and Alibaba in one format of 19 columns without a header. Schema:
github.com/dshruti20/RLTune, GPU_Traces/README.md (commit fad68ad2): job_id, submit_time, wait_time, run_time
(seconds), num_gpus, cpu_time, used_memory, request_cpus, request_time, request_memory, status, user_id, group_id,
executable_number, queue_number, partition_number, proceeding_job_number, vc_id, gpu_type; -1 stands for a field that is
not available.

ElasticFlow's traces are jobs of ten clusters: github.com/microsoft/elasticflow-traces (commit 277ed24d), columns
job_id, submission_time, duration (seconds) and num_gpu.

Philly are training jobs of Microsoft's internal clusters, August to December 2017. Schema:
github.com/msr-fiddle/philly-traces, README, section cluster_job_log (commit 29a1b87f): one JSON list of objects with
status, vc, jobid, attempts (start_time, end_time, detail: ip, gpus), submitted_time and user. A time that was not
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
import pandas as pd
from pydantic import Field, PlainValidator, create_model
from typing_extensions import TypedDict

from truenorth.executor.policies.options import one_of, option, positive_duration
from truenorth.models.instance import Ints
from truenorth.models.scenario.errors import FieldError, quote
from truenorth.models.scenario.section import Record, kind_of, problem
from truenorth.planner.inputs.importers.csv_files import CHUNK_ROWS, csv_rows, open_text
from truenorth.planner.inputs.importers.failures import outcomes, refuse_retries, until
from truenorth.planner.inputs.importers.json_files import Entries, LeftOutError, LogName, read_entries
from truenorth.planner.inputs.importers.rows import MAX_GPUS_PER_REQUEST, Mask, Rows, Tally, join_names
from truenorth.planner.inputs.importers.tables import Requests, Texts

_ABSENT = ("", "none", "nan", "nat", "null")
_LONGEST_ABSENT = 10
"""So long may they be with spaces around them."""
_COLUMNS = ("job_id", "user", "gpu_num", "state", "submit_time", "start_time", "end_time")


@dataclass(frozen=True, slots=True)
class GPUOptions:
    """Which jobs count, by their GPUs.

    Parameters
    ----------
    gpus
        ``together``: those on several are runs that take them all at once, and models are left out; ``single``: jobs
        on one GPU alone; ``split``: also those on several, as that many tasks side by side.
    """

    gpus: str = option("together", one_of("together", "single", "split"))


@dataclass(frozen=True, slots=True)
class ClusterOptions(GPUOptions):
    """Which jobs of a cluster's log count, by their GPUs and by how they ended.

    Parameters
    ----------
    state
        ``any``: every job that ran; ``completed``: only jobs that finished successfully.
    failed
        Failed jobs weigh 0, and ``run`` as long as in the log, or ``stop:TIME``, that long at most, where a retry would
        not help; see `failures`. Unset: they are jobs like any other.
    retries
        How long after the end of a failed job the next one of the same user, group (virtual cluster, or type) and
        number of GPUs is its retry; see `retries`. Unset: each row is a job by itself.
    """

    state: str = option("any", one_of("any", "completed"))
    failed: int | None = option(None, until)
    retries: int | None = option(None, positive_duration)

    def __post_init__(self) -> None:
        refuse_retries(self.retries, self.failed, self.gpus == "split")


@dataclass(frozen=True, slots=True)
class OwnerOptions(ClusterOptions):
    """Which jobs of a log that names no models count, and which of them share one.

    Parameters
    ----------
    model
        Those of a ``user``, or of a virtual cluster (``vc``).
    """

    model: str = option("user", one_of("user", "vc"))


class Ids:
    """The ids of a file so far; a row whose id has occurred is malformed."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def refuse_repeated(self, rows: Rows, column: str) -> None:
        """Refuse rows whose id stands in an earlier row."""
        texts = rows.text(column)
        known = np.fromiter((text in self._seen for text in texts), np.bool_, len(texts))
        self._seen.update(texts)
        repeated = pd.Series(texts, dtype=object).duplicated().to_numpy(np.bool_)
        rows.refuse(known | repeated, column, "stands in an earlier row", "an id of its own per row")


def absent(texts: Texts) -> Mask:
    """Say which texts are no value: empty, or one of the words that stand for it. Shape as `texts`."""
    found = np.fromiter(map(len, texts), np.int64, len(texts)) <= _LONGEST_ABSENT
    found[found] = [text.strip().lower() in _ABSENT for text in texts[found]]
    return found


def gpus_that_count(rows: Rows, column: str, options: GPUOptions) -> Ints:
    """Leave out jobs on no GPU, and on several if only single ones count; return GPUs per job."""
    gpus = rows.wholes(column, 0, MAX_GPUS_PER_REQUEST)
    rows.leave_out(gpus == 0, "no GPU")
    if options.gpus == "single":
        rows.leave_out(gpus > 1, "several GPUs")
    return gpus


def retry_key(*columns: Texts | Ints) -> Texts:
    """Return what tells jobs apart whose rows may be retries of each other. Shape [rows]."""
    return np.array([" ".join(map(str, row)) for row in zip(*(c.tolist() for c in columns), strict=True)], np.object_)


def read_jobs(rows: Rows, ids: Ids, model: Texts, group: str, options: ClusterOptions) -> Requests:
    """Return the jobs of a log with the columns of Helios, which Acme has too.

    The run time is end_time - start_time: the column duration is no substitute, since in Acme's Kalos it also holds
    the time in the queue. The release is submit_time.

    Parameters
    ----------
    model
        Name of the model of each row. Shape [rows].
    group
        Column of what jobs of a user belong to.
    """
    ids.refuse_repeated(rows, "job_id")
    if options.state == "completed":
        rows.leave_out_unless("state", "COMPLETED")
    gpus = gpus_that_count(rows, "gpu_num", options)
    for column in ("submit_time", "start_time", "end_time"):
        rows.leave_out(absent(rows.text(column)), f"no {column}")
    submit_us, start_us, end_us = (rows.moments(column) for column in ("submit_time", "start_time", "end_time"))
    rows.refuse(end_us < start_us, "end_time", "is before start_time", "a time from start_time on")
    rows.refuse(start_us < submit_us, "start_time", "is before submit_time", "a time from submit_time on")
    rows.leave_out(end_us == start_us, "ran for 0 s")
    run_us, more = outcomes(rows.text("state"), end_us - start_us, options.failed)
    columns: dict[str, Any] = {"gpus": gpus, "split": options.gpus == "split", **more}
    if options.retries is not None:
        key = retry_key(rows.text("user"), rows.text(group), gpus)
        columns |= {"tries_us": options.retries, "key": key, "end_us": end_us}
    return rows.requests(submit_us, model, run_us, **columns)


@dataclass(frozen=True, slots=True)
class Helios(OwnerOptions):
    """Reads ``cluster_log.csv`` of any of the clusters."""

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the jobs of the files."""
        for path in files:
            ids = Ids()
            for rows in csv_rows(path, (*_COLUMNS, "vc"), tally):
                yield read_jobs(rows, ids, rows.names(self.model), "vc", self)


@dataclass(frozen=True, slots=True)
class Acme(ClusterOptions):
    """Reads ``trace_seren.csv`` and ``trace_kalos.csv``.

    Parameters
    ----------
    model
        Which jobs share a model: those of a ``user`` that are of the same type (``user-type``), those of a ``user``,
        or those of a ``type``.
    """

    model: str = option("user-type", one_of("user-type", "user", "type"))

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the jobs of the files."""
        for path in files:
            ids = Ids()
            for rows in csv_rows(path, (*_COLUMNS, "type"), tally):
                yield read_jobs(rows, ids, self._model(rows), "type", self)

    def _model(self, rows: Rows) -> Texts:
        """Return the name of the model of each row. Shape [rows]."""
        if self.model == "user-type":
            return join_names(rows, "user", "type")
        return rows.names(self.model)


COLUMNS = (
    "job_id", "submit_time", "wait_time", "run_time", "num_gpus", "cpu_time", "used_memory", "request_cpus",
    "request_time", "request_memory", "status", "user_id", "group_id", "executable_number", "queue_number",
    "partition_number", "proceeding_job_number", "vc_id", "gpu_type",
)  # fmt: skip
_MODELS = {column.partition("_")[0]: column for column in (*COLUMNS[11:16], "vc_id")}
"""Columns by what an option says of models: from ``user_id`` to ``partition_number``, and the virtual cluster's."""
_READ = ("job_id", "submit_time", "run_time", "num_gpus", "proceeding_job_number")
_MOST_SECONDS = 10**10
_US = 1_000_000


@dataclass(frozen=True, slots=True)
class RLTune(GPUOptions):
    """Reads traces of 19 columns.

    Parameters
    ----------
    model
        Which jobs share a model: those of a ``user``, ``group``, ``executable``, ``queue``, ``partition`` or ``vc``;
        or those whose ids begin alike (``name``: what stands before the last hyphen, ``bert`` in ``bert-7_1``).
    """

    model: str = option("user", one_of(*_MODELS, "name"))

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the jobs of the files."""
        wanted = (*_READ, *(column for model, column in _MODELS.items() if model == self.model))
        after = unnamed = 0
        for path in files:
            ids = Ids()
            for rows in csv_rows(path, wanted, tally, header=COLUMNS):
                found = self._jobs(rows, ids)
                after += int((rows.kept & ~_unavailable(rows.text("proceeding_job_number"))).sum())
                unnamed += int((found.model == _unknown(self.model)).sum())
                yield found
        if after:
            tally.notes.append(f"jobs that follow a job of their workflow, but are released on their own: {after:,}")
        if unnamed:
            tally.notes.append(
                f"jobs without a {self.model}, which share the model {_unknown(self.model)!r}: {unnamed:,}"
            )

    def _jobs(self, rows: Rows, ids: Ids) -> Requests:
        ids.refuse_repeated(rows, "job_id")
        for column in ("submit_time", "run_time", "num_gpus"):
            rows.leave_out(_unavailable(rows.text(column)), f"no {column}")
        gpus = gpus_that_count(rows, "num_gpus", self)
        submit_s = rows.wholes("submit_time", 0, _MOST_SECONDS)
        run_us = rows.times("run_time")
        rows.leave_out(run_us == 0, "ran for 0 s")
        return rows.requests(submit_s * _US, self._names(rows), run_us, gpus=gpus, split=self.gpus == "split")

    def _names(self, rows: Rows) -> Texts:
        """Return the name of the model of each row. Shape [rows]."""
        if self.model == "name":
            ids = rows.names("job_id")
            return np.array([text.rpartition("-")[0] or _unknown("name") for text in ids], np.object_)
        column = _MODELS[self.model]
        names = rows.names(column)
        return np.where(_unavailable(names), _unknown(self.model), self.model + " " + names)


def _unavailable(texts: Texts) -> Mask:
    """Say which fields are -1. Shape as `texts`."""
    return np.asarray((texts == "-1") | (texts == "-1.0"), np.bool_)


def _unknown(model: str) -> str:
    return f"unknown {model}"


@dataclass(frozen=True, slots=True)
class ElasticFlow(GPUOptions):
    """Reads the traces that were published with ElasticFlow."""

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the jobs of the files."""
        for path in files:
            for rows in csv_rows(path, ("submission_time", "duration", "num_gpu"), tally):
                gpus = gpus_that_count(rows, "num_gpu", self)
                submit_us, run_us = rows.times("submission_time"), rows.times("duration")
                rows.leave_out(run_us == 0, "ran for 0 s")
                model = np.full(len(run_us), "", np.object_)
                yield rows.requests(submit_us, model, run_us, gpus=gpus, split=self.gpus == "split")


_EPOCH = datetime(1970, 1, 1)
_LAST_YEAR = 2200
_NEVER = datetime.min
_MICROSECOND = timedelta(microseconds=1)
_SHORTEST_MOMENT = len("2017-10-07 01:12")


def _moment(value: object) -> int | None:
    """Return a date with a time of day in microseconds since 1970, or None where none was recorded."""
    if isinstance(value, str) and len(value) >= _SHORTEST_MOMENT:
        try:  # `suppress` would take longer than all the rest, three times for every job
            read = datetime.fromisoformat(value)
        except ValueError:
            read = _NEVER
        if _EPOCH.year <= read.year <= _LAST_YEAR:
            return ((read.astimezone(UTC).replace(tzinfo=None) if read.tzinfo else read) - _EPOCH) // _MICROSECOND
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
    user: object = None
    vc: object = None


class _Job(NamedTuple):
    release_us: int
    model: str
    runtime_us: int
    gpus: int
    status: str
    user: object
    vc: object
    end_us: int


@dataclass(frozen=True, slots=True)
class Philly(OwnerOptions):
    """Reads ``cluster_job_log``."""

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the jobs of the files."""
        for path in files:
            with open_text(path) as file:
                jobs = read_entries(Entries(file, str(path)), self._jobs(), tally)
                while chunk := list(islice(jobs, CHUNK_ROWS)):
                    yield self._requests(chunk)

    def _requests(self, chunk: Sequence[_Job]) -> Requests:
        """Return some jobs as requests."""
        release_us, runtime_us, gpus, end_us = (
            np.array([getattr(job, name) for job in chunk], np.int64)
            for name in ("release_us", "runtime_us", "gpus", "end_us")
        )
        model, status, user, vc = (
            np.array([getattr(job, name) for job in chunk], np.object_) for name in ("model", "status", "user", "vc")
        )
        run_us, more = outcomes(status, runtime_us, self.failed)
        columns: dict[str, Any] = {"gpus": gpus, "split": self.gpus == "split", **more}
        if self.retries is not None:
            columns |= {"tries_us": self.retries, "key": retry_key(user, vc, gpus), "end_us": end_us}
        return Requests(release_us, model, run_us, **columns)

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
            end_us = max(attempt["end_time"] or 0 for attempt in logged.attempts)
            owner = logged.user, logged.vc
            return _Job(logged.submitted_time, logged.owner, runtime_us, gpus, logged.status, *owner, end_us)

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
