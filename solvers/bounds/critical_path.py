"""Critical path: no job ends before its longest chain of run times, however idle the cluster.

Source: the longest-path bound of every scheduling text (for instance Pinedo, Scheduling, section 4.1). Beyond run
times it counts what no plan avoids: delays, transfers between tasks that share no eligible GPU class, and loads that
a cold copy engine has still to finish (rules R1, R6: nothing loads before time 0).

Other bounds take the chains of fastest run times and delays: what a task takes at least, what lies before and after it.
Transfers and loads are left out of these, so that the lengths hold for every placement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from truenorth.models import NEVER, NONE, Instance, Objective, objective_value
from truenorth.models.instance import Ints
from truenorth.models.tables import Arcs


def fastest_run_us(instance: Instance) -> Ints:
    """Return the shortest run time of each template in this cluster. Shape [templates]."""
    never = np.iinfo(np.int64).max
    return np.asarray(np.where(instance.run_us == NEVER, never, instance.run_us).min(axis=1), np.int64)


def heads_us(instance: Instance) -> Ints:
    """Return the longest chain of fastest run times and delays before each template. Shape [templates]."""
    return _longest(instance, instance.inputs, forwards=True)


def tails_us(instance: Instance) -> Ints:
    """Return the longest chain of delays and fastest run times after each template. Shape [templates]."""
    return _longest(instance, instance.outputs, forwards=False)


def _longest(instance: Instance, neighbours: Arcs, *, forwards: bool) -> Ints:
    fastest, longest = fastest_run_us(instance).tolist(), [0] * len(instance.needs)
    delay = instance.delay_us.tolist()
    for workflow, first in zip(instance.workflows, instance.template_first.tolist(), strict=False):
        order: Iterable[int] = workflow.topological if forwards else reversed(workflow.topological)
        for position in order:
            beside = [(first + position + offset, edge) for offset, edge in neighbours[first + position]]
            chains = (delay[edge] + fastest[t] + longest[t] for t, edge in beside)
            longest[first + position] = max(chains, default=0)
    return np.array(longest, np.int64)


UNREACHABLE = np.int64(1) << 60
"""Stands for the end of a task on a class where it cannot run."""


@dataclass(frozen=True, slots=True)
class Earliest:
    """Earliest start and end of every task in microseconds. Shape [tasks]."""

    start_us: Ints
    end_us: Ints


def bound(instance: Instance, objective: Objective) -> Fraction:
    """Return the value of the objective if every job ended at its earliest; every objective grows with completions."""
    ends = earliest(instance).end_us
    return objective_value(objective, instance, np.maximum.reduceat(ends, instance.job_first_task[:-1]))


def earliest(instance: Instance) -> Earliest:
    """Return earliest starts and ends, each job alone on the cluster, each input from the class that serves it best."""
    start, end = np.empty(instance.n_tasks, np.int64), np.empty(instance.n_tasks, np.int64)
    cold, hop = cold_load(instance), least_gap(instance)
    for index, (workflow, jobs) in enumerate(zip(instance.workflows, jobs_by_workflow(instance), strict=True)):
        release, first = instance.job_release_us[jobs, None], instance.job_first_task[jobs]
        ends: dict[int, Ints] = {}
        for position in workflow.topological:
            template = int(instance.template_first[index]) + position
            begin = np.maximum(release, cold[template])
            for offset, edge in instance.inputs[template]:
                begin = np.maximum(begin, (ends[position + offset][:, :, None] + hop[edge]).min(axis=1))
            run_us = runs_alone(instance, template, first + position)
            eligible = run_us != NEVER
            ends[position] = np.where(eligible, begin + run_us, UNREACHABLE)
            start[first + position] = np.where(eligible, begin, UNREACHABLE).min(axis=1)
            end[first + position] = ends[position].min(axis=1)
    return Earliest(start, end)


def runs_alone(instance: Instance, template: int, tasks: Ints) -> Ints:
    """Return how long tasks of one template take at the least on each class, NEVER where they cannot run.

    A request of a stream, whoever is served beside it, takes its own prompt's time and a step of one for each decode.
    Shape [tasks, classes], or [1, classes] where all are alike.
    """
    run_us: Ints = instance.run_us[template]
    streams = instance.streams
    if streams is None or streams.template[template] == NONE:
        return run_us[None]
    stream = int(streams.template[template])
    table = np.full((len(tasks), len(run_us)), NEVER, np.int64)
    tokens = [streams.tokens(task) for task in tasks.tolist()]
    for c, speed in enumerate(streams.speeds[stream]):
        if speed is not None and run_us[c] != NEVER:
            alone = [speed.prefill_us(each.uncached) + each.decodes * speed.tau[1] for each in tokens]
            table[:, c] = np.where(streams.held[tasks] <= streams.longest[stream, c], alone, NEVER)
    return table


def jobs_by_workflow(instance: Instance) -> list[Ints]:
    """Return the jobs of every workflow, ascending."""
    counts = np.bincount(instance.job_workflow, minlength=len(instance.workflows))
    return np.split(np.argsort(instance.job_workflow, kind="stable"), np.cumsum(counts)[:-1])


def cold_load(instance: Instance) -> Ints:
    """Return the earliest instant at which a GPU of a class can hold a template's models. Shape [templates, classes].

    The copy engine carries out one load at a time, from time 0 on; models resident at time 0 need none.
    """
    present: dict[int, set[int]] = {}
    for resident in instance.initial:
        present.setdefault(resident.gpu, set()).add(resident.model)
    # GPUs of one class that hold the same models are one case, and so are templates that need the same ones.
    cases = {(c, frozenset(present.get(gpu, ()))) for gpu, c in enumerate(instance.gpu_class.tolist())}
    load = instance.load_us.tolist()
    ready = {needed: [int(UNREACHABLE)] * len(instance.class_gpu) for needed in set(instance.needs)}
    for needed, by_class in ready.items():
        for c, there in cases:
            by_class[c] = min(by_class[c], sum(load[model][c] for model in needed if model not in there))
    table = np.array([ready[needed] for needed in instance.needs], np.int64)
    table = table[:, [kind.classes[0] for kind in instance.place_kinds]]
    return np.asarray(np.where(instance.run_us == NEVER, UNREACHABLE, table), np.int64)


def least_gap(instance: Instance) -> Ints:
    """Return what passes at least along an edge between two classes: its delay, and between classes a transfer.

    Shape [edges, classes, classes].
    """
    n_classes = len(instance.class_gpu)
    least = np.zeros((len(instance.transfer_us), n_classes, n_classes), np.int64)
    servers = [set(instance.gpu_server[instance.gpu_class == c].tolist()) for c in range(n_classes)]
    for a in range(n_classes):
        for b in range(n_classes):
            if a != b:
                within = [1] if servers[a] & servers[b] else []
                between = [0] if len(servers[a] | servers[b]) > 1 else []
                least[:, a, b] = instance.transfer_us[:, a, b, within + between].min(axis=1)
    return least + instance.delay_us[:, None, None]
