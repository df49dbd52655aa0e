"""A GPU that serves a stream: its iterations, alike ones taken in one stride (rules S2 to S4, E1 and E2).

Time goes from boundary to boundary. Whoever decides who joins, the engine or a plan, lets requests join at a boundary
and then asks how far nothing changes; between two changes all iterations do alike. That costs O(log K) a stride, and
two to four strides a request. The clock counts picoseconds from the first join; a boundary's time is that rounded up.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import isqrt
from typing import NamedTuple

from truenorth.models.growing_cache import GrowingCache
from truenorth.models.prefixes import Chain
from truenorth.models.streams import PICOSECONDS, StreamSpeed, Tokens
from truenorth.models.tables import LARGEST


class Stride(NamedTuple):
    """Iterations from a boundary on that do alike: how many, how long the first lasts, how much longer each next."""

    iterations: int
    length_ps: int
    rise_ps: int = 0

    @property
    def length_us(self) -> int:
        """How long the first lasts, in whole microseconds."""
        return -(-self.length_ps // PICOSECONDS)

    def after_ps(self, iterations: int) -> int:
        """Return how long the first so many of them last.

        >>> Stride(3, 10, 2).after_ps(3)
        36
        """
        return iterations * self.length_ps + self.rise_ps * (iterations * (iterations - 1) // 2)

    def within(self, time_ps: int) -> int:
        """Return how many iterations end within a time, were there no limit to them.

        >>> Stride(9, 10, 2).within(35), Stride(9, 10, 2).within(36), Stride(9, 10).within(39)
        (2, 3, 3)
        """
        if not self.rise_ps:
            return time_ps // self.length_ps
        # The largest i with rise i^2 + (2 length - rise) i <= 2 time.
        linear = 2 * self.length_ps - self.rise_ps
        return (isqrt(linear * linear + 8 * self.rise_ps * time_ps) - linear) // (2 * self.rise_ps)


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


class _Prompt(NamedTuple):
    """Tokens that are worked off: of how many so many are left, and output tokens that the request had before."""

    task: int
    left: int
    of: int
    had: int


class Preempted(NamedTuple):
    """A request that is to join again: prompt tokens that were left, and output tokens that it had."""

    task: int
    tokens: Tokens
    left: int
    had: int

    @property
    def of(self) -> int:
        """Tokens that it works off when it joins again: all whose KV it had, or its whole prompt."""
        return self.tokens.prompt + max(0, self.had - 1)


class Back(NamedTuple):
    """A request that joins again, and how many tokens it computes a second time."""

    task: int
    again: int


class Rank(NamedTuple):
    """Where a request stands on its GPU: the lower one goes first, by priority and then as they came."""

    below: int
    came: int


class StreamRun:
    """What a GPU serves from a first join until it is empty.

    Parameters
    ----------
    speed
        How the class runs there.
    now
        When the first request joins.
    cache
        The prefixes of the GPU, where KV grows beside them.
    ranks
        Of all requests that came to a GPU where a higher priority preempts (rule E8); None: none does.

    Attributes
    ----------
    budget
        Prompt tokens that are left in the iteration that begins at the boundary.
    requests
        How many requests it serves.
    preempted
        Who waits to join again, the first one first.
    full
        Whether blocks of KV did not suffice at this boundary, so that somebody was preempted.
    room
        Blocks of KV that there are, where KV grows.
    """

    __slots__ = (
        "_began_us", "_context", "_decodes", "_elapsed_ps", "_fresh", "_iteration", "_phases", "_prompts", "_tokens",
        "_whole", "budget", "cache", "full", "preempted", "ranks", "room", "speed",
    )  # fmt: skip

    def __init__(
        self,
        speed: StreamSpeed,
        now: int,
        room: int = LARGEST,
        cache: GrowingCache | None = None,
        ranks: Mapping[int, Rank] | None = None,
    ) -> None:
        self.speed = speed
        self.room = room
        self.cache = cache
        self.ranks = ranks
        self.budget = speed.chunk
        self.full = False
        self.preempted: list[Preempted] = []
        self._began_us, self._elapsed_ps = now, 0
        self._iteration = 0
        self._tokens: dict[int, Tokens] = {}  # of whom it serves, in the order in which they joined
        self._decodes: list[tuple[int, int]] = []  # after how many iterations it ends, and who
        self._prompts: list[_Prompt] = []  # in order of start
        self._fresh: list[int] = []  # joined at this boundary as a decode, so that their first token is to come
        # A decode has context base + i in iteration i. Of all together: the sum of bases, and for blocks of b tokens
        # the sum of base // b, and how many have which base % b.
        self._context = self._whole = 0
        self._phases = [0] * speed.block

    @property
    def boundary_us(self) -> int:
        """The boundary at which it stands: when the iterations that were taken ended."""
        return self._began_us - (-self._elapsed_ps // PICOSECONDS)

    @property
    def requests(self) -> int:
        """How many requests it serves."""
        return len(self._tokens)

    @property
    def members(self) -> list[int]:
        """Who is served, in the order in which they joined, then who waits to join again."""
        return [*self._tokens, *(request.task for request in self.preempted)]

    def end_us(self, stride: Stride) -> int:
        """Return at which boundary a stride ends."""
        return self._began_us - (-(self._elapsed_ps + stride.after_ps(stride.iterations)) // PICOSECONDS)

    def iterations_until(self, now: int, stride: Stride) -> int:
        """Return after how many iterations of a stride a boundary comes at a time or after it."""
        # A boundary is before it if its clock, rounded up, is: at most a microsecond before it.
        left_ps = (now - 1 - self._began_us) * PICOSECONDS - self._elapsed_ps
        return 0 if left_ps < 0 else stride.within(left_ps) + 1

    def as_it_was(self, stride: Stride, now: int) -> Stride:
        """Return a stride that has ended now: as it was to be, or an iteration that took another time."""
        if stride.iterations > 1 or self.end_us(stride) == now:
            return stride
        return Stride(1, (now - self._began_us) * PICOSECONDS - self._elapsed_ps)

    def wait_until(self, now: int) -> None:
        """Stand at a later boundary, having served nobody meanwhile."""
        self._began_us, self._elapsed_ps, self.full = now, 0, False

    # -- who joins, and who has to leave ----------------------------------------------------------------------------

    def join(self, task: int, tokens: Tokens) -> None:
        """Let a request join at the boundary; there is budget left."""
        self._tokens[task] = tokens
        if tokens.uncached:
            self._read(_Prompt(task, tokens.uncached, tokens.prompt, 0))
            return
        self._fresh.append(task)
        self._decode(task, 0)
        self.budget -= self.speed.shared

    def lacks_blocks(self, tokens: int, shared: int = 0) -> int:
        """Return how many blocks of KV are missing for a request that works off a prompt, all of it counted.

        But for so many tokens that it shares with those that run.
        """
        if not self.speed.block:
            return 0
        return max(0, self._blocks(tokens) - shared // self.speed.block + self.blocks() - self.room)

    def preempt(self) -> list[int]:
        """Have requests leave, the last that joined first, until all others have blocks for their next iteration.

        Where a higher priority preempts the lowest goes first, of equals the last that joined.
        """
        self.full = False
        left = []
        while self.speed.block and self._tokens and self.blocks() > self.room:
            task = next(reversed(self._tokens)) if self.ranks is None else self._lowest_first(self.ranks)[0]
            self.full = True
            left.append(task)
            self.leave(task)
        return left

    def holds(self, task: int, runs: bool) -> bool:
        """Say whether a request runs, or waits to join again."""
        return task in self._tokens if runs else any(each.task == task for each in self.preempted)

    def leave(self, task: int) -> None:
        """Have a request that it serves leave; it waits to join again."""
        tokens = self._tokens.pop(task)
        if self.cache is not None:
            self.cache.preempt(task, self.boundary_us)
        prompt = next((prompt for prompt in self._prompts if prompt.task == task), None)
        if prompt is not None:
            self._prompts.remove(prompt)
            waits = Preempted(task, tokens, prompt.left, prompt.had)
        else:
            ends = next(ends for ends, decode in self._decodes if decode == task)
            self._decodes.remove((ends, task))
            heapify(self._decodes)
            self._count(tokens.held - ends, -1)
            waits = Preempted(task, tokens, 0, tokens.output + self._iteration - ends)
            if task in self._fresh:
                self._fresh.remove(task)
        if self.ranks is None:
            self.preempted.insert(0, waits)
        else:
            ranks = self.ranks
            insort(self.preempted, waits, key=lambda each: ranks[each.task])
        self._renew_budget()

    def rejoin(self, seats: int) -> list[Back]:
        """Let those who were preempted join again, the first one first, as far as budget, seats and blocks allow."""
        back = []
        while self.preempted and not self.full and self.budget > 0 and self.requests < seats:
            if self.missing():
                break
            back.append(self.bring_back())
        return back

    def bring_back(self, place: int = 0) -> Back:
        """Let one who was preempted join again, by the place among these; there is budget left."""
        first = self.preempted.pop(place)
        left = first.of if self.cache is None else self.cache.rejoin(first.task, first.of, self.boundary_us)
        self._tokens[first.task] = first.tokens
        self._read(_Prompt(first.task, left, first.of, first.had))
        return Back(first.task, max(0, left - first.left))

    def missing(self, place: int = 0) -> int:
        """Return how many blocks of KV are missing for the first of those that wait to join again, or another."""
        first = self.preempted[place]
        # Alone it also needs what comes next, or it would be preempted at once, time and again.
        alone = 0 if self._tokens else self._next_token(first)
        shared = 0 if self.cache is None else self.cache.shared_tokens(first.task)
        return self.lacks_blocks(first.of + alone, shared)

    def who_leaves(self, task: int, prompt: int, chain: Chain, seats: int) -> list[int] | None:
        """Return the fewest of lower priority that have to leave for a request to join; None if it cannot even so.

        Budget is left, so that prompts under way take all their blocks in this iteration: the more leave the more room.
        """
        lower, ranks = [], self.ranks
        if ranks is not None and self.speed.block:
            lower = [each for each in self._lowest_first(ranks) if ranks[each].below > ranks[task].below]
        held = self._blocks_of(lower)
        count = bisect_left(
            range(len(lower) + 1), True, key=lambda most: self._has_place(prompt, chain, seats, lower[:most], held)
        )
        return lower[:count] if count <= len(lower) else None

    def who_leaves_for_first(self, seats: int) -> list[int] | None:
        """Return the same for the first of those that wait to join again."""
        first = self.preempted[0]
        chain = () if self.cache is None else self.cache.chain(first.task)
        found = self.who_leaves(first.task, first.of, chain, seats)
        if found is None or len(found) < self.requests:
            return found
        # Alone it also needs what comes next.
        return self.who_leaves(first.task, first.of + self._next_token(first), chain, seats)

    def keeps_out(self, task: int) -> bool:
        """Say whether a request may not join where it is closed: it may if those that wait have a lower priority."""
        if self.full or self.ranks is None:
            return True
        return self.ranks[self.preempted[0].task].below <= self.ranks[task].below

    def _lowest_first(self, ranks: Mapping[int, Rank]) -> list[int]:
        """Return who is served, the lowest priority first, of equals who joined last."""
        order = list(reversed(self._tokens))
        order.sort(key=lambda task: -ranks[task].below)  # equals stay as they are
        return order

    def _has_place(
        self, prompt: int, chain: Chain, seats: int, without: Sequence[int], held: Mapping[int, int]
    ) -> bool:
        """Say whether a seat and blocks are left for a prompt, were some not served who hold so many blocks each."""
        size, cache = self.speed.block, self.cache
        if self.requests - len(without) >= seats:
            return False
        if not size:
            return True
        needed = self.blocks() + self._blocks(prompt) - sum(held[task] for task in without)
        if cache is not None:
            needed += (cache.shared_by(without) - cache.shared_without(chain, without)) // size
        return needed <= self.room

    def _blocks_of(self, tasks: Sequence[int]) -> dict[int, int]:
        """Return how many blocks of KV requests hold in the iteration to come, what they share counted for each."""
        if not tasks:
            return {}
        tokens = {task: self._tokens[task].held - ends + self._iteration for ends, task in self._decodes}
        tokens |= {prompt.task: prompt.of for prompt in self._prompts}
        return {task: self._blocks(tokens[task]) for task in tasks}

    def _next_token(self, first: Preempted) -> int:
        """Return how many tokens come behind those that a request computes again, at most one."""
        return min(1, first.tokens.held - 1 - first.of)

    @property
    def under_way(self) -> list[tuple[int, int]]:
        """Whose prompts are not finished, and how many of its tokens are there."""
        return [(prompt.task, prompt.of - prompt.left) for prompt in self._prompts]

    @property
    def closed(self) -> bool:
        """Whether nobody else joins at this boundary: somebody was preempted, or waits to join again."""
        return self.full or bool(self.preempted)

    # -- iterations -------------------------------------------------------------------------------------------------

    def stride(self) -> Stride:
        """Return the iterations from the boundary on that do alike, if nobody joins."""
        decodes, context = len(self._decodes), self._context + len(self._decodes) * self._iteration
        # A plan that seats more than there is room for is served on, so that the checker can say what follows.
        seated, rise_ps = min(decodes, self.speed.seats), self.speed.context_ps * decodes
        # Where somebody was preempted others may join at the next boundary already.
        most = 1 if self._fresh or self.full else (self._decodes[0][0] - self._iteration if decodes else 0)
        if not self._prompts:
            return self._within_room(Stride(most, self.speed.iteration_ps(seated, 0, context), rise_ps))
        rest, chunk = self._prompts[0].left, self._chunk
        if len(self._prompts) == 1 and rest >= chunk:
            whole = rest // chunk
            many = min(most, whole) if most else whole
            return self._within_room(Stride(many, self.speed.iteration_ps(seated, chunk, context), rise_ps))
        return Stride(1, self.speed.iteration_ps(seated, chunk - self.budget, context))

    def iteration(self) -> Iteration:
        """Return what the iteration does that begins at the boundary, if nobody joins."""
        prompts, budget = [], self._chunk
        for prompt in self._prompts:
            prompts.append((prompt.task, prompt.left, min(prompt.left, budget)))
            budget -= min(prompt.left, budget)
        alone = [prompt.task for prompt in self._prompts if self._tokens[prompt.task].output == 1]
        read = [task for task, rest, taken in prompts if rest == taken]
        last = [task for task in alone if task in read]
        last += [task for ends, task in self._decodes if ends == self._iteration + 1]
        return Iteration(prompts, [task for _, task in self._decodes], last)

    @property
    def decodes_only(self) -> bool:
        """Whether boundaries inside a stride leave a budget: a prompt of several chunks takes all of it until then."""
        return not self._prompts

    def blocks(self, ahead: int = 0) -> int:
        """Return how many blocks of KV the iteration needs that comes after so many of the stride that begins here."""
        size, count = self.speed.block, len(self._decodes)
        if not size:
            return 0
        whole, part = divmod(self._iteration + ahead, size)
        # Of the decodes: ceil((base + i) / size) each, with base and i taken apart into whole blocks and the rest.
        needed = self._whole + count * (whole + 1) + sum(self._phases[size - part + 1 :])
        needed -= 0 if part else self._phases[0]
        if self.cache is not None:
            needed -= self.cache.saved_tokens // size
        budget = self._chunk * (ahead + 1)
        for prompt in self._prompts:
            taken = min(prompt.left, budget)
            needed += self._blocks(prompt.of - prompt.left + taken)
            budget -= taken
        return needed

    def advance(self, stride: Stride) -> tuple[list[int], list[int]]:
        """Take these iterations; return whose first, and whose last token, comes at the boundary that is reached.

        There may be fewer than `stride` allows, for somebody to join before: nobody's first or last token comes then.
        """
        left, finished = stride.iterations * self._chunk, []
        self._elapsed_ps += stride.after_ps(stride.iterations)
        self._iteration += stride.iterations
        first, self._fresh = self._fresh, []
        while self._prompts and left:
            prompt = self._prompts[0]
            if prompt.left > left:
                self._prompts[0] = prompt._replace(left=prompt.left - left)
                break
            left -= prompt.left
            del self._prompts[0]
            finished.append(prompt)
        if self.cache is not None:
            self._keep(self.cache, finished)
        ended = []
        while self._decodes and self._decodes[0][0] == self._iteration:
            ends, task = heappop(self._decodes)
            self._count(self._tokens.pop(task).held - ends, -1)
            ended.append(task)
        for task, _, _, had in finished:
            # What was computed again yields no token.
            if not had:
                first.append(task)
            if not had and self._tokens[task].output == 1:
                del self._tokens[task]
                ended.append(task)
            else:
                self._decode(task, had or 1)
        if self.cache is not None:
            for task in ended:
                self.cache.leave(task, self.boundary_us)
        self._renew_budget()
        # A node that serves nobody drops its fraction, though somebody may wait to join again.
        if not self._tokens:
            self.wait_until(self.boundary_us)
        return first, ended

    def _keep(self, cache: GrowingCache, finished: list[_Prompt]) -> None:
        """Have the blocks visible that iterations have computed, in the order in which prompts were worked off."""
        cache.settle(self.boundary_us)
        for prompt in (*finished, *self._prompts):
            cache.compute(prompt.task, prompt.of - (0 if prompt in finished else prompt.left))

    @property
    def _chunk(self) -> int:
        """Prompt tokens of an iteration; at least one, should a plan seat more than there is room for."""
        return max(1, self.speed.chunk - len(self._decodes)) if self.speed.shared else self.speed.chunk

    def _renew_budget(self) -> None:
        """Give the iteration that begins at the boundary its budget, of which prompts under way take their part."""
        self.budget = max(0, self._chunk - sum(prompt.left for prompt in self._prompts))

    def _read(self, prompt: _Prompt) -> None:
        self.budget -= min(prompt.left, self.budget)
        self._prompts.append(prompt)

    def _decode(self, task: int, had: int) -> None:
        """Have a request decode from the boundary on that has had so many output tokens."""
        tokens = self._tokens[task]
        ends = self._iteration + tokens.output - had
        heappush(self._decodes, (ends, task))
        self._count(tokens.held - ends, 1)

    def _count(self, base: int, by: int) -> None:
        """Count the context of a decode, or count it no more."""
        self._context += by * base
        if self.speed.block:
            self._whole += by * (base // self.speed.block)
            self._phases[base % self.speed.block] += by

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.speed.block)

    def _within_room(self, stride: Stride) -> Stride:
        """Return as much of a stride as there are blocks of KV for; at least an iteration."""
        if not self.speed.block or self.blocks(stride.iterations - 1) <= self.room:
            return stride
        # More iterations never need fewer blocks.
        enough, short = 1, stride.iterations
        while short - enough > 1:
            middle = (enough + short) // 2
            enough, short = (middle, short) if self.blocks(middle - 1) <= self.room else (enough, middle)
        return stride._replace(iterations=enough)
