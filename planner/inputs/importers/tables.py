"""What readers yield: columns of requests, or jobs that are whole workflows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from truenorth.executor.policies.options import count, duration, option
from truenorth.models.errors import QuestionError
from truenorth.models.instance import Ints
from truenorth.models.scenario.errors import FieldError, Where, quote
from truenorth.models.scenario.quantities import MAX_TIME_US
from truenorth.models.workload import Task, Workflow, WorkflowCycleError

Texts: TypeAlias = NDArray[np.object_]
"""An array of Python strings."""
_MOST_SHOWN = 6


class Columns:
    """What readers yield of requests: columns with one entry per request, in any order.

    A reader gives a column for all chunks or for none, but those with a default as it finds them.
    """

    __slots__ = ()
    release_us: Ints

    def _columns(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(cast("Any", self))}

    def refuse_ragged(self) -> None:
        """Refuse columns of different lengths; ValueError."""
        columns = [value for value in self._columns().values() if isinstance(value, np.ndarray)]
        if any(len(column) != len(self.release_us) for column in columns):
            raise ValueError("every column of requests has one entry per request")

    def at(self, rows: Ints | NDArray[np.bool_]) -> Self:
        """Return some of the requests."""
        return type(self)(**{name: _take(value, rows) for name, value in self._columns().items()})

    @classmethod
    def join(cls, chunks: Sequence[Self]) -> Self:
        """Return all requests of some chunks, at least one."""
        made: dict[str, Any] = {}
        for name in chunks[0]._columns():
            values = [getattr(chunk, name) for chunk in chunks]
            given = next((value for value in values if value is not None), None)
            if isinstance(given, Mapping):
                made[name] = {key: np.concatenate([value[key] for value in values]) for key in given}
            elif isinstance(given, np.ndarray):
                made[name] = np.concatenate(
                    [
                        np.full(len(chunk.release_us), _DEFAULTS[name]) if value is None else value
                        for value, chunk in zip(values, chunks, strict=True)
                    ]
                )
            else:
                made[name] = given
        return cls(**made)


@dataclass(frozen=True, slots=True, eq=False)
class Requests(Columns):
    """Requests that each run one model: one entry per request in every column, in any order.

    Parameters
    ----------
    release_us
        Microseconds since 1970 (UTC) in a dated format, else since the zero of the trace's clock. Shape [requests].
    model
        Name of the model that the request needs; empty: none. Shape [requests].
    runtime_us
        At least 1. Shape [requests].
    deadline_us
        Relative to the release, -1 for none; None if no request has one. Shape [requests].
    gpus
        How many GPUs run the request, each for its run time; None: one each. Shape [requests].
    split
        Whether requests on several GPUs become as many tasks side by side, which need not run together.
    share
        Of a GPU's compute, in parts of `WHOLE`; None, with the next two: each request has its GPU to itself.
        Shape [requests].
    memory_bytes
        Held while a request runs. Shape [requests].
    batch_us
        Run time of a batch of requests like this one by size, 2 and above, not falling; empty: they run alone. Each of
        shape [requests].
    weight
        Of each request; None: 1. Shape [requests].
    tokens_in, tokens_out
        How many go in, and how many come out; both or neither. Shape [requests].
    by_kind
        Run times per kind of GPU, in place of `runtime_us`. Each of shape [requests].
    user
        Who asks, for the summary. Shape [requests].
    timed
        Whether the log has run times at all; without, `runtime_us` says nothing, and only a catalogue helps.
    failed
        Which failed in the log, where they count all the same; None: no such option. Shape [requests].
    stopped
        Which of them failed for good, and so are stopped early; None: none is. Shape [requests].
    tries_us
        How long after a failed request another of its key may be its retry; None: each is a job by itself.
    key, end_us
        Whose retries those of one key are, and when each ended, by the clock of releases; both with `tries_us`. Shape
        [requests].
    file, line
        Where each stands; None: not known. Shape [requests] of the lines.
    """

    release_us: Ints
    model: Texts
    runtime_us: Ints
    deadline_us: Ints | None = None
    gpus: Ints | None = None
    share: Ints | None = None
    memory_bytes: Ints | None = None
    batch_us: Mapping[int, Ints] = field(default_factory=dict)
    weight: NDArray[np.float64] | None = None
    tokens_in: Ints | None = None
    tokens_out: Ints | None = None
    by_kind: Mapping[str, Ints] = field(default_factory=dict)
    user: Texts | None = None
    timed: bool = True
    split: bool = False
    failed: NDArray[np.bool_] | None = None
    stopped: NDArray[np.bool_] | None = None
    tries_us: int | None = None
    key: Texts | None = None
    end_us: Ints | None = None
    file: str = ""
    line: Ints | None = None

    def __post_init__(self) -> None:
        self.refuse_ragged()

    @property
    def gangs(self) -> bool:
        """Whether some request runs on several GPUs together."""
        return not self.split and self.gpus is not None and bool((self.gpus > 1).any())


@dataclass(frozen=True, slots=True, eq=False)
class TokenRequests(Columns):
    """Requests to language models: one entry per request in every column, in any order.

    Parameters
    ----------
    release_us
        As of `Requests`. Shape [requests].
    model
        Empty where the log names none. Shape [requests].
    prompt, output
        Tokens that go in and come out, at least 1. Shape [requests].
    workflow, user
        What asks, and who; None: the log does not say. Shape [requests].
    blocks
        Hashes of the blocks of each prompt, in order; None: the log has none. Shape [requests].
    file, line
        Where each stands. Shape [requests].
    prompt_column
        How errors name the prompts.
    block_tokens
        Tokens of a block.
    session, end_us
        What calls follow each other, empty where it is none, and when each ended, by the clock of releases; None, both:
        every request is a job by itself. Shape [requests].
    cached
        Prompt tokens that the call before it left; None: none are said to be. Shape [requests].
    """

    release_us: Ints
    model: Texts
    prompt: Ints
    output: Ints
    workflow: Texts | None
    user: Texts | None
    blocks: Texts | None
    file: Texts
    line: Ints
    prompt_column: str
    block_tokens: int
    session: Texts | None = None
    end_us: Ints | None = None
    cached: Ints | None = None

    def __post_init__(self) -> None:
        self.refuse_ragged()


_DEFAULTS = {"deadline_us": -1, "gpus": 1}
"""What requests of a chunk without the column have, where other chunks have it."""


def _take(value: Any, rows: Ints | NDArray[np.bool_]) -> Any:
    """Return some entries of a column, or of a mapping to columns; what is neither stays."""
    if isinstance(value, Mapping):
        return {key: column[rows] for key, column in value.items()}
    return value[rows] if isinstance(value, np.ndarray) else value


@dataclass(frozen=True, slots=True)
class DagJobs:
    """Jobs that are DAGs: the workflow and the release of each, in any order.

    Equal workflows may be one object or several; what counts is their names, which must differ where they do.
    """

    workflows: tuple[Workflow, ...]
    release_us: Ints

    def __post_init__(self) -> None:
        if len(self.workflows) != len(self.release_us):
            raise ValueError("every job has a workflow and a release")


@dataclass(frozen=True, slots=True)
class DAGOptions:
    """Which jobs a file of workflows without arrivals makes.

    Parameters
    ----------
    copies
        How many jobs of each workflow.
    interval
        Time from one release to the next, in the order of the files; 0: all are released at once.
    """

    copies: int = option(1, count)
    interval: int = option(0, duration)

    def jobs(self, workflows: Sequence[Workflow], before: int) -> DagJobs:
        """Return the jobs of workflows of which others, `before` in number, come earlier.

        Raises
        ------
        QuestionError
            If the last release is too late.
        """
        first, last = before * self.copies, (before + len(workflows)) * self.copies
        if last * self.interval > MAX_TIME_US:
            raise QuestionError(f"releases go beyond {MAX_TIME_US} us; allowed are fewer copies or a shorter interval")
        copied = tuple(workflow for workflow in workflows for _ in range(self.copies))
        return DagJobs(copied, np.arange(first, last, dtype=np.int64) * self.interval)


def build_workflow(name: str, tasks: Sequence[Task], where: Mapping[str, Where]) -> Workflow:
    """Return tasks as a workflow.

    Parameters
    ----------
    where
        The way to each task, by name.

    Raises
    ------
    FieldError
        At a task of a cycle, if there is one.
    """
    try:
        return Workflow(name, tuple(tasks))
    except WorkflowCycleError as error:
        way = " -> ".join(quote(task) for task in error.cycle[:_MOST_SHOWN])
        way += " -> ..." if len(error.cycle) > _MOST_SHOWN else ""
        raise FieldError(where[error.cycle[0]], f"is part of a cycle: {way}; allowed is a DAG") from None
