"""The tables of an instance about requests of streams: their classes by GPU class, tokens, ties, and where they fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorth.models.cluster import GPU
from truenorth.models.holds import Holds
from truenorth.models.prefixes import Prefixes
from truenorth.models.restrictions import InstanceError
from truenorth.models.streams import Fitted, StreamClass, StreamSpeed, Tokens
from truenorth.models.tables import LARGEST, NEVER, NONE, Ints, as_ints
from truenorth.models.workload import Job, MLModel, Workflow

Speeds = tuple[tuple[StreamSpeed | None, ...], ...]
"""Per stream class and GPU class: how it runs there, None where it cannot."""


class Answers(NamedTuple):
    """Answers of several tokens: the requests that give the first and the last one, and the tokens after the first.

    Most are of one request. Where prefill is apart from decode an answer begins with one request and goes on with
    another: what passes between them, until that has KV and a seat, is time between two tokens. Shape [answers].
    """

    first: Ints
    last: Ints
    steps: Ints


@dataclass(frozen=True, slots=True, eq=False)
class StreamTables:
    """What an instance knows of its requests.

    Parameters
    ----------
    classes
        The stream classes that templates name.
    template
        Per template: its stream class, NONE without one. Shape [templates].
    together
        Per template: offsets of the tasks that are served on the same GPU, itself (0) among them.
    speeds
        Per stream class and GPU class: how it runs there, None where it cannot.
    longest
        Most tokens (n + m) of a request of a stream class on a GPU class while nothing but its models is resident: the
        largest M, and one more than whole blocks hold where KV grows; 0 where it cannot run. Shape [streams, classes].
    prompt, uncached, output
        n, u and m of every task, 0 for what is no request. Shape [tasks].
    first_token
        The task whose first token is its job's, NONE for a job without requests. Shape [jobs].
    kv_edge
        Whether the KV of the source's prompt travels along an edge, in place of given bytes. Shape [edges].
    goes_on
        The request whose answer a task goes on with, as its KV came in and no prompt is left; itself where there is
        none. Shape [tasks].
    prefixes
        Blocks of prompts where nodes cache them (rule E4), or KV that is held between requests (E5); None: nowhere.
    """

    classes: tuple[StreamClass, ...]
    template: Ints
    together: tuple[tuple[int, ...], ...]
    speeds: Speeds
    longest: Ints
    prompt: Ints
    uncached: Ints
    output: Ints
    first_token: Ints
    kv_edge: NDArray[np.bool_]
    goes_on: Ints
    prefixes: Prefixes | None

    @property
    def amended(self) -> bool:
        """Whether a speed says more than rates, steps and KV in full."""
        return any(speed is not None and speed.amended for row in self.speeds for speed in row)

    @classmethod
    def of(
        cls, workflows: Sequence[Workflow], jobs: Sequence[Job], models: Sequence[MLModel], gpus: Sequence[GPU]
    ) -> StreamTables:
        """Return the tables of these jobs; `gpus` has one of each GPU class.

        Raises
        ------
        InstanceError
            If a class is given twice, or nobody says how many tokens a request has.
        """
        classes, template = _classes(workflows)
        weights = {model.name: model.weight_bytes for model in models}
        speeds = tuple(tuple(stream.speed_on(gpu.kind) for gpu in gpus) for stream in classes)
        longest = [
            [longest_on(stream, speed, gpu, weights) for speed, gpu in zip(row, gpus, strict=True)]
            for stream, row in zip(classes, speeds, strict=True)
        ]
        tokens = np.array([tokens for job in jobs for tokens in _tokens(job)], np.int64).reshape(-1, 3)
        prompt, uncached, output = tokens.T.copy()
        edges = [edge.kv for workflow in workflows for task in workflow.tasks for edge in task.inputs]
        return cls(
            classes,
            template,
            tuple(offsets for workflow in workflows for offsets in _ties(workflow)),
            speeds,
            as_ints(longest, "tokens of KV").reshape(len(classes), len(gpus)),
            prompt,
            uncached,
            output,
            _first_tokens(jobs),
            np.array(edges, bool),
            _sources(jobs, uncached) if any(edges) else np.arange(len(prompt)),
            Holds.among(classes, jobs, models) or Prefixes.of(classes, jobs, models, prompt),
        )

    def tokens(self, task: int) -> Tokens:
        """Return the tokens of a request."""
        return Tokens(int(self.prompt[task]), int(self.uncached[task]), int(self.output[task]))

    def answers(self, output: Ints) -> Answers:
        """Return the answers of several tokens, where requests have so many output tokens. Shape of both: [tasks]."""
        first, steps = np.arange(len(output)), output - 1
        ends = np.ones(len(output), np.bool_)
        ends[self.goes_on[self.goes_on != first]] = False
        while ((before := self.goes_on[first]) != first).any():
            first, steps = before, steps + np.where(before == first, 0, output[before])
        last = np.flatnonzero(ends & (steps > 0))
        return Answers(first[last], last, steps[last])

    @property
    def grows(self) -> NDArray[np.bool_]:
        """Whether KV grows. Shape [streams, classes]."""
        return np.array([[speed is not None and speed.block > 0 for speed in row] for row in self.speeds], bool)

    @property
    def fitted(self) -> list[Fitted]:
        """What the step laws of the classes were fitted to, as far as they were."""
        return [law for stream in self.classes for law in stream.fitted]

    @property
    def unlike(self) -> bool:
        """Whether some class runs unlike on two GPU classes."""
        laws = ([speed.content for speed in row if speed is not None] for row in self.speeds)
        return any(law != row[0] for row in laws for law in row)

    @property
    def held(self) -> Ints:
        """Tokens of KV that each task holds while it is served; 0 for what is no request. Shape [tasks]."""
        return self.prompt + self.output

    def fitting(self, task: int, template: int) -> NDArray[np.bool_]:
        """Return on which GPU classes a request fits the KV memory, and so do those tied to it. Shape [classes]."""
        fits = np.ones(self.longest.shape[1], bool)
        for offset in self.together[template]:
            tokens = int(self.prompt[task + offset] + self.output[task + offset])
            fits &= tokens <= self.longest[self.template[template + offset]]
        return fits

    def misfits(self, task_template: Ints, run_us: Ints) -> Ints:
        """Return the requests that fit on no GPU class on which their template can run."""
        held, found = self.held, []
        for template in np.flatnonzero(self.template != NONE).tolist():
            tasks = np.flatnonzero(task_template == template)
            fits = np.broadcast_to(run_us[template] != NEVER, (len(tasks), run_us.shape[1])).copy()
            for offset in self.together[template]:
                fits &= held[tasks + offset][:, None] <= self.longest[self.template[template + offset]][None, :]
            found.append(tasks[~fits.any(axis=1)])
        return np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)


def _classes(workflows: Sequence[Workflow]) -> tuple[tuple[StreamClass, ...], Ints]:
    """Return the stream classes in the order of their first templates, and that of each template, NONE without."""
    position: dict[str, int] = {}
    found: list[StreamClass] = []
    of_template = []
    for stream in (task.stream for workflow in workflows for task in workflow.tasks):
        if stream is None:
            of_template.append(NONE)
            continue
        index = position.setdefault(stream.name, len(found))
        if index == len(found):
            found.append(stream)
        elif found[index] is not stream and found[index].content != stream.content:
            raise InstanceError(f"stream class {stream.name} is given twice, with different content")
        of_template.append(index)
    return tuple(found), np.array(of_template, np.int64)


def longest_on(stream: StreamClass, speed: StreamSpeed | None, gpu: GPU, weights: Mapping[str, int]) -> int:
    """Return the most tokens, n + m, of a request that fits on a GPU beside a class's models and any of its adapters.

    0 if none does.

    Where KV grows, a request never holds its last token, and whole blocks count.
    """
    beside = max((weights[name] for name in stream.adapters), default=0)
    room = gpu.memory_bytes - sum(weights[name] for name in stream.models) - beside
    if speed is None or gpu.slots or room < 0:
        return 0
    most = min(LARGEST, room // speed.kv_bytes) if speed.kv_bytes else LARGEST
    return min(LARGEST, most // speed.block * speed.block + 1) if speed.block else most


def _ties(workflow: Workflow) -> list[tuple[int, ...]]:
    """Return per task the offsets of all that are served on its GPU; (0,) for a task without ties."""
    leader = list(range(len(workflow.tasks)))
    for index in workflow.topological:  # whom a task is tied to comes before it
        tied_to = workflow.tasks[index].tied_to
        if tied_to is not None:
            leader[index] = leader[workflow.position[tied_to]]
    return [
        tuple(other - index for other, theirs in enumerate(leader) if theirs == own) for index, own in enumerate(leader)
    ]


def _tokens(job: Job) -> list[tuple[int, int, int]]:
    try:
        return [(0, 0, 0) if task.stream is None else job.tokens_of(task) for task in job.workflow.tasks]
    except ValueError as error:
        raise InstanceError(f"a job of workflow {job.workflow.name}: {error}") from None


def _first_tokens(jobs: Sequence[Job]) -> Ints:
    """Return the task whose first token is its job's, NONE without requests. Shape [jobs]."""
    found, first_task = [], 0
    for job in jobs:
        position = job.workflow.first_token_task
        found.append(NONE if position is None else first_task + position)
        first_task += len(job.workflow.tasks)
    return np.array(found, np.int64)


def _sources(jobs: Sequence[Job], uncached: Ints) -> Ints:
    """Return the request that each task goes on from: that whose KV it takes in, if it is one and it is enough."""
    found, first_task = np.arange(len(uncached)), 0
    for job in jobs:
        for at, task in enumerate(job.workflow.tasks, first_task):
            moved = [edge.source for edge in task.inputs if edge.kv]
            if len(moved) == 1 and not uncached[at]:
                found[at] = first_task + job.workflow.position[moved[0]]
        first_task += len(job.workflow.tasks)
    return found
