"""A GPU that serves a stream: its iterations, equal ones taken in one stride (rules S2 to S4).

Time goes from boundary to boundary. Whoever decides who joins, the engine or a plan, lets requests join at a boundary
and then asks how far nothing changes; between two changes all iterations are alike. That costs O(log K) a stride, and
two to four strides a request.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from truenorth.models.streams import StreamSpeed


class Stride(NamedTuple):
    """Equal iterations from a boundary on: how many, and how long each lasts."""

    iterations: int
    length_us: int


class Iteration(NamedTuple):
    """What one iteration does.

    Parameters
    ----------
    prompts
        Whose prompts are worked off: who, tokens of it that are left, and how many of these the iteration takes.
    decodes
        Who gets one token more.
    last
        Whose last token comes at its end.
    """

    prompts: list[tuple[int, int, int]]
    decodes: list[int]
    last: list[int]

    @property
    def members(self) -> list[int]:
        """Everybody who takes part."""
        return [task for task, _, _ in self.prompts] + self.decodes


class StreamRun:
    """What a GPU serves from a first join until it is empty.

    Parameters
    ----------
    speed
        How the class runs there.
    now
        When the first request joins.

    Attributes
    ----------
    boundary_us
        The boundary at which it stands: when the iterations that were taken ended.
    budget
        Prompt tokens that are left in the iteration that begins at the boundary.
    requests
        How many requests it serves.
    """

    __slots__ = (
        "_decodes",
        "_fresh",
        "_full_us",
        "_iteration",
        "_prompts",
        "boundary_us",
        "budget",
        "requests",
        "speed",
    )

    def __init__(self, speed: StreamSpeed, now: int) -> None:
        self.speed = speed
        self.boundary_us = now
        self.budget = speed.chunk
        self.requests = 0
        self._full_us = speed.prefill_us(speed.chunk)
        self._iteration = 0
        self._decodes: list[tuple[int, int]] = []  # after how many iterations it ends, and who
        self._prompts: list[tuple[int, int, int]] = []  # in order of start: who, prompt tokens left, output tokens
        self._fresh: list[int] = []  # joined at this boundary as a decode, so that their first token is to come

    def join(self, task: int, uncached: int, output: int) -> None:
        """Let a request join at the boundary; there is budget left."""
        self.requests += 1
        if uncached:
            self.budget -= min(uncached, self.budget)
            self._prompts.append((task, uncached, output))
        else:
            self._fresh.append(task)
            heappush(self._decodes, (self._iteration + output, task))

    def stride(self) -> Stride:
        """Return how many iterations from the boundary on are alike, if nobody joins, and how long each lasts."""
        # A plan that seats more than there is room for is served on, so that the checker can say what follows.
        step_us = self.speed.tau[min(len(self._decodes), self.speed.seats)]
        most = 1 if self._fresh else (self._decodes[0][0] - self._iteration if self._decodes else 0)
        if not self._prompts:
            return Stride(most, step_us)
        rest = self._prompts[0][1]
        if len(self._prompts) == 1 and rest >= self.speed.chunk:
            whole = rest // self.speed.chunk
            return Stride(min(most, whole) if most else whole, step_us + self._full_us)
        return Stride(1, step_us + self.speed.prefill_us(self.speed.chunk - self.budget))

    def iteration(self) -> Iteration:
        """Return what the iteration does that begins at the boundary, if nobody joins."""
        prompts, budget = [], self.speed.chunk
        for task, rest, _ in self._prompts:
            prompts.append((task, rest, min(rest, budget)))
            budget -= min(rest, budget)
        alone = [task for task, rest, output in self._prompts if output == 1]
        read = [task for task, rest, taken in prompts if rest == taken]
        last = [task for task in alone if task in read]
        last += [task for ends, task in self._decodes if ends == self._iteration + 1]
        return Iteration(prompts, [task for _, task in self._decodes], last)

    @property
    def decodes_only(self) -> bool:
        """Whether boundaries inside a stride leave a budget: a prompt of several chunks takes all of it until then."""
        return not self._prompts

    def advance(self, stride: Stride) -> tuple[list[int], list[int]]:
        """Take these iterations; return whose first token, and whose last, comes at the boundary that is reached.

        There may be fewer than `stride` allows, for somebody to join before: nobody's first or last token comes then.
        """
        chunk, output_of = self.speed.chunk, {}
        self.boundary_us += stride.iterations * stride.length_us
        self._iteration += stride.iterations
        first, self._fresh = self._fresh, []
        left = stride.iterations * chunk
        while self._prompts and left:
            task, rest, output = self._prompts[0]
            if rest > left:
                self._prompts[0] = (task, rest - left, output)
                break
            left -= rest
            del self._prompts[0]
            first.append(task)
            output_of[task] = output
        ended = []
        while self._decodes and self._decodes[0][0] == self._iteration:
            ended.append(heappop(self._decodes)[1])
        for task, output in output_of.items():
            if output == 1:
                ended.append(task)
            else:
                heappush(self._decodes, (self._iteration + output - 1, task))
        self.requests -= len(ended)
        self.budget = chunk - min(self._prompts[0][1], chunk) if self._prompts else chunk
        return first, ended
