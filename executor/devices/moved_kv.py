"""KV that moves between GPUs: of which requests, to which; and which scenarios ask for more than devices do."""

from __future__ import annotations

import numpy as np

from truenorth.executor.devices.decoding import served_model
from truenorth.executor.errors import DeviceError
from truenorth.models import Instance


def kv_moves(instance: Instance) -> list[tuple[int, int]]:
    """Return source and target of all KV that moves, as tasks."""
    if instance.streams is None:
        return []
    source, target, edge = instance.edges()
    moved = instance.streams.kv_edge[edge]
    return list(zip(source[moved].tolist(), target[moved].tolist(), strict=True))


def most_sent_bytes(instance: Instance) -> int:
    """Return the bytes of the most KV that may move at a time; 0 if none does."""
    gpus = np.unique(instance.gpu_class, return_index=True)[1].tolist()  # one of each class
    return max((instance.kv_sent_bytes(source, gpu) for source, _ in kv_moves(instance) for gpu in gpus), default=0)


def require_continued_answers(instance: Instance) -> None:
    """Raise if KV moves to a request that does more, or less, than go on with the answer that another has begun.

    Raises
    ------
    DeviceError
        Saying what is wrong, and what is allowed.
    """
    moves, streams = kv_moves(instance), instance.streams
    if not moves or streams is None:
        return
    targets, times = np.unique([target for _, target in moves], return_counts=True)
    several = set(targets[times > 1].tolist())
    of_task = streams.template[instance.task_template].tolist()
    for source, target in moves:
        before, after = streams.tokens(source), streams.tokens(target)
        models = [served_model(streams.classes[of_task[task]]) for task in (source, target)]
        wrong = {
            "takes in KV of several requests; allowed is that of one": target in several,
            f"computes {after.uncached} prompt tokens beside the KV that comes in; allowed are 0": after.uncached > 0,
            f"has {after.prompt} prompt tokens, and KV of {before.prompt} comes in; allowed are as many, or the first "
            "token besides": not 0 <= after.prompt - before.prompt <= 1,
            f"goes on after {before.output} output tokens; allowed is 1": before.output != 1,
            "goes on with KV that was not computed where it comes from; allowed is that of a prompt": not (
                before.uncached
            ),
            f"runs {models[1]}, and its KV is of {models[0]}; allowed is the same model": models[0] != models[1],
        }
        problem = next((problem for problem, holds in wrong.items() if holds), None)
        if problem is not None:
            job = int(instance.task_job[target])
            raise DeviceError(f"job {job}, {instance.task_name(target)}: {problem} on devices")
