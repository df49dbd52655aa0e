"""Static placement: every model is pinned to some GPUs once and for all, as most people deploy today."""

from __future__ import annotations

import numpy as np

from executor.errors import PolicyError
from executor.memory import Memory
from executor.policies.costs import UNREACHABLE, RunRows
from executor.policies.eviction import fit_slots
from executor.policies.options import QueueOptions, ViewOptions
from executor.policies.queueing import QueuePolicy
from executor.policies.ranks import mean_run
from executor.policies.view import Row
from executor.site import NOWHERE, Site
from models import NEVER


class Static(QueuePolicy):
    """Models pinned by a greedy fit on the demand of the workflows, loaded once, never swapped.

    The demand of a task is its mean run time, all workflows alike: how often each will come is not known. (Workflows of
    one name count as one, by their mean: a catalogue may list one for every job that will come.) First every
    task, largest models first, gets one GPU that holds all its models: the one with the least demand so far where they
    fit (if that leads nowhere: the fullest). Then the task with the most demand per copy gets another, again and again,
    while there is room. Initial residents stay. The pins are loaded from the release of the first job on.
    A task, when it becomes runnable, goes to the least wait among the GPUs that hold its models.
    """

    Options = ViewOptions

    def __init__(self, options: ViewOptions | None = None) -> None:
        seen = options or ViewOptions()
        super().__init__(QueueOptions(seen.period, seen.remaining, seen.enqueue, prefetch=0))

    def begin(self, site: Site) -> None:
        """Choose the pins.

        Raises
        ------
        PolicyError
            If the models of all workflows do not fit the cluster at once.
        """
        super().begin(site)
        pins = choose_pins(site)
        self._to_load = [list(of_gpu) for of_gpu in pins]
        hosted = [
            {*memory.residents, *(model for model, _ in of_gpu)}
            for memory, of_gpu in zip(site.memory, pins, strict=True)
        ]
        runs = RunRows(site)
        self._rows: list[Row] = [
            runs.row[template]
            + np.array([0 if models.issuperset(needs) else UNREACHABLE for models in hosted], np.int64)
            for template, needs in enumerate(site.needs)
        ]

    def _accept(self, site: Site) -> None:
        """Keep to every restriction: nothing is evicted, and the pins respect the replicas."""

    def runnable(self, task: int, server: int) -> None:
        """Place the task on a GPU that holds its models."""
        self.view.advance()
        row = self.view.waits(server) + self._rows[self.site.template[task]]
        self.place(task, int(row.argmin()))

    def released(self, job: int) -> None:
        """Begin to load with the first job."""
        super().released(job)
        if not job:
            for gpu in range(self.site.n_gpus):
                self._load_next(gpu)

    def loaded(self, model: int, gpu: int) -> None:
        """Go on to the next pin."""
        self._load_next(gpu)

    def _load_next(self, gpu: int) -> None:
        if self._to_load[gpu]:
            model, slot = self._to_load[gpu].pop(0)
            self._load(gpu, model, (), slot)

    def _bring_up(self, task: int, gpu: int) -> None:
        """Start the task in turn when its models are there; with overlap off, when all pins are."""
        site = self.site
        needs = site.needs[site.template[task]]
        blocked = not site.overlap_loads and site.loading[gpu] != NOWHERE
        if not blocked and site.memory[gpu].ready.issuperset(needs):
            self._start(task, gpu, needs)


def choose_pins(site: Site) -> list[list[tuple[int, int | None]]]:
    """Return, per GPU, the models to pin and their slots (None by bytes), in the order of their choice.

    Raises
    ------
    PolicyError
        If some task's models fit nowhere beside the others.
    """
    stuck = -1
    for balanced in (True, False):
        fit = _Fit(site)
        stuck = fit.cover(balanced)
        if stuck < 0:
            fit.replicate()
            return fit.pins
    names = ", ".join(site.models[model].name for model in site.needs[stuck])
    raise PolicyError(f"policy static swaps nothing, and {names} fit no eligible GPU beside the other pinned models")


class _Fit:
    """A greedy fit in the making: what each GPU will hold, and the demand it will carry."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._shelf = [Memory(gpu, site.weight_bytes) for gpu in site.cluster.gpus]
        for shelf, memory in zip(self._shelf, site.memory, strict=True):
            for model, slot in memory.residents.items():
                shelf.take(model, slot)
        self.pins: list[list[tuple[int, int | None]]] = [[] for _ in self._shelf]
        alike = _alike(site)
        self._tasks = list(alike)
        self._demand = {
            task: float(sum(mean_run(site, template) for template in of_task) / len(of_task))
            for task, of_task in alike.items()
        }
        self._carried = [0.0] * site.n_gpus
        self._hosts: list[list[int]] = [[] for _ in site.needs]
        self._limit = [site.restrictions.max_replicas.get(model.name, site.n_gpus) for model in site.models]
        self._copies = [sum(model in shelf.residents for shelf in self._shelf) for model in range(len(site.models))]
        self._eligible = [
            [gpu for gpu in range(site.n_gpus) if site.run_us[template][site.gpu_class[gpu]] != NEVER]
            for template in range(len(site.needs))
        ]

    def cover(self, balanced: bool) -> int:
        """Give every task a GPU that holds its models; return the template that found none, or -1."""
        sizes = self._site.weight_bytes
        pinned = [template for template in self._tasks if self._site.needs[template]]
        for template in sorted(pinned, key=lambda t: (-sum(sizes[m] for m in self._site.needs[t]), -self._demand[t])):
            possible = [gpu for gpu in self._eligible[template] if self._fits(template, gpu)]
            held = [gpu for gpu in possible if not self._absent(template, gpu)]
            if not possible:
                return template
            fill = self._carried if balanced else [shelf.free_bytes for shelf in self._shelf]
            self._host(template, min(held or possible, key=lambda gpu: (fill[gpu], gpu)))
        return -1

    def replicate(self) -> None:
        """Add copies while there is room, always for the task with the most demand per copy."""
        growing = {template for template in self._tasks if self._site.needs[template]}
        while growing:
            template = max(growing, key=lambda t: (self._demand[t] / len(self._hosts[t]), -t))
            hosts = set(self._hosts[template])
            possible = [gpu for gpu in self._eligible[template] if gpu not in hosts and self._fits(template, gpu)]
            if possible:
                self._host(template, min(possible, key=lambda gpu: (self._carried[gpu], gpu)))
            else:
                growing.remove(template)

    def _absent(self, template: int, gpu: int) -> list[int]:
        sizes = self._site.weight_bytes
        absent = [model for model in self._site.needs[template] if model not in self._shelf[gpu].residents]
        return sorted(absent, key=lambda model: -sizes[model])

    def _fits(self, template: int, gpu: int) -> bool:
        absent, shelf = self._absent(template, gpu), self._shelf[gpu]
        if any(self._copies[model] >= self._limit[model] for model in absent):
            return False
        sizes = [self._site.weight_bytes[model] for model in absent]
        return fit_slots(sizes, shelf.empty_slots) if shelf.slots else sum(sizes) <= shelf.free_bytes

    def _host(self, template: int, gpu: int) -> None:
        for model in self._absent(template, gpu):
            self.pins[gpu].append((model, self._shelf[gpu].take(model, None)))
            self._copies[model] += 1
        hosts = self._hosts[template]
        for host in hosts:
            self._carried[host] -= self._demand[template] / len(hosts)
        hosts.append(gpu)
        for host in hosts:
            self._carried[host] += self._demand[template] / len(hosts)


def _alike(site: Site) -> dict[int, list[int]]:
    """Return the templates of each task of each workflow's name, by the first of them."""
    found: dict[tuple[str, int, tuple[int, ...]], list[int]] = {}
    for workflow, first in zip(site.workflows, site.template_first, strict=False):
        for position in range(len(workflow.tasks)):
            key = workflow.name, position, tuple(site.needs[first + position])
            found.setdefault(key, []).append(first + position)
    return {templates[0]: templates for templates in found.values()}
