"""Compass (arXiv 2402.17652): the strongest honest reading of the paper, and the simulator that an author released.

Of the first every reading is an option; the second has that simulator's quirks, among them the twin of an instance.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeVar

import numpy as np

from truenorth.executor.errors import PolicyError
from truenorth.executor.execution import NOWHERE
from truenorth.executor.policies.options import BATCHES_OFF, QueueOptions, duration, factor, option, switch
from truenorth.executor.policies.planning import JobPlanner
from truenorth.executor.policies.queueing import QueuePolicy
from truenorth.executor.policies.view import Row, least, load_rows
from truenorth.executor.site import Site
from truenorth.models import InitialResidency, Instance, MLModel, Restrictions, Task, Workflow
from truenorth.models.features import Feature, Features


@dataclass(frozen=True, slots=True)
class CompassOptions(QueueOptions):
    """Readings of Compass.

    Parameters
    ----------
    adjust
        Whether a task is placed anew when its predecessor finishes and its planned worker has become busy.
    threshold
        A task stays where it was planned while the wait there is at most so many times its run time.
    """

    adjust: bool = option(True, switch)
    threshold: float = option(1.5, factor)


class Compass(QueuePolicy):
    """Plans a job on its arrival, by the server where it arrives, from the published view of every worker.

    Each server knows at once what it has decided itself, and of the others what is published. Tasks are placed in
    decreasing rank on the worker of the earliest start, a missing model counting with its load time, or twice that if
    something must be evicted; several missing models add up. With `adjust`, a task with one predecessor whose planned
    worker's wait exceeds `threshold` x R(t) when that predecessor finishes moves to the worker with the least wait + TD
    + input transfer; a join stays.
    """

    decides_apart: ClassVar[bool] = True
    Options: ClassVar[type[object]] = CompassOptions

    def __init__(self, options: CompassOptions | None = None) -> None:
        self.readings = options or CompassOptions()
        super().__init__(self.readings)

    def begin(self, site: Site) -> None:
        """Set up the planner."""
        super().begin(site)
        self._planner = JobPlanner(site)

    def released(self, job: int) -> None:
        """Plan the job, and let its first tasks queue."""
        site, view = self.site, self.view
        server = site.job_ingress[job]
        view.advance()
        # By the clock of the boundary, on which waits cost least: only differences count.
        available = view.waits(server, view.boundary_us)
        for task, gpu in self._planner.plan(job, available, view.boundary_us, view, view.gpus_of[server]):
            self.place(task, gpu)

    def reconsider(self, task: int, edge: int, here: int) -> None:
        """Adjust the plan, unless the task is a join."""
        site, view = self.site, self.view
        template, planned, server = site.template[task], site.gpu[task], site.gpu_server[here]
        # The paper leaves joins where they are: inputs are on their way from several workers.
        if not self.readings.adjust or len(site.inputs[template]) > 1:
            return
        view.advance()
        if view.wait(planned, server) <= self.readings.threshold * site.run_us[template][site.gpu_class[planned]]:
            return
        row = view.waits(server, view.boundary_us)
        self._planner.runs.add_to(row, template)
        view.add_load_costs(row, site.needs[template], server, out=row)
        self._planner.transfers.add_to(row, edge, here)
        best = least(row, view.gpus_of[site.job_ingress[site.job[task]]])
        if best != planned:
            self.place(task, best, server)


T = TypeVar("T")

_Seen = tuple[frozenset[int], int]
"""Models, and their bytes."""


@dataclass(frozen=True, slots=True)
class ReleasedOptions:
    """What can be varied in the released simulator, and its two corrections.

    Parameters
    ----------
    adjust, threshold
        As for `compass`.
    staleness
        Age, in microseconds, of the stale rows.
    remaining
        Corrected: the rest of the running task counts as load.
    shared
        Corrected: workflows share models; the policy then runs on the instance itself.
    """

    adjust: bool = option(False, switch)
    threshold: float = option(1.5, factor)
    staleness: int = option(1_000, duration)
    remaining: bool = option(False, switch)
    shared: bool = option(False, switch)


class ReleasedCompass(QueuePolicy):
    """Compass with the quirks of the released simulator (github aliciayuting/mNavigator, commit f3885518).

    - A cache entry is (workflow, model): the policy runs on `twin_instance`, where a model that two workflows use is
      on a GPU twice.
    - Evicting copies the weights back first, bytes / load bandwidth each; write-backs, the load and the run come one
      after the other while the GPU idles. Timelines are therefore `realised`: a load lasts as long as the evictions
      and the fetch together.
    - Eviction is FIFO, and nothing is prefetched. Equal workers: lowest index, wherever the job arrives.
    - Of the loads, a worker's own row is stale and the others are fresh; of the resident models, the own row is fresh
      and the others are stale. A model is seen when its fetch ends, and until then what it replaces.
    - The load is the run time of the queued tasks; the running task (or the one being loaded for) does not count.
    - Planning a job, the bytes to fetch are deducted from the memory in use of the chosen worker, not added to it.
    - Two tasks of one job with the same model both pay for its load in the planning.
    - A task with several inputs queues when the last one arrives.
    - The adjustment, if on, takes place when the predecessor starts, with what is then known of its end, and with the
      predecessor still in the load of its worker.
    """

    supports: ClassVar[Features] = QueuePolicy.supports - {Feature.DELAYS}
    write_back = True
    name = "compass-released"
    Options: ClassVar[type[object]] = ReleasedOptions

    def __init__(self, options: ReleasedOptions | None = None) -> None:
        self.readings = options or ReleasedOptions()
        super().__init__(QueueOptions(prefetch=0, evict="fifo", enqueue="last", own_decisions=False, batch=BATCHES_OFF))

    def twin(self, instance: Instance) -> Instance:
        """Return the twin instance, unless models are shared."""
        return instance if self.readings.shared else twin_instance(instance)

    def begin(self, site: Site) -> None:
        """Start the history of every worker."""
        if not site.stays:
            raise PolicyError("policy compass-released knows no servers that come and go; allowed is compass")
        super().begin(site)
        self._planner = JobPlanner(site)
        # Run times queued, without the running task: so the released code counts load.
        self._waiting_us = [0] * site.n_gpus
        stale = self.readings.staleness
        self._loads = [_PastValues(0, stale) for _ in range(site.n_gpus)]
        self._models = [_PastValues(self._residents(gpu), stale) for gpu in range(site.n_gpus)]
        self._load_rows = load_rows(site)
        self._turned_to = [NOWHERE] * site.n_gpus
        self._count = self._count_waiting

    def released(self, job: int) -> None:
        """Plan the job, and let its first tasks queue."""
        site = self.site
        server, now = site.job_ingress[job], site.now
        available = np.array([now + self._wait(gpu, server, now) for gpu in range(site.n_gpus)], np.int64)
        costs = _ReleasedCosts(site, self._load_rows, self._seen_models(server, now))
        where = self._planner.plan(job, available, now, costs, ingress=())
        for task, gpu in where:
            self.place(task, gpu)

    def _bring_up(self, task: int, gpu: int) -> bool:
        """Turn to a task that has just been taken from the queue, once it runs or the loads before it have begun."""
        has_started = super()._bring_up(task, gpu)
        if self._turned_to[gpu] != task:
            self._turned_to[gpu] = task
            self._turn_to(task, gpu)
        return has_started

    def _turn_to(self, task: int, gpu: int) -> None:
        """Adjust the successors already now, with the task itself still in the load; then take it out."""
        site = self.site
        if self.readings.adjust:
            state = site.state[gpu]
            end = state.load_end_us if state.loading != NOWHERE else site.now
            for offset, edge in site.outputs[site.template[task]]:
                alone = len(site.inputs[site.template[task + offset]]) == 1
                if alone and task + offset not in site.dropped:
                    self._adjust(task + offset, edge, gpu, end + site.run_time(task, gpu))
        # From now on it does not count, though it still occupies the worker.
        self._waiting_us[gpu] -= site.run_time(task, gpu)
        self._loads[gpu].add(site.now, self._waiting_us[gpu])

    def _adjust(self, task: int, edge: int, here: int, end_us: int) -> None:
        site, server = self.site, self.site.gpu_server[here]
        template, planned = site.template[task], site.gpu[task]
        if self._wait(planned, server, end_us) <= self.readings.threshold * site.run_time(task, planned):
            return
        row = self._planner.runs.row[template] + np.array(
            [self._wait(gpu, server, end_us) + site.transfer_time(edge, here, gpu) for gpu in range(site.n_gpus)],
            np.int64,
        )
        costs = _ReleasedCosts(site, self._load_rows, self._seen_models(server, end_us))
        costs.add_load_costs(row, site.needs[template], server, out=row)
        best = int(row.argmin())
        if best != planned:
            self.place(task, best)

    def _wait(self, gpu: int, server: int, at_us: int) -> int:
        """Return the wait at a worker: stale for the own server, fresh for others."""
        site = self.site
        stale = self.readings.staleness if site.gpu_server[gpu] == server else 0
        wait: int = self._loads[gpu].at(at_us - stale)
        if self.readings.remaining and site.state[gpu].runs:
            wait += max(0, site.run_end_us[gpu] - at_us)
        return wait

    def _seen_models(self, server: int, at_us: int) -> list[_Seen]:
        """Return the resident models of every worker and their bytes: fresh for the own server, stale for others."""
        site, stale = self.site, self.readings.staleness
        return [
            history.at(at_us if site.gpu_server[gpu] == server else at_us - stale)
            for gpu, history in enumerate(self._models)
        ]

    def _count_waiting(self, gpu: int, run_us: int) -> None:
        self.view.add_work(gpu, run_us)
        self._waiting_us[gpu] += run_us
        self._loads[gpu].add(self.site.now, self._waiting_us[gpu])

    def _load(self, gpu: int, model: int, evict: Sequence[int], slot: int | None) -> None:
        super()._load(gpu, model, evict, slot)
        # Seen once the fetch ends, without the write-backs before it.
        fetched = self.site.now + self.site.load_time(model, gpu)
        self._models[gpu].add(fetched, self._residents(gpu))

    def _residents(self, gpu: int) -> _Seen:
        models = frozenset(self.site.memory[gpu].residents)
        return models, sum(self.site.weight_bytes[model] for model in models)


class _PastValues(Generic[T]):
    """A value over time, as far back as it can be asked for; additions come in the order of their times.

    Parameters
    ----------
    value
        At the beginning.
    reach_us
        How long ago the earliest time lies that will be asked for, seen from the latest addition.
    """

    def __init__(self, value: T, reach_us: int) -> None:
        # -1 lies before everything, so that there is always a value.
        self._times, self._values, self._reach_us = [-1], [value], reach_us

    def add(self, time_us: int, value: T) -> None:
        """Change the value from a time on, and forget what nobody will ask for any more."""
        self._times.append(time_us)
        self._values.append(value)
        past = bisect_right(self._times, time_us - self._reach_us) - 1
        if 2 * past > len(self._times):  # half of it, so that forgetting costs no more than adding
            del self._times[:past], self._values[:past]

    def at(self, time_us: int) -> T:
        """Return the value after all changes up to a time, inclusive."""
        if time_us >= self._times[-1]:
            return self._values[-1]
        return self._values[max(0, bisect_right(self._times, time_us) - 1)]


class _ReleasedCosts:
    """Load costs by what is seen of every worker, with the memory in use reckoned as the released simulator does."""

    def __init__(self, site: Site, load_rows: Sequence[Row], seen: Sequence[_Seen]) -> None:
        self._size, self._load_rows = site.weight_bytes, load_rows
        self._models = [models for models, _ in seen]
        self._used = np.array([used for _, used in seen], np.int64)
        self._memory = np.array([gpu.memory_bytes for gpu in site.cluster.gpus], np.int64)

    def add_load_costs(self, row: Row, needs: tuple[int, ...], _server: int, out: Row) -> None:
        """Add, per missing model, its load time, or twice that if it exceeds what is left of the memory."""
        for model in needs:
            missing = np.array([model not in models for models in self._models])
            # Something must leave first: that counts as another load.
            full = self._used + self._size[model] > self._memory
            row = np.add(row, self._load_rows[model] * missing * (1 + full), out=out)

    def placed(self, worker: int, needs: tuple[int, ...]) -> None:
        """Deduct the bytes to fetch from the memory in use, if that is as much."""
        fetched = sum(self._size[model] for model in needs if model not in self._models[worker])
        if self._used[worker] >= fetched:
            self._used[worker] -= fetched


def twin_instance(instance: Instance) -> Instance:
    """Return the twin of an instance: every workflow has its own copy of each model, named ``workflow/model``.

    A cache entry of the released Compass simulator is a workflow's model, so that a model which two workflows use is
    on a GPU twice. Tasks and jobs keep their numbers. A model without users keeps its name; an initial residency goes
    to the first workflow that uses the model. A twin is its own twin, and so is an instance with requests of streams,
    which `compass-released` does not serve.
    """
    if instance.streams is not None:
        return instance
    # Dictionaries in place of sets: the order of models decides their numbers.
    used: dict[str, dict[str, None]] = {}
    for workflow in instance.workflows:
        models = (model for task in (workflow.of or workflow).tasks for model in task.models)
        used.setdefault(workflow.name, {}).update(dict.fromkeys(models))
    if all(model.startswith(f"{name}/") for name, models in used.items() for model in models):
        return instance
    twins: dict[str, list[str]] = {
        model.name: [f"{name}/{model.name}" for name, models in used.items() if model.name in models] or [model.name]
        for model in instance.models
    }
    listed = [MLModel(twin, model.weight_bytes) for model in instance.models for twin in twins[model.name]]
    position = {model.name: index for index, model in enumerate(listed)}
    workflows = [_own_models(workflow) for workflow in instance.workflows]
    of_job = instance.job_workflow.tolist()
    return Instance(
        instance.cluster,
        tuple(listed),
        tuple(replace(job, workflow=workflows[index]) for job, index in zip(instance.jobs, of_job, strict=True)),
        instance.overlap_loads,
        tuple(
            InitialResidency(resident.gpu, position[twins[instance.models[resident.model].name][0]], resident.slot)
            for resident in instance.initial
        ),
        _restrictions(instance.restrictions, twins),
    )


def _own_models(workflow: Workflow) -> Workflow:
    def own(task: Task) -> Task:
        return replace(task, batch=None, models=tuple(f"{workflow.name}/{model}" for model in task.models))

    return workflow.with_tasks(own)


def _restrictions(restrictions: Restrictions, twins: dict[str, list[str]]) -> Restrictions:
    return replace(
        restrictions,
        model_gpus={twin: gpus for model, gpus in restrictions.model_gpus.items() for twin in twins[model]},
        max_replicas={twin: most for model, most in restrictions.max_replicas.items() for twin in twins[model]},
    )
