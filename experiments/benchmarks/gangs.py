"""``python -m experiments gangs LOG...``: a training cluster with jobs on several GPUs: policies, a plan and its bound.

Logs are ElasticFlow's traces (`truenorth import elasticflow`), which lie outside the tree; several are one cluster's.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from time import process_time

import truenorth as tn
from experiments.bench import ask
from truenorth.models.scenario import Scenario
from truenorth.planner.answers.compare import GANG_POLICIES
from truenorth.planner.inputs.importers.trace import import_trace

_FOUR_DAYS_US = 4 * 24 * 3_600 * 1_000_000


def gangs(
    logs: tuple[Path, ...],
    window: tuple[str, ...] = (),
    servers: int = 16,
    gpus_per_server: int = 8,
    policies: tuple[str, ...] = GANG_POLICIES,
    time_limit: float = 120.0,
    jobs: int = 0,
) -> None:
    """Print mean completion time per policy, of the plan, and the bound that no schedule lies below.

    Parameters
    ----------
    window
        From and to when jobs are submitted, such as ``"2160000 s" "3024000 s"``; none: the whole log.
    time_limit
        Seconds for the plan and its bound; 0: policies alone.
    jobs
        Jobs in all: those of the logs over and over, each time four days later; 0: once.
    """
    found = import_trace(
        "elasticflow",
        list(logs),
        window=(window[0], window[1]) if window else None,
        override=lambda hardware: replace(hardware, servers=servers, gpus_per_server=gpus_per_server),
    )
    scenario = _repeated(found.scenario, jobs) if jobs else found.scenario
    wide = sum(task.gpus > 1 for job in scenario.instance.jobs for task in job.workflow.tasks)
    where = f"{servers} servers of {gpus_per_server} GPUs, {scenario.instance.cluster.places} places"
    print(f"{len(scenario.instance.jobs):,} jobs, {wide:,} on several GPUs; {where}")
    print("| schedule | mean completion time in s | CPU s |")
    for name in policies:
        begun = process_time()
        value = tn.simulate(scenario, name).value
        print(f"| {name} | {value:,.0f} | {process_time() - begun:.1f} |", flush=True)
    if time_limit:
        plan = tn.plan(scenario, time_limit=time_limit)
        print(f"| plan | {plan.value or 0:,.0f} | {plan.result.cpu_s:.0f} |")
        print(f"| bound ({plan.result.bound_method}) | {plan.lower_bound or 0:,.0f} | gap {plan.result.gap or 0:.1%} |")


def _repeated(scenario: Scenario, count: int) -> Scenario:
    """Return a scenario with so many jobs: its own over and over, each time four days later."""
    own = scenario.instance.jobs
    times = range(-(-count // len(own)))
    jobs = (replace(job, release_us=job.release_us + time * _FOUR_DAYS_US) for time in times for job in own)
    by_release = sorted(jobs, key=lambda job: job.release_us)
    return replace(scenario, instance=replace(scenario.instance, jobs=tuple(by_release[:count])))


main = partial(ask, gangs)
