"""The prefixes that one GPU has cached: one definition for the engine and the checker (rule E4).

Visible are the full blocks of prompts that an iteration there has computed. While a request runs, all full blocks of
its prompt are held, each once however many running requests list it; what nobody holds gives way, once all has
happened of an instant, as far as its bytes exceed what is free: the longest unused first, of equals the deepest in its
chain, then in the order of the file. So it never keeps a request or a model from its memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from truenorth.models.prefixes import Chain, Prefixes, with_cached
from truenorth.models.streams import Tokens
from truenorth.models.tables import LARGEST


class PrefixCache:
    """Blocks of prompts that a GPU has, held by running requests or not.

    Invariant: with a block all that come before it in its chain are visible, for who holds one holds these.

    Parameters
    ----------
    prefixes
        The blocks of the instance.
    block_bytes
        Bytes of a block on the GPU, by group.

    Attributes
    ----------
    held_bytes
        Of the blocks that running requests hold.
    """

    __slots__ = (
        "_bytes", "_done", "_free_bytes", "_group", "_holders", "_idle_bytes", "_idle_since", "_noted_us", "_order",
        "_prefixes", "_running", "_visible", "held_bytes",
    )  # fmt: skip

    def __init__(self, prefixes: Prefixes, block_bytes: Sequence[int]) -> None:
        self._prefixes, self._group, self._bytes = prefixes, prefixes.group, block_bytes
        self.clear()

    def clear(self) -> int:
        """Forget everything, for the GPU goes; return the bytes that were held."""
        held = getattr(self, "held_bytes", 0)
        self.held_bytes = self._idle_bytes = 0
        self._visible: set[int] = set()
        self._holders: dict[int, int] = {}
        self._running: dict[int, Chain] = {}
        self._done: dict[int, int] = {}
        self._idle_since: dict[int, int] = {}
        # Since when, and which blocks, the next that gives way last; some of them are held again, or have gone.
        self._order: deque[tuple[int, list[int]]] = deque()
        self._noted_us, self._free_bytes = -1, LARGEST
        return held

    def leading(self, chain: Chain) -> int:
        """Return how many leading blocks of a chain are visible."""
        visible = self._visible
        return next((depth for depth, block in enumerate(chain) if block not in visible), len(chain))

    def coming(self, chain: Chain) -> int:
        """Return how many leading blocks of a chain are visible, or held by who computes them."""
        visible, holders = self._visible, self._holders
        return next(
            (depth for depth, block in enumerate(chain) if block not in visible and block not in holders), len(chain)
        )

    def lacks(self, chain: Chain, free_bytes: int) -> int:
        """Return the bytes that are missing to hold a chain beside what is held already; less than 0: some are left."""
        size, holders = self._size(chain), self._holders
        left = free_bytes - size * len(chain)
        # Only if it matters, for chains are long.
        return -left if left >= 0 else -left - size * sum(block in holders for block in chain)

    def most(self, chain: Chain) -> int:
        """Return the bytes of all blocks of a chain."""
        return self._size(chain) * len(chain)

    def join(self, task: int, tokens: Tokens, chain: Chain, now: int) -> tuple[Tokens, int, int]:
        """Hold the blocks of a request; return its tokens then, how many it found, and the bytes newly held."""
        self._settle(now)
        if not chain:
            return tokens, 0, 0
        cached, taken, holders, idle = self.leading(chain), 0, self._holders, self._idle_since
        for block in chain:
            others = holders.get(block, 0)
            holders[block] = others + 1
            if not others:
                taken += 1
                if block in idle:
                    del idle[block]
                    self._idle_bytes -= self._bytes[self._group[block]]
        self._running[task], self._done[task] = chain, cached
        self.held_bytes += taken * self._size(chain)
        left = with_cached(tokens, cached * self._prefixes.groups[self._group[chain[0]]].tokens)
        return left, tokens.uncached - left.uncached, taken * self._size(chain)

    def compute(self, task: int, tokens: int) -> None:
        """Have the blocks visible of the first so many tokens of a running request's prompt."""
        chain = self._running.get(task, ())
        if chain:
            done = min(len(chain), tokens // self._prefixes.groups[self._group[chain[0]]].tokens)
            if done > self._done[task]:
                self._visible.update(chain[self._done[task] : done])
                self._done[task] = done

    def leave(self, task: int, now: int) -> int:
        """Hold the blocks of a request no more that has ended; return the bytes that nobody holds now."""
        self._settle(now)
        chain = self._running.pop(task, ())
        if not chain:
            return 0
        del self._done[task]
        released, size, holders = list[int](), self._size(chain), self._holders
        for block in chain:
            others = holders[block] - 1
            if others:
                holders[block] = others
            else:
                del holders[block]
                released.append(block)
        if size:  # what takes no room never gives way
            self._idle_since.update(dict.fromkeys(released, now))
            self._line_up(released, now)
        self._idle_bytes += len(released) * size
        self.held_bytes -= len(released) * size
        return len(released) * size

    def _line_up(self, released: list[int], now: int) -> None:
        """Put the blocks of a chain that nobody holds any more behind those that have been unused for longer."""
        if self._order and self._order[-1][0] == now:
            others, depth = self._order[-1][1], self._prefixes.depth
            others.extend(released)
            others.sort(key=lambda block: (depth[block], -block))
        else:
            self._order.append((now, released))

    def forget(self, model: int, now: int) -> None:
        """Forget the blocks of a model that leaves the GPU; no running request needs it."""
        self._settle(now)
        leave = {index for index, group in enumerate(self._prefixes.groups) if model in group.models}
        gone = [block for block in self._visible if self._group[block] in leave]
        self._visible.difference_update(gone)
        for block in gone:
            if self._idle_since.pop(block, None) is not None:
                self._idle_bytes -= self._bytes[self._group[block]]

    def note(self, now: int, free_bytes: int) -> None:
        """Note what is free beside all that is held, as it stands at an instant; the last word of the instant counts.

        What then gives way is gone for those who come later, and still there for who joins at this very instant.
        """
        self._settle(now)
        self._noted_us, self._free_bytes = now, free_bytes

    def _settle(self, now: int) -> None:
        """Have blocks give way to what an earlier instant has left free."""
        if now <= self._noted_us:
            return
        while self._idle_bytes > self._free_bytes and self._order:
            since, blocks = self._order[0]
            if not blocks:
                self._order.popleft()
                continue
            block = blocks.pop()
            if self._idle_since.get(block) == since:  # else somebody has held it meanwhile, or it has gone
                del self._idle_since[block]
                self._give_way(block)
                self._idle_bytes -= self._bytes[self._group[block]]
        # What ends makes at least as much room as it leaves behind: nothing gives way before the next note.
        self._free_bytes = LARGEST

    def _give_way(self, block: int) -> None:
        """Have a block visible no more that nobody holds."""
        self._visible.discard(block)

    def _size(self, chain: Chain) -> int:
        return self._bytes[self._group[chain[0]]] if chain else 0
