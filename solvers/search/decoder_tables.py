"""An instance and an objective as flat arrays, the form in which compiled kernels read them.

Every number comes from the instance's own tables; ragged rows per template become one array with the
first entry of each row (compressed rows). The cost of a job that completes at C is

    linear x max(0, C - due)  +  step x [C > due],   and the plan pays  peak x max(0, C - due)  for its worst job,

which covers every objective of `models.objective`; objectives that are a maximum or a count get a small linear part
beside their own, so that a search sees progress between two of their steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.objective import Objective, Term, charges
from truenorth.models.workload import WHOLE
from truenorth.solvers.bounds.critical_path import fastest_run_us, tails_us
from truenorth.solvers.compiled import Floats

SMOOTHING = 1e-4
"""Share of the small linear part in objectives that are a maximum or a count."""


class InstanceTables(NamedTuple):
    """What the decoder reads, per task, job, template, GPU, class and model.

    Attributes
    ----------
    task_template, task_job, use_first
        Per task; `use_first` numbers the (task, model) pairs.
    release_us, job_ingress, linear, step, peak, due_us, ideal_us
        Per job; `ideal_us` is the earliest completion that run times allow.
    input_first, input_offset, input_edge
        Inputs of template k are the entries input_first[k] to input_first[k + 1].
    output_first, output_offset
        The same for its successors.
    need_first, need_model
        The same for its models, largest first.
    fastest_us, tail_us, input_us
        Per template: fastest run time in this cluster, longest path of delays and fastest run times after it, and how
        long its input bytes take to any server but the job's ingress.
    run_us, load_us, gpu_class, gpu_server, weight_bytes
        As in `Instance`.
    transfer_us
        As in `Instance`, with a third column for the same GPU, and the edge's delay in all of them, alone in the third.
        Shape [edges, classes, classes, 3].
    memory_bytes, slot_bytes
        Per GPU; slots in the second, padded with 0. Shapes [gpus], [gpus, most slots].
    replicas
        Per model: most GPUs that may hold it at a time, NONE if any number may.
    evictable
        Whether models may have to leave: some GPU cannot hold all that may be on it.
    idle_first
        Whether the model that has been idle for longest leaves, in place of the one needed furthest ahead.
    limited, overlap_loads, no_swaps
        Whether replicas are limited at all; the instance's option and restriction.
    """

    task_template: Ints
    task_job: Ints
    use_first: Ints
    release_us: Ints
    job_ingress: Ints
    linear: Floats
    step: Floats
    peak: Floats
    due_us: Ints
    ideal_us: Ints
    input_first: Ints
    input_offset: Ints
    input_edge: Ints
    output_first: Ints
    output_offset: Ints
    need_first: Ints
    need_model: Ints
    fastest_us: Ints
    tail_us: Ints
    input_us: Ints
    run_us: Ints
    load_us: Ints
    transfer_us: Ints
    gpu_class: Ints
    gpu_server: Ints
    weight_bytes: Ints
    memory_bytes: Ints
    slot_bytes: Ints
    replicas: Ints
    evictable: bool
    idle_first: bool
    limited: bool
    overlap_loads: bool
    no_swaps: bool


class Service(NamedTuple):
    """What a decode reads of batches, shares and working memory, beside `InstanceTables`.

    Attributes
    ----------
    task_batch
        Per task: its batch class, NONE without one.
    batch, share, memory
        Per template, as in `Instance`.
    batch_us, largest
        Run times of a batch class on a GPU class by size, and the largest size there, as in `Instance`.
    smallest_share
        The least share that any template takes.
    side_by_side, holds_memory
        Whether some template takes less than a whole GPU; whether some holds memory.
    goes_us
        Per GPU: when it goes; it comes once, when its engines are free at first.
    """

    task_batch: Ints
    batch: Ints
    share: Ints
    memory: Ints
    batch_us: Ints
    largest: Ints
    smallest_share: int
    side_by_side: bool
    holds_memory: bool
    goes_us: Ints


def tabulate(instance: Instance, objective: Objective, idle_first: bool) -> InstanceTables:
    """Return the tables of an instance under an objective; of batches they know size 1."""
    input_first, inputs = _compress(instance.inputs)
    output_first, outputs = _compress(instance.outputs)
    largest_first = [
        [(model,) for model in sorted(row, key=lambda model: (-int(instance.weight_bytes[model]), model))]
        for row in instance.needs
    ]
    need_first, needs = _compress(largest_first, width=1)
    per_task = np.diff(need_first)[instance.task_template]
    tail = tails_us(instance)
    fastest = fastest_run_us(instance)
    path = np.maximum.reduceat(tail + fastest, instance.template_first[:-1])
    linear, step, peak, due = _costs(instance, objective)
    slots = max(len(gpu.slots) for gpu in instance.cluster.gpus)
    slot_bytes = np.zeros((instance.n_gpus, slots), np.int64)
    for index, gpu in enumerate(instance.cluster.gpus):
        slot_bytes[index, : len(gpu.slots)] = gpu.slots
    limits = instance.restrictions.max_replicas
    tables = InstanceTables(
        task_template=instance.task_template,
        task_job=instance.task_job,
        use_first=np.concatenate(([0], np.cumsum(per_task))),
        release_us=instance.job_release_us,
        job_ingress=instance.job_ingress,
        linear=linear,
        step=step,
        peak=peak,
        due_us=due,
        ideal_us=instance.job_release_us + path[instance.job_workflow],
        input_first=input_first,
        input_offset=inputs[:, 0].copy(),
        input_edge=inputs[:, 1].copy(),
        output_first=output_first,
        output_offset=outputs[:, 0].copy(),
        need_first=need_first,
        need_model=needs[:, 0].copy(),
        fastest_us=fastest,
        tail_us=tail,
        input_us=instance.input_us,
        run_us=instance.run_us,
        load_us=instance.load_us,
        transfer_us=np.pad(instance.transfer_us, ((0, 0), (0, 0), (0, 0), (0, 1)))
        + instance.delay_us[:, None, None, None],
        gpu_class=instance.gpu_class,
        gpu_server=instance.gpu_server,
        weight_bytes=instance.weight_bytes,
        memory_bytes=np.array([gpu.memory_bytes for gpu in instance.cluster.gpus], np.int64),
        slot_bytes=slot_bytes,
        replicas=np.array([limits.get(model.name, NONE) for model in instance.models], np.int64),
        evictable=_may_evict(instance),
        idle_first=idle_first,
        limited=bool(limits),
        overlap_loads=instance.overlap_loads,
        no_swaps=instance.restrictions.no_swaps,
    )
    arrays: dict[str, Any] = {k: _read_only(v) for k, v in tables._asdict().items() if isinstance(v, np.ndarray)}
    return tables._replace(**arrays)


def tabulate_service(instance: Instance) -> Service:
    """Return the tables of batches, shares and working memory."""
    share = instance.template_share
    return Service(
        task_batch=instance.template_batch[instance.task_template],
        batch=instance.template_batch,
        share=share,
        memory=instance.template_memory,
        batch_us=instance.batch_us,
        largest=instance.batch_largest,
        smallest_share=int(share.min()),
        side_by_side=bool((share < WHOLE).any()),
        holds_memory=bool(instance.template_memory.any()),
        goes_us=np.array([gpu.available.intervals[0][1] for gpu in instance.cluster.gpus], np.int64),
    )


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written: kernels are compiled once, for arrays that are alike in this as well."""
    view = array.view()
    view.setflags(write=False)
    return view


def _compress(rows: Sequence[Sequence[tuple[int, ...]]], width: int = 2) -> tuple[Ints, Ints]:
    """Return the first entry of each row, with the total at the end, and the entries, one per line."""
    first = np.concatenate(([0], np.cumsum([len(row) for row in rows], dtype=np.int64)))
    entries = [entry for row in rows for entry in row]
    return first.astype(np.int64), np.array(entries, np.int64).reshape(len(entries), width)


def _costs(instance: Instance, objective: Objective) -> tuple[Floats, Floats, Floats, Ints]:
    """Return linear, step and peak cost and the due time of each job.

    Steps and peaks are flat almost everywhere: a small linear cost leads the search across.
    """
    charged = charges(objective, instance)
    weights, none = np.array([float(weight) for weight in charged.job_weights]), np.zeros(len(instance.jobs))
    if charged.term is Term.LATE:
        return SMOOTHING * weights / instance.job_critical_us, weights, none, charged.due_us
    if not charged.is_sum:
        return SMOOTHING * weights / len(instance.jobs), none, weights, charged.due_us
    return weights, none, none, charged.due_us


def _may_evict(instance: Instance) -> bool:
    """Say whether some GPU class cannot hold all models that may be resident there."""
    for c, gpu in enumerate(instance.class_gpu):
        allowed = [int(w) for w, load in zip(instance.weight_bytes, instance.load_us[:, c], strict=True) if load >= 0]
        if gpu.slots or not gpu.fits(allowed):
            return True
    return bool(instance.restrictions.max_replicas)
