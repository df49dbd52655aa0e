"""Import a log: read it, cut a window, scale its rate, map it to workflows, and say what came out."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from truenorth.executor.policies.options import Kind
from truenorth.models.errors import QuestionError
from truenorth.models.errors import chosen as choose
from truenorth.models.instance import Ints
from truenorth.models.objective import Objective
from truenorth.models.scenario import InputError, Scenario, promise, scenario_from, write_atomically
from truenorth.models.scenario.disaggregated import disaggregate
from truenorth.models.scenario.errors import allowed
from truenorth.models.scenario.quantities import MAX_JOBS, MAX_TIME_US
from truenorth.models.units import QuantityError, parse_time, seconds
from truenorth.planner.inputs.importers.catalogued import Catalogued
from truenorth.planner.inputs.importers.csv_files import assert_each_once
from truenorth.planner.inputs.importers.format import Format, Hardware, Reader
from truenorth.planner.inputs.importers.formats import FORMATS
from truenorth.planner.inputs.importers.formats.tokens import NAME as TOKENS
from truenorth.planner.inputs.importers.retries import attempts_of, say_attempts
from truenorth.planner.inputs.importers.rows import LONGEST_NAME, Tally
from truenorth.planner.inputs.importers.streamed import Cache
from truenorth.planner.inputs.importers.summary import Summary
from truenorth.planner.inputs.importers.tables import DagJobs, Requests, Texts, TokenRequests
from truenorth.planner.inputs.importers.target import Documented, Driven, Target, assert_valid, trace_text
from truenorth.planner.inputs.importers.ticks import coarse
from truenorth.planner.inputs.importers.ticks import spread as spread_within_ticks
from truenorth.planner.inputs.importers.workload import CALL, REQUEST, Classes, Served, Workload, gather, workload_of


@dataclass(frozen=True, slots=True)
class ImportWindow:
    """Releases from a start to before an end.

    Parameters
    ----------
    start_us, end_us
        Times since the trace's time zero, or moments since 1970.
    moments
        Which of the two.
    """

    start_us: int
    end_us: int
    moments: bool = False

    @classmethod
    def parse(cls, start: str, end: str, dated: bool) -> ImportWindow:
        """Read two times with a unit, or, for a dated trace, two moments.

        Raises
        ------
        QuestionError
            If they are neither, before time zero or too late, or the window is empty.

        >>> ImportWindow.parse("10 min", "0.5 h", dated=False)
        ImportWindow(start_us=600000000, end_us=1800000000, moments=False)
        >>> ImportWindow.parse("1970-01-01 00:00", "1970-01-01T00:01:00", dated=True)
        ImportWindow(start_us=0, end_us=60000000, moments=True)
        """
        read = [_bound(text, dated) for text in (start, end)]
        (start_us, moment), (end_us, other) = read
        if moment is not other:
            raise QuestionError(f"{start!r} to {end!r} mixes a time with a moment; allowed are two of a sort", "window")
        if start_us < 0:
            zero = "1970" if moment else "time zero"
            raise QuestionError(f"{start!r} lies before {zero}; allowed is a start from there on", "window")
        if start_us >= end_us:
            raise QuestionError(f"{start!r} to {end!r} is an empty window; allowed is a start before the end", "window")
        latest_us = MAX_TIME_US * (10 if moment else 1)
        if end_us > latest_us:
            raise QuestionError(f"{end!r} is too late; allowed is up to {latest_us / 1e6:g} s from zero", "window")
        return cls(start_us, end_us, moment)

    @property
    def length_us(self) -> int:
        """How long it is."""
        return self.end_us - self.start_us


def _bound(text: str, dated: bool) -> tuple[int, bool]:
    try:
        return parse_time(text), False
    except QuantityError:
        pass
    moment = pd.to_datetime(text, format="ISO8601", errors="coerce", utc=True) if dated and len(text) >= 10 else pd.NaT
    if pd.isna(moment):
        also = ", or a date and time such as 2024-12-06T00:00" if dated else ""
        raise QuestionError(
            f"{text[:60]!r} is no time; allowed is a number with a unit such as '3600 s'{also}", "window"
        )
    return int(moment.as_unit("us").asm8.astype(np.int64)), True


def cut(release_us: Ints, window: ImportWindow | None, rate_factor: Fraction, from_first: bool) -> tuple[Ints, Ints]:
    """Return the positions of the releases in a window, in release order, and the releases from its start on.

    Equal releases keep their order. Time zero is the window's start; without a window, the first release of a trace
    that counts `from_first` on, or the zero of the trace's own clock. Then every release is divided by the rate factor,
    rounded half up.

    Raises
    ------
    QuestionError
        If the window holds no release.
    """
    first = int(release_us.min())
    zero = first if from_first and not (window and window.moments) else 0
    start, end = (0, None) if window is None else (window.start_us, window.end_us)
    since = release_us - zero
    inside = since >= start if end is None else (since >= start) & (since < end)
    rows = np.flatnonzero(inside)
    if not rows.size:
        edges = " to ".join(_said(edge, zero, from_first) for edge in (first, int(release_us.max())))
        raise QuestionError(f"the window holds no release: they lie from {edges}; allowed is a window with a release")
    rows = rows[np.argsort(since[rows], kind="stable")]
    return rows.astype(np.int64), _slower(since[rows] - start, 1 / rate_factor)


def _said(release_us: int, zero: int, dated: bool) -> str:
    """Return a release as a person would give it as the edge of a window."""
    elapsed = f"{(release_us - zero) / 1e6:g} s"
    return f"{pd.Timestamp(release_us, unit='us'):%Y-%m-%dT%H:%M:%S}" if dated and not zero else elapsed


def _slower(release_us: Ints, factor: Fraction) -> Ints:
    """Return releases multiplied by a factor, exactly, rounded half up."""
    if factor == 1:
        return release_us
    doubled = release_us.astype(np.object_) * (2 * factor.numerator) + factor.denominator
    stretched = doubled // (2 * factor.denominator)
    if stretched.max() > MAX_TIME_US:
        raise QuestionError(
            f"the last release lies beyond {MAX_TIME_US} us at this rate; allowed is a higher rate factor"
        )
    return np.asarray(stretched, np.int64)


_LATE_US = 3_600_000_000


def _ran_before(release_us: Ints) -> bool:
    """Say whether the clock of a log ran long before it: its first release is past an hour, and past its own length."""
    first = int(release_us.min())
    return first > max(_LATE_US, int(release_us.max()) - first)


LISTED_USERS = 10
"""So many users are named in the notes."""


_SPLIT = "and are split into tasks of one GPU, which plans may run at different times"
_APART = (
    "prefill is apart from decode: each kind of the catalogue becomes two groups of as many servers, KIND prefill and "
    "KIND decode; KV is sent from one to the other and takes no memory on the way (docs/language_models.md)"
)
_RAN_BEFORE = "releases are of a clock that ran before the log: time zero is the first of them"


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep Python's cycle collector from walking millions of rows, which hold no cycles, again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Imported:
    """A log as a scenario.

    Parameters
    ----------
    format, files
        What was read.
    tally
        What became of its rows, and the reader's notes.
    target, workload
        The scenario.
    window, rate_factor
        What was asked of the trace.
    objective
        Of the scenario; None: the usual one, or that of the scenario whose workflows requests drive.
    """

    format: Format
    files: tuple[Path, ...]
    tally: Tally
    target: Target
    workload: Workload
    window: ImportWindow | None
    rate_factor: Fraction
    objective: str | None = None

    def __repr__(self) -> str:
        read = ", ".join(path.name for path in self.files)
        return f"<Imported {len(self.workload.release_us)} jobs of {read} ({self.format.name})>"

    @property
    def summary(self) -> Summary:
        """Arrivals, models, run times and load, before anything is planned."""
        length = None if self.window is None else float(self.window.length_us / self.rate_factor)
        return Summary.of(self.workload, self.target, length)

    @property
    def warnings(self) -> list[str]:
        """What may make the scenario another one than the log: rows that were dropped, jobs that were split."""
        return list(self.tally.warnings)

    @property
    def notes(self) -> list[str]:
        """What the mapping assumes, and what the reader found out; with a cluster of one's own, only that."""
        if not isinstance(self.target, Documented):
            return list(self.tally.notes)
        sizes = f"{'where options say nothing, ' if self.target.asked_for else ''}{self.format.sizes}"
        return [*self.format.notes, *([sizes] if self.format.sizes else []), *self.tally.notes]

    @property
    def scenario(self) -> Scenario:
        """The scenario, without any file; for many jobs, saving and loading it is quicker."""
        work = self.workload
        jobs: list[dict[str, Any]] = [
            {"release": seconds(release), "workflow": work.workflows[index].name}
            for release, index in zip(work.release_us.tolist(), work.workflow.tolist(), strict=True)
        ]
        if work.deadline_us is not None:
            for job, deadline in zip(jobs, work.deadline_us.tolist(), strict=True):
                job |= {"deadline": seconds(deadline)} if deadline >= 0 else {}
        if work.weight is not None:
            for job, weight in zip(jobs, work.weight.tolist(), strict=True):
                job["weight"] = weight
        if work.served is not None:
            _say_requests(jobs, work.served)
        for task, delay_us in work.delay_us.items():
            for job, delay in zip(jobs, delay_us.tolist(), strict=True):
                if delay >= 0:
                    job.setdefault("delay", {})[task] = seconds(delay)
        for name, values in (("line", work.line), ("label", work.label)):
            for job, value in zip(jobs, () if values is None else values.tolist(), strict=False):
                job[name] = value
        made = scenario_from(self.target.content(replace(work, split=False), {"jobs": jobs}) | self._objective)
        return disaggregate(made) if work.split else made

    @property
    def _objective(self) -> dict[str, str]:
        """The section of the objective, if one was asked for, or the workload suits one."""
        objective = self.objective or self.workload.suits
        return {} if objective is None else {"objective": str(objective)}

    def as_dict(self, written: Sequence[Path] = ()) -> dict[str, Any]:
        """Return the summary with the keys of ``import --json``."""
        return {
            "format": self.format.name,
            "files": [str(path) for path in self.files],
            "rows": self.tally.read,
            "left_out": dict(self.tally.left_out),
            "refused": dict(self.tally.refused),
            **self.summary.as_dict(),
            "mapping": self.workload.mapping,
            "unmatched": dict(self.target.unmatched) if isinstance(self.target, Catalogued) else {},
            "warnings": self.warnings,
            "notes": self.notes,
            "written": [str(path) for path in written],
        }

    @_collector_paused()
    def save(self, path: Path) -> list[Path]:
        """Write the scenario, and its arrivals as ``STEM.trace.csv`` beside it; return both paths.

        Raises
        ------
        InputError
            If either cannot be written.
        """
        arrivals = trace_path(path)
        sections = {"trace": {"file": arrivals.name}}
        text = self.target.text(self.workload, sections, self._comments(), path, self._objective)
        write_atomically(arrivals, trace_text(self.workload))
        write_atomically(path, text)
        return [path, arrivals]

    def _comments(self) -> list[str]:
        files = ", ".join(path.name for path in self.files)
        lines = [f"Made by truenorth import {self.format.name} from {files}.", f"Source: {self.format.source}."]
        notes = (f"- {note}" for note in self.notes)
        return [
            *lines,
            f"Mapping: {self.workload.mapping}.",
            *self._rounded(),
            *(f"Warning: {each}." for each in self.warnings),
            *notes,
        ]

    def _rounded(self) -> list[str]:
        """Return what rounding run times up costs, as a comment of the scenario."""
        rounding = self.workload.rounding
        if rounding is None:
            return []
        cost = f"up to {100 * rounding.most:.4g} %, {100 * rounding.work_added:.4g} % of all work"
        return [f"Run times are rounded up, by {cost}: bounds and refutations are about the rounded log."]


def _say_requests(jobs: list[dict[str, Any]], served: Served) -> None:
    """Say of jobs which tokens and blocks their requests have, and of sessions what passes between these."""
    calls, tokens = served.calls, served.tokens.tolist()
    each = [(job, REQUEST, 0) for job in jobs]
    if calls is not None:
        rows = zip(calls.job.tolist(), calls.place.tolist(), calls.delay_us.tolist(), strict=True)
        each = [(jobs[job], CALL.format(place + 1), delay_us if place else 0) for job, place, delay_us in rows]
    for row, (job, name, delay_us) in enumerate(each):
        job.setdefault("tokens", {})[name] = tokens[row]
        if served.blocks is not None and served.blocks[row]:
            job.setdefault("blocks", {})[name] = list(served.blocks[row])
        if delay_us:
            job.setdefault("delay", {})[name] = seconds(delay_us)


def trace_path(scenario: Path) -> Path:
    """Return where the arrivals of an imported scenario lie.

    Raises
    ------
    InputError
        If the scenario's name cannot stand in a scenario file.
    """
    if len(scenario.stem) > LONGEST_NAME or not scenario.name.isprintable():
        problem = f"its name cannot be used; allowed are at most {LONGEST_NAME} printable characters"
        raise InputError(str(scenario), 1, "file", problem)
    return scenario.with_name(f"{scenario.stem}.trace.csv")


def promise_both(scenario: Path) -> None:
    """Refuse a path to which an import could not be saved, and keep it and the trace's for the result.

    Raises
    ------
    InputError
        If it, or the trace beside it, cannot be written.
    """
    for path in (scenario, trace_path(scenario)):
        promise(path)


_READS = {
    **dict.fromkeys(("slurm", "sacct", "csv", "tsv", "json", "jsonl", "jmeter", "otlp", "jaeger", "envoy"), "table"),
    **dict.fromkeys(("mooncake", "burstgpt", "vllm", "guidellm", "genai-perf", "aiperf", "llm", "chat"), "tokens"),
}
"""By what a user may call a log: the format that reads it."""


def parse_format(text: str) -> tuple[Format, Reader]:
    """Read ``name:key=value,key=value``: a format, and its reader with these options.

    Raises
    ------
    QuestionError
        If there is no such format or option.
    """
    name, _, options = text.strip().partition(":")
    if name not in FORMATS:
        reads = f"; {_READS[name.lower()]} reads what {name} writes" if name.lower() in _READS else ""
        raise QuestionError(f"unknown format {name[:60]!r}{reads}; {allowed(name, FORMATS)}")
    made = FORMATS[name]
    reader: Any = Kind("format", QuestionError).options(name, made.reader, options)
    return made, reader


@_collector_paused()
def import_trace(
    format_text: str,
    files: Sequence[Path],
    *,
    window: tuple[str, str] | None = None,
    rate_factor: Fraction = Fraction(1),
    runtime_classes: str = "auto",
    override: Callable[[Hardware], Hardware] | None = None,
    driven: Driven | None = None,
    catalogue: Catalogued | None = None,
    cache: Cache = "none",
    split: bool = False,
    skip_malformed: bool = False,
    spread: bool = False,
    seed: int = 0,
    objective: str | None = None,
    watch: Callable[[int], None] = lambda rows: None,
) -> Imported:
    """Import the files of a log.

    Parameters
    ----------
    format_text
        Name of a format, with options: ``azure-llm:decode=40ms``.
    window
        Releases from the first to before the second count; times with a unit since time zero, or moments.
    rate_factor
        How many times as fast requests arrive.
    runtime_classes
        ``auto``, ``exact``, or a number of classes per model, see `Classes`.
    override
        Makes of the documented cluster the one that is asked for, even if that is the same. None: nothing is asked
        for, and a cluster too small for the widest job grows.
    driven
        A scenario whose workflows the requests drive, on its cluster, in place of the documented one.
    catalogue
        What is known of models and GPUs, likewise; requests are joined with it by the names of their models.
    cache
        Of prompts with tokens: ``none``, ``ideal``, whatever blocks an earlier request of the window had, or ``node``,
        what each node has kept when a request joins there.
    split
        Whether requests with tokens are computed on one node and decoded on another.
    skip_malformed
        Whether malformed rows are counted rather than refused.
    spread, seed
        Whether requests are spread within the ticks of the log's clock, at random by this seed.
    objective
        Of the scenario, such as ``makespan``; with `driven`, the scenario has its own.
    watch
        Told how many rows are read, now and then.

    Raises
    ------
    QuestionError
        If an option cannot be read, or the window holds no workload.
    InputError
        If a file cannot be read or is malformed, or the scenario contradicts itself, say by a model that fits no GPU.
    """
    chosen, reader = parse_format(format_text)
    assert_each_once(files)
    _assert_fits(chosen, catalogue, cache, split, runtime_classes, rate_factor)
    if objective is not None and driven is not None:
        raise QuestionError("is that of the scenario; allowed is without workflows of one", "objective")
    minimised = None if objective is None else choose(Objective, objective, "objective").value
    dated = chosen.is_dated(reader, files)
    span = None if window is None else ImportWindow.parse(*window, dated=dated)
    classes, tally = Classes.parse(runtime_classes), Tally(skip_malformed)
    target: Target = driven or catalogue or _document(chosen, files, tally, override)
    try:
        found = gather(_watched(reader.read(files, tally), tally, watch))
        if spread:
            found = replace(found, release_us=spread_within_ticks(found.release_us, seed))
            tally.notes.append(f"requests are spread evenly within the ticks of the log's clock, by seed {seed}")
        runs_before = chosen.any_clock and not dated and _ran_before(found.release_us)
        rows, release_us = cut(found.release_us, span, rate_factor, dated or runs_before)
        if len(rows) > MAX_JOBS:
            raise QuestionError(f"gives {len(rows):,} jobs; allowed are {MAX_JOBS:,}: choose a window that holds fewer")
        tally.notes += [_RAN_BEFORE] if runs_before else []
        _refuse_other_times(found, driven or catalogue)
        if not isinstance(found, DagJobs):
            together = False
            if isinstance(found, Requests) and isinstance(target, Documented) and found.gangs:
                together = True
                target = _wide_enough(target, int(np.asarray(found.gpus)[rows].max()), tally)
                found, rows, release_us = _fit_servers(found, rows, release_us, target.hardware, tally)
            _describe(found.at(rows), tally, spread, driven is not None, together)
        if isinstance(found, TokenRequests):
            workload = _streamed(catalogue, found, rows, release_us, cache, split, tally)
        elif driven:
            workload = driven.workload(found, rows, release_us)
        elif catalogue:
            workload = catalogue.workload(found, rows, release_us, classes, tally)
        else:
            workload = workload_of(found, rows, release_us, classes)
    except QuestionError as error:
        if error.argument:
            raise
        why = "".join(f"; left out: {count:,} {reason}" for reason, count in tally.left_out.most_common(1))
        raise InputError(str(files[0]), None, "rows", f"{error}{why}") from None
    assert_valid(target, workload)
    return Imported(chosen, tuple(files), tally, target, workload, span, rate_factor, minimised)


def _streamed(
    catalogue: Catalogued | None,
    found: TokenRequests,
    rows: Ints,
    release_us: Ints,
    cache: Cache,
    split: bool,
    tally: Tally,
) -> Workload:
    """Return the requests that a catalogue has a stream for as jobs, prefill apart from decode if they are split."""
    if catalogue is None:
        raise ValueError("requests with tokens take a catalogue")
    if split and found.session is not None:
        raise QuestionError("is for jobs that are one request; allowed is without session=", "split")
    made = replace(catalogue.streamed(found, rows, release_us, cache, tally), split=split)
    tally.notes += [_APART] if split else []
    return made


def _assert_fits(
    chosen: Format,
    catalogue: Catalogued | None,
    cache: Cache,
    split: bool,
    runtime_classes: str,
    rate_factor: Fraction,
) -> None:
    """Refuse what the format cannot do, and a rate that nothing can."""
    if cache != "none" and chosen.name != TOKENS:
        raise QuestionError(f"{cache} is about tokens; allowed is with the format tokens", "cache")
    if split and chosen.name != TOKENS:
        raise QuestionError("is about tokens; allowed is with the format tokens", "split")
    if chosen.name == TOKENS and (catalogue is None or runtime_classes != "auto"):
        problem = "tokens takes a catalogue that says how engines serve the models, and no runtime classes"
        raise QuestionError(f"{problem}; add --catalogue FILE (truenorth fit writes one), and leave the others out")
    if not 0 < rate_factor <= MAX_JOBS:
        allowed_is = f"allowed is up to {MAX_JOBS}, above 0"
        raise QuestionError(f"{float(rate_factor):g} is out of range; {allowed_is}", "rate_factor")


def _refuse_other_times(found: Requests | DagJobs | TokenRequests, brought: Target | None) -> None:
    """Refuse run times that are not the log's where failed jobs are to end by them."""
    if isinstance(found, Requests) and found.failed is not None and brought is not None:
        raise QuestionError("failed= is about the log's run times; allowed is without --workflows and --catalogue")


def _describe(asked: Requests | TokenRequests, tally: Tally, spread: bool, driven: bool, gangs: bool) -> None:
    """Say what a person should know of the requests of a window: their clock, jobs on several GPUs, and who asks."""
    told = "" if spread else coarse(asked.release_us)
    tally.notes += [told] if told else []
    gpus = asked.gpus if isinstance(asked, Requests) else None
    if gpus is not None and (gpus > 1).any() and not driven:
        wide = f"{int((gpus > 1).sum()):,} of {len(gpus):,} jobs ran on several GPUs (up to {gpus.max():,})"
        if gangs:
            tally.notes.append(f"{wide} and take them together; no job has a model")
        else:
            tally.warnings.append(f"{wide} {_SPLIT}")
    if isinstance(asked, Requests) and asked.failed is not None:
        attempts = attempts_of(asked)
        work_us = asked.runtime_us * (1 if gpus is None else gpus)
        if attempts is None:
            tally.notes.append(f"{_failures(asked.failed, work_us, 'jobs fail and weigh 0; they')}")
        else:
            made = attempts.row
            tally.notes.append(_failures(asked.failed[made], work_us[made], "attempts fail; they"))
            tally.notes += say_attempts(attempts, asked.failed)
    if asked.user is not None:
        tally.notes.append(_users(asked.user))


_USUAL_SERVER = 8
"""GPUs of a server where the documented cluster has too few for the widest job."""


def _wide_enough(target: Documented, widest: int, tally: Tally) -> Documented:
    """Return a cluster on which the widest job fits, unless somebody asked for the one that there is."""
    hardware = target.hardware
    if target.asked_for or widest <= hardware.gpus:
        return target
    held = max(hardware.gpus_per_server, min(_USUAL_SERVER, widest))
    servers = max(hardware.servers, -(-widest // held))
    assumed = f"{servers:,} servers of {held} are assumed (--servers, --gpus-per-server)"
    tally.notes.append(f"the widest job takes {widest:,} GPUs: {assumed}")
    return replace(target, hardware=replace(hardware, servers=servers, gpus_per_server=held))


def _fit_servers(
    found: Requests, rows: Ints, release_us: Ints, hardware: Hardware, tally: Tally
) -> tuple[Requests, Ints, Ints]:
    """Give runs wider than a server whole servers, and leave out those that are wider than the cluster.

    Raises
    ------
    QuestionError
        If nothing is left.
    """
    gpus, held = np.asarray(found.gpus), hardware.gpus_per_server
    whole = np.where(gpus > held, -(-gpus // held) * held, gpus)
    fits = whole[rows] <= hardware.gpus
    widened = int((fits & (whole[rows] > gpus[rows])).sum())
    if widened:
        tally.warnings.append(f"jobs that take whole servers of {held} GPUs, more than in the log: {widened:,}")
    if not fits.all():
        most = f"jobs left out that take more than the {hardware.gpus} GPUs that there are (--servers gives more)"
        tally.warnings.append(f"{most}: {int((~fits).sum()):,}")
    if not fits.any():
        raise QuestionError(f"every job takes more than {hardware.gpus} GPUs; allowed are more servers", "servers")
    return replace(found, gpus=whole), rows[fits], release_us[fits]


def _failures(failed: NDArray[np.bool_], work_us: Ints, they: str) -> str:
    """Return how many jobs fail, and how much GPU-time they take, in words."""
    share = float(work_us[failed].sum()) / float(work_us.sum())
    return f"{int(failed.sum()):,} of {len(failed):,} {they} take {share:.2%} of the GPU-time"


def _users(asking: Texts) -> str:
    """Return who asks for how many of the requests, in words."""
    counts = Counter(asking.tolist()).most_common()
    shares = [f"{user} {count / len(asking):.1%}" for user, count in counts[:LISTED_USERS]]
    others = f" and {len(counts) - LISTED_USERS:,} more" if len(counts) > LISTED_USERS else ""
    return f"requests are of {len(counts):,} {'user' if len(counts) == 1 else 'users'}: {', '.join(shares)}{others}"


def _document(
    chosen: Format, files: Sequence[Path], tally: Tally, override: Callable[[Hardware], Hardware] | None
) -> Documented:
    documented = chosen.cluster(files, tally)
    hardware = documented if override is None else override(documented)
    if hardware != documented:
        tally.notes.append("cluster and sizes are those asked for, not the documented ones")
    return Documented(hardware, asked_for=override is not None)


def _watched(
    chunks: Iterator[Requests | DagJobs | TokenRequests], tally: Tally, watch: Callable[[int], None]
) -> Iterator[Requests | DagJobs | TokenRequests]:
    for chunk in chunks:
        watch(tally.read)
        yield chunk
