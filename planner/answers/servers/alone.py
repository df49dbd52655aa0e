"""What no number of servers mends: jobs that take too long even alone, on idle GPUs, by loads and run times."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from truenorth.models import Instance, ServiceLevel, ServiceLevels
from truenorth.models.instance import NONE, Ints
from truenorth.models.token_times import TokenTimes
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
        How many jobs (of time per token: requests) it is over, and how many of them take longer than its limit alone.
    workflow, workflows
        The workflow of most of these, and of how many workflows they are.
    best
        What the level's figure is at best: the mean or the quantile, in microseconds or as a ratio, at least; of
        lateness the share of jobs within their deadlines, at most.
    by
        What is counted of them.
    """

    level: ServiceLevel
    jobs: int
    too_long: int
    workflow: str
    workflows: int
    best: Fraction
    by: str

    def in_words(self) -> str:
        """Return who takes too long, and what can be reached."""
        most = "all" if self.workflows == 1 else f"of {self.workflows} workflows, most"
        what = "requests" if self.level.measure == "time per token" else "jobs"
        share = 100 * self.too_long / self.jobs
        who = f"{self.too_long} of {self.jobs} {what} ({share:.3g} %, {most} of {self.workflow})"
        return f"{self.by} alone: even with every GPU idle, {who} take too long; {self._reachable()}"

    def _reachable(self) -> str:
        if self.level.measure == "lateness":
            return f"at best {100 * float(self.best):.4g} % of the jobs end within their deadlines"
        unit = " s" if self.level.is_time else ""
        return f"no plan brings {str(self.level).split(' <= ')[0]} below {self.level.reported(self.best):.5g}{unit}"

    @property
    def record(self) -> TooLongAlone:
        """It with the keys of ``servers --json``; seconds, ratios and shares."""
        best = self.level.reported(self.best)
        return TooLongAlone(str(self.level), self.jobs, self.too_long, self.workflow, self.workflows, best)


def too_long_alone(instance: Instance, levels: ServiceLevels) -> Alone | None:
    """Return the first level that jobs break each alone on an idle cluster; None if no single level is broken so."""
    ends = np.maximum.reduceat(critical_path.earliest(instance).end_us, instance.job_first_task[:-1])
    latency = np.asarray(ends - instance.job_release_us, np.int64)
    return broken_at_best(instance, levels, latency, None, "Loads and run times")


def broken_at_best(
    instance: Instance, levels: ServiceLevels, latency: Ints, tokens: TokenTimes | None, by: str
) -> Alone | None:
    """Return the first level that is broken by times that no plan goes below; None if no single level is."""
    for level in levels:
        best = level.reached(instance, latency, tokens)
        if best is not None and not level.met_by(instance, latency, range(len(instance.jobs)), tokens):
            jobs, late = _judged(instance, level, latency, tokens)
            workflows = Counter(instance.jobs[job].workflow.name for job in late)
            (workflow, _), *_ = workflows.most_common(1)
            return Alone(level, len(jobs), len(late), workflow, len(workflows), best, by)
    return None


def _judged(
    instance: Instance, level: ServiceLevel, latency: Ints, tokens: TokenTimes | None
) -> tuple[list[int], list[int]]:
    """Return the jobs (of time per token: that of each request) that a level is over, and those beyond its limit."""
    covered = level.covers(instance)
    if tokens is not None and level.measure == "first token":
        jobs = np.flatnonzero(covered & (tokens.first_us != NONE))
        return jobs.tolist(), [job for job in jobs.tolist() if tokens.first_us[job] > level.limit]
    if tokens is not None and level.measure == "time per token":
        requests = np.flatnonzero(covered[tokens.job])
        late = [at for at in requests.tolist() if tokens.span_us[at] > level.limit * int(tokens.steps[at])]
        return tokens.job[requests].tolist(), tokens.job[late].tolist()
    jobs = np.flatnonzero(covered)
    return jobs.tolist(), [job for job in jobs.tolist() if _is_beyond(instance, level, latency, job)]


def _is_beyond(instance: Instance, level: ServiceLevel, latency: Ints, job: int) -> bool:
    """Say whether a job alone takes longer than the limit of its level."""
    flow = int(latency[job])
    if level.measure == "lateness":
        deadline = instance.jobs[job].deadline_us
        return deadline is not None and flow > deadline
    return flow > level.limit * (int(instance.job_ideal_us[job]) if level.measure == "slowdown" else 1)
