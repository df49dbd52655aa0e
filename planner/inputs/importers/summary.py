"""What a workload is like before anything is planned: arrivals, models, run times and load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from truenorth.models.instance import Ints
from truenorth.models.scenario.requests import TOKEN_COLUMNS
from truenorth.models.slo import quantile_rank
from truenorth.models.workload import WHOLE
from truenorth.planner.inputs.importers.target import Target
from truenorth.planner.inputs.importers.workload import Workload

MINUTE_US = 60_000_000
QUANTILES = (10, 50, 90, 99)
ROUNDED_QUANTILES = (50, 90, 95, 99, 100)
"""What is said exactly and rounded, where run times are rounded up."""
LISTED_MODELS = 10
"""So many models are named in the summary."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of a workload on a cluster.

    Parameters
    ----------
    workload
        What they are of.
    gpus
        Number of GPUs.
    length_us
        Length of the window, or from time zero to the last release; 0 if all jobs arrive at time zero.
    job_work_us
        Run times of all tasks of each job together, each alone on its fastest kind, times share and GPUs; of requests
        of streams `Served.least_us`. Shape [jobs].
    task_runtime_us
        Run times of all tasks of all jobs, ascending. Shape [tasks].
    model_requests, model_work_us
        Tasks that need a model, and their run time, most first.
    loads_us
        Load times of the models of all tasks together, as if every task loaded them.
    """

    workload: Workload
    gpus: int
    length_us: float
    job_work_us: Ints
    task_runtime_us: Ints
    model_requests: Mapping[str, int]
    model_work_us: Mapping[str, int]
    loads_us: int

    @classmethod
    def of(cls, workload: Workload, target: Target, length_us: float | None) -> Summary:
        """Return the figures of a workload; without a length it ends with its last release."""
        count = np.bincount(workload.workflow, minlength=len(workload.workflows))
        work = np.array(
            [sum(task.fastest_us * task.share * task.gpus for task in w.tasks) // WHOLE for w in workload.workflows],
            np.int64,
        )
        requests: dict[str, int] = {}
        model_work: dict[str, int] = {}
        runtimes, repeats = [], []
        for index in np.flatnonzero(count).tolist():
            workflow, jobs = workload.workflows[index], int(count[index])
            for task in workflow.tasks:
                runtimes.append(task.fastest_us)
                repeats.append(jobs)
                for model in task.models:
                    requests[model] = requests.get(model, 0) + jobs
                    model_work[model] = model_work.get(model, 0) + jobs * task.fastest_us
        served = workload.served
        if served is not None:
            of = np.array([workflow.tasks[0].models[0] for workflow in workload.workflows], np.object_)
            per_job = of[workload.workflow]
            least_us = served.by_job(served.least_us)
            model_work = {model: int(least_us[per_job == model].sum()) for model in set(of.tolist())}
            requests = {model: requests[model] for model in model_work}
        ranked = sorted(requests, key=lambda model: (-requests[model], model))
        return cls(
            workload,
            target.gpus,
            float(workload.release_us[-1]) if length_us is None else length_us,
            work[workload.workflow] if served is None else served.by_job(served.least_us),
            np.sort(np.repeat(np.array(runtimes, np.int64), repeats) if served is None else served.alone_us),
            {model: requests[model] for model in ranked},
            {model: model_work[model] for model in ranked},
            sum(target.load_us(model) * requests[model] for model in ranked),
        )

    @property
    def workflows(self) -> int:
        """Different workflows that have jobs."""
        return len(np.unique(self.workload.workflow))

    @property
    def fluid_load(self) -> float | None:
        """Work that arrives per second over the number of GPUs; above 1 the queue grows. None at one instant."""
        return float(self.job_work_us.sum()) / (self.length_us * self.gpus) if self.length_us else None

    @property
    def load_of_loads(self) -> float | None:
        """The same for the copy engines, if every task had to load its models."""
        return self.loads_us / (self.length_us * self.gpus) if self.length_us else None

    @property
    def mean_load_us(self) -> float:
        """Mean over the tasks' models; 0 if no task needs one."""
        return self.loads_us / max(1, sum(self.model_requests.values()))

    @property
    def mean_per_minute(self) -> float | None:
        """Jobs per minute; None if all arrive at one instant."""
        return len(self.workload.release_us) * MINUTE_US / self.length_us if self.length_us else None

    @property
    def per_minute(self) -> Ints:
        """Arrivals in each minute from time zero. Shape [minutes]."""
        return np.bincount(self.workload.release_us // MINUTE_US)

    def runtime_s(self, percent: float) -> float:
        """Return a percentile of the tasks' run times: the ceil(q n)-th smallest."""
        place = max(1, -(-int(percent * 10**6) * len(self.task_runtime_us) // 10**8))
        return float(self.task_runtime_us[place - 1]) / 1e6

    @property
    def _rounding(self) -> dict[str, Any] | None:
        """What rounding run times up costs, percentile by percentile as [exact, rounded]; None without."""
        rounding = self.workload.rounding
        if rounding is None:
            return None
        runtimes = {f"p{percent}": rounding.quantiles_s(Fraction(percent, 100)) for percent in ROUNDED_QUANTILES}
        return {"rounded_up": rounding.most, "work_added": rounding.work_added, "runtime_s": runtimes}

    @property
    def cached_by_nodes(self) -> bool:
        """Whether nodes cache prompts: work and load are then those with nothing cached."""
        return self.workload.served is not None and self.workload.served.blocks is not None

    @property
    def tokens(self) -> dict[str, dict[str, int]]:
        """Sums and percentiles of prompts, their uncached tokens, and answers; nothing without streams.

        Where nodes cache, only a schedule says which tokens are uncached.
        """
        served = self.workload.served
        if served is None:
            return {}
        found = {}
        for what, column in zip(TOKEN_COLUMNS, np.sort(served.tokens, axis=0).T, strict=True):
            ranks = {f"p{percent}": quantile_rank(Fraction(percent, 100), len(column)) for percent in QUANTILES}
            quantiles = {name: int(column[rank]) for name, rank in ranks.items()}
            if self.cached_by_nodes and what == "uncached":
                continue
            found[what] = {"total": int(column.sum())} | quantiles | {"max": int(column[-1])}
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the figures with the keys of ``import --json``."""
        minutes, runtimes = self.per_minute, self.task_runtime_us
        total = max(1, sum(self.model_requests.values()))
        return {
            "jobs": len(self.workload.release_us),
            "tasks": len(runtimes),
            "workflows": self.workflows,
            "models": len(self.model_requests),
            "length_s": self.length_us / 1e6,
            "arrivals_per_minute": {"mean": self.mean_per_minute, "max": int(minutes.max())},
            "runtime_s": {"mean": float(runtimes.mean()) / 1e6, "min": self.runtime_s(0)}
            | {f"p{percent}": self.runtime_s(percent) for percent in QUANTILES}
            | {"max": self.runtime_s(100)},
            "model_shares": {model: tasks / total for model, tasks in self.model_requests.items()},
            **({"tokens": self.tokens} if self.tokens else {}),
            "gpus": self.gpus,
            "work_s": float(self.job_work_us.sum()) / 1e6,
            "rounding": self._rounding,
            "load_time_s": self.mean_load_us / 1e6,
            "fluid_load": self.fluid_load,
            "load_of_loads": self.load_of_loads,
        }
