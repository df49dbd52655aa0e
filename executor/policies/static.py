"""Static placement: every model is pinned to some GPUs once and for all, as most people deploy today."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from truenorth.executor.errors import PolicyError
from truenorth.executor.execution import NOWHERE
from truenorth.executor.policies.eviction import fit_slots
from truenorth.executor.policies.homed import leave_out_excess
from truenorth.executor.policies.options import QueueOptions, ViewOptions, names, nearest, option
from truenorth.executor.policies.planning import mean_run
from truenorth.executor.policies.queueing import QueuePolicy
from truenorth.executor.policies.view import UNREACHABLE, CostRows, Row, RunRows, least
from truenorth.executor.policy import Knows
from truenorth.executor.site import Site
from truenorth.models import NEVER, Workflow
from truenorth.models.branches import likelihoods
from truenorth.models.gpu_state import Memory
from truenorth.models.places import Places
from truenorth.models.tables import GPUClasses, needed_models, place_classes, run_times


@dataclass(frozen=True, slots=True)
class StaticOptions(ViewOptions):
    """What it is deployed for.

    Parameters
    ----------
    workflows
        Names of the workflows that will come; none: all of the catalogue.
    """

    workflows: tuple[str, ...] = option((), names)


class Static(QueuePolicy):
    """Models pinned by a greedy fit on the demand of the catalogue's workflows, loaded once, never swapped.

    The demand of a task is its mean run time by the catalogue, all workflows alike: which of them will come, and how
    often, is not known. (Workflows whose tasks need the same models count as one, by their mean: a file made from a log
    lists a workflow for every run time of a model.) First every task, largest models first, gets one GPU that holds all
    its models: the one with the least demand so far where they fit (if that leads nowhere: the fullest). Then the task
    with the most demand per copy gets another, again and again, while there is room. Initial residents stay. The pins
    are loaded from the release of the first job on. A task, when it becomes runnable, goes to the least wait among the
    GPUs that hold its models.
    """

    Options: ClassVar[type[object]] = StaticOptions
    knows: ClassVar[Knows] = Knows.WAITS

    def __init__(self, options: StaticOptions | None = None) -> None:
        seen = options or StaticOptions()
        self._named = seen.workflows
        super().__init__(QueueOptions(seen.period, seen.remaining, seen.enqueue, seen.own_decisions, prefetch=0))

    def begin(self, site: Site) -> None:
        """Choose the pins.

        Raises
        ------
        PolicyError
            If nothing is known of the workflows, or the models of all of them do not fit the cluster at once.
        """
        super().begin(site)
        pins = choose_pins(site, self._expected(site))
        given = [list(memory.residents.items()) for memory in site.memory]
        self._pins = [[*here, *of_gpu] for here, of_gpu in zip(given, pins, strict=True)]
        self._to_load = [list(of_gpu) for of_gpu in pins]
        self._hosted = [
            {*memory.residents, *(model for model, _ in of_gpu)}
            for memory, of_gpu in zip(site.memory, pins, strict=True)
        ]
        to_come = [sum(site.weight_bytes[model] for model, _ in of_gpu) for of_gpu in pins]
        self._spare_bytes = [memory.free_bytes - size for memory, size in zip(site.memory, to_come, strict=True)]
        self._runs = RunRows(site)
        self._able: CostRows[Row] = CostRows(self._find_able)

    def _expected(self, site: Site) -> Sequence[Workflow]:
        """Return the workflows that it is deployed for."""
        if not site.catalogue:
            raise PolicyError("policy static pins models before any job comes: the instance must have a catalogue")
        known = {workflow.name: workflow for workflow in site.catalogue}
        for name in self._named:
            if name not in known:
                raise PolicyError(f"policy static: workflows: the catalogue has no {name!r}{nearest(name, known)}")
        return [known[name] for name in self._named] or site.catalogue

    def _find_able(self, template: int) -> Row:
        """Return 0 for the GPUs that are to hold a template's models and have room, UNREACHABLE for the others."""
        site, needs, held_bytes = self.site, self.site.needs[template], self.site.task_bytes[template]
        able = [
            models.issuperset(needs) and held_bytes <= spare
            for models, spare in zip(self._hosted, self._spare_bytes, strict=True)
        ]
        row: Row = np.where(able, 0, UNREACHABLE)
        possible = [site.run_us[template][of_class] != NEVER for of_class in site.gpu_class]
        if not (np.array(able) & possible).any():
            listed = ", ".join(site.models[model].name for model in needs)
            raise PolicyError(f"policy static swaps nothing, and no eligible GPU was given all of {listed} beforehand")
        return row

    def _accept(self, site: Site) -> None:
        """Keep to every restriction: nothing is evicted, and the pins respect the replicas."""
        leave_out_excess(site)

    def runnable(self, task: int, server: int) -> None:
        """Place the task on a GPU that holds its models."""
        self.view.advance()
        template = self.site.template[task]
        row = self.view.waits(server) + self._runs.row[template] + self._able[template]
        if row.min() >= UNREACHABLE:  # those that hold its models are away, or go too soon
            self.wait_for_gpu(task, server)
            return
        self.place(task, least(row, self.view.gpus_of[self.site.job_ingress[self.site.job[task]]]))

    def released(self, job: int) -> None:
        """Begin to load with the first job."""
        super().released(job)
        if not job:
            for gpu in range(self.site.n_gpus):
                self._load_next(gpu)

    def came(self, gpu: int) -> None:
        """Load its pins again."""
        self._to_load[gpu] = list(self._pins[gpu])
        self.site.touched[gpu] = None
        super().came(gpu)

    def act(self, gpus: Sequence[int]) -> None:
        """Go on to the next pins, then with the queues."""
        if self.site.jobs:
            for gpu in gpus:
                self._load_next(gpu)
        super().act(gpus)

    def _load_next(self, gpu: int) -> None:
        """Load the next pin, unless the one before is under way or running tasks hold its room."""
        left = self._to_load[gpu]
        if not left or self.site.now + self.site.load_time(left[0][0], gpu) > self.site.goes_us[gpu]:
            return
        if self.site.state[gpu].refuse_load(*left[0]) is None:
            model, slot = left.pop(0)
            self._load(gpu, model, (), slot)

    def eviction_order(self, gpu: int) -> list[int]:
        """Return nothing: all pins stay."""
        return []

    def _bring_up(self, task: int, gpu: int) -> bool:
        """Start the task in turn when its models are there; with overlap off, when all pins are."""
        site, state = self.site, self.site.state[gpu]
        if not (site.stays or site.in_time(task, gpu)):
            return super()._bring_up(task, gpu)
        blocked = not site.overlap_loads and state.loading != NOWHERE
        if blocked or not state.memory.ready.issuperset(site.needs[site.template[task]]):
            return False
        return super()._bring_up(task, gpu)


def choose_pins(site: Site, workflows: Sequence[Workflow]) -> list[list[tuple[int, int | None]]]:
    """Return, per GPU, the models to pin and their slots (None by bytes), in the order of their choice.

    Raises
    ------
    PolicyError
        If some task's models fit nowhere beside the others.
    """
    tasks, stuck = _expected_tasks(site, workflows), -1
    for balanced in (True, False):
        fit = _Fit(site, tasks)
        stuck = fit.cover(balanced)
        if stuck < 0:
            fit.replicate()
            return fit.pins
    listed = ", ".join(site.models[model].name for model in tasks[stuck].needs)
    raise PolicyError(f"policy static swaps nothing, and {listed} fit no eligible GPU beside the other pinned models")


_Shape = tuple[tuple[tuple[int, ...], ...], tuple[tuple[bool, ...], ...]]
"""Of a workflow: the models that each task needs, and the GPU classes that can run it."""


@dataclass(frozen=True, slots=True)
class _Expected:
    """A task that will come: its models, its mean run time, what it holds beside them, and the GPUs that can run it."""

    needs: tuple[int, ...]
    work_us: float
    memory_bytes: int
    eligible: list[int]


def _expected_tasks(site: Site, workflows: Sequence[Workflow]) -> list[_Expected]:
    """Return the tasks of workflows that need models or memory; workflows alike in all but run times count as one.

    A workflow that the cluster cannot run is left out, for no job can ask for it. Tasks of a branch count as they are
    likely.
    """
    classes = GPUClasses.of(site.cluster, site.restrictions)
    needs = needed_models(workflows, site.models)
    singles = place_classes(Places.of(site.cluster, ()), site.cluster, classes)[1]
    rows = run_times(workflows, needs, site.models, classes, singles, site.restrictions)
    alike: dict[_Shape, list[tuple[list[list[int]], list[Fraction]]]] = {}
    held: dict[_Shape, list[int]] = {}
    first = 0
    for workflow in workflows:
        here = slice(first, first + len(workflow.tasks))
        first = here.stop
        by_class = rows[here].tolist()
        possible = tuple(tuple(run_us != NEVER for run_us in row) for row in by_class)
        if all(map(any, possible)):
            shape = needs[here], possible
            alike.setdefault(shape, []).append((by_class, likelihoods(workflow)))
            before = held.get(shape, [0] * len(workflow.tasks))
            held[shape] = [max(task.memory_bytes, most) for task, most in zip(workflow.tasks, before, strict=True)]
    found = []
    for (models, possible), of_all in alike.items():
        for position, needed in enumerate(models):
            works = (likely[position] * mean_run(site, by_class[position]) for by_class, likely in of_all)
            work_us = float(sum(works) / len(of_all))
            eligible = [gpu for gpu, of_class in enumerate(site.gpu_class) if possible[position][of_class]]
            memory_bytes = held[models, possible][position]
            if needed or memory_bytes:
                found.append(_Expected(needed, work_us, memory_bytes, eligible))
    return found


class _Fit:
    """A greedy fit in the making: what each GPU will hold, and the demand it will carry."""

    def __init__(self, site: Site, tasks: Sequence[_Expected]) -> None:
        self._site, self._tasks = site, tasks
        self._shelf = [Memory(gpu, site.weight_bytes) for gpu in site.cluster.gpus]
        for shelf, memory in zip(self._shelf, site.memory, strict=True):
            # What is there at the beginning stays there.
            for model, slot in memory.residents.items():
                shelf.hold_model(model, slot)
        self.pins: list[list[tuple[int, int | None]]] = [[] for _ in self._shelf]
        self._carried = [0.0] * site.n_gpus
        self._hosts: list[list[int]] = [[] for _ in tasks]
        self._limit = [site.restrictions.max_replicas.get(model.name, site.n_gpus) for model in site.models]
        self._copies = [sum(model in shelf.residents for shelf in self._shelf) for model in range(len(site.models))]

    def cover(self, balanced: bool) -> int:
        """Give every task a GPU that holds its models; return the task that found none, or -1."""
        sizes, tasks = self._site.weight_bytes, self._tasks
        # Large sets first, while there is room; among equals those of most work.
        largest_first = sorted(
            range(len(tasks)), key=lambda t: (-sum(sizes[m] for m in tasks[t].needs), -tasks[t].work_us)
        )
        for task in largest_first:
            possible = [gpu for gpu in tasks[task].eligible if self._fits(task, gpu)]
            # A GPU that has all of its models needs no copy.
            held = [gpu for gpu in possible if not self._absent(task, gpu)]
            if not possible:
                return task
            fill = self._carried if balanced else [shelf.free_bytes for shelf in self._shelf]
            self._host(task, min(held or possible, key=lambda gpu: (fill[gpu], gpu)))
        return -1

    def replicate(self) -> None:
        """Add copies while there is room, always for the task with the most demand per copy."""
        growing = set(range(len(self._tasks)))
        while growing:
            # Whose copies carry most each; of equals the first.
            task = max(growing, key=lambda t: (self._tasks[t].work_us / len(self._hosts[t]), -t))
            hosts = set(self._hosts[task])
            possible = [gpu for gpu in self._tasks[task].eligible if gpu not in hosts and self._fits(task, gpu)]
            if possible:
                self._host(task, min(possible, key=lambda gpu: (self._carried[gpu], gpu)))
            else:
                growing.remove(task)

    def _absent(self, task: int, gpu: int) -> list[int]:
        sizes = self._site.weight_bytes
        absent = [model for model in self._tasks[task].needs if model not in self._shelf[gpu].residents]
        return sorted(absent, key=lambda model: -sizes[model])

    def _fits(self, task: int, gpu: int) -> bool:
        absent, shelf = self._absent(task, gpu), self._shelf[gpu]
        # The operator allows so many replicas.
        if any(self._copies[model] >= self._limit[model] for model in absent):
            return False
        sizes = [self._site.weight_bytes[model] for model in absent]
        if shelf.slots:
            return fit_slots(sizes, shelf.empty_slots)
        return sum(sizes) + self._working_bytes(gpu, absent) <= shelf.free_bytes

    def _working_bytes(self, gpu: int, absent: Sequence[int]) -> int:
        """Return what the most demanding task that could then run on a GPU holds beside the models: nothing leaves."""
        models = self._shelf[gpu].residents.keys() | set(absent)
        able = (task for task in self._tasks if gpu in task.eligible and models.issuperset(task.needs))
        return max((task.memory_bytes for task in able), default=0)

    def _host(self, task: int, gpu: int) -> None:
        for model in self._absent(task, gpu):
            self.pins[gpu].append((model, self._shelf[gpu].hold_model(model, None)))
            self._copies[model] += 1
        hosts = self._hosts[task]
        for host in hosts:
            # Taken off before the new host is added, since the demand is shared by all alike.
            self._carried[host] -= self._tasks[task].work_us / len(hosts)
        hosts.append(gpu)
        for host in hosts:
            self._carried[host] += self._tasks[task].work_us / len(hosts)
