"""What the logs of jobs show of their ends while they run: a folder with a file per job, read as far as it had come.

A file is named after its job, ``job3.log`` by the number in release order, from 0, or ``line5.log`` by the line of the
imported log, as in files of estimates; of a job of several tasks ``job3.TASK.log``. Each may be packed: ``.log.gz``.

Time runs from a log's first time stamp, the start of the job. A line without a stamp is heard with the next one that
has one: not before it was written. Times stand as they are, since a job may fall silent long before it ends; only where
it runs for other than its shortest run time, on another kind of GPU or beyond a server, are they stretched with that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from truenorth.executor.device import Shown
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.instance import NEVER, Instance
from truenorth.models.scenario import InputError
from truenorth.models.scenario.errors import quote
from truenorth.models.scenario.quantities import MAX_TIME_US
from truenorth.planner.inputs.estimate.logs import CUE, LogFollower, read_lines
from truenorth.planner.inputs.importers.csv_files import open_bytes

MOVED = 10
"""An end is told anew when it moves by more than this part of what is left: the nearer it is, the more it matters."""
LOOKS = 1_000
"""A log is looked at again when its job has run for longer by this part of its run so far."""
_NAME = re.compile(r"(job|line)(\d{1,9})(?:\.(.+))?\.log(?:\.gz)?")
_TICK_US = MICROSECONDS_PER_SECOND
"""Stamps of whole seconds may span so much more than a run."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A log, followed from its first time stamp on.

    Parameters
    ----------
    shows
        How long the job has run, and the run time that its log then shows, in microseconds.
    last_us, line
        The last time stamp since the first, and its line.
    """

    shows: tuple[tuple[int, int], ...]
    last_us: int
    line: int


def follow(path: Path) -> Followed:
    """Return what a log shows, instant by instant, by the lines up to then alone.

    A job that says that it is through, or has failed, is expected to end there and then.

    Raises
    ------
    InputError
        If the file cannot be read, or no line has a time stamp.
    """
    follower, first_us, line = LogFollower(), None, 0
    now_us = counted_us = looked_us = counts = held = 0
    run_us: int | None = None
    shows: list[tuple[int, int]] = []
    with open_bytes(path) as (file, _):
        for number, text in read_lines(file, str(path)):
            stamp_us = follower.clock.read_us(text)
            held |= follower.note(number, text)
            if stamp_us is None:
                continue
            first_us, line = stamp_us if first_us is None else first_us, number
            # Lines of several processes may change places.
            now_us = max(now_us, stamp_us - first_us)
            if follower.counts > counts:
                counts, counted_us = follower.counts, now_us
            # Many a log counts faster than estimates can move; what fails or ends is heard at once.
            if held & ~CUE or (held and LOOKS * (now_us - looked_us) >= looked_us):
                run_us, looked_us, held = _run_time(follower, counted_us, now_us), now_us, 0
            if run_us is not None and _moved(shows, max(run_us, now_us), now_us):
                shows.append((now_us, max(run_us, now_us)))
    if first_us is None:
        problem = "no line begins with a time stamp, so that nothing says when it was written"
        raise InputError(str(path), 1, "time", f"{problem}; stamp them, for instance by ts '%Y-%m-%d %H:%M:%S'")
    return Followed(tuple(shows), now_us, line)


def _run_time(log: LogFollower, counted_us: int, now_us: int) -> int | None:
    """Return how long a job should run in all; None if its log leaves it open."""
    if log.failure is not None or log.finished:
        return now_us
    remaining = log.remaining
    return None if remaining is None else min(counted_us + remaining.expected_us, MAX_TIME_US)


def _moved(shows: list[tuple[int, int]], run_us: int, now_us: int) -> bool:
    """Say whether a run time differs enough from what was shown last."""
    if not shows:
        return True
    last_us = shows[-1][1]
    # Who should end now need not say so twice.
    return last_us > now_us if run_us == now_us else MOVED * abs(run_us - last_us) > run_us - now_us


def read_progress(folder: Path, instance: Instance) -> Mapping[int, Shown]:
    """Return what the logs of a folder show, by task; tasks without a log show nothing.

    Raises
    ------
    InputError
        If the folder or a file cannot be read, a file names no task of the instance, or one that another names, or
        its time stamps span more than the task runs.
    """
    found: dict[int, Path] = {}
    lines = {job.line: index for index, job in enumerate(instance.jobs) if job.line is not None}
    shown: dict[int, Shown] = {}
    for path in _files(folder):
        for task in _tasks(path, instance, lines):
            if task in found:
                problem = f"{path.name} and {found[task].name} are logs of one task; write one of each"
                raise InputError(str(path), None, "file", problem)
            found[task] = path
    for task, path in found.items():
        job, log = int(instance.task_job[task]), follow(path)
        times = instance.run_us[instance.task_template[task]]
        runs_us = int(times[times != NEVER].min())
        # Who failed may have been stopped sooner than in the log (`failed=stop:TIME`), and weighs nothing.
        if log.last_us > runs_us + _TICK_US and instance.jobs[job].weight:
            said = f"{log.last_us / 1e6:g} s after the first stamp, but job {job} runs for {runs_us / 1e6:g} s"
            raise InputError(str(path), log.line, "time", f"{said}; write the log of this run")
        shown[task] = tuple((Fraction(at, runs_us), Fraction(run, runs_us)) for at, run in log.shows)
    return shown


def _files(folder: Path) -> list[Path]:
    """Return the logs of a folder, by name."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}; write a folder of logs, or a share of a run such as 0.1"
        raise InputError(str(folder), None, "progress", problem) from None


def _tasks(path: Path, instance: Instance, lines: Mapping[int, int]) -> Iterator[int]:
    """Yield the task that a file's name says; none if it is of a line of the log that is no job's here."""
    named = _NAME.fullmatch(path.name)
    if named is None:
        problem = f"{quote(path.name)} names no job; write job0.log (in release order) or line2.log (of the import)"
        raise InputError(str(path), None, "file", problem)
    sort, number, name = named[1], int(named[2]), named[3]
    if sort == "job" and number >= len(instance.jobs):
        problem = f"{number} is no job of the scenario; write those from 0 to {len(instance.jobs) - 1}"
        raise InputError(str(path), None, "file", problem)
    if sort == "line" and not lines:
        problem = "the scenario does not say which lines of a log its jobs come from; write job0.log and so on"
        raise InputError(str(path), None, "file", problem)
    for job in [number] if sort == "job" else [lines[number]] if number in lines else []:
        tasks = instance.jobs[job].workflow.position
        if (name is None and len(tasks) > 1) or name not in (None, *tasks):
            said = "says no task" if name is None else f"{quote(name)} is no task"
            problem = f"{said} of job {job}; write {sort}{number}.TASK.log with one of {', '.join(tasks)}"
            raise InputError(str(path), None, "file", problem)
        yield instance.tasks_of(job).start + (0 if name is None else tasks[name])
