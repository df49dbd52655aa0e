"""The rules a second time, as naively as possible: look at every GPU in every microsecond.

Shares no code with the checker, and reads neither run, load nor transfer times from the instance's tables.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import permutations

from tests.random_instances import delay_between
from truenorth.models import GPU, WHOLE, Instance, MLModel, Residency, Task, Timeline, Workflow


def broken_rules(instance: Instance, timeline: Timeline) -> set[str]:
    """Return the numbers of the rules that a timeline of placed tasks breaks."""
    broken = set()
    for residency in timeline.residencies:
        broken |= _load_rules(instance, timeline, residency) | _place_rules(instance, residency)
        broken |= _absence(instance, residency.gpu, residency.load_start_us, _end(residency))
    for task in range(instance.n_tasks):
        broken |= _task_rules(instance, timeline, task)
        start, end = int(timeline.start_us[task]), int(timeline.end_us[task])
        broken |= _absence(instance, int(timeline.place[task]), start, end)
    marks = [r.load_start_us for r in timeline.residencies] + [r.ready_us for r in timeline.residencies]
    marks += [r.end_us for r in timeline.residencies if r.end_us is not None]
    marks += timeline.start_us.tolist() + timeline.end_us.tolist()
    for instant in range(min(marks), max(marks) + 1):
        broken |= _instant_rules(instance, timeline, instant)
    return broken


def _load_rules(instance: Instance, timeline: Timeline, residency: Residency) -> set[str]:
    broken = set()
    gpu, model = instance.cluster.gpus[residency.gpu], instance.models[residency.model]
    if not _may_hold(instance, residency.gpu, model):
        broken.add("X")
    elif not _fit([model], gpu):
        broken.add("R2")
    else:
        took = residency.ready_us - residency.load_start_us
        proper = math.ceil(Fraction(model.weight_bytes) / gpu.load_bandwidth * 1_000_000) + gpu.load_overhead_us
        if residency.load_start_us < 0 or took < 0:
            broken.add("R1")
        if not residency.initial and not timeline.realised and took != proper:
            broken.add("R1")
    if residency.end_us is not None and residency.end_us < residency.ready_us:
        broken.add("R1")
    return broken


def _place_rules(instance: Instance, residency: Residency) -> set[str]:
    broken = set()
    gpu, model = instance.cluster.gpus[residency.gpu], instance.models[residency.model]
    if (residency.slot is None) != (not gpu.slots):
        broken.add("R2")
    if gpu.slots and residency.slot is not None:
        room = gpu.slots[residency.slot] if 0 <= residency.slot < len(gpu.slots) else 0
        if model.weight_bytes > room:
            broken.add("R2")
    if residency.initial:
        place = (residency.gpu, residency.model, residency.slot)
        if not any((given.gpu, given.model, given.slot) == place for given in instance.initial):
            broken.add("R6")
        if residency.load_start_us != 0 or residency.ready_us != 0:
            broken.add("R6")
    goes = {end for _, end in gpu.available.intervals}
    if residency.end_us is not None and instance.restrictions.no_swaps and residency.end_us not in goes:
        broken.add("X")
    return broken


def _absence(instance: Instance, where: int, begin: int, end: float) -> set[str]:
    """Look at every instant of something that was planned."""
    intervals = instance.cluster.gpus[where].available.intervals
    if instance.always_available:
        return set()
    seen = range(begin, max(begin + 1, int(min(end, begin + 1000))))
    there = all(any(first <= u < last for first, last in intervals) for u in seen)
    return set() if there else {"A1"}


def _task_rules(instance: Instance, timeline: Timeline, number: int) -> set[str]:
    broken = set()
    job, workflow, task = _parts(instance, number)
    where, start, end = int(timeline.place[number]), int(timeline.start_us[number]), int(timeline.end_us[number])
    gpu = instance.cluster.gpus[where]
    needed = [model for model in instance.models if model.name in task.models]
    runtime = task.runtime_us.get(gpu.kind) or task.runtime_us.get("*")
    took = end - start
    if runtime is not None and task.batch is not None:
        broken |= _batch_rules(instance, timeline, number)
        took = runtime if took >= 0 else took
    allowed = instance.restrictions.workflow_gpus.get(workflow.name)
    eligible = (
        runtime is not None
        and (allowed is None or where in allowed)
        and all(_may_hold(instance, where, model) for model in needed)
        and _fit(needed, gpu, task.memory_bytes)
    )
    if not eligible or start < instance.jobs[job].release_us or (not timeline.realised and took != runtime):
        broken.add("T1")
    if end < start:
        broken.add("T1")
    for edge in task.inputs:
        before = number + workflow.tasks.index(_named(workflow, edge.source)) - workflow.tasks.index(task)
        travels = _transfer(instance, int(timeline.place[before]), where, edge.size_bytes)
        if start < int(timeline.end_us[before]) + delay_between(instance, before, number) + travels:
            broken.add("T2")
    owner, far = instance.jobs[job], Fraction(0)
    if task.input_bytes and owner.ingress is not None and owner.ingress != instance.cluster.gpus[where].server:
        link = instance.cluster.network.between
        far += link.latency_us
        far += 0 if link.bandwidth is None else 1_000_000 * Fraction(task.input_bytes) / link.bandwidth
    if far and start < owner.release_us + far:
        broken.add("T2")
    for model in needed:
        stays = [r for r in timeline.residencies if r.gpu == where and instance.models[r.model] == model]
        if not all(any(r.ready_us <= u < _end(r) for r in stays) for u in range(start, end)):
            broken.add("R3")
    return broken


def _batch_rules(instance: Instance, timeline: Timeline, number: int) -> set[str]:
    """Look at the batch of a task that has a class, and can run on its GPU's kind."""
    where, start = int(timeline.place[number]), int(timeline.start_us[number])
    batch = _members(instance, timeline, number)
    ends = {int(timeline.end_us[member]) for member in batch}
    table = _parts(instance, number)[2].batch
    assert table is not None
    kind = instance.cluster.gpus[where].kind
    times = table.runtime_us[kind] if kind in table.runtime_us else table.runtime_us["*"]
    if len(ends) > 1 or len(batch) > max(times):
        return {"T3b"}
    proper = min(times[size] for size in times if size >= len(batch))  # times do not fall with the size
    return {"T3b"} if not timeline.realised and ends != {start + proper} else set()


def _members(instance: Instance, timeline: Timeline, number: int) -> list[int]:
    """Return the tasks of a task's batch."""
    task = _parts(instance, number)[2]
    if task.batch is None:
        return [number]
    return [
        other
        for other in range(instance.n_tasks)
        if _parts(instance, other)[2].batch == task.batch
        and timeline.place[other] == timeline.place[number]
        and timeline.start_us[other] == timeline.start_us[number]
    ]


def _instant_rules(instance: Instance, timeline: Timeline, instant: int) -> set[str]:
    broken = set()
    held = [r for r in timeline.residencies if r.load_start_us <= instant < _end(r)]
    loading = [r for r in timeline.residencies if not r.initial and r.load_start_us <= instant < r.ready_us]
    running = [t for t in range(instance.n_tasks) if timeline.start_us[t] <= instant < timeline.end_us[t]]
    for where, gpu in enumerate(instance.cluster.gpus):
        here = [r for r in held if r.gpu == where]
        busy = [t for t in running if timeline.place[t] == where]
        loads = [r for r in loading if r.gpu == where]
        working = sum(_parts(instance, t)[2].memory_bytes for t in busy)
        if len(loads) > 1:
            broken.add("R1")
        if gpu.slots:
            if any(sum(r.slot == slot for r in here) > 1 for slot in range(len(gpu.slots))):
                broken.add("R2")
        elif sum(instance.models[r.model].weight_bytes for r in here) + working > gpu.memory_bytes:
            broken.add("R2")
        if len({r.model for r in here}) < len(here):
            broken.add("R4")
        if loads and busy and not instance.overlap_loads:
            broken.add("R5")
        batches = {min(_members(instance, timeline, t)) for t in busy}
        if sum(Fraction(_parts(instance, t)[2].share, WHOLE) for t in batches) > 1:
            every = [_parts(instance, t)[2].share for t in range(instance.n_tasks)]
            broken.add("T3" if set(every) == {WHOLE} else "T3c")
    for name, most in instance.restrictions.max_replicas.items():
        if sum(instance.models[r.model].name == name for r in held) > most:
            broken.add("X")
    return broken


def _parts(instance: Instance, number: int) -> tuple[int, Workflow, Task]:
    for index, job in enumerate(instance.jobs):
        if number < len(job.workflow.tasks):
            return index, job.workflow, job.workflow.tasks[number]
        number -= len(job.workflow.tasks)
    raise IndexError(number)


def _named(workflow: Workflow, name: str) -> Task:
    return next(task for task in workflow.tasks if task.name == name)


def _may_hold(instance: Instance, gpu: int, model: MLModel) -> bool:
    allowed = instance.restrictions.model_gpus.get(model.name)
    return allowed is None or gpu in allowed


def _fit(models: list[MLModel], gpu: GPU, working: int = 0) -> bool:
    if not gpu.slots:
        return sum(model.weight_bytes for model in models) + working <= gpu.memory_bytes
    return not working and any(
        all(model.weight_bytes <= size for model, size in zip(models, slots, strict=True))
        for slots in permutations(gpu.slots, len(models))
    )


def _transfer(instance: Instance, source: int, target: int, size: int) -> int:
    if source == target:
        return 0
    a, b = instance.cluster.gpus[source], instance.cluster.gpus[target]
    network = instance.cluster.network
    link = network.within if a.server == b.server else network.between
    seconds = Fraction(0)
    if link.bandwidth is not None:
        seconds += Fraction(size) / link.bandwidth
    if network.staged:
        seconds += Fraction(size) / a.load_bandwidth + Fraction(size) / b.load_bandwidth
    return math.ceil(link.latency_us + 1_000_000 * seconds)


def _end(residency: Residency) -> float:
    return math.inf if residency.end_us is None else residency.end_us
