"""What forces one more server, in a sentence: window, models and resource, taken from the bound that refutes.

What no number of servers mends, jobs that take too long even alone on idle GPUs, is said as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from truenorth.models import Instance, MLModel, Objective, ServiceLevel, ServiceLevels
from truenorth.models.instance import NONE, Ints
from truenorth.models.timeline import TokenTimes
from truenorth.models.torn import torn
from truenorth.models.units import say_size, without_exponent
from truenorth.planner.answers.servers.goal import Goal
from truenorth.planner.answers.servers.record import TooLongAlone
from truenorth.solvers.bounds import critical_path, fluid
from truenorth.solvers.bounds.batch_work import Work
from truenorth.solvers.bounds.fluid import Demand
from truenorth.solvers.bounds.lagrangian.improve import Priced

_NAMED = 3
"""Most models that a sentence names."""
_WINDOW_SHARE = 0.8
"""The window of a price is the shortest that holds so much of it."""


def in_words(goal: Goal, method: str, bound: object) -> str:
    """Return what a bound without search says: the worst window if jobs must be late, else all the work."""
    gpus = goal.instance.n_gpus
    if goal.objective in (Objective.LATE_JOBS, Objective.WEIGHTED_TARDINESS) and method != "critical_path":
        found = fluid.demands(goal.relaxed, fluid.due_us(goal.instance))
        worst = max(found, key=lambda demand: demand.late(gpus), default=None)
        if worst is not None and worst.late(gpus):
            sentence = demand_in_words(goal.relaxed.models, gpus, worst, int(worst.late(gpus)), goal.within)
            if goal.objective is Objective.LATE_JOBS and worst.late(gpus) <= goal.most:
                sentence += (
                    f"; with other windows {bound} jobs are {_late(goal.within)} in all, where {goal.most} may be"
                )
            return sentence
    if method == "critical_path":
        return "Loads and run times alone: even with every GPU idle, some jobs take too long"
    work = float(_work_us(goal.relaxed) / 1e6)
    return f"Compute over the whole workload: {_figure(work)} GPU-seconds of work queue on {_gpus(gpus)} for too long"


def demand_in_words(named: Sequence[MLModel], gpus: int, demand: Demand, late: int, within: str | None) -> str:
    """Return what a window demands, naming models of the instance that demands it, and what so many GPUs offer.

    Parameters
    ----------
    within
        What jobs that are not late are within; None: their deadlines.
    """
    window = f"Between {demand.begin_us / 1e6:.6g} s and {demand.end_us / 1e6:.6g} s"
    models = _names(named, demand.models)
    offered, asked = float(gpus * demand.rate / demand.parts), float(demand.amount.sum()) / demand.parts
    asked_s, offered_s = told_apart(asked / 1e6, offered / 1e6)
    if demand.resource == "compute":
        jobs = "jobs on time" if within is None else f"jobs within {within}"
        what = f"{jobs} need {asked_s} GPU-seconds of compute{models and f' (most for {models})'}"
        has = f"{_gpus(gpus)} {'gives' if gpus == 1 else 'give'} {offered_s}"
    elif demand.resource == "copy engine":
        what, has = (
            f"models {models} take {asked_s} s to load",
            (f"the copy engines of {_gpus(gpus)} give {offered_s} s"),
        )
    else:
        what, has = (
            f"models {models} of {say_size(asked)} are needed",
            (f"memory of {_gpus(gpus)}, with all that can be loaded meanwhile, gives {say_size(offered)}"),
        )
    return f"{window} {what}, but {has}: at least {late} {'job is' if late == 1 else 'jobs are'} {_late(within)}"


def _late(within: str | None) -> str:
    return "late" if within is None else f"not within {within.partition(' (')[0]}"


def told_apart(needed: float, there: float) -> tuple[str, str]:
    """Return what is needed and the less that is there, with four digits or as many more as tell them apart.

    >>> told_apart(2, 1), told_apart(12.8512, 12.8497), told_apart(56_580, 43_200), told_apart(1, 1)
    (('2', '1'), ('12.851', '12.85'), ('56,580', '43,200'), ('just over 1', '1'))
    """
    for digits in range(4, 16):
        if float(f"{needed:.{digits}g}") > float(f"{there:.{digits}g}"):
            return _figure(needed, digits), _figure(there, digits)
    return f"just over {_figure(there)}", _figure(there)


def prices_in_words(goal: Goal, priced: Priced) -> str:
    """Return where the prices of a Lagrangian bound lie: resource, window and models."""
    instance, relaxation, prices = goal.priced, priced.relaxation, priced.prices
    gpus = relaxation.offered_us / relaxation.slot_us
    memory = sum(
        (
            gpus[row.gpu_class] * row.capacity * price
            for row, price in zip(relaxation.memory, prices.memory, strict=True)
        ),
        start=np.zeros(relaxation.slots),
    )
    # Where capacity is dearest: its price times what there is of it, slot by slot.
    mass = {
        "compute": (gpus * prices.compute).sum(axis=0),
        "the copy engines": (gpus * prices.copy).sum(axis=0),
        "memory": memory,
    }
    resource = max(mass, key=lambda name: float(mass[name].sum()))
    begin, end = _narrowest(np.asarray(mass[resource], np.float64))
    slot_s = relaxation.slot_us / 1e6
    paid = np.zeros(len(instance.models))
    for use, price in zip(relaxation.uses, prices.uses, strict=True):
        paid[use.model] += float(price.sum())
    models = _names(instance.models, tuple(m for m in np.argsort(-paid, kind="stable").tolist() if paid[m] > 0))
    window = f"between {begin * slot_s:.6g} s and {end * slot_s:.6g} s"
    return f"The price of {_gpus(instance.n_gpus)} is highest for {resource}, {window}{models and f', for {models}'}"


def search_in_words(goal: Goal, method: str) -> str:
    """Return what is known where a solver went through all plans."""
    work = _work_us(goal.relaxed) / 1e6
    gpus = _gpus(goal.instance.n_gpus)
    return f"No assignment of the {work:.6g} GPU-seconds of work to {gpus} meets the level: {method} tried them all"


def _narrowest(mass: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[int, int]:
    """Return the shortest range of slots with `_WINDOW_SHARE` of the mass."""
    done = np.concatenate(([0.0], np.cumsum(mass)))
    ends = np.searchsorted(done, done[:-1] + _WINDOW_SHARE * done[-1])
    lengths = np.where(ends < len(done), ends - np.arange(len(mass)), len(done))
    first = int(np.argmin(lengths))
    return first, int(first + lengths[first])


def _work_us(instance: Instance) -> int:
    work = Work.of(instance)
    return sum(work.of_tasks(instance)) // work.parts


def _names(named: Sequence[MLModel], models: tuple[int, ...]) -> str:
    names = [named[m].name for m in models[:_NAMED]]
    return ", ".join(names) + (f" and {len(models) - _NAMED} more" if len(models) > _NAMED else "")


def _figure(value: float, digits: int = 4) -> str:
    return without_exponent(f"{value:.{digits}g}")


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


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
    relaxed = torn(instance)
    ends = np.maximum.reduceat(critical_path.earliest(relaxed).end_us, relaxed.job_first_task[:-1])
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
