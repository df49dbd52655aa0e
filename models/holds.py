"""KV that is held on a GPU between two requests of a job, while a tool runs or a person thinks (rule E5).

It is what the later request finds cached there. It waits from the end of the earlier one until the later one joins, and
gives way, the longest held first, once all has happened of an instant, as far as its bytes exceed what is free: so it
never keeps a request or a model from its memory, and a GPU that has nothing else is empty. Whose KV has gone computes
its whole prompt. One definition for the engine and the checker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from truenorth.models.prefixes import Chain, Prefixes
from truenorth.models.restrictions import InstanceError
from truenorth.models.streams import StreamClass, Tokens
from truenorth.models.tables import LARGEST
from truenorth.models.workload import Job, MLModel, Task


@dataclass(frozen=True, slots=True)
class Held:
    """What is held for a request: of which stream class and models, and how many tokens of its prompt."""

    stream: int
    models: tuple[int, ...]
    tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class Holds(Prefixes):
    """The KV that is held in an instance; no request lists blocks of its prompt there.

    Parameters
    ----------
    later
        Per request that leaves KV: the one that it is held for.
    held
        Per request that finds KV: what is held for it.
    """

    later: Mapping[int, int]
    held: Mapping[int, Held]

    @classmethod
    def among(cls, classes: Sequence[StreamClass], jobs: Sequence[Job], models: Sequence[MLModel]) -> Holds | None:
        """Return what these jobs hold; None where no edge says so.

        Raises
        ------
        InstanceError
            If KV of some class grows, nodes cache prefixes, or a request finds more than the earlier one leaves.
        """
        holding = {id(job.workflow): _edges(job) for job in jobs}
        if not any(holding.values()):
            return None
        for stream in classes:
            if stream.prefix_block or any(speed.block for speed in stream.speeds.values()):
                problem = f"KV is held between requests, and stream class {stream.name} has kv: grows or prefix_cache"
                raise InstanceError(f"{problem}; allowed is kv: reserved without caches")
        index = {model.name: at for at, model in enumerate(models)}
        number = {stream.name: at for at, stream in enumerate(classes)}
        later, of, first = dict[int, int](), dict[int, Held](), 0
        for job in jobs:
            for before, after in holding[id(job.workflow)]:
                task = job.workflow.tasks[after]
                needs = tuple(index[name] for name in task.models)
                later[first + before] = first + after
                of[first + after] = Held(number[_stream(task).name], needs, _found(job, before, after))
            first += len(job.workflow.tasks)
        return cls(((),) * first, [], (), [], np.zeros(0, np.int64), later, of)


def _edges(job: Job) -> list[tuple[int, int]]:
    """Return the pairs of tasks of a workflow between which KV is held, by their places."""
    flow = job.workflow
    return [(flow.position[edge.source], at) for at, task in enumerate(flow.tasks) for edge in task.inputs if edge.hold]


def _stream(task: Task) -> StreamClass:
    if task.stream is None:
        raise ValueError(f"task {task.name} is no request")
    return task.stream


def _found(job: Job, before: int, after: int) -> int:
    """Return how many tokens a request finds, if they are still there."""
    left, own = (job.tokens_of(job.workflow.tasks[at]) for at in (before, after))
    found = own.prompt - own.uncached
    if found > left.held:
        names = [job.workflow.tasks[at].name for at in (before, after)]
        problem = f"{names[1]} finds {found} tokens cached, and {names[0]} leaves KV of {left.held}"
        raise InstanceError(f"a job of workflow {job.workflow.name}: {problem}; allowed are at most as many")
    return found


class HeldKV:
    """The KV that one GPU holds for requests to come; it is used as the prefixes that a GPU has cached.

    Parameters
    ----------
    holds
        What is held in the instance.
    kv_bytes
        Bytes of KV per token on the GPU, by stream class.

    Attributes
    ----------
    held_bytes
        Of what running requests share: nothing.
    """

    __slots__ = ("_bytes", "_free_bytes", "_holds", "_idle_bytes", "_noted_us", "_since", "held_bytes")

    def __init__(self, holds: Holds, kv_bytes: Sequence[int]) -> None:
        self._holds = holds
        self._bytes = {task: held.tokens * kv_bytes[held.stream] for task, held in holds.held.items()}
        self.held_bytes = 0
        self.clear()

    def clear(self) -> int:
        """Forget everything, for the GPU goes; nothing of it counted as held."""
        self._since: dict[int, int] = {}
        self._idle_bytes = 0
        self._noted_us, self._free_bytes = -1, LARGEST
        return 0

    def lacks(self, chain: Chain, free_bytes: int) -> int:
        """Return the bytes that are missing where so many are left."""
        return -free_bytes

    def most(self, chain: Chain) -> int:
        """Return the bytes of blocks that a request shares: none."""
        return 0

    def join(self, task: int, tokens: Tokens, chain: Chain, now: int) -> tuple[Tokens, int, int]:
        """Let a request take what is held for it; return its tokens then, how many it found, and no bytes besides."""
        self._settle(now)
        if task not in self._holds.held:
            return tokens, 0, 0
        if task not in self._since:
            return tokens._replace(uncached=tokens.prompt), 0, 0
        self._drop(task)
        return tokens, self._holds.held[task].tokens, 0

    def compute(self, task: int, tokens: int) -> None:
        """Take note of nothing: KV is held from the end of a request on."""

    def leave(self, task: int, now: int) -> int:
        """Hold what a request leaves that has ended, if another is to find it; return the bytes that others freed."""
        self._settle(now)
        later = self._holds.later.get(task)
        if later is not None:
            self._since[later] = now
            self._idle_bytes += self._bytes[later]
        return 0

    def forget(self, model: int, now: int) -> None:
        """Forget the KV of a model that leaves the GPU."""
        self._settle(now)
        for task in [task for task in self._since if model in self._holds.held[task].models]:
            self._drop(task)

    def note(self, now: int, free_bytes: int) -> None:
        """Note what is free beside all that runs, as it stands at an instant; the last word of the instant counts."""
        self._settle(now)
        self._noted_us, self._free_bytes = now, free_bytes

    def _settle(self, now: int) -> None:
        """Have KV give way to what an earlier instant has left free."""
        if now <= self._noted_us:
            return
        while self._idle_bytes > self._free_bytes:
            # What takes no room never gives way.
            self._drop(min((since, task) for task, since in self._since.items() if self._bytes[task])[1])
        self._free_bytes = LARGEST

    def _drop(self, task: int) -> None:
        del self._since[task]
        self._idle_bytes -= self._bytes[task]
