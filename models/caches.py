"""What a GPU keeps of KV beside what requests hold: prefixes, whether KV grows or not, or what is held for requests."""

from __future__ import annotations

from truenorth.models.growing_cache import GrowingCache
from truenorth.models.holds import HeldKV, Holds
from truenorth.models.prefix_cache import PrefixCache
from truenorth.models.stream_tables import StreamTables


def cache_on(streams: StreamTables | None, gpu_class: int) -> PrefixCache | HeldKV | None:
    """Return the cache of a GPU of a class, with nothing in it; None where nothing is cached, nor held."""
    if streams is None or streams.prefixes is None:
        return None
    if isinstance(streams.prefixes, Holds):
        by_stream = [row[gpu_class] for row in streams.speeds]
        return HeldKV(streams.prefixes, [0 if speed is None else speed.kv_bytes for speed in by_stream])
    speeds = [(streams.speeds[group.stream][gpu_class], group.tokens) for group in streams.prefixes.groups]
    kind = GrowingCache if streams.grows.any() else PrefixCache
    return kind(streams.prefixes, [0 if speed is None else speed.kv_bytes * size for speed, size in speeds])
