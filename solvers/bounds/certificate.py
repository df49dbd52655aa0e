"""Certificates: a bound written down with all that is needed to compute it again.

Of runs on several GPUs they name the window, and hold what is proved of its torn twin; prices may be of the window
itself (see `models.torn`).
"""

from __future__ import annotations

from fractions import Fraction
from importlib.metadata import version
from typing import Any

import numpy as np

from truenorth.models import Instance, Objective, scenario_hash
from truenorth.models.instance import Ints
from truenorth.models.objective import reported_bound
from truenorth.models.torn import priced_window, torn
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.lagrangian.improve import METHOD as LAGRANGIAN
from truenorth.solvers.bounds.lagrangian.improve import Priced
from truenorth.solvers.bounds.lagrangian.relaxation import Relaxation
from truenorth.solvers.bounds.lagrangian.shapes import NO_TASK
from truenorth.solvers.bounds.part_sums import PARTS
from truenorth.solvers.bounds.refutation import REFUTATION

SCHEMA_VERSION = 1


def closed_form_document(instance: Instance, objective: Objective, method: str, bound: Fraction) -> dict[str, Any]:
    """Return the certificate of a bound from a formula (see `closed_form.METHODS`), with what the formula searched."""
    return _document(instance, objective, method, bound, closed_form.witness(torn(instance), objective, method), {})


def lagrangian_document(instance: Instance, objective: Objective, priced: Priced) -> dict[str, Any]:
    """Return the certificate of a Lagrangian bound: its slots and windows, and every price as a whole number."""
    relaxation, prices = priced.relaxation, priced.prices
    parameters = {
        "slot_us": relaxation.slot_us,
        "scale": relaxation.scale,
        "delays": relaxation.data.delays.tolist(),
        "priced_precedences": _priced_precedences(priced_window(instance), relaxation),
        "memory_rows": [
            {"gpu_class": row.gpu_class, "parts": list(row.parts), "capacity": row.capacity}
            for row in relaxation.memory
        ],
        "model_uses": [{"model": use.model, "gpu_class": use.gpu_class} for use in relaxation.uses],
    }
    ends = relaxation.data.extra_first[1:-1]
    written = {
        "compute": prices.compute.tolist(),
        "copy": prices.copy.tolist(),
        "memory": prices.memory.tolist(),
        "model_uses": prices.uses.tolist(),
        "precedences": [part.tolist() for part in np.split(prices.extra, ends)],
    }
    if relaxation.trees.places:
        parameters["places"] = [
            {"batch": row.batch, "gpu_class": row.gpu_class, "fewest": row.fewest} for row in relaxation.trees.places
        ]
        written["places"] = _parts_of_batches(relaxation, prices.parts)
    return _document(instance, objective, LAGRANGIAN, priced.bound, parameters, written)


def parts_document(instance: Instance, objective: Objective, bound: Fraction, parts: list[Any]) -> dict[str, Any]:
    """Return the certificate of a sum over parts."""
    return _document(instance, objective, PARTS, bound, {"parts": parts}, {})


def refutation_document(
    instance: Instance, objective: Objective, least: Fraction, weights: list[list[int]], otherwise: dict[str, Any]
) -> dict[str, Any]:
    """Return the certificate that no plan stays below a value, with another one for whoever does not check that."""
    parameters = {"least": least.numerator, "scale": least.denominator}
    document = _document(instance, objective, REFUTATION, least, parameters, {"weights": weights})
    return document | {"otherwise": {key: otherwise[key] for key in ("method", "parameters", "prices")}}


def _document(
    instance: Instance,
    objective: Objective,
    method: str,
    bound: Fraction,
    parameters: dict[str, Any],
    prices: dict[str, Any],
) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": scenario_hash(instance),
        "objective": str(objective),
        "method": method,
        "lower_bound": reported_bound(objective, bound),
        "parameters": parameters,
        "prices": prices,
        "versions": {"truenorth": version("truenorth"), "numpy": np.__version__},
    }


def _parts_of_batches(relaxation: Relaxation, parts: Ints) -> list[list[list[Any]]]:
    """Return, per job, what its tasks pay for batches of several: (task, batch, first delay, parts)."""
    data, shapes, node_task = relaxation.data, relaxation.trees.shapes, relaxation.trees.node_task
    listed: list[list[list[Any]]] = []
    for shape, base, count in zip(data.shape.tolist(), data.node_first.tolist(), data.delays.tolist(), strict=True):
        paid: list[list[Any]] = []
        for node in range(shapes.node_first[shape], shapes.node_first[shape + 1]):
            at = int(relaxation.places.first[base + node - shapes.node_first[shape]])
            for option in range(shapes.option_first[node], shapes.option_first[node + 1]) if at >= 0 else ():
                row, mine = int(shapes.place[option]), parts[at : at + count - 1]
                edges = np.flatnonzero(np.diff(np.concatenate(([0], mine > 0, [0])))).tolist()
                if relaxation.places.most[row] > 1:
                    for begin, end in zip(edges[::2], edges[1::2], strict=True):
                        paid.append([int(node_task[node]), row, begin, mine[begin:end].tolist()])
                at += count
        listed.append(paid)
    return listed


def _priced_precedences(instance: Instance, relaxation: Relaxation) -> list[list[list[int]]]:
    """Return, per workflow, the precedences outside its tree as pairs of task positions; an added end is task n."""
    shapes, position = relaxation.trees.shapes, relaxation.trees.node_task
    listed = []
    for index, workflow in enumerate(instance.workflows):
        first = shapes.node_first[index]
        pairs = []
        for arc in range(shapes.extra_first[index], shapes.extra_first[index + 1]):
            tasks = [int(position[first + node[arc]]) for node in (shapes.extra_source, shapes.extra_target)]
            pairs.append([len(workflow.tasks) if task == NO_TASK else task for task in tasks])
        listed.append(pairs)
    return listed
