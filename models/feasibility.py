"""The checker: every rule of the problem, one function each, no solver anywhere near.

It returns every violation it finds, with what it found and what is allowed. Where intervals must not overlap, they
are sorted by start and neighbours are compared: of intervals that overlap at all, two neighbours do. Of compute the
unit is a batch, a task without a batch class being a batch of one; its tables are read from the classes themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from truenorth.models.cluster import FOREVER, GPU
from truenorth.models.instance import NEVER, NONE, Instance, Ints
from truenorth.models.metrics import model_uses, serving_residency
from truenorth.models.stream_rules import check_streams, kv_bytes, shared_kv
from truenorth.models.timeline import (
    UNPLACED,
    Residency,
    Runs,
    Timeline,
    Violation,
    batch_leaders,
    is_eviction,
    name_residency,
    name_task,
)
from truenorth.models.workload import WHOLE

_FOREVER = int(np.iinfo(np.int64).max)

_Holding: TypeAlias = tuple[int, int | None, int]
"""From when until when (None: for ever) how much of something is held."""


class InfeasibleTimelineError(RuntimeError):
    """A timeline that must be feasible breaks a rule; the message names the first violations."""


def check(instance: Instance, timeline: Timeline) -> list[Violation]:
    """Return every violation of the rules by a timeline; an empty list means that it is feasible."""
    # Every rule reads the timeline task by task: of another number nothing can be said.
    if len(timeline.place) != instance.n_tasks:
        return [Violation("T1", "timeline", "wrong number of tasks", len(timeline.place), instance.n_tasks)]
    misplaced = [*_known_places(instance, timeline)]
    if misplaced:
        return misplaced  # the other rules need a GPU for every task and residency
    return [violation for rule in _RULES for violation in rule(instance, timeline)]


def assert_feasible(instance: Instance, timeline: Timeline) -> None:
    """Raise if a timeline breaks a rule.

    Raises
    ------
    InfeasibleTimelineError
        With the first five violations.
    """
    violations = check(instance, timeline)
    if violations:
        listed = "; ".join(str(violation) for violation in violations[:5])
        raise InfeasibleTimelineError(f"{len(violations)} violations: {listed}")


def _known_places(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """Every task has a GPU of the cluster, every residency names a GPU and a model."""
    n_places = len(instance.places.gpus)
    for task in np.flatnonzero((timeline.place < 0) | (timeline.place >= n_places)):
        where = int(timeline.place[task])
        problem = "is not placed" if where == UNPLACED else "is on no GPU of the cluster"
        yield Violation("T1", name_task(instance, int(task)), problem, where, f"0 to {n_places - 1}")
    for residency in timeline.residencies:
        if not (0 <= residency.gpu < n_places and 0 <= residency.model < len(instance.models)):
            yield Violation("R1", "residency", "unknown GPU or model", f"{residency.gpu}, {residency.model}", "known")


def _load_duration(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """R1: a load starts at or after 0 and takes ceil(bytes / bandwidth) + overhead; no end before the start."""
    for residency in timeline.residencies:
        name = name_residency(instance, residency)
        allowed = instance.load_time(residency.model, residency.gpu)
        took = residency.ready_us - residency.load_start_us
        if allowed == NEVER:
            # Two reasons for one entry of the table: the operator's word, or the size.
            limits, model = instance.restrictions, instance.models[residency.model].name
            pinned = not all(limits.allows_model(model, gpu) for gpu in instance.places.gpus[residency.gpu])
            problem = "the model is restricted to other GPUs" if pinned else "the model never fits there"
            yield Violation("X" if pinned else "R2", name, problem, "resident", "never")
        elif residency.load_start_us < 0:
            yield Violation("R1", name, "load starts before 0", residency.load_start_us, 0)
        # What happened took what it took; a plan takes the given time.
        elif not residency.initial and (took < 0 if timeline.realised else took != allowed):
            yield Violation("R1", name, "load takes the wrong time", took, allowed)
        if residency.end_us is not None and residency.end_us < residency.ready_us:
            yield Violation("R1", name, "ends before it is ready", residency.end_us, residency.ready_us)


def _one_load_at_a_time(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """R1: the copy engine of a GPU carries out one load at a time."""
    for _, group in _by_gpu(instance, timeline, lambda r: not r.initial):
        # If any two overlap, two neighbours do.
        for before, after in pairwise(sorted(group, key=lambda r: (r.load_start_us, r.ready_us))):
            if after.load_start_us < before.ready_us:
                subject = f"{name_residency(instance, after)} after {name_residency(instance, before)}"
                yield Violation("R1", subject, "loads overlap", after.load_start_us, before.ready_us)


def exceeded_memory(instance: Instance, timeline: Timeline, held: Ints | None = None) -> Iterator[Violation]:
    """R2 by bytes: at every instant the models on a GPU, what its running tasks hold, and KV, fit its memory.

    Parameters
    ----------
    held
        By template of a task: bytes that it was measured to hold; None: those that it is said to.
    """
    holdings: dict[int, list[_Holding]] = {}
    for r in timeline.residencies:
        weights = (r.load_start_us, r.end_us, instance.held_bytes(r.model, r.gpu))
        for index in instance.places.gpus[r.gpu]:
            holdings.setdefault(index, []).append(weights)
    # KV is held as working memory is, from start to end.
    held = instance.template_memory if held is None else held
    runs = timeline.runs
    working = held[instance.task_template][runs.task] + kv_bytes(instance, timeline)
    holding = np.flatnonzero(working)
    each, gpus = instance.places.members(runs.gpu[holding])
    for run, index in zip(holding[each].tolist(), gpus.tolist(), strict=True):
        beside = (int(runs.start_us[run]), int(runs.end_us[run]), int(working[run]))
        holdings.setdefault(index, []).append(beside)
    for index, instant, change in shared_kv(instance, timeline):
        holdings.setdefault(index, []).append((instant, None, change))
    for index, here in holdings.items():
        gpu = instance.cluster.gpus[index]
        if gpu.slots:
            continue  # a task that holds memory is not eligible there
        yield from (
            Violation("R2", f"{gpu.id} at {instant} us", "memory is exceeded", level, gpu.memory_bytes)
            for instant, level in _levels(here)
            if level > gpu.memory_bytes
        )


def _slots(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """R2 by slots: a residency sits in one slot that is large enough, and a slot holds one model at a time."""
    for residency in timeline.residencies:
        slots = instance.cluster.gpus[instance.places.gpus[residency.gpu][0]].slots
        name, weight = name_residency(instance, residency), instance.held_bytes(residency.model, residency.gpu)
        if not slots:
            if residency.slot is not None:
                yield Violation("R2", name, "names a slot on a GPU without slots", residency.slot, "none")
        elif residency.slot is None or not 0 <= residency.slot < len(slots):
            yield Violation("R2", name, "unknown slot", str(residency.slot), f"0 to {len(slots) - 1}")
        elif weight > slots[residency.slot]:
            yield Violation("R2", name, "model exceeds its slot", weight, slots[residency.slot])
    for _, group in _by_gpu(instance, timeline, lambda r: r.slot is not None, lambda r: r.slot):
        yield from _overlaps(instance, group, "R2", "slot holds two models at once")


def _one_copy_per_gpu(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """R4, G3: at most one residency of a model touches a GPU at a time, whatever the place."""
    for _, group in _by_gpu(instance, timeline, key=lambda r: r.model):
        yield from _overlaps(instance, group, "R4", "model is on the GPU twice")


def _models_ready(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """R3, G2: a task runs only while every model it needs is ready where it runs: ready <= start, end <= its end.

    Split over several GPUs that is at exactly their place, else on each GPU.
    """
    runs = timeline.runs
    run, model, where = model_uses(instance, timeline)
    serving = serving_residency(instance, timeline, run, model, where)
    # -1 at the end: where nothing serves a use the index -1 finds it.
    until = np.array([_end(r) for r in timeline.residencies] + [-1], np.int64)[serving]
    for use in np.flatnonzero((serving < 0) | (runs.end_us[run] > until)):
        subject = f"{name_task(instance, int(runs.task[run[use]]))} with model {instance.models[model[use]].name}"
        if serving[use] < 0:
            yield Violation("R3", subject, "model is not ready at the start", int(runs.start_us[run[use]]), "ready")
        else:
            yield Violation("R3", subject, "model leaves before the end", int(runs.end_us[run[use]]), int(until[use]))


def _loads_block_compute(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """R5: with overlap off, a load also occupies the compute engine."""
    if instance.overlap_loads:
        return
    runs = timeline.runs
    each, gpus = instance.places.members(runs.gpu)
    for gpu, group in _by_gpu(instance, timeline, lambda r: not r.initial):
        here = each[gpus == gpu]
        # Sorted by start, with the latest end so far: where several run at a time the last need not end last.
        here = here[np.argsort(runs.start_us[here], kind="stable")]
        starts, ends = runs.start_us[here], np.maximum.accumulate(runs.end_us[here])
        for residency in group:
            # The last task that starts before the load is ready is the one that can reach into it.
            last = int(np.searchsorted(starts, residency.ready_us, side="left")) - 1
            if last >= 0 and ends[last] > residency.load_start_us:
                reaching = int(runs.task[here[np.argmax(runs.end_us[here[: last + 1]])]])
                subject = f"{name_residency(instance, residency)} and {name_task(instance, reaching)}"
                yield Violation("R5", subject, "load overlaps compute", residency.load_start_us, int(ends[last]))


def _initial(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """R6: initially resident models, and only those, are ready at time 0 without a load."""
    # A plan may leave initial residencies out (R7), but claim none of its own.
    given = {(resident.gpu, resident.model, resident.slot) for resident in instance.initial}
    for residency in timeline.residencies:
        if not residency.initial:
            continue
        name = name_residency(instance, residency)
        if (residency.gpu, residency.model, residency.slot) not in given:
            yield Violation("R6", name, "is not initially resident", "initial", "a load")
        if residency.load_start_us != 0 or residency.ready_us != 0:
            yield Violation("R6", name, "an initial residency is ready at 0", residency.ready_us, 0)


def _runs(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """T1: an eligible place, start >= release, end = start + run time (realised: end >= start; T3b, S4 for others)."""
    runs = timeline.runs
    template = instance.task_template[runs.task]
    allowed = instance.run_us[template, instance.place_class[runs.gpu]]
    took = runs.end_us - runs.start_us
    release = instance.job_release_us[instance.task_job[runs.task]]

    def name(run: int) -> str:
        return name_task(instance, int(runs.task[run]))

    for run in np.flatnonzero(allowed == NEVER).tolist():
        where = instance.place_name(int(runs.gpu[run]))
        yield Violation("T1", name(run), "GPU is not eligible", where, _eligible(instance, int(template[run])))
    # Batches and requests have times of their own rules.
    own_time = instance.template_batch[template] == NONE
    if instance.streams is not None:
        own_time &= instance.streams.template[template] == NONE
    wrong = took < 0 if timeline.realised else (took != allowed) & own_time
    for run in np.flatnonzero(wrong & (allowed != NEVER)).tolist():
        yield Violation("T1", name(run), "runs for the wrong time", int(took[run]), int(allowed[run]))
    for run in np.flatnonzero(runs.start_us < release).tolist():
        yield Violation("T1", name(run), "starts before its release", int(runs.start_us[run]), int(release[run]))


def _eligible(instance: Instance, template: int) -> str:
    """Return where tasks of a template may run, in words."""
    able = np.flatnonzero(instance.run_us[template, instance.place_class] != NEVER).tolist()
    sizes = sorted({len(instance.places.gpus[place]) for place in able})
    return "an eligible GPU" if sizes == [1] else f"an eligible place of {' or '.join(map(str, sizes))} GPUs"


def _precedence(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """T2, G4: start >= end of each predecessor + delay + transfer to this place; input bytes come from the ingress."""
    runs, (source, target, edge) = timeline.runs, instance.edges()
    # What comes before has ended on the GPU of its last run; it comes before every run of what follows.
    arc, run = _arcs_into(runs, target)
    source, edge = source[arc], edge[arc]
    a, b = timeline.place[source], runs.gpu[run]
    transfer = _transfers(instance, edge, a, b)
    if instance.streams is not None:
        # KV depends on the tokens of the request, not on the edge alone.
        transfer = transfer.copy()
        for moved in np.flatnonzero(instance.streams.kv_edge[edge]).tolist():
            transfer[moved] = instance.kv_transfer_time(int(source[moved]), int(a[moved]), int(b[moved]))
    earliest = timeline.end_us[source] + instance.delay_us[edge] + np.where(a == b, 0, transfer)
    for at in np.flatnonzero(runs.start_us[run] < earliest):
        subject = f"{name_task(instance, int(runs.task[run[at]]))} after {name_task(instance, int(source[at]))}"
        found, least = int(runs.start_us[run[at]]), int(earliest[at])
        yield Violation("T2", subject, "starts before its input arrives", found, least)
    for fed in np.flatnonzero(instance.input_us[instance.task_template[runs.task]]).tolist():
        task = int(runs.task[fed])
        subject = f"{name_task(instance, task)} from its ingress"
        least = instance.earliest_start(task, int(runs.gpu[fed]))
        # On the ingress server the release is the limit, which T1 has told already.
        travels = least > instance.job_release_us[instance.task_job[task]]
        if travels and runs.start_us[fed] < least:
            yield Violation("T2", subject, "starts before its input arrives", int(runs.start_us[fed]), least)


def _transfers(instance: Instance, edge: Ints, source: Ints, target: Ints) -> Ints:
    """Return how long outputs take along edges between places; of the same one that is the caller's case."""
    alone = np.maximum(source, target) < instance.n_gpus
    a, b = np.where(alone, source, 0), np.where(alone, target, 0)
    same_server = (instance.gpu_server[a] == instance.gpu_server[b]).astype(np.int64)
    transfer: Ints = instance.transfer_us[edge, instance.gpu_class[a], instance.gpu_class[b], same_server]
    for moved in np.flatnonzero(~alone).tolist():  # to or from several GPUs (rule G4)
        transfer[moved] = instance.transfer_time(int(edge[moved]), int(source[moved]), int(target[moved]))
    return transfer


def _arcs_into(runs: Runs, target: Ints) -> tuple[Ints, Ints]:
    """Return each arc with every run of the task that it leads to; two arrays of one length."""
    of_task = np.argsort(runs.task, kind="stable").astype(np.int64)
    begin, end = (np.searchsorted(runs.task[of_task], target, side=side) for side in ("left", "right"))
    arc = np.repeat(np.arange(len(target), dtype=np.int64), end - begin)
    into = np.arange(len(arc), dtype=np.int64) - np.repeat(np.cumsum(end - begin) - (end - begin), end - begin)
    return arc, of_task[begin[arc] + into]


def _restrictions(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """X: no swaps, and at most so many replicas of a model at any instant."""
    limits = instance.restrictions
    if limits.no_swaps:
        for residency in timeline.residencies:
            if residency.end_us is not None and is_eviction(instance, residency):
                yield Violation("X", name_residency(instance, residency), "is evicted", residency.end_us, "never")
    of_model: dict[int, list[Residency]] = {}
    for residency in timeline.residencies if limits.max_replicas else ():
        of_model.setdefault(residency.model, []).append(residency)
    for group in of_model.values():
        name = instance.models[group[0].model].name
        most = limits.max_replicas.get(name)
        if most is None:
            continue
        for instant, held in _levels([(r.load_start_us, r.end_us, 1) for r in group]):
            if held > most:
                yield Violation("X", f"model {name} at {instant} us", "too many replicas", held, most)


def _by_gpu(
    instance: Instance,
    timeline: Timeline,
    only: Callable[[Residency], bool] = lambda _: True,
    key: Callable[[Residency], object] = lambda _: None,
) -> Iterator[tuple[int, list[Residency]]]:
    """Yield GPUs with the residencies that touch them, in groups of equal key."""
    groups: dict[tuple[int, object], list[Residency]] = {}
    for residency in filter(only, timeline.residencies):
        for gpu in instance.places.gpus[residency.gpu]:
            groups.setdefault((gpu, key(residency)), []).append(residency)
    yield from ((gpu, group) for (gpu, _), group in groups.items())


def _levels(holdings: Sequence[_Holding]) -> list[tuple[int, int]]:
    """Return the instants at which something is taken, with what is then held; ends come before starts."""
    events = [(begin, 1, amount) for begin, _, amount in holdings]
    events += [(end, 0, -amount) for _, end, amount in holdings if end is not None]
    # At one instant ends (0) come before starts (1): what ends makes room for what starts.
    events.sort()
    held = np.cumsum(np.array([amount for _, _, amount in events], np.int64))
    return [(instant, int(level)) for (instant, start, _), level in zip(events, held, strict=True) if start]


def _overlaps(instance: Instance, group: list[Residency], rule: str, problem: str) -> Iterator[Violation]:
    """Yield a violation for each residency that starts before its predecessor in the group has ended."""
    for before, after in pairwise(sorted(group, key=lambda r: (r.load_start_us, _end(r)))):
        if before.end_us is None or after.load_start_us < before.end_us:
            subject = f"{name_residency(instance, after)} after {name_residency(instance, before)}"
            yield Violation(
                rule, subject, problem, after.load_start_us, "never" if before.end_us is None else before.end_us
            )


def _end(residency: Residency) -> int:
    return _FOREVER if residency.end_us is None else residency.end_us


def _batches(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """T3b: at most the largest listed size, members end together, and end - start is the table's time at the size."""
    if not instance.batches:
        return
    batch = instance.template_batch[instance.task_template]
    groups: dict[int, list[int]] = {}
    leaders = batch_leaders(instance, timeline)
    for task in np.flatnonzero(batch != NONE):
        groups.setdefault(int(leaders[task]), []).append(int(task))
    for leader, members in groups.items():
        kind = instance.cluster.gpus[timeline.place[leader]].kind
        table = instance.batches[batch[leader]]
        most, size = table.largest_on(kind), len(members)
        subject = f"batch of {table.name} with {name_task(instance, leader)}"
        end_us, start_us = int(timeline.end_us[leader]), int(timeline.start_us[leader])
        if size > most > 0:
            yield Violation("T3b", subject, "batch is too large", size, most)
        for member in members:
            if timeline.end_us[member] != end_us:
                name = f"{name_task(instance, member)} in the {subject}"
                yield Violation("T3b", name, "a member ends apart", int(timeline.end_us[member]), end_us)
        allowed = table.runtime_on(kind, size)
        if allowed is not None and not timeline.realised and end_us - start_us != allowed:
            yield Violation("T3b", subject, f"batch of {size} runs for the wrong time", end_us - start_us, allowed)


def _compute(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """T3, T3c: at every instant the shares of the batches that run on a GPU add up to at most 1."""
    leaders = batch_leaders(instance, timeline)
    end_us = timeline.end_us.copy()
    np.maximum.at(end_us, leaders, timeline.end_us)
    leading = leaders == np.arange(instance.n_tasks)
    if instance.streams is not None:  # how requests share a GPU is for the rules of streams to say
        leading &= instance.streams.template[instance.task_template] == NONE
    runs = np.flatnonzero(leading)
    share = instance.template_share[instance.task_template[runs]]
    if (share == WHOLE).all():
        yield from _overlapping_runs(instance, timeline, runs, end_us)
    else:
        yield from _shares(instance, timeline, runs, end_us, share)


def _overlapping_runs(instance: Instance, timeline: Timeline, runs: Ints, end_us: Ints) -> Iterator[Violation]:
    """Yield where a run that takes whole GPUs starts before the one before it on one of them has ended."""
    each, gpu = instance.places.members(timeline.place[runs])
    runs = runs[each]
    by_gpu = np.lexsort((end_us[runs], timeline.start_us[runs], gpu))
    order, gpu = runs[by_gpu], gpu[by_gpu]
    before, after = order[:-1], order[1:]
    overlap = (gpu[:-1] == gpu[1:]) & (timeline.start_us[after] < end_us[before])
    for pair in np.flatnonzero(overlap):
        first, second = int(before[pair]), int(after[pair])
        subject = f"{name_task(instance, second)} after {name_task(instance, first)}"
        found, least = int(timeline.start_us[second]), int(end_us[first])
        yield Violation("T3", subject, "tasks overlap on a GPU", found, least)


def _shares(instance: Instance, timeline: Timeline, runs: Ints, end_us: Ints, share: Ints) -> Iterator[Violation]:
    """Yield every instant at which a start takes the shares on a GPU above 1; ends come before starts."""
    taken: dict[int, list[tuple[int, int, int]]] = {}
    each, gpus = instance.places.members(timeline.place[runs])
    for task, gpu, part in zip(runs[each].tolist(), gpus.tolist(), share[each].tolist(), strict=True):
        if end_us[task] > timeline.start_us[task]:  # an empty run takes nothing
            events = taken.setdefault(gpu, [])
            events += [(int(timeline.start_us[task]), 1, part), (int(end_us[task]), 0, -part)]
    for gpu, events in sorted(taken.items()):
        level = 0
        for instant, _, part in sorted(events):
            level += part
            if part > 0 and level > WHOLE:
                subject = f"{instance.cluster.gpus[gpu].id} at {instant} us"
                yield Violation("T3c", subject, "shares add up to more than the GPU", str(Decimal(level) / WHOLE), 1)


def _availability(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """A1: a run, a load and a residency lie inside one interval of each GPU; requests have a rule of their own (E3).

    Of what happened under noise the start and the given time do; what then lasts longer keeps its models with it.
    """
    if instance.always_available:
        return
    last_end = _run_ends(instance, timeline)
    plain = np.ones(instance.n_tasks, bool)
    if instance.streams is not None:
        plain = instance.streams.template[instance.task_template] == NONE
    for task in np.flatnonzero(plain).tolist():
        end = int(last_end[task])
        start = int(timeline.start_us[task])
        for gpu in (instance.cluster.gpus[index] for index in instance.places.gpus[timeline.place[task]]):
            if not gpu.available.holds(start, end):
                found = f"[{start}, {end})"
                problem = f"{gpu.id} is not there all the time"
                yield Violation("A1", name_task(instance, task), problem, found, _near(gpu, start))
    for residency in timeline.residencies:
        yield from _residency(instance, timeline, residency)


def _run_ends(instance: Instance, timeline: Timeline) -> Ints:
    """Return when each run ends; of a realised timeline, when it would by its given time."""
    if not timeline.realised:
        return timeline.end_us
    given = instance.run_us[instance.task_template, instance.place_class[timeline.place]]
    if instance.batches:
        leaders, batch = batch_leaders(instance, timeline), instance.template_batch[instance.task_template]
        size = np.bincount(leaders, minlength=instance.n_tasks)[leaders]
        for task in np.flatnonzero(batch != NONE).tolist():
            of_batch = instance.batch_time(int(batch[task]), int(timeline.place[task]), int(size[task]))
            given[task] = max(given[task], of_batch)
    return np.asarray(timeline.start_us + np.maximum(given, 0), np.int64)


def _residency(instance: Instance, timeline: Timeline, residency: Residency) -> Iterator[Violation]:
    gpu, begin = instance.cluster.gpus[residency.gpu], residency.load_start_us
    end = FOREVER if residency.end_us is None else residency.end_us
    interval = gpu.available.at(begin)
    if interval is not None and timeline.realised:
        loaded = begin + max(0, instance.load_time(residency.model, residency.gpu))
        if residency.initial or loaded <= interval[1]:  # what was begun in time ends when it ends
            end = min(end, interval[1]) if end <= _busy_until(instance, timeline, residency, interval[1]) else end
        else:
            end = max(end, loaded)
    if interval is None or end > interval[1]:
        found = f"[{begin}, {'end' if end == FOREVER else end})"
        subject, problem = name_residency(instance, residency), f"{gpu.id} is not there all the time"
        yield Violation("A1", subject, problem, found, _near(gpu, begin))


def _busy_until(instance: Instance, timeline: Timeline, residency: Residency, gone_us: int) -> int:
    """Return until when loads and runs that began before a GPU had to go keep it busy."""
    takes = np.array([residency.gpu in gpus for gpus in instance.places.gpus])
    here = takes[timeline.place] & (timeline.start_us < gone_us)
    runs = int(timeline.end_us[here].max(initial=gone_us))
    loads = (r.ready_us for r in timeline.residencies if r.gpu == residency.gpu and r.load_start_us < gone_us)
    return max(runs, *loads)


def _near(gpu: GPU, instant: int) -> str:
    """Return, in words, the interval that an instant lies in, else the next one, else the last."""
    intervals = gpu.available.intervals
    begin, end = next((interval for interval in intervals if instant < interval[1]), intervals[-1])
    return f"inside [{begin}, {'end' if end == FOREVER else end})"


_RULES: tuple[Callable[[Instance, Timeline], Iterator[Violation]], ...] = (
    _load_duration,
    _one_load_at_a_time,
    exceeded_memory,
    _slots,
    _models_ready,
    _one_copy_per_gpu,
    _loads_block_compute,
    _initial,
    _runs,
    _precedence,
    _batches,
    _compute,
    check_streams,
    _availability,
    _restrictions,
)
