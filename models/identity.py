"""The identity of an instance: the hash that ties a plan or a certificate to what it was made for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from truenorth.models.cluster import FOREVER, GPU, Link
from truenorth.models.instance import Instance
from truenorth.models.streams import StreamClass
from truenorth.models.workload import WHOLE, BatchClass, Edge, Job, Task


def scenario_hash(instance: Instance) -> str:
    """Return the SHA-256 of the canonical JSON of an instance: no scenario name, objective or service level in it."""
    return hashlib.sha256(canonical_text(instance).encode()).hexdigest()


def canonical_text(instance: Instance) -> str:
    """Return an instance as canonical JSON: keys sorted, no white space, ASCII."""
    return json.dumps(canonical(instance), sort_keys=True, separators=(",", ":"))


def canonical(instance: Instance) -> dict[str, Any]:
    """Return an instance as plain lists, dictionaries, integers and strings; equal instances give equal values."""
    network = instance.cluster.network
    batches = {"batches": [_batch(batch) for batch in instance.batches]} if instance.batches else {}
    classes = () if instance.streams is None else instance.streams.classes
    streams = {"streams": [_stream(stream) for stream in classes]} if classes else {}
    places = {"places": [list(gpus) for gpus in instance.places.gpus[instance.n_gpus :]]} if instance.gangs else {}
    return {
        "gpus": [_gpu(gpu) for gpu in instance.cluster.gpus],
        "network": [_link(network.between), _link(network.within), network.staged],
        "models": [[model.name, model.weight_bytes] for model in instance.models],
        "workflows": [
            [
                workflow.name,
                [
                    [
                        task.name,
                        dict(task.runtime_us),
                        list(task.models),
                        [_edge(edge) for edge in task.inputs],
                        *_demand(task),
                    ]
                    for task in workflow.tasks
                ],
                *([] if workflow.ideal_us is None else [workflow.ideal_us]),
            ]
            for workflow in instance.workflows
        ],
        "jobs": [
            [
                int(workflow),
                job.release_us,
                _number(job.weight),
                job.deadline_us,
                job.ingress,
                *_tokens(job),
                *_blocks(job),
                *_priority(job),
                *([] if job.own_ideal_us is None else [{"ideal": job.own_ideal_us}]),
            ]
            for workflow, job in zip(instance.job_workflow, instance.jobs, strict=True)
        ],
        "options": {
            "overlap_loads": instance.overlap_loads,
            "initial": sorted([resident.gpu, resident.model, resident.slot] for resident in instance.initial),
        },
        "restrictions": {
            "model_gpus": _sets(instance.restrictions.model_gpus),
            "workflow_gpus": _sets(instance.restrictions.workflow_gpus),
            "max_replicas": dict(instance.restrictions.max_replicas),
            "no_swaps": instance.restrictions.no_swaps,
        },
        **batches,
        **streams,
        **places,
    }


def _gpu(gpu: GPU) -> list[Any]:
    hardware = [gpu.kind, gpu.memory_bytes, list(gpu.slots), _number(gpu.load_bandwidth), gpu.load_overhead_us]
    intervals = [[begin, None if end == FOREVER else end] for begin, end in gpu.available.intervals]
    drain = [gpu.drain_us] if gpu.drains else []
    return [gpu.id, gpu.server, *hardware, *([] if gpu.available.always else [intervals, *drain])]


def _demand(task: Task) -> list[dict[str, Any]]:
    """Return what a task asks for beyond a whole GPU and its models; nothing where it asks for nothing."""
    given: dict[str, Any] = {"input": task.input_bytes} if task.input_bytes else {}
    if task.batch is not None:
        return [{"batch": task.batch.name, **given}]
    if task.stream is not None:
        tied = {} if task.tied_to is None else {"with": task.tied_to}
        marked = {"first_token": True} if task.first_token else {}
        return [{"stream": task.stream.name, **tied, **marked, **given}]
    if task.modes:
        given["modes"] = [
            [mode.gpus, dict(mode.runtime_us), _number(mode.across), *(["copy"] if mode.copies else [])]
            for mode in task.modes
        ]
    elif task.gpus > 1:
        given |= {"gpus": task.gpus} | ({} if task.across == 1 else {"across": _number(task.across)})
        given |= {"weights": "copy"} if task.copies else {}
    asked = {"share": task.share, "memory": task.memory_bytes}
    plain = asked == {"share": WHOLE, "memory": 0}
    return [given if plain else {**asked, **given}] if given or not plain else []


def _edge(edge: Edge) -> list[Any]:
    delay = [{"delay": edge.delay_us}] if edge.delay_us else []
    return [edge.source, edge.size_bytes, *(["kv"] if edge.kv else []), *delay, *(["hold"] if edge.hold else [])]


def _batch(batch: BatchClass) -> list[Any]:
    runtime = {kind: sorted(times.items()) for kind, times in batch.runtime_us.items()}
    return [batch.name, runtime, list(batch.models), batch.share, batch.memory_bytes]


def _stream(stream: StreamClass) -> list[Any]:
    speeds = {
        kind: [
            *(_number(speed.prefill_rate), speed.chunk, speed.seats, list(speed.tau), speed.kv_bytes),
            *([speed.amended] if speed.amended else []),
        ]
        for kind, speed in stream.speeds.items()
    }
    cached = [{"prefix_block": stream.prefix_block}] if stream.prefix_block else []
    return [stream.name, speeds, list(stream.models), *([list(stream.adapters)] if stream.adapters else []), *cached]


def _tokens(job: Job) -> list[dict[str, list[int]]]:
    """Return the tokens of a job's requests, whoever gives them; nothing where it has none."""
    tokens = {task.name: list(job.tokens_of(task)) for task in job.workflow.tasks if task.stream is not None}
    return [tokens] if tokens else []


def _blocks(job: Job) -> list[dict[str, dict[str, list[int]]]]:
    """Return the blocks of a job's requests that nodes cache; nothing where there are none."""
    blocks = {
        task.name: list(job.blocks_of(task))
        for task in job.workflow.tasks
        if task.stream is not None and task.stream.prefix_block and job.blocks_of(task)
    }
    return [{"blocks": blocks}] if blocks else []


def _priority(job: Job) -> list[dict[str, int]]:
    return [{"priority": job.priority}] if job.priority else []


def _link(link: Link) -> list[Any]:
    return [link.latency_us, None if link.bandwidth is None else _number(link.bandwidth)]


def _number(value: Fraction) -> int | str:
    return value.numerator if value.denominator == 1 else str(value)


def _sets(limits: Mapping[str, frozenset[int]]) -> dict[str, list[int]]:
    return {name: sorted(gpus) for name, gpus in limits.items()}
