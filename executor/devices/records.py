"""What happened on devices as measured: runs, loads, transfers, failures, digests; and when a GPU counts as failing."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from truenorth.models import NONE, Residency, Timeline


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """A run, a load or a transfer. Times are microseconds since the start of the window.

    Parameters
    ----------
    subject
        The task, the model, or the task whose output travels.
    gpu
        Where it took place; of a transfer, where it arrived.
    ordered_us
        The instant whose events allowed it.
    start_us, end_us
        When the device was busy with it.
    expected_us
        How long it should have taken.
    size_bytes
        What was copied or sent; 0 for a run.
    target
        The task to which an output travels, else None.
    error
        Why it failed, or None.
    moves_us
        Of a load: how much of it models took to make way.
    ahead
        Of a run: whether it lay on its GPU before what it follows there had ended.
    """

    subject: int
    gpu: int
    ordered_us: int
    start_us: int
    end_us: int
    expected_us: int
    size_bytes: int = 0
    target: int | None = None
    error: str | None = None
    moves_us: int = 0
    ahead: bool = False

    @property
    def took_us(self) -> int:
        """How long the device was busy with it."""
        return self.end_us - self.start_us

    @property
    def dispatch_us(self) -> int:
        """From the instant at which it was possible to its start on the device."""
        return self.start_us - self.ordered_us


@dataclass(frozen=True, slots=True)
class IterationRecord(DeviceRecord):
    """An iteration of a GPU that serves requests; its subject is their stream class.

    Parameters
    ----------
    prompt_tokens
        Tokens of prompts that it worked off.
    decodes
        Requests that got one token more.
    """

    prompt_tokens: int = 0
    decodes: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job failed: the first of its tasks that did; no GPU where none was left for it."""

    job: int
    task: int
    gpu: int | None
    at_us: int
    message: str


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of another machine beside that of this one.

    Parameters
    ----------
    node
        Its name.
    ahead_us
        By how much it is ahead of this one's: measured half-way through the shortest of several round trips.
    uncertainty_us
        How far that may be off: half of that round trip.
    """

    node: str
    ahead_us: float
    uncertainty_us: float


SET_ASIDE = "GPU set aside"
STARTED_AGAIN = "process started again"


@dataclass(frozen=True, slots=True)
class Fault:
    """A load or a transfer that failed, though tried again; a process that was STARTED_AGAIN; a GPU SET_ASIDE."""

    what: str
    gpu: int
    at_us: int
    message: str


@dataclass(frozen=True, slots=True)
class MovedModel:
    """A model that had to make way inside a GPU's memory, because what was free lay in pieces."""

    model: int
    gpu: int
    at_us: int


@dataclass(slots=True)
class Records:
    """Everything that was measured, in the order in which it ended."""

    runs: list[DeviceRecord] = field(default_factory=list)
    loads: list[DeviceRecord] = field(default_factory=list)
    transfers: list[DeviceRecord] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    moves: list[MovedModel] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    iterations: list[IterationRecord] = field(default_factory=list)


def measured(ordered: Timeline, records: Records) -> Timeline:
    """Return the timeline with the starts and ends that the devices measured in place of the engine's.

    The engine dates a start back to the instant that allowed it. What the devices measured lies inside that, so it
    breaks no rule that the engine kept.
    """
    start, end = np.array(ordered.start_us), np.array(ordered.end_us)
    for run in records.runs:
        start[run.subject], end[run.subject] = run.start_us, run.end_us
    return replace(ordered, start_us=start, end_us=end, residencies=tuple(_residencies(ordered, records.loads)))


def _residencies(ordered: Timeline, loads: Sequence[DeviceRecord]) -> Iterator[Residency]:
    found: defaultdict[tuple[int, int], deque[DeviceRecord]] = defaultdict(deque)
    for load in loads:
        found[load.gpu, load.subject].append(load)
    for residency in ordered.residencies:
        if residency.initial:
            yield residency
        else:
            load = found[residency.gpu, residency.model].popleft()
            yield replace(residency, load_start_us=load.start_us, ready_us=load.end_us)


TRIES = 3
"""How often a load or a transfer is tried, a process started again, and how many runs in a row may fail on a GPU."""


class Faults:
    """Counts, per GPU, the runs that have failed in a row, and per process why it had to be started again.

    Where all of them were the same task of a workflow, the task is at fault and not the GPU, unless others run it well.
    """

    def __init__(self) -> None:
        self._failed: dict[int, list[int]] = {}
        self._ended: dict[int, list[int]] = {}
        self._well_on: dict[int, set[int]] = {}

    def note_run(self, gpu: int, template: int) -> bool:
        """Take note of a run that failed; say whether the GPU is to be set aside.

        >>> faults = Faults()
        >>> [faults.note_run(0, template) for template in (1, 1, 1, 2)]
        [False, False, False, True]
        """
        failed = self._failed.setdefault(gpu, [])
        failed.append(template)
        return len(failed) >= TRIES and len(set(failed)) > 1

    def note_ending(self, gpu: int, templates: Sequence[int]) -> bool:
        """Take note of a process that has ended, and of the runs it was at; say whether to do without it.

        Parameters
        ----------
        gpu
            The first of its GPUs.

        >>> faults = Faults()
        >>> [faults.note_ending(0, [template]) for template in (1, 1, 1, 1, 2)]
        [False, False, False, False, True]
        >>> [faults.note_ending(1, ()) for _ in range(4)]
        [False, False, False, True]
        """
        ended = self._ended.setdefault(gpu, [])
        ended.append(templates[0] if templates else NONE)
        elsewhere = self._well_on.get(ended[-1], set()) - {gpu}
        return len(ended) > TRIES and (len(set(ended)) > 1 or NONE in ended or bool(elsewhere))

    def note_success(self, gpu: int, template: int) -> None:
        """Take note of a run that succeeded."""
        self._failed.pop(gpu, None)
        self._well_on.setdefault(template, set()).add(gpu)


@dataclass(frozen=True, slots=True)
class Digest:
    """An output's digest.

    Parameters
    ----------
    bits
        Equal for outputs of the same bits, shape and type, so that not-a-number equals itself.
    finite
        Whether every entry is a finite number.
    numbers
        Whether none is not-a-number.
    """

    bits: str
    finite: bool
    numbers: bool
