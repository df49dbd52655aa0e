"""Reading a certificate: every number and every name is looked at before it counts, and refused if it is not sound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from models import NEVER, Instance
from models.instance import Ints

LARGEST_SUM = 1 << 58
"""Sums of prices and costs that reach this are refused: 64-bit integers would not hold them safely."""

MOST_DELAYS = 200_000_000
"""Certificates with more delays in all their windows are refused unread."""


class RefusedError(ValueError):
    """The certificate is refused; the message says why."""


def arcs_and_end(instance: Instance, workflow: int) -> tuple[list[tuple[int, int]], int]:
    """Return the precedences among a workflow's tasks and its end: its only sink, or an added task n."""
    tasks = instance.workflows[workflow].tasks
    position = instance.workflows[workflow].position
    arcs = [(position[edge.source], index) for index, task in enumerate(tasks) for edge in task.inputs]
    sinks = [index for index in range(len(tasks)) if all(a != index for a, _ in arcs)]
    if len(sinks) == 1:
        return arcs, sinks[0]
    return arcs + [(sink, len(tasks)) for sink in sinks], len(tasks)


def priced_precedences(instance: Instance, listed: object) -> list[list[tuple[int, int]]]:
    """Return the priced precedences of every workflow; refuse unless the others make a tree."""
    found = []
    for workflow, pairs in enumerate(as_list(listed, len(instance.workflows), "priced_precedences")):
        arcs, _ = arcs_and_end(instance, workflow)
        priced = [tuple(as_list(pair, 2, "priced_precedences")) for pair in as_list(pairs, None, "priced_precedences")]
        tree = [arc for arc in arcs if arc not in priced]
        nodes = {node for arc in arcs for node in arc} | {0}
        if len(set(map(repr, priced))) < len(priced) or any(arc not in arcs for arc in priced):
            raise RefusedError("priced_precedences names an unknown precedence, or one twice")
        reached = {0}
        for _ in tree:
            reached |= {node for arc in tree if reached & set(arc) for node in arc}
        if reached != nodes or len(tree) != len(nodes) - 1:
            raise RefusedError("priced_precedences leaves no tree")
        found.append([(int(a), int(b)) for a, b in priced])
    return found


def memory_row(instance: Instance, row: object) -> tuple[int, list[int], int]:
    """Return class, parts and capacity of a limit on memory; refuse it unless all models that fit together obey it."""
    c = whole(get(row, "gpu_class"), 0, len(instance.class_gpu) - 1, "gpu_class")
    listed = as_list(get(row, "parts"), len(instance.models), "parts")
    parts = [whole(part, 0, 1 << 40, "parts") for part in listed]
    capacity = whole(get(row, "capacity"), 0, 1 << 40, "capacity")
    gpu, weights = instance.class_gpu[c], instance.weight_bytes.tolist()
    if gpu.slots:
        counted = [w for w, part in zip(weights, parts, strict=True) if part]
        rooms = sum(slot >= min(counted) for slot in gpu.slots) if counted else 0
        sound = max(parts, default=0) <= 1 and capacity >= rooms
    else:
        sound = all(part * gpu.memory_bytes <= capacity * w for w, part in zip(weights, parts, strict=True))
    if not sound:
        raise RefusedError("memory_rows holds a limit that the GPUs do not have")
    return c, parts, capacity


def model_uses(instance: Instance, listed: object) -> list[tuple[int, int]]:
    """Return the pairs (model, class); refuse repeated ones and models that may not be there."""
    pairs = []
    for entry in as_list(listed, None, "model_uses"):
        model = whole(get(entry, "model"), 0, len(instance.models) - 1, "model")
        c = whole(get(entry, "gpu_class"), 0, len(instance.class_gpu) - 1, "gpu_class")
        pairs.append((model, c))
    if len(set(pairs)) < len(pairs) or any(instance.load_us[pair] == NEVER for pair in pairs):
        raise RefusedError("model_uses names a pair twice, or a model where it may not be")
    return pairs


def delays(listed: object, n_jobs: int) -> list[int]:
    """Return the number of delays in the window of each job that costs something."""
    read = [whole(value, 1, MOST_DELAYS, "delays") for value in as_list(listed, n_jobs, "delays")]
    if sum(read) > MOST_DELAYS:
        raise RefusedError("the windows hold too many delays")
    return read


def get(document: object, key: str) -> Any:
    """Return what a JSON object holds under a key; refuse it if there is nothing."""
    if not isinstance(document, dict) or key not in document:
        raise RefusedError(f"{key} is missing")
    return document[key]


def as_list(value: object, length: int | None, name: str) -> Sequence[Any]:
    """Return a JSON list; refuse anything else, and another length."""
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise RefusedError(f"{name} must be a list" + ("" if length is None else f" of {length}"))
    return value


def whole(value: object, least: int, most: int, name: str) -> int:
    """Return a whole number; refuse anything else, and one out of its range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise RefusedError(f"{name} must be a whole number from {least} to {most}")
    return value


def table(value: object, rows: int, columns: int, name: str) -> Ints:
    """Return a table of whole numbers, none below 0."""
    read = [as_list(row, columns, name) for row in as_list(value, rows, name)]
    for row in read:
        for price in row:
            whole(price, 0, LARGEST_SUM, name)
    return np.array(read, np.int64).reshape(rows, columns)


def exact_sum(values: Ints) -> int:
    """Return the exact sum."""
    return int(sum(values.tolist()))
