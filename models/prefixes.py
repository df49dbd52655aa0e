"""Prompts in blocks, for caches of prefixes per node (rule E4): which full blocks a request has, and who has them, too.

A block is known by its number in the log and by all that comes before it, so that equal numbers behind different
prefixes are different blocks; and by stream class and models, since KV of one model is of no use to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from truenorth.models.restrictions import InstanceError
from truenorth.models.streams import StreamClass, Tokens
from truenorth.models.tables import Ints
from truenorth.models.workload import Job, MLModel

Chain = tuple[int, ...]
"""The full blocks of a prompt, leading first."""


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """Blocks of one stream class and one set of models; tokens of each."""

    stream: int
    models: tuple[int, ...]
    tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class Prefixes:
    """The blocks of an instance, numbered as they first occur in its jobs.

    Parameters
    ----------
    chains
        Per task: its full blocks; () for what is no request, has none, or is of a class without caches.
    group
        Per block: its group.
    groups
        Class, models and size of blocks.
    depth
        Per block: how many come before it in its chain.
    listed
        Per block: how many requests list it.
    """

    chains: tuple[Chain, ...]
    group: list[int]
    groups: tuple[BlockGroup, ...]
    depth: list[int]
    listed: Ints

    @classmethod
    def of(
        cls, classes: Sequence[StreamClass], jobs: Sequence[Job], models: Sequence[MLModel], prompt: Ints
    ) -> Prefixes | None:
        """Return the blocks of these jobs; None where no class has caches.

        Raises
        ------
        InstanceError
            If KV of one class grows and that of another does not, a block of a prompt does not consist of whole blocks
            of KV, or a request has more blocks than its prompt.
        """
        cached = [stream for stream in classes if stream.prefix_block]
        if not cached:
            return None
        every = [(stream, speed) for stream in classes for speed in stream.speeds.values()]
        grows, stays = ([stream.name for stream, speed in every if (speed.block > 0) is how] for how in (True, False))
        if grows and stays:
            problem = f"stream class {cached[0].name} has prefix_cache: node, and KV of {grows[0]} grows"
            raise InstanceError(f"{problem} where that of {stays[0]} is reserved; allowed is one of both beside caches")
        for stream, speed in every:
            if speed.block and stream.prefix_block % speed.block:
                problem = f"stream class {stream.name} has blocks of prompt of {stream.prefix_block} tokens, and of KV"
                raise InstanceError(f"{problem} of {speed.block}; allowed is a multiple of these")
        return _Numbering(classes, models).number(jobs, prompt)

    def shared(self, task: int) -> int:
        """Return how many leading blocks of a request another request lists, too: whatever is cached is among them."""
        return sum(1 for block in self.chains[task] if self.listed[block] > 1)

    def size(self, task: int) -> int:
        """Return the tokens of each block of a request; 0 if it has none."""
        chain = self.chains[task]
        return self.groups[self.group[chain[0]]].tokens if chain else 0

    def least(self, task: int, tokens: Tokens) -> Tokens:
        """Return the tokens of a request with as few uncached as any cache could leave it."""
        return with_cached(tokens, self.shared(task) * self.size(task))


def with_cached(tokens: Tokens, cached: int) -> Tokens:
    """Return the tokens of a request of whose prompt so many are cached: at least one is computed.

    >>> with_cached(Tokens(1024, 1024, 5), 1024)
    Tokens(prompt=1024, uncached=1, output=5)
    """
    return tokens._replace(uncached=max(1, tokens.prompt - cached)) if cached else tokens


class _Numbering:
    """Numbers blocks as they occur."""

    def __init__(self, classes: Sequence[StreamClass], models: Sequence[MLModel]) -> None:
        self._classes = {stream.name: index for index, stream in enumerate(classes)}
        self._models = {model.name: index for index, model in enumerate(models)}
        self._groups: dict[BlockGroup, int] = {}
        # By the block before it, -1 - group at the head, and its number in the log.
        self._number: dict[tuple[int, int], int] = {}
        self._group: list[int] = []
        self._depth: list[int] = []

    def number(self, jobs: Sequence[Job], prompt: Ints) -> Prefixes:
        """Return the blocks of these jobs."""
        chains: list[Chain] = []
        prompts = iter(prompt.tolist())
        for job in jobs:
            for task in job.workflow.tasks:
                tokens, size = next(prompts), 0 if task.stream is None else task.stream.prefix_block
                blocks = job.blocks_of(task) if size else ()
                if blocks and len(blocks) > -(-tokens // size):
                    problem = f"task {task.name} of a job of {job.workflow.name} lists {len(blocks)} blocks"
                    raise InstanceError(f"{problem} of {size} tokens; allowed are at most those of its {tokens} tokens")
                full = blocks[: tokens // size] if size else ()
                chains.append(self._chain(task.stream, task.models, full) if full and task.stream is not None else ())
        listed = np.bincount(
            np.array([block for chain in chains for block in chain], np.int64), minlength=len(self._group)
        )
        return Prefixes(tuple(chains), self._group, tuple(self._groups), self._depth, listed.astype(np.int64))

    def _chain(self, stream: StreamClass, models: tuple[str, ...], blocks: Sequence[int]) -> Chain:
        of = BlockGroup(self._classes[stream.name], tuple(self._models[name] for name in models), stream.prefix_block)
        group = self._groups.setdefault(of, len(self._groups))
        before, number, found = -1 - group, self._number, []
        for block in blocks:
            before = number.setdefault((before, block), len(number))
            found.append(before)
        # New ones stand together at the end of a chain.
        new = len(number) - len(self._group)
        self._group.extend([group] * new)
        self._depth.extend(range(len(blocks) - new, len(blocks)))
        return tuple(found)
