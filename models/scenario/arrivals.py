"""From the document's workload to jobs in release order: a Poisson process, a list, or the rows of a CSV file.

Every row of a file is checked, only those of the window are kept: memory grows with the rows kept, not with the file,
and the loop over the rows does little more than read the time.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from truenorth.models.branches import draw_branch, paths_of
from truenorth.models.record import guard, unguard
from truenorth.models.scenario.document import JobSection, PoissonSection, ScenarioDocument, TraceSection
from truenorth.models.scenario.errors import FieldError, InputError, Where, allowed, quote
from truenorth.models.scenario.files import LONGEST_LINE, admit, open_now, read_bounded_lines
from truenorth.models.scenario.quantities import MAX_JOBS, MAX_PRIORITY, MAX_TIME_US, read_number, read_server
from truenorth.models.scenario.requests import BLOCKS_COLUMN, TOKEN_COLUMNS, Forms, RequestForm, read_blocks, read_count
from truenorth.models.streams import Tokens
from truenorth.models.units import US_DECIMALS, QuantityError, microseconds, parse_time
from truenorth.models.workload import Job, Workflow

if TYPE_CHECKING:
    from _csv import Reader


_TIME = {f"time_{unit}": unit for unit in US_DECIMALS}
_DEADLINE = {f"deadline_{unit}": unit for unit in US_DECIMALS}
_COLUMNS = (*_TIME, "workflow", *_DEADLINE, "weight", "ingress", "path", "priority", "line", "label")


def build_jobs(
    document: ScenarioDocument, workflows: Mapping[str, Workflow], forms: Forms, folder: Path
) -> tuple[Job, ...]:
    """Return the jobs in release order, equal releases in file order.

    Parameters
    ----------
    forms
        How requests of streams get their tokens.
    folder
        What the path of a trace is relative to.

    Raises
    ------
    FieldError
        For an unknown workflow or server, an empty window, releases beyond all bounds, or a request without tokens.
    InputError
        If a row of the trace is wrong.
    """
    workload = document.workload
    if workload.poisson is not None:
        arrivals: Sequence[Arrival] = _poisson(workload.poisson, list(workflows))
        _refuse_without_tokens({arrival.workflow for arrival in arrivals}, forms)
    elif workload.trace is not None:
        arrivals = _trace(workload.trace, document, forms, folder)
    else:
        arrivals = _list_jobs(document, forms)
    ordered = sorted(arrivals, key=lambda arrival: arrival.release_us)
    paths = {name: paths_of(workflow) for name, workflow in workflows.items()}
    seed = workload.poisson.seed if workload.poisson is not None else 0
    return tuple(
        Job(
            _take_path(workflows[a.workflow], paths[a.workflow], a, seed, job),
            a.release_us,
            a.weight,
            document.workflows[a.workflow].deadline if a.deadline_us is None else a.deadline_us,
            a.ingress,
            a.tokens,
            document.workflows[a.workflow].priority if a.priority is None else a.priority,
            a.delays_us,
            a.blocks,
            a.ideal_us,
            a.line,
            a.label,
        )
        for job, a in enumerate(ordered)
    )


def _take_path(workflow: Workflow, paths: Sequence[Workflow], arrival: Arrival, seed: int, job: int) -> Workflow:
    """Return the path that an arrival takes; where it names none it is drawn."""
    if arrival.path is None:
        return paths[draw_branch(workflow, seed, job)] if workflow.branches else workflow
    if arrival.path >= len(workflow.branches):
        problem = f"job {job} takes branch {arrival.path} of {workflow.name}, which has {len(workflow.branches)}"
        raise FieldError(("workload",), f"{problem}; allowed are numbers of branches, from 0")
    return paths[arrival.path]


def _poisson(section: PoissonSection, workflows: Sequence[str]) -> list[Arrival]:
    """Return a Poisson process from time 0 (so the first release is a gap too), workflows drawn by their weights.

    `random.Random` draws a gap and then a workflow for each job: a longer sequence continues a shorter
    one, and another rate only stretches it.
    """
    weights = section.mix if section.mix is not None else dict.fromkeys(workflows, 1)
    for name in weights:
        if name not in workflows:
            where = ("workload", "poisson", "mix", name)
            raise FieldError(where, f"unknown workflow; {allowed(name, workflows)}")
    cumulative = list(accumulate(float(weight) for weight in weights.values()))
    if not cumulative[-1]:
        raise FieldError(("workload", "poisson", "mix"), "has only zeros; allowed is at least one positive weight")
    rng = random.Random(section.seed)  # noqa: S311
    names, rate = list(weights), float(section.rate)
    release_s, arrivals = 0.0, []
    for _ in range(section.jobs):
        release_s += rng.expovariate(rate)
        arrivals.append(Arrival(round(release_s * 1e6), rng.choices(names, cum_weights=cumulative)[0]))
    if arrivals[-1].release_us > MAX_TIME_US:
        problem = f"spreads the jobs over more than {MAX_TIME_US} us; allowed is a higher rate"
        raise FieldError(("workload", "poisson", "rate"), problem)
    return arrivals


def _refuse_without_tokens(workflows: Collection[str], forms: Forms) -> None:
    """Refuse requests of which neither task nor job says how long they are; of branches that is found out later."""
    for workflow in workflows:
        for task, form in forms[workflow].items():
            if form.tokens() is None and not form.optional:
                raise FieldError(("workflows", workflow, "tasks", task), _without_tokens(task))


def _without_tokens(task: str) -> str:
    remedy = f"allowed are prompt and output_tokens there, tokens: {{{task}: [900, 900, 200]}} of each job"
    return f"nobody says how many tokens {task} has; {remedy}, or columns {task}.prompt and {task}.output of a trace"


def _trace(section: TraceSection, document: ScenarioDocument, forms: Forms, folder: Path) -> Sequence[Arrival]:
    path = folder / section.file
    try:
        names, servers = list(document.workflows), document.cluster.n_servers
        trace = read_trace(path, names, servers, section.window, forms, _followers(document))
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}; allowed is a readable CSV file"
        raise FieldError(("workload", "trace", "file"), problem) from None
    if not trace.arrivals:
        spans = f"the {trace.rows} arrivals of {path} lie from {trace.first_us} us to {trace.last_us} us"
        problem = f"is an empty window: {spans}; allowed is a window with an arrival"
        raise FieldError(("workload", "trace", "window"), problem)
    return trace.arrivals if section.rate_factor == 1 else [_faster(a, section.rate_factor) for a in trace.arrivals]


def _faster(arrival: Arrival, factor: Fraction) -> Arrival:
    """Return an arrival with its release divided by a factor, rounded half up."""
    release_us = floor(arrival.release_us / factor + Fraction(1, 2))
    if release_us > MAX_TIME_US:
        problem = f"moves a release beyond {MAX_TIME_US} us; allowed is a larger factor"
        raise FieldError(("workload", "trace", "rate_factor"), problem)
    return arrival._replace(release_us=release_us)


def _list_jobs(document: ScenarioDocument, forms: Forms) -> list[Arrival]:
    arrivals, servers = [], document.cluster.n_servers
    for position, job in enumerate(document.workload.jobs or ()):
        where = ("workload", "jobs", position)
        if job.workflow not in document.workflows:
            problem = f"unknown workflow {quote(job.workflow)}; {allowed(job.workflow, document.workflows)}"
            raise FieldError((*where, "workflow"), problem)
        if job.ingress is not None and job.ingress >= servers:
            problem = f"unknown server {quote(f's{job.ingress}')}; allowed are s0 to s{servers - 1}"
            raise FieldError((*where, "ingress"), problem)
        tokens = _listed_tokens(job, (*where, "tokens"), forms[job.workflow])
        delays_us = _listed_delays(job, (*where, "delay"), document)
        _refuse_blocks(job, tokens or {}, (*where, "blocks"), forms[job.workflow])
        said = (
            job.deadline,
            job.weight,
            job.ingress,
            job.path,
            tokens,
            job.priority,
            delays_us,
            job.blocks or None,
            job.line,
            job.label,
            job.ideal,
        )
        arrivals.append(Arrival(job.release, job.workflow, *said))
    return arrivals


Followers = Mapping[str, Collection[str]]
"""By workflow: the tasks that come after others, which may have a delay."""


def _followers(document: ScenarioDocument) -> Followers:
    return {
        name: [task for task, said in section.tasks.items() if said.after]
        for name, section in document.workflows.items()
    }


def _listed_delays(job: JobSection, where: Where, document: ScenarioDocument) -> dict[str, int] | None:
    """Return what a job says of the delays before its tasks."""
    tasks = document.workflows[job.workflow].tasks
    followers = [task for task, said in tasks.items() if said.after]
    for name in job.delay:
        if name not in followers:
            raise FieldError((*where, name), _no_follower(name, job.workflow, tasks, followers))
    return job.delay or None


def _no_follower(task: str, workflow: str, tasks: Collection[str], followers: Collection[str]) -> str:
    what = f"comes after no other task of {workflow}" if task in tasks else f"is no task of {workflow}"
    return f"{what}, so that it can have no delay; {allowed(task, followers) if followers else 'leave it out'}"


def _listed_tokens(job: JobSection, where: Where, forms: Mapping[str, RequestForm]) -> dict[str, Tokens] | None:
    """Return what a job says of its requests."""
    found: dict[str, Tokens] = {}
    for task, counts in job.tokens.items():
        if task not in forms:
            raise FieldError((*where, task), f"is no request of a stream of {job.workflow}; {allowed(task, forms)}")
        try:
            given = forms[task].tokens(*counts)
        except QuantityError as error:
            raise FieldError((*where, task), str(error)) from None
        if given is not None:
            found[task] = given
    for task, form in forms.items():
        if task not in found and form.tokens() is None and not form.optional:
            raise FieldError(where[:-1], _without_tokens(task))
    return found or None


def _refuse_blocks(
    job: JobSection, tokens: Mapping[str, Tokens], where: Where, forms: Mapping[str, RequestForm]
) -> None:
    """Refuse blocks of a job's requests that their prompts do not have."""
    for task in job.blocks:
        if task not in forms:
            raise FieldError((*where, task), f"is no request of a stream of {job.workflow}; {allowed(task, forms)}")
    for task, form in forms.items():
        of = tokens.get(task) or form.tokens()
        if of is not None:
            try:
                form.refuse_blocks(of, job.blocks.get(task))
            except QuantityError as error:
                raise FieldError((*where, task), str(error)) from None


class Arrival(NamedTuple):
    """A job of a trace: release, workflow's name, and what the optional columns say."""

    release_us: int
    workflow: str
    deadline_us: int | None = None
    weight: Fraction = Fraction(1)
    ingress: int | None = None
    path: int | None = None
    tokens: Mapping[str, Tokens] | None = None
    priority: int | None = None
    delays_us: Mapping[str, int] | None = None
    blocks: Mapping[str, tuple[int, ...]] | None = None
    line: int | None = None
    label: str | None = None
    ideal_us: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """The arrivals of a window in file order; of the whole file, the number of rows, the first and the last time."""

    arrivals: Sequence[Arrival]
    rows: int
    first_us: int
    last_us: int


def read_trace(
    path: Path,
    workflows: Sequence[str],
    servers: int,
    window: tuple[int, int] | None = None,
    forms: Forms | None = None,
    followers: Followers | None = None,
) -> Trace:
    """Return the arrivals of a CSV file.

    Parameters
    ----------
    workflows
        Names that may occur.
    servers
        Number of servers; an ingress lies below it.
    window
        Start and end in microseconds; releases count from the start. None: every row, as it stands.
    forms
        How requests of these workflows get their tokens; None where there are no requests.
    followers
        Which tasks come after others, and may have delays; None where there are none.

    Raises
    ------
    InputError
        With the line of the first row that is wrong; also if more rows are kept than a scenario may hold.
    OSError
        If the file cannot be opened or read.
    """
    # An undecodable byte becomes a lone surrogate, so that its row, and with it the line, is known.
    admit(path)
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="", opener=open_now) as file:
        rows = csv.reader(read_bounded_lines(file, str(path), LONGEST_LINE), strict=True)
        form_of = {name: {} if forms is None else forms.get(name, {}) for name in workflows}
        return _read(rows, str(path), form_of, followers or {}, servers, window or (0, MAX_TIME_US + 1))


def _read(rows: Reader, file: str, forms: Forms, followers: Followers, servers: int, window: tuple[int, int]) -> Trace:
    row: list[str] = []
    try:
        row = next(rows, [])
        columns = _TraceHeader([name.strip() for name in row], forms, followers, servers)
        kept: list[Arrival] = []
        count, first, last = 0, 0, 0
        start, end = window
        for row in rows:
            if not row:
                continue
            time_us, workflow, rest = columns.values(row)
            if not last <= time_us <= MAX_TIME_US:
                raise columns.wrong_time(row, time_us, last)
            if start <= time_us < end and len(kept) <= MAX_JOBS:
                said = (*(rest or _NOTHING_SAID), *columns.origin(row)) if columns.of_log else rest
                kept.append(Arrival(time_us - start, workflow, *said))
            first = first if count else time_us
            last = time_us
            count += 1
        if not count:
            raise FieldError(("file",), "has no rows; allowed is at least one arrival")
        if len(kept) > MAX_JOBS:
            raise FieldError(("file",), f"gives more than {MAX_JOBS} jobs; allowed is a window that holds fewer")
        return Trace(kept, count, first, last)
    except csv.Error as error:
        raise InputError(file, max(1, rows.line_num), "row", f"{error}; allowed is CSV") from None
    except FieldError as error:
        line = max(1, rows.line_num - sum(text.count("\n") for text in row))
        problem = error.problem
        if any("\ud800" <= letter <= "\udfff" for text in row for letter in text):
            problem = "is not UTF-8 text; allowed is UTF-8"
        raise InputError(file, line, str(error.where[0]), problem) from None


_Blocks = Mapping[str, tuple[int, ...]]
_Rest = tuple[
    int | None,
    Fraction,
    int | None,
    int | None,
    Mapping[str, Tokens] | None,
    int | None,
    Mapping[str, int] | None,
    _Blocks | None,
]
_NOTHING_SAID: _Rest = (None, Fraction(1), None, None, None, None, None, None)


def _read_number(text: str, what: str) -> int:
    if not (text.isdecimal() and text.isascii() and len(text) < 10):
        raise QuantityError(f"{quote(text)} is no {what}; allowed is its number, from 0")
    return int(text)


def _read_priority(text: str) -> int:
    if not (text.isdecimal() and text.isascii() and len(text) < 10 and int(text) <= MAX_PRIORITY):
        raise QuantityError(f"{quote(text)} is no priority; allowed are 0 to {MAX_PRIORITY}, a higher one first")
    return int(text)


class _TraceHeader:
    """The header of a trace, and how a row is read by it."""

    def __init__(self, header: Sequence[str], forms: Forms, followers: Followers, servers: int) -> None:
        self._width, self._servers, self._forms, self._followers = len(header), servers, forms, followers
        self._workflows = {guard(name): name for name in forms} | {name: name for name in forms}
        self._requests = any(forms.values())
        requests = {task for of in forms.values() for task in of}
        tokens = {f"{task}.{what}": (task, at) for task in requests for at, what in enumerate(TOKEN_COLUMNS)}
        delays = {
            f"{task}.delay{unit and f'_{unit}'}": (task, unit)
            for task in dict.fromkeys(task for of in followers.values() for task in of)
            for unit in ("", *US_DECIMALS)
        }
        blocks = {f"{task}.{BLOCKS_COLUMN}": task for task in requests}
        known = (*_COLUMNS, *tokens, *blocks, *delays)
        if header and not any(name in known for name in header):
            # Whatever file this is, it is none of ours to quote.
            raise FieldError(("header",), f"is none of a trace; {allowed('', known)}")
        for position, name in enumerate(header):
            if name not in known:
                raise FieldError(("header",), f"unknown column {quote(name)}; {allowed(name, known)}")
            if name in header[:position]:
                raise FieldError(("header",), f"column {quote(name)} occurs twice; allowed is once")
        self._time = _one_of(header, _TIME)
        _one_of(header, ["workflow"])
        if any(name in header for name in _DEADLINE):
            _one_of(header, _DEADLINE)
        self._unit = _TIME[self._time]
        self._time_at, self._workflow_at = header.index(self._time), header.index("workflow")
        self._origin = [header.index(name) if name in header else None for name in ("line", "label")]
        self._labels: dict[str, str] = {}
        self.of_log = self._origin != [None, None]
        given = {
            name: position for position, name in enumerate(header) if name not in (*_TIME, "workflow", "line", "label")
        }
        of_tasks = tokens.keys() | blocks.keys() | delays.keys()
        self._optional = {name: position for name, position in given.items() if name not in of_tasks}
        self._blocks = [(blocks[name], name, position) for name, position in given.items() if name in blocks]
        self._numbers: dict[str, int] = {}
        self._delays = [(*delays[name], name, position) for name, position in given.items() if name in delays]
        twice = [
            name for at, (task, _, name, _) in enumerate(self._delays) if task in [d[0] for d in self._delays[:at]]
        ]
        if twice:
            raise FieldError(("header",), f"column {quote(twice[0])} is a second delay of its task; allowed is one")
        self._tokens = [(*tokens[name], name, position) for name, position in given.items() if name in tokens]

    def values(self, row: Sequence[str]) -> tuple[int, str, _Rest | tuple[()]]:
        """Return time, workflow, and deadline, weight, ingress, path, tokens and priority where there are such."""
        if len(row) != self._width:
            raise FieldError(("row",), f"has {len(row)} fields; allowed are {self._width}")
        try:
            time_us = microseconds(row[self._time_at], self._unit)
        except QuantityError:
            problem = f"{quote(row[self._time_at])} is no time; allowed is a plain number of {self._unit}"
            raise FieldError((self._time,), problem) from None
        workflow = self._workflows.get(row[self._workflow_at])
        if workflow is None:
            name = row[self._workflow_at]
            raise FieldError(("workflow",), f"unknown workflow {quote(name)}; {allowed(name, self._workflows)}")
        says_more = self._optional or self._requests or self._delays
        return time_us, workflow, self._rest(row, workflow) if says_more else ()

    def origin(self, row: Sequence[str]) -> tuple[int | None, str | None]:
        """Return line and label of the log's job that a row stands for, None where there is no such column."""
        line, label = ("" if at is None else row[at] for at in self._origin)
        if label not in self._labels:
            self._labels[label] = unguard(label.strip())  # few differ
        try:
            number = _read_number(line, "line") if line else None
        except QuantityError as error:
            raise FieldError(("line",), str(error)) from None
        return number, None if self._origin[1] is None else self._labels[label]

    def _rest(self, row: Sequence[str], workflow: str) -> _Rest:
        deadline, weight, ingress, path, priority = None, Fraction(1), None, None, None
        for name, position in self._optional.items():
            text = row[position].strip()
            if not text:
                continue
            try:
                if name in _DEADLINE:
                    deadline = microseconds(text, _DEADLINE[name])
                elif name == "weight":
                    weight = read_number(text)
                elif name == "path":
                    path = _read_number(text, "branch")
                elif name == "priority":
                    priority = _read_priority(text)
                else:
                    ingress = read_server(text)
            except QuantityError as error:
                problem = f"{quote(text)} is no time; allowed is a plain number" if name in _DEADLINE else str(error)
                raise FieldError((name,), problem) from None
            if deadline is not None and not 0 <= deadline <= MAX_TIME_US:
                raise FieldError((name,), f"{quote(text)} is out of range; allowed is 0 to {MAX_TIME_US} us")
            if ingress is not None and ingress >= self._servers:
                raise FieldError((name,), f"unknown server {quote(text)}; allowed are s0 to s{self._servers - 1}")
        tokens = self._tokens_of(row, self._forms[workflow]) if self._requests else None
        delays_us = self._delays_of(row, workflow) if self._delays else None
        blocks = self._blocks_of(row, self._forms[workflow], tokens or {}) if self._requests else None
        return deadline, weight, ingress, path, tokens, priority, delays_us, blocks

    def _delays_of(self, row: Sequence[str], workflow: str) -> dict[str, int] | None:
        """Return the delays before a job's tasks, as far as the row gives any."""
        found: dict[str, int] = {}
        for task, unit, name, position in self._delays:
            text = row[position].strip()
            if not text:
                continue
            if task not in self._followers[workflow]:
                raise FieldError(
                    (name,),
                    f"{quote(text)} is given, and no such task of this job comes after others; allowed is nothing",
                )
            try:
                found[task] = microseconds(text, unit) if unit else parse_time(text)
            except QuantityError as error:
                plain = f"{quote(text)} is no time; allowed is a plain number of {unit}"
                raise FieldError((name,), plain if unit else str(error)) from None
            if not 0 <= found[task] <= MAX_TIME_US:
                raise FieldError((name,), f"{quote(text)} is out of range; allowed is 0 to {MAX_TIME_US} us")
        return found or None

    def _tokens_of(self, row: Sequence[str], forms: Mapping[str, RequestForm]) -> dict[str, Tokens] | None:
        """Return the tokens of a job's requests as far as the row gives any."""
        given: dict[str, list[int | None]] = {}
        for task, at, name, position in self._tokens:
            text = row[position].strip()
            if not text:
                continue
            if task not in forms:
                problem = f"{quote(text)} is given, and this job has no request {task}; allowed is nothing"
                raise FieldError((name,), problem)
            try:
                given.setdefault(task, [None, None, None])[at] = read_count(text)
            except QuantityError as error:
                raise FieldError((name,), str(error)) from None
        found: dict[str, Tokens] = {}
        for task, form in forms.items():
            try:
                tokens = form.tokens(*given.get(task, ()))
            except QuantityError as error:
                raise FieldError((f"{task}.prompt",), str(error)) from None
            if tokens is None and (task in given or not form.optional):
                raise FieldError((f"{task}.prompt",), _without_tokens(task))
            if tokens is not None and task in given:
                found[task] = tokens
        return found or None

    def _blocks_of(
        self, row: Sequence[str], forms: Mapping[str, RequestForm], tokens: Mapping[str, Tokens]
    ) -> _Blocks | None:
        """Return the blocks of the prompts of a job's requests as far as the row gives any."""
        found: dict[str, tuple[int, ...]] = {}
        for task, name, position in self._blocks:
            if row[position].strip():
                try:
                    if task not in forms:
                        raise QuantityError(f"is given, and this job has no request {task}; allowed is nothing")
                    found[task] = read_blocks(row[position], self._numbers)
                except QuantityError as error:
                    raise FieldError((name,), str(error)) from None
        for task, form in forms.items():
            of = tokens.get(task) or form.tokens()
            if of is not None:
                try:
                    form.refuse_blocks(of, found.get(task))
                except QuantityError as error:
                    raise FieldError((f"{task}.{BLOCKS_COLUMN}",), str(error)) from None
        return found or None

    def wrong_time(self, row: Sequence[str], time_us: int, last_us: int) -> FieldError:
        """Return the error of a time that is out of range or earlier than the row before."""
        text = quote(row[self._time_at])
        if 0 <= time_us < last_us:
            return FieldError((self._time,), f"{text} is earlier than the row before; allowed are rows sorted by time")
        return FieldError((self._time,), f"{text} is out of range; allowed is 0 to {MAX_TIME_US} us")


def _one_of(header: Sequence[str], names: Sequence[str] | dict[str, str]) -> str:
    """Return which of these columns the header has; it must be exactly one."""
    found = [name for name in names if name in header]
    if len(found) != 1:
        problem = f"has {' and '.join(found) or 'no column'} of {', '.join(names)}; allowed is exactly one of them"
        raise FieldError(("header",), problem)
    return found[0]
