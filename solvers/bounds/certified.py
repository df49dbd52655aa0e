"""Reading a certificate: every number and every name is looked at before it counts, and refused if it is not sound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorth.models import NEVER, Instance, Workflow
from truenorth.models.features import Features, missing

LARGEST_PRICE = 1 << 200
"""No price in a certificate is larger."""

LATEST = 1 << 62
"""No instant in a certificate lies beyond this: in microseconds, it fits 64 bits beside the times of an instance."""

MOST_DELAYS = 200_000_000
"""Certificates with more delays in all their windows are refused unread."""

Wholes = NDArray[np.object_]
"""An array of Python's whole numbers, which never wrap."""

_PRICED = "priced_precedences"


class RefusedError(ValueError):
    """The certificate is refused; the message says why."""


def refuse_features(instance: Instance, method: str, supports: Features) -> None:
    """Refuse a window with a feature that no bound of a method is proved for."""
    lacking = missing(instance, supports)
    if lacking:
        raise RefusedError(f"{method} has no support for {', '.join(lacking)}")


@dataclass(frozen=True, slots=True)
class CertifiedShape:
    """A workflow as a tree and the precedences outside it; a node is a position, or the number of tasks for an end.

    Parameters
    ----------
    nodes, root
        How many nodes there are; the workflow's only sink, or an added end.
    kept, priced
        The precedences of the tree, and the others.
    children
        Per node: those beyond it in the tree, seen from the root.
    leaves_first
        The nodes, every one after its children.
    priced_into, priced_from
        Per node: the sources (targets) of the priced precedences that lead to (leave) it.
    """

    nodes: int
    root: int
    kept: frozenset[tuple[int, int]]
    priced: tuple[tuple[int, int], ...]
    children: tuple[tuple[int, ...], ...]
    leaves_first: tuple[int, ...]
    priced_into: tuple[tuple[int, ...], ...]
    priced_from: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, workflow: Workflow, listed: object) -> CertifiedShape:
        """Return a workflow whose priced precedences a certificate lists; refuse unless the others make a tree."""
        count, position = len(workflow.tasks), workflow.position
        arcs = [(position[edge.source], index) for index, task in enumerate(workflow.tasks) for edge in task.inputs]
        sinks = sorted(set(range(count)) - {source for source, _ in arcs})
        root = sinks[0] if len(sinks) == 1 else count
        arcs += [(sink, root) for sink in sinks if root == count]
        nodes, known, priced = max(count, root + 1), set(arcs), list[tuple[int, int]]()
        for pair in as_list(listed, None, _PRICED):
            source, target = (whole(end, 0, count, _PRICED) for end in as_list(pair, 2, _PRICED))
            if (source, target) not in known:
                raise RefusedError("priced_precedences names an unknown precedence, or one twice")
            # Taken out at once, so that a precedence named twice is unknown the second time.
            known.remove((source, target))
            priced.append((source, target))
        children, order = _grow(root, nodes, known)
        # Connected, with one arc fewer than nodes: a tree, and the programme over it terminates.
        if len(order) != nodes or len(known) != nodes - 1:
            raise RefusedError("priced_precedences leaves no tree")
        into, outof = [list[int]() for _ in range(nodes)], [list[int]() for _ in range(nodes)]
        for source, target in priced:
            into[target].append(source)
            outof[source].append(target)
        freeze = tuple[tuple[int, ...], ...]
        return cls(
            nodes,
            root,
            frozenset(known),
            tuple(priced),
            freeze(map(tuple, children)),
            tuple(order[::-1]),
            freeze(map(tuple, into)),
            freeze(map(tuple, outof)),
        )


def _grow(root: int, nodes: int, arcs: Iterable[tuple[int, int]]) -> tuple[list[list[int]], list[int]]:
    """Return the children of every node that a walk from the root finds first there, and the nodes it reaches."""
    beside = [list[int]() for _ in range(nodes)]
    for source, target in arcs:
        beside[source].append(target)
        beside[target].append(source)
    children, order, seen = [list[int]() for _ in range(nodes)], [root], {root}
    for node in order:
        children[node] = [other for other in sorted(beside[node]) if other not in seen]
        seen.update(children[node])
        order += children[node]
    return children, order


def read_shapes(instance: Instance, listed: object) -> list[CertifiedShape]:
    """Return the shapes of all workflows with the priced precedences that a certificate lists."""
    rows = as_list(listed, len(instance.workflows), _PRICED)
    return [CertifiedShape.of(workflow, row) for workflow, row in zip(instance.workflows, rows, strict=True)]


def memory_row(instance: Instance, row: object) -> tuple[int, list[int], int]:
    """Return class, parts and capacity of a limit on memory; refuse it unless all models that fit together obey it."""
    c = whole(get(row, "gpu_class"), 0, len(instance.class_gpu) - 1, "gpu_class")
    listed = as_list(get(row, "parts"), len(instance.models), "parts")
    parts = [whole(part, 0, 1 << 40, "parts") for part in listed]
    capacity = whole(get(row, "capacity"), 0, 1 << 40, "capacity")
    gpu, weights = instance.class_gpu[c], instance.weight_bytes.tolist()
    if gpu.slots:
        # A slot counts if it takes the smallest model of the row: more models than such slots never lie there.
        counted = [w for w, part in zip(weights, parts, strict=True) if part]
        rooms = sum(slot >= min(counted) for slot in gpu.slots) if counted else 0
        sound = max(parts, default=0) <= 1 and capacity >= rooms
    else:
        # part / capacity <= weight / memory without a rounded quotient: what fits by bytes then fits the row.
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
    # JSON's true is a whole number to Python.
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise RefusedError(f"{name} must be a whole number from {least} to {most}")
    return value


def table(value: object, rows: int, columns: int, name: str) -> Wholes:
    """Return a table of whole numbers, none below 0."""
    read = [as_list(row, columns, name) for row in as_list(value, rows, name)]
    for row in read:
        for price in row:
            whole(price, 0, LARGEST_PRICE, name)
    return np.array(read, object).reshape(rows, columns)
