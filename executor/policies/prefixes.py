"""What a router believes that nodes have cached of a prompt: by what it has sent there, or by their caches.

By what it has sent: the blocks that were used last there, as many as the node's memory for KV holds (SGLang's router,
llm-d's approximate scorer). It does not see what answers take of that memory, nor what a node computes too late.
"""

from __future__ import annotations

from truenorth.executor.site import Site
from truenorth.models import NONE
from truenorth.models.prefix_cache import PrefixCache
from truenorth.models.prefixes import Chain


class Prefixes:
    """Prefixes of requests on nodes that cache.

    Parameters
    ----------
    site
        Where requests and caches are.
    precise
        Whether the caches are seen: what is there, or is being computed.
    """

    def __init__(self, site: Site, precise: bool = False) -> None:
        self._site, self._precise = site, precise
        self._sent: list[dict[int, None]] = [{} for _ in range(site.n_gpus)]

    def tokens(self, task: int, gpu: int) -> int:
        """Return how many leading tokens of a request's prompt are believed to be cached on a GPU."""
        chain = self._site.chains[task]
        return self._leading(chain, gpu) * self._size(task) if chain else 0

    def _leading(self, chain: Chain, gpu: int) -> int:
        if self._precise:
            cache = self._site.state[gpu].cache
            return cache.coming(chain) if isinstance(cache, PrefixCache) else 0
        sent = self._sent[gpu]
        return next((depth for depth, block in enumerate(chain) if block not in sent), len(chain))

    def send(self, task: int, gpu: int) -> None:
        """Remember the blocks of a request that goes to a GPU, and forget those that have not been sent for longest."""
        chain, sent = self._site.chains[task], self._sent[gpu]
        # The deepest first: of a chain it is the head that others go on with.
        for block in reversed(chain):
            sent.pop(block, None)
            sent[block] = None
        if chain:
            most = self._site.longest[self._stream(task)][self._site.gpu_class[gpu]] // self._size(task)
            while len(sent) > most:
                del sent[next(iter(sent))]

    def forget(self, gpu: int) -> None:
        """Forget all that was sent to a GPU that goes."""
        self._sent[gpu].clear()

    def _stream(self, task: int) -> int:
        return self._site.stream[self._site.template[task]]

    def _size(self, task: int) -> int:
        stream = self._stream(task)
        return 0 if stream == NONE else self._site.streams[stream].prefix_block
