"""When a task can start and must end: the time windows that keep a formulation small.

Earliest starts follow from releases, run times, transfers and loads. Latest ends follow from a plan that is already
known: a plan no worse than it must finish each job by a certain time, since every other job costs at least what it
costs alone. What is proved inside such windows is therefore min(bound, value of the known plan).

Surcharges are what a plan costs above a bound because tasks start later, or sooner, than the bound would have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from truenorth.models.cluster import FOREVER, Availability, Interval
from truenorth.models.features import SEVERAL_AT_A_TIME, Feature, require
from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.instance import NEVER, NONE, Instance, Ints, UnsupportedInstanceError
from truenorth.models.objective import Objective


@dataclass(frozen=True, slots=True)
class Step:
    """A start at which a surcharge grows: it is at least `least` from `time_us` on (`late`) or up to it (not `late`).

    The steps of a task in one direction grow outwards, in the order in which they are listed.
    """

    task: int
    late: bool
    time_us: int
    least: int

    def taken(self, start_us: int) -> bool:
        """Say whether a start lies on the step."""
        return start_us >= self.time_us if self.late else start_us <= self.time_us


@dataclass(frozen=True, slots=True)
class Surcharges:
    """The objective is at least `base` and the surcharges of all jobs; a job pays at least the dearest step it takes.

    Parameters
    ----------
    base, spare
        Scaled objective at no surcharge, and the most that all surcharges of a plan within the limit add up to.
    steps
        Per job.
    """

    base: int
    spare: int
    steps: tuple[tuple[Step, ...], ...]

    def of_job(self, job: int, start_us: list[int]) -> int:
        """Return the least surcharge of a job, given the starts of all tasks."""
        return max((step.least for step in self.steps[job] if step.taken(start_us[step.task])), default=0)


METHOD = "time windows"
"""Name of the proofs that some task fits no window."""
UNREACHABLE = np.int64(1) << 60
"""Stands for a time that is never: later than any horizon, small enough to be added up."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in microseconds that an argument from elsewhere leaves to every plan no worse than a known one.

    Parameters
    ----------
    earliest_start_us, latest_start_us
        Per task and GPU; where the latest start lies before the earliest, the task may not run. Shape [tasks, gpus].
    latest_completion_us
        Shape [jobs].
    surcharges
        What starts inside these limits cost at least; None: nothing is known.
    """

    earliest_start_us: Ints
    latest_start_us: Ints
    latest_completion_us: Ints
    surcharges: Surcharges | None = None


@dataclass(frozen=True, slots=True)
class Windows:
    """Time windows in microseconds.

    Parameters
    ----------
    earliest_start_us, latest_end_us
        Per task and GPU. Shape [tasks, gpus].
    possible
        False where the GPU is not eligible or the window too short. Shape [tasks, gpus].
    completion_lower_us
        No job completes earlier. Shape [jobs].
    completion_upper_us
        No job need complete later. Shape [jobs].
    """

    earliest_start_us: Ints
    latest_end_us: Ints
    possible: np.ndarray[tuple[int, int], np.dtype[np.bool_]]
    completion_lower_us: Ints
    completion_upper_us: Ints

    def of_gpu(self, gpu: int) -> bytes:
        """Return a key that GPUs share if every task has the same window on them."""
        return self.earliest_start_us[:, gpu].tobytes() + self.latest_end_us[:, gpu].tobytes()


def time_windows(
    instance: Instance,
    objective: ScaledObjective,
    incumbent: int | None,
    horizon_us: int,
    floors: Sequence[int] = (),
    limits: Limits | None = None,
) -> Windows:
    """Return the windows of every task on every GPU.

    Parameters
    ----------
    incumbent
        Scaled value that a plan must not exceed; None if no plan is known.
    horizon_us
        Time by which everything ends, whatever the objective says.
    floors
        Scaled sums that the first 0, 1, 2, ... jobs cannot go below.
    limits
        Further limits on plans that do not exceed the incumbent.

    Raises
    ------
    UnsupportedInstanceError
        If a GPU comes more than once, or a window has what formulations do not support.

    Notes
    -----
    Invariant: a plan that exceeds neither incumbent nor limits, moved as early as its decisions allow, runs every task
        inside its window; `possible` is false only where no such plan runs the task.
    Because: heads are longest ways of shortest run, load and transfer times; tails likewise from the end of the job,
        which must come while every other job costs at least what it costs alone (`latest_completion_us`).
    Cost: O(edges x GPUs^2) per job.
    If wrong: unsound. A plan outside of its windows is cut off, and what is then proved holds for the others alone.
    """
    require(instance, "a formulation", SEVERAL_AT_A_TIME | {Feature.DELAYS})
    if any(len(gpu.available.intervals) > 1 for gpu in instance.cluster.gpus):
        raise UnsupportedInstanceError("formulations know no GPU that comes twice; allowed is one interval each")
    run = _reachable_run_times(instance)
    head = np.zeros_like(run) if limits is None else limits.earliest_start_us
    earliest, tail = _heads(instance, run, head), _tails(instance, run)
    lower = _completion_lower_us(instance, earliest + run + tail)
    # Without a plan to beat, only the horizon ends a window.
    upper = np.full(len(instance.jobs), horizon_us, np.int64)
    if incumbent is not None:
        upper = np.minimum(upper, objective.latest_completion_us(instance, lower, incumbent, floors))
    if limits is not None:
        upper = np.minimum(upper, limits.latest_completion_us)
    latest = np.minimum(upper[instance.task_job][:, None] - tail, _goes_us(instance))
    if limits is not None:
        # A limit is on starts; in a batch a task may end as late as the largest one takes.
        longest = np.maximum(run, _longest_by_gpu(instance))
        latest = _latest_ends(instance, run, np.minimum(latest, limits.latest_start_us + longest))
    return Windows(earliest, latest, earliest + run <= latest, lower, upper)


def leave_room(instance: Instance, objective: Objective, most: Fraction) -> bool:
    """Say whether every task has a window, and the jobs alone cost no more, in the plans of at most some value."""
    horizon = horizon_us(instance)
    scaled = ScaledObjective.of(objective, instance, horizon)
    limit = scaled.floor(most)
    windows = time_windows(instance, scaled, limit, horizon)
    alone = scaled.combine(scaled.terms(instance, windows.completion_lower_us))
    # Each job alone, and all of them together: either may refute the value.
    in_time = (windows.completion_lower_us <= windows.completion_upper_us).all()
    return bool(windows.possible.any(axis=1).all() and in_time) and alone <= limit


def completion_lower_us(instance: Instance) -> Ints:
    """Return the times before which the jobs cannot complete, in microseconds. Shape [jobs]."""
    run = _reachable_run_times(instance)
    return _completion_lower_us(instance, _heads(instance, run, np.zeros_like(run)) + run + _tails(instance, run))


def cannot_end(instance: Instance) -> bool:
    """Say whether some job can never be done, since a task of it fits no interval in which a GPU is there."""
    if instance.always_available:
        return False
    if instance.gangs:
        return not _fits(instance).all()
    return bool((completion_lower_us(instance) >= UNREACHABLE).any())


def _fits(instance: Instance) -> NDArray[np.bool_]:
    """Say of each task whether there is a place all of whose GPUs are there for as long as it runs. Shape [tasks]."""
    release_us, fits = instance.job_release_us[instance.task_job], np.zeros(instance.n_tasks, np.bool_)
    for sort, place in zip(*np.unique(instance.place_class, return_index=True), strict=True):
        run_us = instance.run_us[instance.task_template, sort]
        for begin, end in visits(instance, int(place)):
            fits |= (run_us != NEVER) & (np.maximum(release_us, begin) + run_us <= end)
    return fits


def visits(instance: Instance, place: int) -> list[Interval]:
    """Return when all GPUs of a place are there."""
    return common_us([instance.cluster.gpus[gpu].available for gpu in instance.places.gpus[place]])


def common_us(there: Sequence[Availability]) -> list[Interval]:
    """Return when GPUs are there all together.

    >>> common_us([Availability.of([(0, 5), (8, 20)]), Availability.of([(2, 9), (12, 15)])])
    [(2, 5), (8, 9), (12, 15)]
    """
    common = list(there[0].intervals)
    for other in dict.fromkeys(there[1:]):
        both = ((max(a, c), min(b, d)) for a, b in common for c, d in other.intervals)
        common = [(begin, end) for begin, end in both if begin < end]
    return common


def horizon_us(instance: Instance) -> int:
    """Return a time by which some best plan has ended, whatever the objective.

    Moved as early as its decisions allow, a plan ends with a chain of runs, loads, delays and transfers that begins at
    a release or when a GPU comes; none of these occurs twice in it, and a need causes at most one load.
    Batches of a class that keep off each other's starts (T3b) add a microsecond each.

    Notes
    -----
    Invariant: some optimal plan of every objective ends by then, since none of them pays for waiting.
    Because: the chain that ends last has each run, load, delay and transfer at most once, and begins at a release or an
        arrival.
    Cost: O(tasks).
    If wrong: unsound if too early, since plans that end later are cut off; slower if too late.
    """
    run, load = _longest_runs(instance), instance.load_us.max(axis=1, initial=0)
    gap = instance.transfer_us.max(axis=(1, 2, 3), initial=0) + instance.delay_us
    per_template = np.array([sum(int(load[model]) for model in needed) for needed in instance.needs], np.int64)
    per_template *= instance.template_gpus  # copies may be loaded one after the other
    per_template += np.array([sum(int(gap[edge]) for _, edge in row) for row in instance.inputs], np.int64)
    per_template += instance.input_us
    comes_us = max(gpu.available.intervals[-1][0] for gpu in instance.cluster.gpus)
    begins = max(int(instance.job_release_us.max()), comes_us)
    return int(begins + run.sum() + per_template[instance.task_template].sum())


def gap_matrix(instance: Instance, edge: int) -> Ints:
    """Return delay and transfer time of an edge between every two GPUs in microseconds. Shape [gpus, gpus]."""
    same_server = (instance.gpu_server[:, None] == instance.gpu_server[None, :]).astype(np.int64)
    matrix: Ints = instance.transfer_us[edge, instance.gpu_class[:, None], instance.gpu_class[None, :], same_server]
    np.fill_diagonal(matrix, 0)
    matrix += instance.delay_us[edge]
    return matrix


def _completion_lower_us(instance: Instance, through: Ints) -> Ints:
    """Return the longest of the quickest ways through each task of a job, given the ways per task and GPU."""
    # Sums of what is never reached would leave 64 bits.
    quickest = np.minimum(through, UNREACHABLE).min(axis=1)
    return np.maximum.reduceat(quickest, instance.job_first_task[:-1])


def _reachable_run_times(instance: Instance) -> Ints:
    return np.where(_run_times(instance) == NEVER, UNREACHABLE, _run_times(instance))


def _run_times(instance: Instance) -> Ints:
    run: Ints = instance.run_us[instance.task_template][:, instance.gpu_class]
    return run


def _longest_runs(instance: Instance) -> Ints:
    """Return the longest run time of each task, in whatever batch, with the microsecond for T3b. Shape [tasks]."""
    longest = instance.run_us.max(axis=1)
    if instance.batches:
        own = instance.template_batch
        batched = instance.batch_us.max(axis=(1, 2))[np.maximum(own, 0)] + 1
        longest = np.where(own == NONE, longest, np.maximum(longest, batched))
    return np.asarray(longest[instance.task_template], np.int64)


def _longest_by_gpu(instance: Instance) -> Ints:
    """Return the longest run times of batches with each task, NEVER without a class. Shape [tasks, gpus]."""
    own = instance.template_batch[instance.task_template]
    longest = np.full((len(instance.batches) + 1, len(instance.class_gpu)), NEVER, np.int64)
    longest[:-1] = instance.batch_us.max(axis=2, initial=NEVER)
    return np.asarray(longest[own][:, instance.gpu_class], np.int64)  # NONE is the last row


def _comes_us(instance: Instance) -> Ints:
    """Return when each GPU comes: in formulations it does so once. Shape [gpus]."""
    return np.array([gpu.available.intervals[0][0] for gpu in instance.cluster.gpus], np.int64)


def _goes_us(instance: Instance) -> Ints:
    """Return when each GPU goes, FOREVER if it does not. Shape [gpus]."""
    return np.array([gpu.available.intervals[-1][1] for gpu in instance.cluster.gpus], np.int64)


def _load_heads(instance: Instance) -> Ints:
    """Return the time at which a GPU that is there from 0 on can have loaded all that a template needs in turn."""
    initial = {(resident.model, resident.gpu) for resident in instance.initial}
    return np.array(
        [
            [
                sum(instance.load_time(model, gpu) for model in needed if (model, gpu) not in initial)
                for gpu in range(instance.n_gpus)
            ]
            for needed in instance.needs
        ],
        np.int64,
    )


def _heads(instance: Instance, run: Ints, given: Ints) -> Ints:
    """Return the earliest start of each task on each GPU: release, inputs and own loads, and what is given.

    UNREACHABLE where it could not end before the GPU goes.
    """
    loaded: Ints = _load_heads(instance)[instance.task_template] + _comes_us(instance)
    goes = _goes_us(instance)
    heads = np.maximum(np.maximum(instance.earliest_starts(), loaded), given)
    for job, workflow in enumerate(instance.job_workflow):
        for index in instance.workflows[workflow].topological:
            task = int(instance.job_first_task[job]) + index
            for before, edge in instance.task_inputs(task):
                # The best GPU of the predecessor counts: where it ran is not decided yet.
                arrival = np.minimum(heads[before] + run[before], UNREACHABLE)[:, None] + gap_matrix(instance, edge)
                heads[task] = np.maximum(heads[task], arrival.min(axis=0))
            # Its successors see at once that it cannot end there.
            late = (goes < FOREVER) & (heads[task] + run[task] > goes)
            heads[task] = np.where(late, UNREACHABLE, heads[task])
    return heads


def _tails(instance: Instance, run: Ints) -> Ints:
    """Return the shortest time from the end of each task on each GPU to the completion of its job."""
    tails = np.zeros_like(run)
    for job, workflow in enumerate(instance.job_workflow):
        for index in reversed(instance.workflows[workflow].topological):
            task = int(instance.job_first_task[job]) + index
            for after, edge in instance.task_outputs(task):
                rest = gap_matrix(instance, edge) + (run[after] + tails[after])[None, :]
                tails[task] = np.maximum(tails[task], rest.min(axis=1))
    return tails


def _latest_ends(instance: Instance, run: Ints, latest: Ints) -> Ints:
    """Return latest ends of which each leaves the successors of the task, on some GPU, the time to end by theirs.

    Notes
    -----
    Limits from elsewhere cut a task's latest start by itself; here what they leave to its successors reaches it, too.
    If wrong: unsound, as `time_windows`. The best of the successor's GPUs counts, so that none is cut off that one of
        them serves.
    """
    latest = latest.copy()
    for job, workflow in enumerate(instance.job_workflow):
        for index in reversed(instance.workflows[workflow].topological):
            task = int(instance.job_first_task[job]) + index
            for after, edge in instance.task_outputs(task):
                sent = (latest[after] - run[after])[None, :] - gap_matrix(instance, edge)
                latest[task] = np.minimum(latest[task], sent.max(axis=1))
    return latest
