"""The neighbourhoods of the large neighbourhood search: which tasks of a plan are free, and where they may go."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from models.instance import Ints
from solvers.search.lns_part import Standing


@dataclass(frozen=True, slots=True)
class Freedom:
    """What may change.

    Parameters
    ----------
    gpus
        Per free task: the GPUs that it may take.
    in_order
        Whether the tasks of a GPU keep their order.
    """

    gpus: Mapping[int, tuple[int, ...]]
    in_order: bool = False


Neighbourhood = Callable[[Standing, int, int, random.Random], Freedom]
"""Frees about so many tasks near a task of a plan."""

_MOST_GPUS = 6
_FEW_GPUS = 2


def time_window(plan: Standing, size: int, centre: int, rng: random.Random) -> Freedom:
    """Free all tasks of a stretch of time."""
    gpus = _some_gpus(plan, centre, _MOST_GPUS, rng)
    return _anywhere(plan, _nearest(plan, _on(plan, gpus), size, centre), gpus)


def few_gpus(plan: Standing, size: int, centre: int, rng: random.Random) -> Freedom:
    """Free the tasks of two GPUs for a longer stretch of time, to be shared out between them anew."""
    gpus = _some_gpus(plan, centre, _FEW_GPUS, rng)
    return _anywhere(plan, _nearest(plan, _on(plan, gpus), size, centre), gpus)


def one_model(plan: Standing, size: int, centre: int, rng: random.Random) -> Freedom:
    """Free the tasks of one model."""
    gpus = _some_gpus(plan, centre, _MOST_GPUS, rng)
    wanted = rng.choice(plan.instance.task_needs(centre) or (None,))
    templates = np.array([wanted in needed or (wanted is None and not needed) for needed in plan.instance.needs])
    same = templates[plan.instance.task_template] & _on(plan, gpus)
    return _anywhere(plan, _nearest(plan, same, size, centre), gpus)


def residencies(plan: Standing, size: int, centre: int, rng: random.Random) -> Freedom:
    """Free starts and residencies; tasks stay on their GPUs, in their order."""
    return Freedom(order(plan, size, centre, rng).gpus, in_order=True)


def order(plan: Standing, size: int, centre: int, rng: random.Random) -> Freedom:
    """Free the order of tasks; they stay on their GPUs."""
    gpus = _some_gpus(plan, centre, _MOST_GPUS, rng)
    tasks = _nearest(plan, _on(plan, gpus), size, centre)
    return Freedom({task: (int(plan.timeline.gpu[task]),) for task in tasks})


NEIGHBOURHOODS: tuple[Neighbourhood, ...] = (time_window, few_gpus, one_model, residencies, order)


def _some_gpus(plan: Standing, centre: int, most: int, rng: random.Random) -> tuple[int, ...]:
    """Return the GPU of a task and a random choice of others; all where there are not more than `most`."""
    here = int(plan.timeline.gpu[centre])
    others = [gpu for gpu in range(plan.instance.n_gpus) if gpu != here]
    return tuple(sorted([here, *rng.sample(others, min(most - 1, len(others)))]))


def _on(plan: Standing, gpus: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    there: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.isin(plan.timeline.gpu, gpus)
    return there


def _nearest(plan: Standing, among: np.ndarray[tuple[int], np.dtype[np.bool_]], size: int, centre: int) -> list[int]:
    """Return the tasks that start nearest to a task."""
    tasks = np.flatnonzero(among)
    away: Ints = np.abs(plan.timeline.start_us[tasks] - plan.timeline.start_us[centre])
    nearest: list[int] = tasks[np.argsort(away, kind="stable")[:size]].tolist()
    return nearest


def _anywhere(plan: Standing, tasks: list[int], gpus: tuple[int, ...]) -> Freedom:
    """Free tasks to run on any of these GPUs that can run them."""
    eligible = {task: set(plan.instance.eligible_gpus(task)) for task in tasks}
    return Freedom({task: tuple(gpu for gpu in gpus if gpu in eligible[task]) for task in tasks})
