"""What a plan must achieve to meet a service level: objectives with a most that their values may be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor

import numpy as np

from models import Instance, Job, Objective, ServiceLevel
from models.instance import Ints
from models.scenario.errors import InputError
from models.tables import LARGEST
from solvers.bounds.fluid import NO_DEADLINE, due_us

MULTIPLES = (2, 8)
"""A mean of at most x leaves fewer than one in c jobs above c x: for these c a mean is also a number of late jobs."""


@dataclass(frozen=True, slots=True)
class Goal:
    """An objective of an instance, and the most that its value may be (in the units of `objective_value`)."""

    instance: Instance
    objective: Objective
    most: Fraction


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How many jobs may end after so many times the limit of a level; more late jobs break the level."""

    level: ServiceLevel
    multiple: int
    share: Fraction

    def most_late(self, instance: Instance) -> int:
        """Return how many jobs may be late."""
        jobs = len(instance.jobs)
        return jobs - ceil(self.share * jobs)

    def due_us(self, instance: Instance) -> Ints:
        """Return the latest completion of each job on time, `NO_DEADLINE` where it has none. Shape [jobs]."""
        if self.level.measure == "lateness":
            return due_us(instance)
        paths = np.unique(instance.job_critical_us)
        limit = self.level.limit * self.multiple
        limits = [floor(limit * (path if self.level.measure == "slowdown" else 1)) for path in paths.tolist()]
        by_path = np.array([after if after <= LARGEST else NO_DEADLINE for after in limits], np.int64)
        after = by_path[np.searchsorted(paths, instance.job_critical_us)]
        return np.asarray(np.where(after == NO_DEADLINE, after, instance.job_release_us + after), np.int64)

    def goal(self, instance: Instance) -> Goal:
        """Return the goal to have no more late jobs than that, every weight being 1."""
        never, one = int(NO_DEADLINE), Fraction(1)
        jobs = [
            Job(job.workflow, job.release_us, one, None if due == never else due - job.release_us, job.ingress)
            for job, due in zip(instance.jobs, self.due_us(instance).tolist(), strict=True)
        ]
        return Goal(replace(instance, jobs=tuple(jobs)), Objective.LATE_JOBS, Fraction(self.most_late(instance)))


def tolerances(level: ServiceLevel) -> list[Tolerance]:
    """Return the level as late jobs: as one number for a share, as several weaker ones for a mean."""
    if level.share is not None:
        return [Tolerance(level, 1, level.share)]
    return [Tolerance(level, c, 1 - Fraction(1, c)) for c in MULTIPLES]


def goals(instance: Instance, level: ServiceLevel) -> list[Goal]:
    """Return goals that every plan within the level reaches; reaching the first suffices.

    Where no job may be late, the tardiness is 0 too, which other bounds refute.
    """
    late = [tolerance.goal(instance) for tolerance in tolerances(level)]
    if level.share is None:
        objective = Objective.MEAN_SLOWDOWN if level.measure == "slowdown" else Objective.MEAN_LATENCY
        return [Goal(instance, objective, level.limit), *late]
    if late[0].most == 0:
        late.append(replace(late[0], objective=Objective.WEIGHTED_TARDINESS))
    return late


def needs_deadlines(instance: Instance, level: ServiceLevel, file: str) -> None:
    """Refuse a level about deadlines where no job has one.

    Raises
    ------
    InputError
        At the workload.
    """
    if level.measure == "lateness" and all(job.deadline_us is None for job in instance.jobs):
        problem = f"no job has a deadline, so that {str(level)!r} holds for any plan; give deadlines or another level"
        raise InputError(file, None, "workload", problem)
