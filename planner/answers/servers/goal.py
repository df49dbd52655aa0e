"""What a plan must achieve to meet service levels: objectives with a most that their values may be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor, lcm

import numpy as np
from numpy.typing import NDArray

from truenorth.models import Instance, Objective, ServiceLevel, ServiceLevels, Timeline, completion_us
from truenorth.models.errors import QuestionError
from truenorth.models.instance import NONE, Ints
from truenorth.models.scenario import Scenario
from truenorth.models.scenario.build import refuse_unknown_workflows
from truenorth.models.scenario.errors import FieldError
from truenorth.models.tables import LARGEST
from truenorth.models.torn import priced_window, torn
from truenorth.solvers.bounds.fluid import NO_DEADLINE, due_us

MULTIPLES = (2, 8)
"""A mean of at most x leaves fewer than one in c jobs above c x: for these c a mean is also a number of late jobs."""
_FINENESS, _HEAVIEST = 1000, 10**6
"""Weight of the level that leaves its jobs the most latency, and the most that any other gets."""


@dataclass(frozen=True, slots=True)
class Goal:
    """An objective of an instance, and the most that its value may be (in the units of `objective_value`).

    Every plan within the levels reaches it, so that a bound above it refutes them all. Whether a plan that reaches it
    is within them all, too, says `suffices`. What jobs are within that are not late says `within`; None: deadlines.
    """

    instance: Instance
    objective: Objective
    most: Fraction
    suffices: bool = False
    within: str | None = None

    @property
    def relaxed(self) -> Instance:
        """The instance that bounds are computed on: of runs on several GPUs the torn twin."""
        return torn(self.instance)

    @property
    def priced(self) -> Instance:
        """The instance whose GPUs get prices, of which certificates of prices are."""
        return priced_window(self.instance)

    def without_latest(self, timeline: Timeline) -> Instance:
        """Return the instance with the latest jobs of a timeline, as many as may be late, never late."""
        latency, jobs = completion_us(self.instance, timeline) - self.instance.job_release_us, self.instance.jobs
        late = [
            us - (us if job.deadline_us is None else job.deadline_us)
            for us, job in zip(latency.tolist(), jobs, strict=True)
        ]
        given_up = set(sorted(range(len(jobs)), key=lambda job: -late[job])[: int(self.most)])
        changed = (replace(job, deadline_us=None) if index in given_up else job for index, job in enumerate(jobs))
        return replace(self.instance, jobs=tuple(changed))


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How many jobs may end after so many times the limit of a level; more late jobs break the level."""

    level: ServiceLevel
    multiple: int
    share: Fraction

    @property
    def within(self) -> str | None:
        """What jobs that are not late are within, in words; None where that is their deadline.

        >>> [each.within for each in tolerances([ServiceLevel.parse("mean latency <= 1 s")])]
        ['2 s (2 times the mean allowed)', '8 s (8 times the mean allowed)']
        >>> tolerances([ServiceLevel.parse("p95 slowdown <= 2")])[0].within
        'a slowdown of 2'
        """
        level = self.level
        if level.measure == "lateness":
            return None
        limit = str(replace(level, limit=level.limit * self.multiple)).split(" <= ")[1]
        what = {"latency": "", "slowdown": "a slowdown of "}.get(level.measure, f"a {level.measure} of ")
        times = f" ({self.multiple} times the mean allowed)" if self.multiple > 1 else ""
        return f"{what}{limit}{times}"

    def most_late(self, instance: Instance) -> int:
        """Return how many jobs may be late."""
        jobs = int(self._counts(instance).sum())
        return jobs - ceil(self.share * jobs)

    def due_us(self, instance: Instance) -> Ints:
        """Return the latest completion of each job on time, `NO_DEADLINE` where it has none. Shape [jobs]."""
        counts = self._counts(instance)
        if self.level.measure == "lateness":
            return np.asarray(np.where(counts, due_us(instance), NO_DEADLINE), np.int64)
        # Exact limits are computed once per length, not once per job: windows have millions of jobs of few lengths.
        paths = np.unique(instance.job_ideal_us)
        limit = self.level.limit * self.multiple
        limits = [floor(limit * (path if self.level.measure == "slowdown" else 1)) for path in paths.tolist()]
        by_path = np.array([after if after <= LARGEST else NO_DEADLINE for after in limits], np.int64)
        after = by_path[np.searchsorted(paths, instance.job_ideal_us)]
        due = np.where(after == NO_DEADLINE, after, instance.job_release_us + after)
        return np.asarray(np.where(counts, due, NO_DEADLINE), np.int64)

    def _counts(self, instance: Instance) -> NDArray[np.bool_]:
        """Say of every job whether it counts; one without requests has no first token. Shape [jobs]."""
        counts = self.level.covers(instance)
        if self.level.measure == "first token" and instance.streams is not None:
            counts &= instance.streams.first_token != NONE
        return counts

    def goal(self, instance: Instance) -> Goal:
        """Return the goal to have no more late jobs than that."""
        return _few_late(instance, self.due_us(instance), self.most_late(instance), within=self.within)


def _few_late(instance: Instance, due_us: Ints, most: int, suffices: bool = False, within: str | None = None) -> Goal:
    """Return the goal to have so few jobs late, every weight being 1."""
    never, one = int(NO_DEADLINE), Fraction(1)
    jobs = [
        replace(job, weight=one, deadline_us=None if due == never else due - job.release_us)
        for job, due in zip(instance.jobs, due_us.tolist(), strict=True)
    ]
    return Goal(replace(instance, jobs=tuple(jobs)), Objective.LATE_JOBS, Fraction(most), suffices, within)


def tolerances(levels: Iterable[ServiceLevel]) -> list[Tolerance]:
    """Return the levels as late jobs: a share as one number, a mean as several weaker ones."""
    found: list[Tolerance] = []
    for level in levels:
        if level.share is not None:
            found.append(Tolerance(level, 1, level.share))
        else:
            found += [Tolerance(level, c, 1 - Fraction(1, c)) for c in MULTIPLES]
    return found


def goals(instance: Instance, levels: ServiceLevels) -> list[Goal]:
    """Return goals that every plan within the levels reaches: of one level the first suffices.

    Of several levels there comes first what those about late jobs, and those about means, ask together.
    """
    asked = [level for level in levels if level.covers(instance).any()]
    alone = [_alone(instance, level, only=len(asked) == 1) for level in asked]
    shares = tolerances(level for level in asked if level.share is not None)
    means = [level for level in asked if level.share is None]
    # Where all are within a limit, so is their mean.
    bounded = [level for level in asked if level.share == 1 and level.measure != "lateness"] if means else []
    together = _untardy([_few_late_together(instance, shares, every=not means)]) if len(shares) > 1 else []
    together += _low_means_together(instance, means + bounded)
    return together + [goal for found in alone for goal in found]


def _alone(instance: Instance, level: ServiceLevel, only: bool) -> list[Goal]:
    """Return the goals of one level; the first suffices for it."""
    late = [tolerance.goal(instance) for tolerance in tolerances([level])]
    if level.share is None:
        return [replace(_low_mean(instance, level), suffices=only), *late]
    return _untardy([replace(late[0], suffices=only)])


def _untardy(late: list[Goal]) -> list[Goal]:
    """Return goals together with those of no tardiness, which other bounds refute, where no job may be late."""
    return late + [replace(goal, objective=Objective.WEIGHTED_TARDINESS) for goal in late if goal.most == 0]


def _low_mean(instance: Instance, level: ServiceLevel) -> Goal:
    """Return a mean as a goal: of one workflow it is a weighted mean, all other jobs weighing 0."""
    if level.workflow is None:
        objective = Objective.MEAN_SLOWDOWN if level.measure == "slowdown" else Objective.MEAN_LATENCY
        return Goal(instance, objective, level.limit)
    counts = level.covers(instance)
    paths = instance.job_ideal_us if level.measure == "slowdown" else np.ones(len(counts), np.int64)
    # A slowdown is a latency that weighs 1 / critical path: multiples of that are whole.
    multiple = lcm(*np.unique(paths[counts]).tolist())
    weights = [multiple // path if count else 0 for path, count in zip(paths.tolist(), counts.tolist(), strict=True)]
    weighted = tuple(replace(job, weight=Fraction(weight)) for job, weight in zip(instance.jobs, weights, strict=True))
    most = level.limit * int(counts.sum()) * multiple / sum(weights)
    return Goal(replace(instance, jobs=weighted), Objective.WEIGHTED_LATENCY, most)


def _low_means_together(instance: Instance, means: Sequence[ServiceLevel]) -> list[Goal]:
    """Return what levels about means ask together: the weighted sum of the means is at most that of their limits.

    That is a weighted latency. Any weights will do; these are whole, and each level's share is about the same. A
    slowdown over different critical paths is left out, for its jobs would weigh differently.
    """
    counted = [np.flatnonzero(level.covers(instance)) for level in means]
    paths = [
        np.unique(instance.job_ideal_us[jobs]) if level.measure == "slowdown" else np.ones(1, np.int64)
        for level, jobs in zip(means, counted, strict=True)
    ]
    budgets = [  # latency in all that a level leaves its jobs
        (jobs, len(jobs) * level.limit * int(path[0]))
        for level, jobs, path in zip(means, counted, paths, strict=True)
        if len(path) == 1
    ]
    if len(budgets) < 2:
        return []
    largest, most, weight = max(budget for _, budget in budgets), Fraction(0), [0] * len(instance.jobs)
    for jobs, budget in budgets:
        # Weighed by its inverse, so that no level's latency drowns the others'.
        own = min(round(_FINENESS * largest / budget), _HEAVIEST)
        most += own * budget
        for job in jobs.tolist():
            weight[job] += own
    weighted = tuple(replace(job, weight=Fraction(own)) for job, own in zip(instance.jobs, weight, strict=True))
    return [Goal(replace(instance, jobs=weighted), Objective.WEIGHTED_LATENCY, most / sum(weight))]


def _few_late_together(instance: Instance, shares: Sequence[Tolerance], every: bool) -> Goal:
    """Return what levels about late jobs ask together."""
    due, most = late_together(instance, shares)
    within = None if all(tolerance.within is None for tolerance in shares) else "their limits"
    return _few_late(instance, due, most, suffices=every and not most, within=within)


def late_together(instance: Instance, shares: Sequence[Tolerance]) -> tuple[Ints, int]:
    """Return due times, and how many jobs may be late: no more than all levels about late jobs allow together.

    A job is due as the least tolerant level over it says, of equally tolerant ones the tightest. Whatever level is
    chosen for each job, no more jobs are late than the levels chosen allow in all.
    """
    allowed = [tolerance.most_late(instance) for tolerance in shares]
    order = sorted(range(len(shares)), key=lambda index: allowed[index])
    due, chosen = np.full(len(instance.jobs), NO_DEADLINE), np.full(len(instance.jobs), -1)
    # The least tolerant level first; of those that tolerate as much a job takes the tighter due time.
    for index in order:
        counts, own = shares[index].level.covers(instance), shares[index].due_us(instance)
        free = counts & (chosen < 0)
        tighter = counts & (chosen >= 0) & (own < due) & (np.array([*allowed, -1])[chosen] == allowed[index])
        taken = free | tighter
        due[taken], chosen[taken] = own[taken], index
    most = sum(allowed[index] for index in np.unique(chosen[chosen >= 0]).tolist())
    return np.asarray(due, np.int64), most


def refuse_vacuous(scenario: Scenario, levels: ServiceLevels) -> None:
    """Refuse levels over unknown workflows, about deadlines where no job has one, or over no job at all.

    Raises
    ------
    QuestionError
        At the level.
    InputError
        At the workload.
    """
    try:
        refuse_unknown_workflows(levels, scenario.document.workflows)
    except FieldError as error:
        raise QuestionError(error.problem, "slo") from None
    instance = scenario.instance
    covered = [level.covers(instance) for level in levels]
    tokens = next((level for level in levels if level.measure in ("first token", "time per token")), None)
    if instance.streams is None and tokens is not None:
        problem = (
            f"no job has a request of a stream, so that {str(tokens)!r} holds for any plan; allowed are other levels"
        )
        raise QuestionError(problem, "slo")
    for level, counts in zip(levels, covered, strict=True):
        due = level.measure == "lateness" and counts.any()
        if due and all(instance.jobs[job].deadline_us is None for job in np.flatnonzero(counts).tolist()):
            who = "no job" if level.workflow is None else f"no job of {level.workflow}"
            problem = f"{who} has a deadline, so that {str(level)!r} holds for any plan"
            raise scenario.source.error(("workload",), f"{problem}; give deadlines or another level")
    if not any(counts.any() for counts in covered):
        problem = f"has no job that '{levels}' is over, so that any plan is within it; give another level"
        raise scenario.source.error(("workload",), problem)
