"""What is reported of requests of streams: first tokens, time per token, tokens, and the most KV at once on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.objective import mean_ratio
from truenorth.models.slo import quantile_rank
from truenorth.models.stream_rules import kv_bytes
from truenorth.models.timeline import Timeline
from truenorth.models.token_times import TokenTimes

_QUANTILES = {"p50": Fraction(50, 100), "p95": Fraction(95, 100), "p99": Fraction(99, 100)}


def measure_streams(instance: Instance, timeline: Timeline, jobs: Ints) -> dict[str, Any]:
    """Return the figures of the requests of these jobs, the last of the window, by their names in `StreamMetrics`."""
    times, streams, served = TokenTimes.of(instance, timeline), instance.streams, timeline.served
    if times is None or streams is None or served is None:
        raise ValueError("the timeline does not say when requests of streams had their first tokens")
    first_us = times.first_us[jobs]
    first_us = first_us[first_us != NONE]
    counted = times.job >= jobs[0]
    first = _spread(first_us.tolist(), [1] * len(first_us))
    per_token = _spread(times.span_us[counted].tolist(), times.steps[counted].tolist())
    output_tokens = int(served.output[int(instance.job_first_task[jobs[0]]) :].sum())
    span_us = max(1, int(timeline.end_us.max() - instance.job_release_us[jobs[0]]))
    return {
        **{f"{name}_first_token_s": value for name, value in first.items()},
        **{f"{name}_time_per_token_s": value for name, value in per_token.items()},
        "prompt_tokens": int(streams.prompt[int(instance.job_first_task[jobs[0]]) :].sum()),
        "output_tokens": output_tokens,
        "output_tokens_per_s": output_tokens * MICROSECONDS_PER_SECOND / span_us,
        "kv_peak_bytes": _kv_peak(instance, timeline),
    }


def serving_us(instance: Instance, timeline: Timeline, begin_us: int, end_us: int) -> int:
    """Return how long, over all GPUs, requests of streams are served in [begin, end): together they count once."""
    if instance.streams is None:
        return 0
    requests = np.flatnonzero(instance.streams.template[instance.task_template] != NONE)
    start = np.maximum(timeline.start_us[requests], begin_us)
    end = np.maximum(np.minimum(timeline.end_us[requests], end_us), start)
    total, gpu, until = 0, NONE, 0
    for at in np.lexsort((start, timeline.gpu[requests])).tolist():
        if timeline.gpu[requests[at]] != gpu:
            gpu, until = timeline.gpu[requests[at]], begin_us
        total += max(0, int(end[at]) - max(until, int(start[at])))
        until = max(until, int(end[at]))
    return total


def _spread(times_us: Sequence[int], per: Sequence[int]) -> dict[str, float | None]:
    """Return mean and quantiles of ratios in seconds."""
    if not times_us:
        return dict.fromkeys(("mean", *_QUANTILES))
    mean = mean_ratio(times_us, per) / MICROSECONDS_PER_SECOND
    ordered = np.sort(np.array(times_us, np.float64) / np.array(per, np.float64)) / MICROSECONDS_PER_SECOND
    ranks = {name: quantile_rank(share, len(ordered)) for name, share in _QUANTILES.items()}
    return {"mean": float(mean), **{name: float(ordered[rank]) for name, rank in ranks.items()}}


def _kv_peak(instance: Instance, timeline: Timeline) -> int:
    """Return the most bytes of KV that requests hold at once on one GPU."""
    held = kv_bytes(instance, timeline)
    requests = np.flatnonzero(held)
    gpu = np.tile(timeline.gpu[requests], 2)
    change = np.concatenate((-held[requests], held[requests]))  # at equal times ends come first
    instants = np.concatenate((timeline.end_us[requests], timeline.start_us[requests]))
    order = np.lexsort((change, instants, gpu))
    # Every GPU gives back what it takes, so one sum over all of them, GPU by GPU, is the sum on each.
    return int(np.cumsum(change[order]).max(initial=0))
