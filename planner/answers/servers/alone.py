"""What no number of servers mends: jobs that take too long even alone, on idle GPUs, by loads and run times."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from truenorth.models import Instance, ServiceLevel, ServiceLevels
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.instance import Ints
from truenorth.planner.answers.servers.record import TooLongAlone
from truenorth.solvers.bounds import critical_path


@dataclass(frozen=True, slots=True)
class Alone:
    """A level that jobs break even if each has all GPUs to itself.

    Parameters
    ----------
    level
        The first such level.
    jobs, too_long
        How many jobs it is over, and how many of them take longer than its limit alone.
    workflow, workflows
        The workflow of most of these, and of how many workflows they are.
    best
        What the level's figure is at best: the mean or the quantile, in microseconds or as a ratio, at least; of
        lateness the share of jobs within their deadlines, at most.
    """

    level: ServiceLevel
    jobs: int
    too_long: int
    workflow: str
    workflows: int
    best: Fraction

    def in_words(self) -> str:
        """Return who takes too long, and what can be reached."""
        most = "all" if self.workflows == 1 else f"of {self.workflows} workflows, most"
        who = (
            f"{self.too_long} of {self.jobs} jobs ({100 * self.too_long / self.jobs:.3g} %, {most} of {self.workflow})"
        )
        return f"Loads and run times alone: even with every GPU idle, {who} take too long; {self._reachable()}"

    def _reachable(self) -> str:
        if self.level.measure == "lateness":
            return f"at best {100 * float(self.best):.4g} % of the jobs end within their deadlines"
        least = float(self.best / MICROSECONDS_PER_SECOND if self.level.measure == "latency" else self.best)
        unit = " s" if self.level.measure == "latency" else ""
        return f"no plan brings {str(self.level).split(' <= ')[0]} below {least:.5g}{unit}"

    @property
    def record(self) -> TooLongAlone:
        """It with the keys of ``servers --json``; seconds, ratios and shares."""
        unit = MICROSECONDS_PER_SECOND if self.level.measure == "latency" else 1
        return TooLongAlone(
            str(self.level), self.jobs, self.too_long, self.workflow, self.workflows, float(self.best / unit)
        )


def too_long_alone(instance: Instance, levels: ServiceLevels) -> Alone | None:
    """Return the first level that jobs break each alone on an idle cluster; None if no single level is broken so."""
    ends = np.maximum.reduceat(critical_path.earliest(instance).end_us, instance.job_first_task[:-1])
    latency = np.asarray(ends - instance.job_release_us, np.int64)
    for level in levels:
        best = level.reached(instance, latency)
        if best is not None and not level.met_by(instance, latency, range(len(instance.jobs))):
            return _of_level(instance, level, latency, best)
    return None


def _of_level(instance: Instance, level: ServiceLevel, latency: Ints, best: Fraction) -> Alone:
    covered = np.flatnonzero(level.covers(instance)).tolist()
    late = Counter(instance.jobs[job].workflow.name for job in covered if is_beyond(instance, level, latency, job))
    (workflow, _), *_ = late.most_common(1)
    return Alone(level, len(covered), late.total(), workflow, len(late), best)


def is_beyond(instance: Instance, level: ServiceLevel, latency: Ints, job: int) -> bool:
    """Say whether a job alone takes longer than the limit of its level."""
    flow = int(latency[job])
    if level.measure == "lateness":
        deadline = instance.jobs[job].deadline_us
        return deadline is not None and flow > deadline
    return flow > level.limit * (int(instance.job_ideal_us[job]) if level.measure == "slowdown" else 1)
