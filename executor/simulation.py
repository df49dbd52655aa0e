"""Simulate: a policy on a virtual clock, where some things may take as long as they took elsewhere.

Who knows nothing of the future does the same if it is drawn anew (`change_future`), until the change shows.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

import numpy as np

from truenorth.executor.device import STRIDE_END, Progress, VirtualDevice
from truenorth.executor.engine import Engine
from truenorth.executor.errors import PolicyError
from truenorth.executor.noise import Noise
from truenorth.executor.policies.compass import ReleasedCompass
from truenorth.executor.policy import Policy
from truenorth.models import NEVER, Instance, Timeline
from truenorth.models.branches import only, open_paths
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.strides import StreamRun, Stride


def simulate(
    instance: Instance,
    policy: Callable[[], Policy],
    seed: int = 0,
    noise: Noise | None = None,
    truth: Instance | None = None,
    stop: Callable[[], bool] | None = None,
    progress: Progress | None = None,
) -> Timeline:
    """Return what a policy makes of an instance; equal arguments give equal timelines.

    Parameters
    ----------
    policy
        Makes the policy of this run: a policy's class, or what `parse_policy` or `replay` returns.
    seed
        Of the ingress servers and of the noise.
    noise
        On run times and loads; the timeline is then `realised`.
    truth
        The same instance with the run times that hold. The policy is told those of `instance` and never sees these;
        without noise the timeline keeps every rule of `truth`, durations included. None: what is told holds.
    stop
        Asked at every instant of the simulation whether to give up: how a time limit is kept.
    progress
        When the policy is told how long a run takes in all: when this share of it is done the truth, or what its log
        shows; None: nothing before it has ended.

    Raises
    ------
    StoppedError
        If it was told to give up.
    PolicyError
        If the policy cannot serve the instance, or misbehaves.
    ValueError
        If `truth` has other jobs or GPUs.
    """
    if truth is not None and not _alike(instance, truth):
        raise ValueError("the true instance must have the same jobs, tasks and GPUs as the one that is told")
    # Policies keep state: each run needs its own.
    made = policy()
    if twin_for(instance, made) is not instance:
        raise PolicyError("this policy runs on another instance: simulate instance_for(instance, policy) instead")
    opened = None if made.knows_paths else open_paths(instance)
    if opened is None:
        answers = _answers(instance, noise, seed, truth)
        return Engine(instance, made, VirtualDevice(noise, seed, truth, progress), seed, answers=answers).run(stop)
    true_paths = None if truth is None else open_paths(truth)
    device = VirtualDevice(noise, seed, None if true_paths is None else true_paths.instance, progress)
    paths = [job.workflow for job in instance.jobs]
    whole = None if true_paths is None else true_paths.instance
    answers = _answers(opened.instance, noise, seed, whole)
    engine = Engine(opened.instance, made, device, seed, paths=paths, answers=answers)
    return only(engine.run(stop), opened.kept)


def _answers(instance: Instance, noise: Noise | None, seed: int, truth: Instance | None) -> list[int] | None:
    """Return how many output tokens every request will have; None without streams.

    Noise scales them, but to no more than fit every kind of GPU that the given ones fit: it keeps nobody from a GPU.
    """
    streams = (truth or instance).streams
    if streams is None:
        return None
    answers: list[int] = streams.output.tolist()
    if noise is None or noise.run is None:
        return answers
    for task in np.flatnonzero(streams.output).tolist():
        template = int(instance.task_template[task])
        fits = streams.fitting(task, template) & (instance.run_us[template] != NEVER)
        most = int(streams.longest[streams.template[template], fits].min()) - int(streams.prompt[task])
        answers[task] = min(most, noise.run.draw(answers[task], f"{seed} run {task}"))
    return answers


def _alike(told: Instance, truth: Instance) -> bool:
    """Say whether two instances number their tasks and GPUs alike."""
    first = np.array_equal(told.job_first_task, truth.job_first_task)
    return first and np.array_equal(told.job_release_us, truth.job_release_us) and told.cluster == truth.cluster


def instance_for(instance: Instance, policy: Callable[[], Policy]) -> Instance:
    """Return the instance on which a policy runs in place of this one.

    The same, but for ``compass-released``: see `executor.policies.compass.twin_instance`. Its timelines must be
    checked and measured against that instance; tasks have the same numbers in both.
    """
    return twin_for(instance, policy())


def twin_for(instance: Instance, made: Policy) -> Instance:
    """Return the twin on which the released Compass runs, or the instance itself.

    No other policy is asked, not even one made from it: handed the whole window here, it could plan it, or put another
    one in its place.
    """
    return made.twin(instance) if type(made) is ReleasedCompass else instance


@dataclass(frozen=True, slots=True)
class Durations:
    """Measured durations in microseconds; what is not here takes the given time.

    Parameters
    ----------
    runs
        By task.
    loads
        By GPU and model: one after the other; the last one holds for further loads.
    transfers
        By source and target task; never less than given.
    iterations
        By GPU that serves requests: one after the other; what comes behind the last takes the given time.
    late
        By task: how late it starts where the head has to order it, and where it is queued behind the run before it.
    """

    runs: Mapping[int, int] = field(default_factory=dict)
    loads: Mapping[tuple[int, int], Iterable[int]] = field(default_factory=dict)
    transfers: Mapping[tuple[int, int], int] = field(default_factory=dict)
    iterations: Mapping[int, Iterable[int]] = field(default_factory=dict)
    late: Mapping[int, tuple[int, int]] = field(default_factory=dict)


class _RecordedDevice(VirtualDevice):
    def __init__(self, durations: Durations) -> None:
        super().__init__()
        self.exact, self.iterates, self.queues = False, bool(durations.iterations), bool(durations.late)
        self._iterations = {gpu: deque(taken) for gpu, taken in durations.iterations.items()}
        self._runs, self._transfers = durations.runs, durations.transfers
        self._recorded = {place: deque(taken) for place, taken in durations.loads.items()}
        self._late, self._queued = durations.late, dict[int, Sequence[int]]()

    def run(self, tasks: Sequence[int], gpu: int, expected_us: int) -> None:
        ordered_us, queued_us = self._late.get(tasks[0], (0, 0))
        late_us = queued_us if self._queued.pop(gpu, None) == tasks else ordered_us
        super().run(tasks, gpu, late_us + self._runs.get(tasks[0], expected_us))

    def queue(self, tasks: Sequence[int], gpu: int, expected_us: int) -> None:
        self._queued[gpu] = tasks

    def serve(self, gpu: int, number: int, run: StreamRun, stride: Stride) -> None:
        left = self._iterations.get(gpu)
        if left:
            self.at(run.boundary_us + left.popleft(), STRIDE_END, gpu, number)
        else:
            super().serve(gpu, number, run, stride)

    def load(self, model: int, gpu: int, slot: int | None, expected_us: int) -> None:
        left = self._recorded.get((gpu, model), deque())
        # The last that was measured stands for all further loads.
        if left:
            expected_us = left.popleft() if len(left) > 1 else left[0]
        super().load(model, gpu, slot, expected_us)

    def send(self, source: int, target: int, gpu: int, number: int, expected_us: int) -> bool:
        taken = max(expected_us, self._transfers.get((source, target), 0))
        return super().send(source, target, gpu, number, taken)


def simulate_recorded(
    instance: Instance, policy: Callable[[], Policy], durations: Durations, seed: int = 0
) -> Timeline:
    """Return what a policy would have made of an instance if some things had taken as long as measured.

    Raises
    ------
    PolicyError
        If the policy cannot serve the instance, or misbehaves.
    """
    return Engine(instance, policy(), _RecordedDevice(durations), seed).run()


_MORE_JOBS = 3
"""A changed future may hold so many jobs more than the window does."""

Action = tuple[int, str]
"""When something was done, in microseconds, and what, in words."""


@dataclass(frozen=True, slots=True, eq=False)
class ChangedFuture:
    """A window whose last jobs are others.

    Parameters
    ----------
    instance
        The window with its changed future.
    before_us
        The first release that differs: what is done before it may not differ.
    """

    instance: Instance
    before_us: int


def change_future(instance: Instance, rng: random.Random) -> ChangedFuture:
    """Keep a window's first jobs; of those that the window holds let others follow, no earlier than the last kept.

    Cluster, models and catalogue stay: these a policy may know beforehand.
    """
    jobs = instance.jobs
    kept = rng.randint(1, len(jobs))
    # The new jobs come no earlier than the last that is kept, so that the past stays the past.
    begin_us, end_us = jobs[kept - 1].release_us, max(job.release_us for job in jobs)
    # If all were kept at least one must come, or the future would be the same.
    count = rng.randint(int(kept == len(jobs)), len(jobs) - kept + _MORE_JOBS)
    # A mean distance beyond the end, so that a window whose jobs come at once gets others, too.
    longest_us = end_us - begin_us + end_us // len(jobs) + 1
    releases = sorted(begin_us + rng.randint(0, longest_us) for _ in range(count))
    others = [replace(rng.choice(jobs), release_us=release_us) for release_us in releases]
    differing = [job.release_us for job in (*jobs[kept:], *others)]
    return ChangedFuture(replace(instance, jobs=(*jobs[:kept], *others)), min(differing))


def past(instance: Instance, timeline: Timeline, before_us: int) -> list[Action]:
    """Return all that was done before a time, in order, with the ends known by then."""
    done: list[Action] = []
    for task in np.flatnonzero(timeline.start_us < before_us).tolist():
        where = instance.place_name(int(timeline.place[task]))
        who = f"job {instance.task_job[task]}, task {instance.task_name(task)} (number {task})"
        ends = _until(int(timeline.end_us[task]), before_us)
        done.append((int(timeline.start_us[task]), f"{who} runs on {where}{ends}"))
    for stay in timeline.residencies:
        if stay.load_start_us < before_us:
            where = instance.place_name(stay.gpu) + ("" if stay.slot is None else f", slot {stay.slot}")
            loads, stays = _until(stay.ready_us, before_us), _until(stay.end_us, before_us)
            what = f"model {instance.models[stay.model].name} is loaded to {where}{loads}, and stays{stays}"
            done.append((stay.load_start_us, what))
    return sorted(done)


def _until(end_us: int | None, before_us: int) -> str:
    if end_us is None or end_us >= before_us:
        return ""
    return f" until {end_us / MICROSECONDS_PER_SECOND:.6f} s"


def first_difference(one: list[Action], other: list[Action]) -> tuple[Action | None, Action | None] | None:
    """Return what two pasts do otherwise first, None where one does nothing more; None if they are the same."""
    return next((pair for pair in zip_longest(one, other) if pair[0] != pair[1]), None)
