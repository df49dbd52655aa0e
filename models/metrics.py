"""What is reported of a timeline, planned and realised alike: one function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.objective import completion_us, mean_ratio
from truenorth.models.slo import ServiceLevels, quantile_rank
from truenorth.models.stream_rules import grown_kv, kv_bytes, shared_kv
from truenorth.models.timeline import Residency, Timeline, TokenTimes, batch_leaders, is_eviction
from truenorth.models.workload import WHOLE

_OF_TOKENS = {"p50": Fraction(50, 100), "p95": Fraction(95, 100), "p99": Fraction(99, 100)}
_QUANTILES = {**_OF_TOKENS, "max": Fraction(1)}


@dataclass(frozen=True, slots=True)
class Metrics:
    """Figures of one timeline; times in seconds, slowdowns and shares plain, sizes in bytes.

    With a warm-up fraction, what belongs to jobs (counts, latency, slowdown, hit rate, service level) leaves the
    earliest jobs out, and batches (those of batch classes) count if any member does not belong to these; what belongs
    to devices (makespan, loads, evictions, busy shares) covers everything.
    """

    jobs: int
    tasks: int
    mean_latency_s: float
    p50_latency_s: float
    p95_latency_s: float
    p99_latency_s: float
    max_latency_s: float
    mean_slowdown: float
    p50_slowdown: float
    p95_slowdown: float
    p99_slowdown: float
    max_slowdown: float
    makespan_s: float
    loads: int
    load_bytes: int
    evictions: int
    hit_rate: float | None
    compute_busy: float
    copy_busy: float
    gpus_used: int
    slo_attainment: float | None
    batches: int
    mean_batch_size: float | None

    def _repr_html_(self) -> str:
        """Show the figures in a notebook."""
        shown = {name: "-" if value is None else f"{value:.6g}" for name, value in asdict(self).items()}
        rows = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in shown.items())
        return f"<table>{rows}</table>"


@dataclass(frozen=True, slots=True)
class StreamMetrics(Metrics):
    """Figures of a timeline with requests of streams; in seconds, tokens and bytes, None where nothing counts.

    A job's first token is that of its request that says `first_token`, else of its last one, from the release of the
    job; time per token is that between an answer's tokens (of prefill and decode together, where they are apart), and
    output tokens per second count from the first release to the makespan.
    A warm-up leaves out the requests of the earliest jobs, but not of the most bytes of KV that one GPU holds at once.
    Where KV grows requests may be preempted, and compute tokens again. `cut` counts how often a GPU went before a
    request had ended, which was then served anew.
    """

    mean_first_token_s: float | None
    p50_first_token_s: float | None
    p95_first_token_s: float | None
    p99_first_token_s: float | None
    mean_time_per_token_s: float | None
    p50_time_per_token_s: float | None
    p95_time_per_token_s: float | None
    p99_time_per_token_s: float | None
    prompt_tokens: int
    output_tokens: int
    output_tokens_per_s: float
    kv_peak_bytes: int
    preemptions: int
    recomputed_tokens: int
    cut: int

    @property
    def whose_first_token(self) -> str:
        """Whose first token counts, in words, where jobs have several tasks; empty elsewhere."""
        return "of each job's last request, unless one says first_token" if self.tasks > self.jobs else ""


@dataclass(frozen=True, slots=True)
class CacheMetrics(StreamMetrics):
    """The same where nodes cache prefixes: of all prompt tokens those that were cached where their requests joined."""

    cached_tokens: int
    hit_share: float


def measure(
    instance: Instance, timeline: Timeline, slo: ServiceLevels | None = None, warmup: Fraction = Fraction(0)
) -> Metrics:
    """Return the metrics of a timeline.

    Parameters
    ----------
    timeline
        Places every task.
    slo
        Service levels whose attainment is wanted, of several the least.
    warmup
        Fraction of the earliest jobs that the figures of jobs leave out; at least 0 and below 1.
    """
    if not 0 <= warmup < 1:
        raise ValueError(f"warm-up is {warmup}; it must be at least 0 and below 1")
    jobs = np.arange(int(warmup * len(instance.jobs)), len(instance.jobs))
    latency_us = completion_us(instance, timeline) - instance.job_release_us
    counted = latency_us[jobs]
    paths = instance.job_ideal_us[jobs]
    latency = _spread(
        counted / MICROSECONDS_PER_SECOND, Fraction(sum(counted.tolist()), len(jobs) * MICROSECONDS_PER_SECOND)
    )
    slowdown = _spread(counted / paths, mean_ratio(counted.tolist(), paths.tolist()))
    makespan = int(timeline.end_us.max())
    there_us = sum(gpu.gpus * gpu.available.available_us(0, makespan) for gpu in instance.cluster.gpus)
    engines_us = max(1, there_us)  # a realised timeline may consist of runs of 0 us
    loaded = [residency for residency in timeline.residencies if not residency.initial]
    first_task = int(instance.job_first_task[jobs[0]])
    batches, mean_batch_size = _batches(instance, timeline, first_task)
    gpus = gpus_of(instance)
    copying = sum(gpus[r.gpu] * (min(r.ready_us, makespan) - min(r.load_start_us, makespan)) for r in loaded)
    plain = Metrics(
        jobs=len(jobs),
        tasks=instance.n_tasks - first_task,
        **{f"{name}_latency_s": value for name, value in latency.items()},
        **{f"{name}_slowdown": value for name, value in slowdown.items()},
        makespan_s=makespan / MICROSECONDS_PER_SECOND,
        loads=len(loaded),
        load_bytes=loaded_bytes(instance, loaded),
        evictions=sum(is_eviction(instance, residency) for residency in timeline.residencies),
        hit_rate=hit_rate(instance, timeline, first_task),
        compute_busy=computing_us(instance, timeline) / engines_us,
        copy_busy=float(copying) / engines_us,
        gpus_used=int(gpus[np.unique(instance.places.members(timeline.runs.gpu)[1])].sum()),
        slo_attainment=None
        if slo is None
        else float(slo.attainment(instance, latency_us, jobs, TokenTimes.of(instance, timeline))),
        batches=batches,
        mean_batch_size=mean_batch_size,
    )
    if instance.streams is None:
        return plain
    of_streams = measure_streams(instance, timeline, jobs)
    if timeline.served is None or timeline.served.cached is None:
        return StreamMetrics(**asdict(plain), **of_streams)
    cached = int(timeline.served.cached[first_task:].sum())
    hits = {"cached_tokens": cached, "hit_share": cached / of_streams["prompt_tokens"]}
    return CacheMetrics(**asdict(plain), **of_streams, **hits)


def loaded_bytes(instance: Instance, loads: Iterable[Residency]) -> int:
    """Return the bytes of some loads, each with all its parts."""
    return sum(instance.held_bytes(r.model, r.gpu) * len(instance.places.gpus[r.gpu]) for r in loads)


def _batches(instance: Instance, timeline: Timeline, first_task: int) -> tuple[int, float | None]:
    """Return the number of batches with a member from `first_task` on, and their mean size (None without any)."""
    if not instance.batches:
        return 0, None
    in_class = instance.template_batch[instance.task_template] != NONE
    leaders = batch_leaders(instance, timeline)
    size = np.bincount(leaders[in_class], minlength=instance.n_tasks)
    in_class[:first_task] = False
    counted = np.unique(leaders[in_class])
    return len(counted), float(size[counted].mean()) if len(counted) else None


def gpus_of(instance: Instance) -> Ints:
    """Return of how many GPUs each place consists. Shape [places]."""
    each = [gpu.gpus for gpu in instance.cluster.gpus]
    return np.array([sum(each[gpu] for gpu in place) for place in instance.places.gpus], np.int64)


def computing_us(instance: Instance, timeline: Timeline, begin_us: int = 0, end_us: int | None = None) -> float:
    """Return the busy time of all GPUs in [begin, end): a batch counts once, with its share or its GPUs.

    A GPU that serves requests of a stream is as busy as by one run of share 1.
    """
    ends = timeline.end_us if end_us is None else np.minimum(timeline.end_us, end_us)
    run_us = np.maximum(ends - np.maximum(timeline.start_us, begin_us), 0)
    gpus = gpus_of(instance)[timeline.place]
    if instance.one_at_a_time:
        return float((run_us * gpus).sum())
    leading = batch_leaders(instance, timeline) == np.arange(instance.n_tasks)
    served_us = 0
    if instance.streams is not None:
        leading &= instance.streams.template[instance.task_template] == NONE
        served_us = serving_us(instance, timeline, begin_us, int(ends.max()))
    share = instance.template_share[instance.task_template] * gpus
    return (
        sum(int(us) * int(part) for us, part in zip(run_us[leading], share[leading], strict=True)) / WHOLE + served_us
    )


def _spread(
    values: NDArray[np.float64], mean: Fraction, quantiles: Mapping[str, Fraction] = _QUANTILES
) -> dict[str, float]:
    """Return mean and quantiles; the mean comes exact, to agree with the objective to the last digit."""
    ordered = np.sort(values)
    ranks = {name: quantile_rank(share, len(values)) for name, share in quantiles.items()}
    return {"mean": float(mean), **{name: float(ordered[rank]) for name, rank in ranks.items()}}


def model_uses(instance: Instance, timeline: Timeline) -> tuple[Ints, Ints, Ints]:
    """Return run, model and place of every use of a model: three arrays of one length.

    The place is that of the run where its models are split over it, else each GPU of it (rule G2).
    """
    task, model = instance.model_uses()
    if timeline.cuts:
        needs = [instance.needs[instance.task_template[run.task]] for run in timeline.cuts]
        more = [(run, used) for run, models in enumerate(needs, len(timeline.place)) for used in models]
        rows = np.array(more, np.int64).reshape(-1, 2)
        task, model = np.concatenate((task, rows[:, 0])), np.concatenate((model, rows[:, 1]))
    where = timeline.runs.gpu[task]
    whole = where >= instance.n_gpus
    if not whole.any():
        return task, model, where
    whole[whole] = ~instance.split[instance.task_template[task[whole]], instance.place_class[where[whole]]]
    each, gpu = instance.places.members(where[whole])
    uses = np.flatnonzero(whole)[each]
    task, model = (np.concatenate((rows[~whole], rows[uses])) for rows in (task, model))
    return task, model, np.concatenate((where[~whole], gpu))


def serving_residency(instance: Instance, timeline: Timeline, run: Ints, model: Ints, where: Ints) -> Ints:
    """Return the residency that serves each use of a model: a run (by its number, that of its task), model and place.

    That is the latest one of the model at that place that is ready by the run's start.

    Returns
    -------
    Ints
        Indices into the timeline's residencies, -1 where there is none. Costs (pairs + residencies) log residencies.
    """
    runs = timeline.runs
    if not timeline.residencies:
        return np.full(len(run), -1, np.int64)
    place = np.array([r.gpu * len(instance.models) + r.model for r in timeline.residencies], np.int64)
    times, ready = np.unique([r.ready_us for r in timeline.residencies], return_inverse=True)
    ready_by_start = np.searchsorted(times, runs.start_us[run], side="right") - 1
    # One sortable number per (place, rank of the time), so that a single sorted array answers "latest at or before".
    keys = place * len(times) + ready
    never_ends = np.array([r.end_us is None for r in timeline.residencies])
    order = np.lexsort((never_ends, keys))
    wanted = where * len(instance.models) + model
    found = np.searchsorted(keys[order], wanted * len(times) + ready_by_start, side="right") - 1
    candidate = order[np.maximum(found, 0)]
    return np.where((found >= 0) & (place[candidate] == wanted), candidate, -1)


def hit_rate(instance: Instance, timeline: Timeline, first_task: int = 0) -> float | None:
    """Return 1 - misses / starts over the tasks from `first_task` on; None if none of them needs a model.

    A start is a miss if it is the first use of any residency that had to be loaded, prefetched or not. A request that
    was cut starts once more.
    """
    runs = timeline.runs
    run, model, where = model_uses(instance, timeline)
    serving = serving_residency(instance, timeline, run, model, where)
    loaded = np.array([not residency.initial for residency in timeline.residencies] + [False], bool)
    by_start = np.lexsort((runs.start_us[run], serving))
    first_use = np.ones(len(run), bool)
    first_use[1:] = serving[by_start][1:] != serving[by_start][:-1]
    missing = run[by_start][first_use & loaded[serving[by_start]]]
    starts = np.unique(run[runs.task[run] >= first_task])
    if not starts.size:
        return None
    return 1 - len(np.unique(missing[runs.task[missing] >= first_task])) / len(starts)


def measure_streams(instance: Instance, timeline: Timeline, jobs: Ints) -> dict[str, Any]:
    """Return the figures of the requests of these jobs, the last of the window, by their names in `StreamMetrics`."""
    times, streams, served = TokenTimes.of(instance, timeline), instance.streams, timeline.served
    if times is None or streams is None or served is None:
        raise ValueError("the timeline does not say when requests of streams had their first tokens")
    first_us = times.first_us[jobs]
    first_us = first_us[first_us != NONE]
    counted = times.job >= jobs[0]
    first = _spread_ratios(first_us.tolist(), [1] * len(first_us))
    per_token = _spread_ratios(times.span_us[counted].tolist(), times.steps[counted].tolist())
    output_tokens = int(served.output[int(instance.job_first_task[jobs[0]]) :].sum())
    # Who goes on with another's answer got its prompt as KV.
    prompts = np.where(streams.goes_on == np.arange(instance.n_tasks), streams.prompt, 0)
    grown = grown_kv(instance, timeline, int(instance.job_first_task[jobs[0]]))
    span_us = max(1, int(timeline.end_us.max() - instance.job_release_us[jobs[0]]))
    return {
        **{f"{name}_first_token_s": value for name, value in first.items()},
        **{f"{name}_time_per_token_s": value for name, value in per_token.items()},
        "prompt_tokens": int(prompts[int(instance.job_first_task[jobs[0]]) :].sum()),
        "output_tokens": output_tokens,
        "output_tokens_per_s": output_tokens * MICROSECONDS_PER_SECOND / span_us,
        "kv_peak_bytes": max(_kv_peak(instance, timeline), grown.peak_bytes),
        "preemptions": grown.preemptions,
        "recomputed_tokens": grown.recomputed_tokens,
        "cut": sum(run.task >= int(instance.job_first_task[jobs[0]]) for run in timeline.cuts),
    }


def serving_us(instance: Instance, timeline: Timeline, begin_us: int, end_us: int) -> int:
    """Return how long, over all GPUs, requests of streams are served in [begin, end): together they count once."""
    gpus = gpus_of(instance)
    if instance.streams is None:
        return 0
    runs = timeline.runs
    requests = np.flatnonzero(instance.streams.template[instance.task_template][runs.task] != NONE)
    start = np.maximum(runs.start_us[requests], begin_us)
    end = np.maximum(np.minimum(runs.end_us[requests], end_us), start)
    total, gpu, until = 0, NONE, 0
    for at in np.lexsort((start, runs.gpu[requests])).tolist():
        if runs.gpu[requests[at]] != gpu:
            gpu, until = runs.gpu[requests[at]], begin_us
        total += int(gpus[gpu]) * max(0, int(end[at]) - max(until, int(start[at])))
        until = max(until, int(end[at]))
    return total


def _spread_ratios(times_us: Sequence[int], per: Sequence[int]) -> dict[str, float] | dict[str, None]:
    """Return mean and quantiles of ratios in seconds."""
    if not times_us:
        return dict.fromkeys(("mean", *_OF_TOKENS))
    ratios_s = np.array(times_us, np.float64) / np.array(per, np.float64) / MICROSECONDS_PER_SECOND
    return _spread(ratios_s, mean_ratio(times_us, per) / MICROSECONDS_PER_SECOND, _OF_TOKENS)


def _kv_peak(instance: Instance, timeline: Timeline) -> int:
    """Return the most bytes of KV that requests hold at once on one GPU."""
    held, runs = kv_bytes(instance, timeline), timeline.runs
    requests = np.flatnonzero(held)
    gpu = np.tile(runs.gpu[requests], 2)
    change = np.concatenate((-held[requests], held[requests]))  # at equal times ends come first
    instants = np.concatenate((runs.end_us[requests], runs.start_us[requests]))
    if instance.streams is not None and instance.streams.prefixes is not None:
        shared = np.array([*shared_kv(instance, timeline)], np.int64).reshape(-1, 3)
        gpu, instants = np.concatenate((gpu, shared[:, 0])), np.concatenate((instants, shared[:, 1]))
        change = np.concatenate((change, shared[:, 2]))
    order = np.lexsort((change, instants, gpu))
    # Every GPU gives back what it takes, so one sum over all of them, GPU by GPU, is the sum on each.
    return int(np.cumsum(change[order]).max(initial=0))
