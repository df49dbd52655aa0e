"""The engine: one loop under every policy and every replay, whatever the device.

Events come in a total order (time, kind, sequence number). All events of an instant are taken in, ends before
arrivals before releases; only then the policy acts, so that what ends at an instant is over for what starts then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from heapq import heappop
from typing import NoReturn

from truenorth.executor.device import COME, DELAY_END, DRAIN, GO, LOAD_END, LOST, Device
from truenorth.executor.errors import PolicyError, StalledError, StoppedError
from truenorth.executor.execution import NOWHERE
from truenorth.executor.knowledge import WorkflowTables
from truenorth.executor.policies.on_places import on_places, rule_on_places
from truenorth.executor.policies.parse import POLICIES
from truenorth.executor.policies.queueing import QueuePolicy
from truenorth.executor.policy import Policy
from truenorth.executor.site import Site
from truenorth.models import Instance, Job, Timeline, Workflow
from truenorth.models.branches import deciders
from truenorth.models.cluster import ALWAYS, FOREVER
from truenorth.models.features import missing

SERVING_POLICIES = (
    "round_robin, least_requests, least_tokens, least_work, least_delay, prefix_affinity, turns, and what sets "
    "serves_streams"
)
"""Who serves requests of streams, in words."""


class Engine:
    """Carries out a policy on a device until every task has ended.

    Parameters
    ----------
    instance
        Its jobs are shown to the policy one by one, at their release.
    policy
        A fresh one; it belongs to this run.
    device
        Where runs and loads take place.
    seed
        Draws the ingress server of the jobs that name none.
    stand_in
        Makes the policy that goes on when a GPU is lost; needed for devices that can lose one.
    answers
        Per task: output tokens of its request, as they will be; None: those of the instance.
    paths
        Per job: what it runs of its workflow, if workflows have branches; shown to the policy when it shows.
    """

    def __init__(
        self,
        instance: Instance,
        policy: Policy,
        device: Device,
        seed: int = 0,
        stand_in: Callable[[], QueuePolicy] | None = None,
        paths: Sequence[Workflow] = (),
        answers: Sequence[int] | None = None,
    ) -> None:
        policy = on_places(policy) if instance.gangs else policy
        self._lacking = missing(instance, policy.supports)
        self._there = () if instance.always_available else tuple(gpu.available for gpu in instance.cluster.gpus)
        # When GPUs come and go the engine alone knows: policies see it when it happens.
        self._instance = instance = _without_absences(instance)
        # Nor how long what happens between two steps of a job takes, beyond what its workflow says (rule E5).
        self._delays = _delays(instance)
        self._instance = instance = _without_own_delays(instance)
        self._late: dict[int, int] = {}
        self._policy = policy
        self._device = device
        self._stand_in = stand_in
        self._leader: QueuePolicy | None = None
        known = policy.foresees, policy.knows_lengths
        self._site = Site(instance, device, policy, policy.write_back, self._there, *known)
        self._draw = random.Random(seed)  # noqa: S311
        self._servers = sorted(set(self._site.gpu_server))
        # The None at the end says that no release follows, without a look at the length.
        self._releases: list[int | None] = [*instance.job_release_us.tolist(), None]
        self._workflows: list[int] = instance.job_workflow.tolist()
        self._tables: dict[int, WorkflowTables] = {}
        self._released = 0
        self._unfinished = instance.n_tasks
        self._paths = paths
        self._answers = answers
        self._deciders: dict[int, frozenset[int]] = {}
        self._deciding: dict[int, int] = {}
        # Whether the policy is to look at all GPUs at this instant.
        self._woken = False
        # By kind of event, in the order of the kinds.
        self._take_in: tuple[Callable[[int, int], None], ...] = (
            self._end_run,
            self._end_stride,
            self._end_load,
            self._end_delay,
            self._site.deliver,
            self._wake,
            self._go_on_without,
            self._drain,
            self._go,
            self._come,
            self._show_end,
        )

    def run(self, stop: Callable[[], bool] | None = None) -> Timeline:
        """Return what happened.

        Parameters
        ----------
        stop
            Asked before every instant whether to give up; None: never.

        Raises
        ------
        StoppedError
            If it was told to give up.
        PolicyError
            If the policy cannot serve the instance, breaks a rule (IllegalActionError) or leaves tasks
            unfinished for ever (StalledError).
        """
        if self._instance.streams is not None and not self._policy.serves_streams:
            name = self._policy.name or type(self._policy).__name__.lower()
            self._instance.require_no_streams(f"policy {name}", SERVING_POLICIES)
        if self._lacking:
            name = self._policy.name or type(self._policy).__name__.lower()
            problem = f"policy {name} has no support for {', '.join(self._lacking)}"
            if self._instance.streams is not None:
                raise PolicyError(f"{problem}; allowed are {SERVING_POLICIES}")
            some = ", ".join(name for name, of in self._rules() if not missing(self._instance, of.supports))
            if not some:
                problem += ", nor has any other beside what else this window has"
                raise PolicyError(f"{problem}; allowed is a scenario without one of both")
            raise PolicyError(f"{problem}; allowed are policies such as {some}")
        if self._device.shows and not self._policy.hears_progress:
            self._refuse_progress()
        self._policy.begin(self._site)
        self._device.begin()
        for gpu, there in enumerate(self._there):
            for come_us, go_us in there.intervals:
                # Who is there at 0 need not come.
                if come_us:
                    self._device.at(come_us, COME, gpu, go_us)
                if go_us < FOREVER:
                    self._device.at(go_us, GO, gpu, NOWHERE)
                    drains_us = go_us - self._site.cluster.gpus[gpu].drain_us
                    # Who drains from the beginning on never has anything to give back.
                    if come_us < drains_us < go_us:
                        self._device.at(drains_us, DRAIN, gpu, NOWHERE)
        # Before the first release a policy may load models already.
        self._policy.act(range(self._site.n_gpus))
        self._carry_out(stop)
        # A residency ends no sooner than its load: the timeline of a plan has whole loads only.
        self._finish_loads()
        return self._site.timeline(realised=self._policy.write_back or not self._device.exact)

    def _stuck(self) -> str:
        """Return where requests that were preempted hold each other up, in words; empty if nowhere.

        A request keeps its models from start to end (R3), preempted or not: an adapter of another one may leave the
        first in the queue less KV than it came to need, though its own models alone would leave it enough.
        """
        runs = zip(self._instance.cluster.gpus, self._site.state, strict=True)
        stuck = [gpu.id for gpu, state in runs if state.serving and state.serving.preempted]
        why = (
            "need more KV memory than the models and adapters of all of them leave; allow more memory or fewer adapters"
        )
        return f"; requests preempted on {', '.join(stuck)} {why}" if stuck else ""

    def _refuse_progress(self) -> NoReturn:
        """Say who asks again while jobs run."""
        name = self._policy.name or type(self._policy).__name__.lower()
        able = ", ".join(each for each, of in self._rules() if of.hears_progress)
        raise PolicyError(f"policy {name} does not ask again while jobs run; allowed are policies such as {able}")

    def _rules(self) -> Iterator[tuple[str, type[Policy]]]:
        """Yield the policies that have a name, each with what decides in its place in such a window."""
        for name, policy in POLICIES.items():
            yield name, rule_on_places(policy) if self._instance.gangs else policy

    def _carry_out(self, stop: Callable[[], bool] | None) -> None:
        """From instant to instant, take in the events and let the policy act, until every task has ended."""
        device, site, take_in = self._device, self._site, self._take_in
        touched, events, release = site.touched, device.events, self._releases[0]
        # Not `while self._unfinished`: code that is called once CPython specialises only if its loop has no condition.
        while True:
            if not self._unfinished:
                return
            if stop is not None and stop():
                raise StoppedError(f"{self._unfinished} tasks had not ended")
            now = device.next(release)
            if now is None:
                name = self._policy.name or type(self._policy).__name__
                said = f"policy {name}: {self._unfinished} tasks were never started, and nothing more will happen"
                gone = "" if self._site.stays else "; servers that they need may have gone for good"
                raise StalledError(said + gone + self._stuck())
            site.now = now
            # Ends before arrivals before releases: the device orders them by kind within an instant.
            while events and events[0][0] <= now:
                _, kind, _, subject, number = heappop(events)
                take_in[kind](subject, number)
            releases = False
            while release is not None and release <= now:
                releases, release = True, self._release()
            if self._woken:
                self._woken = False
                self._policy.act(range(site.n_gpus))
            # A release that touches no GPU still has to be seen by policies that wait for one.
            elif releases and not touched:
                self._policy.act(())
            # Wherever something has happened, until nothing does any more.
            while touched:
                gpus = list(touched)
                touched.clear()
                self._policy.act(gpus)
            if site.serves_streams:
                site.begin_strides()

    def _wake(self, _subject: int, _number: int) -> None:
        """Have the policy look at all GPUs."""
        self._woken = True

    def _leave_behind(self, gpu: int) -> None:
        """Empty a GPU that has gone; if it is to be back already, have it once nothing of before runs there."""
        site, state = self._site, self._site.state[gpu]
        if not site.is_away(gpu):
            return
        gone = site.empty(gpu)
        if gone:
            self._policy.emptied(gpu, gone)
        if gpu in self._late and not state.runs and state.loading == NOWHERE:
            site.come(gpu, self._late.pop(gpu))
            self._policy.came(gpu)

    def _finish_loads(self) -> None:
        """Let the loads under way come to their end; the policy is not asked any more."""
        site = self._site
        # No policy is told: nothing that it could do would count any more.
        while any(state.loading != NOWHERE for state in site.state):
            now = self._device.next(None)
            if now is None:
                continue
            site.now = now
            _, kind, _, subject, number = heappop(self._device.events)
            if kind == LOAD_END:
                site.end_load(subject, number)
            elif kind == LOST:
                site.set_aside(subject, number)
            elif kind == GO:
                site.go(subject)
                site.empty(subject)

    def _end_load(self, model: int, gpu: int) -> None:
        """Have a model ready on a GPU."""
        self._site.end_load(model, gpu)
        self._policy.loaded(model, gpu)
        # Where GPUs stay nobody can have gone.
        for each in self._site.places[gpu] if self._there else ():
            self._leave_behind(each)

    def _end_run(self, first_task: int, gpu: int) -> None:
        """Let the tasks of a batch end, one after the other."""
        self._end_tasks(self._site.end_run(first_task, gpu), gpu)

    def _end_stride(self, gpu: int, number: int) -> None:
        """Let iterations end, with the first and the last tokens that they bring."""
        first, ended = self._site.take_stride(gpu, number)
        for task in first:
            self._policy.answering(task, gpu)
        if ended:
            self._end_tasks(ended, gpu)

    def _end_tasks(self, tasks: Sequence[int], gpu: int) -> None:
        """Let tasks end that have left their GPU."""
        site, policy = self._site, self._policy
        self._unfinished -= len(tasks)
        for task in tasks:
            # Before its outputs are sent: what the job does not run gets none.
            if task in self._deciding:
                job = self._deciding[task]
                policy.decided(job, self._decide(job))
            delays = self._delays.get(task, ())
            for follower, delay_us in delays:
                site.delayed.add((task, follower))
                self._device.at(site.now + delay_us, DELAY_END, task, follower)
            site.end_task(task)
            policy.finished(task, gpu)
            site.send_outputs(task)
        # Where GPUs stay nobody can have gone.
        if self._there:
            for each in site.places[gpu]:
                self._leave_behind(each)

    def _end_delay(self, task: int, follower: int) -> None:
        """Let what had to pass between a task and its follower be over: only now the output leaves (rule E5)."""
        site = self._site
        if follower in site.dropped:
            return
        edge = site.end_delay(task, follower)
        self._policy.elapsed(task, follower, edge)
        site.send_delayed(task, follower, edge)
        # Nothing has touched a GPU, and yet a task may wait for one from now on.
        self._woken = True

    def _drain(self, gpu: int, _number: int) -> None:
        """Send a GPU that is to go no more requests, and have those back that wait there."""
        self._policy.returned(gpu, self._site.drain(gpu))

    def _go(self, gpu: int, _number: int) -> None:
        """Have a GPU no more; requests that it serves return with those that wait there."""
        self._late.pop(gpu, None)
        self._policy.went(gpu, self._site.go(gpu))
        self._leave_behind(gpu)

    def _show_end(self, task: int, end_us: int) -> None:
        """Have it known when a task that runs will end, if that is not when it should."""
        if self._site.expected_end(task) != end_us:
            self._site.show_end(task, end_us)
            self._policy.ending(task, end_us)
            self._woken = True

    def _come(self, gpu: int, goes_us: int) -> None:
        """Have a GPU until a time from now on: where runs of before still end there, once they have."""
        self._late[gpu] = goes_us
        self._leave_behind(gpu)

    def _go_on_without(self, gpu: int, model: int) -> None:
        """Set a lost GPU aside, and hand all that has not started to a policy that knows nothing of it."""
        site = self._site
        if self._stand_in is None:
            raise PolicyError(f"GPU {gpu} is lost, and nobody was named to go on without it")
        site.set_aside(gpu, model)
        policy = self._stand_in()
        # All three, or arrivals would go to the policy that is gone.
        site.listener = self._policy = self._leader = policy
        policy.begin(site)
        for job in range(len(site.jobs)):
            self._drop_if_stranded(job, policy)
        policy.take_over()
        self._woken = True

    def _drop_if_stranded(self, job: int, leader: QueuePolicy) -> bool:
        """End a job of which a task can run on no GPU that is left; say whether it was so."""
        site = self._site
        left = [task for task in site.job_tasks[job] if site.started_us[task] < 0 and task not in site.dropped]
        if all(leader.places(task) for task in left):
            return False
        site.drop(left)
        self._unfinished -= len(left)
        return True

    def _release(self) -> int | None:
        """Make the next job known; return the release of the one after."""
        job = self._released
        self._released += 1
        released, workflow = self._instance.jobs[job], self._workflows[job]
        if workflow not in self._tables:
            self._tables[workflow] = WorkflowTables.of(self._instance, workflow)
        ingress = self._draw.choice(self._servers) if released.ingress is None else released.ingress
        number = self._make_known(job, released, self._tables[workflow], ingress)
        if self._paths and released.workflow.branches:
            self._await_path(number, workflow)
        if not (self._leader is not None and self._drop_if_stranded(number, self._leader)):
            self._policy.released(number)
        return self._releases[self._released]

    def _make_known(self, job: int, released: Job, tables: WorkflowTables, ingress: int) -> int:
        """Release a job, with the tokens of its requests if it may have any; return its number on the site."""
        site, streams = self._site, self._instance.streams
        if streams is None:
            return site.release(released, tables, ingress)
        own = self._instance.tasks_of(job)
        tokens = [streams.tokens(task) for task in own]
        if self._answers is not None:
            first = int(self._instance.job_first_task[job])
            # The true answers, which the policy is not shown.
            tokens = [of._replace(output=self._answers[first + at]) for at, of in enumerate(tokens)]
        # A policy that does not know lengths must find no number to peek at.
        if released.tokens and not site.knows_lengths:
            released = replace(released, tokens=None)
        chains = () if streams.prefixes is None else streams.prefixes.chains[own.start : own.stop]
        return site.release_requests(released, tables, ingress, tokens, chains)

    def _await_path(self, job: int, workflow: int) -> None:
        """Note with which tasks the path of a job shows; without any it shows now."""
        if workflow not in self._deciders:
            self._deciders[workflow] = deciders(self._site.jobs[job].workflow)
        first = self._site.job_tasks[job].start
        self._deciding.update((first + position, job) for position in self._deciders[workflow])
        if not self._deciders[workflow]:
            self._decide(job)

    def _decide(self, job: int) -> list[int]:
        """Show which path a job takes; return the tasks that it does not run."""
        dropped = self._site.decide(job, self._paths[job])
        self._unfinished -= len(dropped)
        for task in self._site.job_tasks[job]:
            self._deciding.pop(task, None)
        return dropped


def _delays(instance: Instance) -> dict[int, list[tuple[int, int]]]:
    """Return the followers of each task with what passes before its output leaves for them, where that is above 0."""
    delays: dict[int, list[tuple[int, int]]] = {}
    if instance.delay_us.any():
        for source, target, edge in zip(*(column.tolist() for column in instance.edges()), strict=True):
            if instance.delay_us[edge]:
                delays.setdefault(source, []).append((target, int(instance.delay_us[edge])))
    return delays


def _without_own_delays(instance: Instance) -> Instance:
    """Return the instance as policies know it: a job's delays are those that its workflow says."""
    if all(job.delays_us is None for job in instance.jobs):
        return instance
    return replace(instance, jobs=tuple(replace(job, delays_us=None) for job in instance.jobs))


def _without_absences(instance: Instance) -> Instance:
    """Return the instance as policies know it: of when GPUs come and go they are told nothing beforehand."""
    if instance.always_available:
        return instance
    gpus = tuple(replace(gpu, available=ALWAYS) for gpu in instance.cluster.gpus)
    return replace(instance, cluster=replace(instance.cluster, gpus=gpus))
