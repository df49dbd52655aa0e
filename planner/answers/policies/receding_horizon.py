"""Receding horizon: an online policy that plans anew, with the local search of plans, whenever a job arrives.

It knows the jobs that have arrived, and those of a look-ahead if it is given an oracle. What has started stands: runs,
loads under way, models on the GPUs. It decides centrally and sees the whole cluster at once; the time that a decision
takes is measured, not charged. Compare Mayne and Michalska (1990) on receding horizon control.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from truenorth.executor import Policy, PolicyError, Site
from truenorth.executor.execution import NOWHERE
from truenorth.executor.policies.carrying_out import CarryingOut, lanes
from truenorth.executor.policies.options import count, duration, factor, one_of, option
from truenorth.models.branches import likeliest_path
from truenorth.models.gpu_state import Run
from truenorth.models.instance import Instance
from truenorth.models.objective import Objective
from truenorth.models.timeline import Placement
from truenorth.models.workload import Job, Workflow
from truenorth.solvers.compiled import random_state
from truenorth.solvers.search.annealer import SERVING, Parameters
from truenorth.solvers.search.replanning import Moment, Replanner, Stay

_HOT, _COLD = 0.01, 0.001
"""Temperatures of the local search: what it begins with is the plan so far."""
EVERYTHING = 1 << 62
"""A look-ahead beyond the end of every window, in microseconds."""


def horizon(text: str) -> int:
    """Read a look-ahead: a time with its unit, or ``all``.

    >>> horizon("5 s"), horizon("all") == EVERYTHING
    (5000000, True)
    """
    if text == "all":
        return EVERYTHING
    try:
        return duration(text)
    except ValueError as error:
        raise ValueError(f"{error}, or all") from None


@dataclass(frozen=True, slots=True)
class RecedingOptions:
    """How it plans.

    Parameters
    ----------
    moves
        Moves of the local search per decision.
    lookahead
        How far ahead arrivals are known, in microseconds; 0: not at all. Anything above is clairvoyant.
    objective
        What the plans minimise; None: what whoever runs the policy minimises, mean slowdown unless known otherwise.
    seed
        Of the local search.
    tolerance
        A run or a load that ends off its given time by at most so much of it changes nothing; on devices none ends to
        the microsecond.
    """

    moves: int = option(2_000, count)
    lookahead: int = option(0, horizon)
    objective: str | None = option(None, one_of(*Objective))
    seed: int = option(0, count)
    tolerance: float = option(0.1, factor)


class Oracle:
    """The arrivals of a window, past and future: the only channel through which a policy may learn of the future.

    Parameters
    ----------
    jobs
        In release order.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._release_us = [job.release_us for job in jobs]

    @property
    def releases_us(self) -> Sequence[int]:
        """The releases of all jobs."""
        return self._release_us

    def path_of(self, job: int) -> Workflow:
        """Return what a released job runs of its workflow, though that may not have shown yet."""
        return self._jobs[job].workflow

    def next_jobs(self, released: int, until_us: int) -> Sequence[Job]:
        """Return the jobs after the first `released` ones whose release is at or before a time."""
        return self._jobs[released : bisect_right(self._release_us, until_us)]


class RecedingHorizon(Policy):
    """Plans all known unfinished work anew at every arrival, and carries the plan out until the next.

    It also plans anew when a job comes into sight of a look-ahead, and when a run or a load ends off its given time by
    more than is tolerated. A task keeps its GPU once it has started. One that changes GPU before has its inputs sent
    again from then on; the plan assumes that they left when they were made, so it may start late by one transfer.
    Of a job that may take one of several paths the likeliest is planned until its path shows.

    Parameters
    ----------
    options
        How it plans.
    oracle
        Needed exactly if there is a look-ahead.

    Attributes
    ----------
    decision_s
        Wall-clock seconds of every decision.
    """

    name: ClassVar[str | None] = "receding"
    Options: ClassVar[type[object]] = RecedingOptions

    def __init__(self, options: RecedingOptions | None = None, oracle: Oracle | None = None) -> None:
        self._options = options or RecedingOptions()
        if self._options.lookahead and oracle is None:
            raise PolicyError("policy receding: a look-ahead above 0 needs an oracle of the arrivals to come")
        self._oracle = oracle if self._options.lookahead else None
        self._objective = Objective(self._options.objective or Objective.MEAN_SLOWDOWN)
        self.decision_s: list[float] = []

    @classmethod
    def looks_ahead(cls, options: object | None) -> bool:
        """Say whether it is given an oracle."""
        return isinstance(options, RecedingOptions) and options.lookahead > 0

    def begin(self, site: Site) -> None:
        """Have it called when jobs come into sight."""
        super().begin(site)
        if not site.stays:
            raise PolicyError("policy receding knows no servers that come and go; allowed are policies such as srpt")
        if site.restrictions.no_swaps or site.restrictions.max_replicas:
            raise PolicyError(
                "policy receding evicts at will: it cannot keep to the restrictions no_swaps, max_replicas"
            )
        self._random = random_state(self._options.seed)
        self._carrying = CarryingOut(site)
        self._tasks_left: dict[int, int] = {}
        self._planned: dict[int, tuple[int, int]] = {}
        self._last_use_us: list[dict[int, int]] = [{} for _ in range(site.n_gpus)]
        self._due, self._known = False, 0
        if self._oracle is not None:
            for release_us in sorted({max(0, r - self._options.lookahead) for r in self._oracle.releases_us}):
                site.wake(release_us)

    def released(self, job: int) -> None:
        """Have the work planned anew before anything else is begun."""
        self._tasks_left[job] = sum(task not in self.site.dropped for task in self.site.job_tasks[job])
        self._due = True
        self.site.wake(self.site.now)

    def decided(self, job: int, dropped: Sequence[int]) -> None:
        """Have the work planned anew if the job takes another path than it was planned for."""
        self._tasks_left[job] -= len(dropped)
        whole = self.site.workflows[self.site.job_workflow[job]]
        self._due |= self._oracle is None and self.site.jobs[job].workflow != likeliest_path(whole)

    def _path(self, job: int) -> Workflow:
        """Return what is planned of a job: its path, or the likeliest one until it shows."""
        path = self.site.jobs[job].workflow if self._oracle is None else self._oracle.path_of(job)
        return likeliest_path(path)

    def finished(self, task: int, gpu: int) -> None:
        """Take note of finished jobs and of the latest use of models; plan anew if the end was not as expected."""
        self._due |= self._unexpected(task, self._carrying.given_us.pop(task))
        job = self.site.job[task]
        self._tasks_left[job] -= 1
        if not self._tasks_left[job]:
            del self._tasks_left[job]
        for model in self.site.needs[self.site.template[task]]:
            self._last_use_us[gpu][model] = self.site.now

    def loaded(self, model: int, gpu: int) -> None:
        """Have the work planned anew if a load took another time than given."""
        given_us = self.site.load_time(model, gpu)
        self._due |= self._is_off(self.site.state[gpu].load_end_us, given_us)

    def act(self, gpus: Sequence[int]) -> None:
        """Plan anew if there are news, then go on with the plan."""
        ahead = self._jobs_ahead()
        known = len(self.site.jobs) + len(ahead)
        news = self._due or known > self._known
        self._due, self._known = False, known
        if news and (self._tasks_left or ahead):
            begun = time.perf_counter()
            self._plan_anew(ahead)
            self.decision_s.append(time.perf_counter() - begun)
            gpus = range(self.site.n_gpus)
        self._carrying.go_on(gpus)

    def _unexpected(self, task: int, given_us: int) -> bool:
        """Say whether a task that has just ended ran for another time than given."""
        return self._is_off(self.site.started_us[task] + given_us, given_us)

    def _is_off(self, expected_us: int, given_us: int) -> bool:
        """Say whether what ends now should have ended at another time, by more than is tolerated."""
        return abs(self.site.now - expected_us) > self._options.tolerance * given_us

    def _expected_end_us(self, run: Run) -> int:
        """Return when what runs should end, by the given time; at once if that has passed."""
        return max(self.site.now, run.end_us)

    def _jobs_ahead(self) -> Sequence[Job]:
        """Return the jobs that are in sight but not released."""
        if self._oracle is None:
            return ()
        return self._oracle.next_jobs(len(self.site.jobs), self.site.now + self._options.lookahead)

    def _plan_anew(self, ahead: Sequence[Job]) -> None:
        """Replace what is left of the plan."""
        site = self.site
        # Known jobs first, then those in sight: their numbers on the site follow in this order.
        jobs = [*(replace(site.jobs[job], workflow=self._path(job)) for job in self._tasks_left), *ahead]
        # The plan counts tasks from 0; the site has counted since the first release.
        number = self._numbers(jobs)
        instance = Instance(site.cluster, site.models, tuple(jobs), site.overlap_loads, (), site.restrictions)
        standing = {run.task: run for run in self._standing(number)}
        # What has started is no longer to be planned, but stands.
        previous = {
            index: self._planned[task]
            for index, task in enumerate(number)
            if task in self._planned and index not in standing
        }
        moment = Moment(*self._engines(), list(self._stays()), list(standing.values()), site.now)
        planner = Replanner(instance, self._objective, moment)
        parameters = replace(Parameters() if instance.one_at_a_time else SERVING, hot=_HOT, cold=_COLD)
        plan = planner.plan(previous, self._options.moves, self._random, parameters)
        self._planned = {
            number[run.task]: (run.gpu, run.start_us) for run in plan.placements if run.task not in standing
        }
        for task, (gpu, _) in self._planned.items():
            # Tasks to come have no number on the site yet; they are sent when they are released.
            if task < len(site.gpu) and site.gpu[task] != gpu:
                site.assign(task, gpu)
        self._carrying.lanes = lanes(instance, plan, standing, number)

    def _numbers(self, jobs: Sequence[Job]) -> list[int]:
        """Return the numbers on the site, those to come included, of what jobs run of their whole workflows."""
        site, coming = self.site, len(self.site.gpu)
        begins = [site.job_tasks[job].start for job in self._tasks_left]
        number = []
        for index, job in enumerate(jobs):
            # Numbers count all tasks of a workflow with branches, also those of other paths.
            whole = job.workflow.of or job.workflow
            if index == len(begins):
                begins.append(coming)
                coming += len(whole.tasks)
            number += [begins[index] + whole.position[task.name] for task in job.workflow.tasks]
        return number

    def _standing(self, number: Sequence[int]) -> Iterator[Placement]:
        """Yield the tasks that have started, with their ends, expected ones if they still run."""
        site = self.site
        ends = {task: run for state in site.state for run in state.runs.values() for task in run.tasks}
        for index, task in enumerate(number):
            if task < len(site.gpu) and site.started_us[task] >= 0:
                end_us = self._expected_end_us(ends[task]) if task in ends else site.ended_us[task]
                yield Placement(index, site.gpu[task], site.started_us[task], end_us)

    def _engines(self) -> tuple[list[int], list[int]]:
        """Return from when on compute and copy engines are free, by the given times; overdue ones at once."""
        site = self.site
        compute = [max(map(self._expected_end_us, state.runs.values()), default=site.now) for state in site.state]
        copy = [max(site.now, state.load_end_us) if state.loading != NOWHERE else site.now for state in site.state]
        if site.overlap_loads:
            return compute, copy
        # Without overlap an engine that is busy keeps the other one waiting.
        either = [max(pair) for pair in zip(compute, copy, strict=True)]
        return either, either

    def _stays(self) -> Iterator[Stay]:
        """Yield the models that are on a GPU or on their way."""
        site = self.site
        for gpu, memory in enumerate(site.memory):
            uses = [(run.models, self._expected_end_us(run)) for run in site.state[gpu].runs.values()]
            for model, slot in memory.residents.items():
                # Under way: nobody uses it before it is there.
                if model not in memory.ready:
                    ready_us = last_use_us = max(site.now, site.state[gpu].load_end_us)
                else:
                    ready_us, last_use_us = site.now, self._last_use_us[gpu].get(model, 0)
                last_use_us = max([last_use_us, *(end_us for models, end_us in uses if model in models)])
                yield Stay(gpu, model, slot, ready_us, last_use_us)
