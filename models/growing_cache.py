"""The prefixes that one GPU has cached where KV grows: rules E2 and E4 together, in the manner of vLLM's V1 scheduler.

A request holds blocks of KV for the tokens that it has computed. What it finds in the cache as it joins it shares with
others; what it computes it has for itself, even if the same block is visible by then. One copy of each block is the one
that is found. It is free once no running request has it, and gives way as any block of a cache does; a request that has
a copy of its own lends that one then. So sharing changes only as somebody joins or leaves, never inside a stride.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from truenorth.models.prefix_cache import PrefixCache
from truenorth.models.prefixes import Chain, with_cached
from truenorth.models.streams import Tokens


class GrowingCache(PrefixCache):
    """Blocks of prompts that a GPU has, beside the blocks that requests take as they grow.

    Invariant: with a block all that come before it in its chain are visible, for who has one has these, too.

    Parameters
    ----------
    prefixes, block_bytes
        As of `PrefixCache`.

    Attributes
    ----------
    saved_tokens
        Tokens of KV that running requests share, counted for each of them but one.
    """

    __slots__ = ("_chains", "_listing", "_own", "saved_tokens")

    def clear(self) -> int:
        """Forget everything, for the GPU goes; what is held is no business of the cache."""
        super().clear()
        self.saved_tokens = 0
        self._chains: dict[int, Chain] = {}
        # By block: how many running requests list it, and which have a copy of their own beside the one that is found.
        self._listing: dict[int, int] = {}
        self._own: dict[int, list[int]] = {}
        return 0

    def coming(self, chain: Chain) -> int:
        """Return how many leading blocks of a chain are visible, or being computed."""
        visible, listing = self._visible, self._listing
        return next(
            (depth for depth, block in enumerate(chain) if block not in visible and block not in listing), len(chain)
        )

    def lacks(self, chain: Chain, free_bytes: int) -> int:
        """Return the bytes that are missing for a request beside those that it shares; less than 0: some are left."""
        # Only if it matters, for chains are long.
        return -free_bytes if free_bytes >= 0 else -free_bytes - self._size(chain) * self._shared(chain)

    def shared_tokens(self, task: int, chain: Chain | None = None) -> int:
        """Return how many tokens of KV a request would share with those that run, were it to join (again)."""
        chain = self._chains[task] if chain is None else chain
        return self._shared(chain) * self._tokens(chain)

    def chain(self, task: int) -> Chain:
        """Return the blocks of a request that has joined and not ended."""
        return self._chains[task]

    def shared_by(self, tasks: Collection[int]) -> int:
        """Return how many of the shared tokens are counted no more once these requests leave."""
        gone, holders = self._lent_to(tasks), self._holders
        sizes = ((block, self._prefixes.groups[self._group[block]].tokens) for block in gone)
        return sum(size * min(gone[block], holders[block] - 1) for block, size in sizes)

    def shared_without(self, chain: Chain, tasks: Collection[int]) -> int:
        """Return how many tokens of KV a request would share with those that run, were these requests not there."""
        gone, holders, own = self._lent_to(tasks), self._holders, self._own
        held = 0
        for block in chain[: self.leading(chain)]:
            copies = holders.get(block, 0) - gone[block] + sum(task not in tasks for task in own.get(block, ()))
            held += copies > 0
        return held * self._tokens(chain)

    def _lent_to(self, tasks: Collection[int]) -> Counter[int]:
        """Return of which blocks these requests hold the copy that is found, and how many of them."""
        held = (
            block
            for task in tasks
            for block in self._running.get(task, ())[: self._done.get(task, 0)]
            if task not in self._own.get(block, ())
        )
        return Counter(held)

    def join(self, task: int, tokens: Tokens, chain: Chain, now: int) -> tuple[Tokens, int, int]:
        """Have a request share what it finds; return its tokens then, and how many it found. It holds nothing yet."""
        self.settle(now)
        self._chains[task] = chain
        left = with_cached(tokens, self._find(task, chain) * self._tokens(chain))
        return left, tokens.uncached - left.uncached, 0

    def rejoin(self, task: int, of: int, now: int) -> int:
        """Have a request share what it finds that was preempted; return what is left of so many tokens to compute."""
        self.settle(now)
        chain = self._chains[task]
        return max(1, of - self._find(task, chain) * self._tokens(chain))

    def compute(self, task: int, tokens: int) -> None:
        """Have a request hold the blocks of the first so many tokens of its prompt, visible unless others are."""
        chain = self._running.get(task, ())
        done = min(len(chain), tokens // self._tokens(chain)) if chain else 0
        for block in chain[self._done[task] : done] if chain else ():
            if block in self._visible:
                self._own.setdefault(block, []).append(task)
            else:
                self._visible.add(block)
                self._holders[block] = 1
            self._done[task] += 1

    def leave(self, task: int, now: int) -> int:
        """Have a request hold nothing more that has ended."""
        self.preempt(task, now)
        del self._chains[task]
        return 0

    def preempt(self, task: int, now: int) -> None:
        """Have a request hold nothing more for now; what nobody else has was used last now."""
        self.settle(now)
        chain = self._running.pop(task, ())
        if not chain:
            return
        for block in chain:
            self._count(block, -1)
        idle = [block for block in chain[: self._done.pop(task)] if self._let_go(block, task)]
        if size := self._size(chain):  # what takes no room never gives way
            self._idle_bytes += size * sum(block not in self._idle_since for block in idle)
            self._idle_since.update(dict.fromkeys(idle, now))
            self._line_up(idle, now)

    def settle(self, now: int) -> None:
        """Have blocks give way to what an earlier instant has left free."""
        self._settle(now)

    def amend(self, free_bytes: int, now: int) -> None:
        """Correct what was noted to be free before now, for a stride has ended sooner than it was to."""
        if self._noted_us < now:
            self._free_bytes = free_bytes

    def _find(self, task: int, chain: Chain) -> int:
        """Have a request hold the visible blocks that lead its chain; return how many these are."""
        if not chain:
            return 0
        found, holders, size = self.leading(chain), self._holders, self._size(chain)
        for block in chain:
            self._count(block, 1)
        for block in chain[:found]:
            others = holders.get(block, 0)
            holders[block] = others + 1
            if others:
                self.saved_tokens += self._tokens(chain)
            elif self._idle_since.pop(block, None) is not None:
                self._idle_bytes -= size
        self._running[task], self._done[task] = chain, found
        return found

    def _let_go(self, block: int, task: int) -> bool:
        """Have a request hold a block no more; say whether no running request holds the copy that is found."""
        holders, own = self._holders, self._own.get(block, [])
        if task in own:
            self._take_own(block, task)
            return block not in holders
        if holders[block] > 1:
            holders[block] -= 1
            self.saved_tokens -= self._prefixes.groups[self._group[block]].tokens
        elif own:
            self._take_own(block, own[0])
        else:
            del holders[block]
            return True
        return False

    def _give_way(self, block: int) -> None:
        """Have a copy give way that nobody holds; who has one of its own lends that from now on."""
        if block in self._own:
            self._take_own(block, self._own[block][0])
            self._holders[block] = 1
        else:
            super()._give_way(block)

    def _take_own(self, block: int, task: int) -> None:
        """Count a request among those no more that have a copy of a block beside the one that is found."""
        self._own[block].remove(task)
        if not self._own[block]:
            del self._own[block]

    def _count(self, block: int, by: int) -> None:
        count = self._listing.get(block, 0) + by
        if count:
            self._listing[block] = count
        else:
            del self._listing[block]

    def _shared(self, chain: Chain) -> int:
        """Return how many of the visible blocks that lead a chain running requests hold."""
        holders = self._holders
        return sum(block in holders for block in chain[: self.leading(chain)]) if holders else 0

    def _tokens(self, chain: Chain) -> int:
        return self._prefixes.groups[self._group[chain[0]]].tokens if chain else 0
