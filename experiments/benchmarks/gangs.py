"""``python -m experiments gangs LOG``: a training cluster with jobs on several GPUs: policies, a plan and its bound.

The log is one of ElasticFlow's traces (`truenorth import elasticflow`), which lie outside the tree.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from time import process_time

import truenorth as tn
from experiments.bench import ask
from truenorth.planner.answers.compare import GANG_POLICIES
from truenorth.planner.inputs.importers.trace import import_trace


def gangs(
    log: Path,
    window: tuple[str, ...] = (),
    servers: int = 16,
    gpus_per_server: int = 8,
    policies: tuple[str, ...] = GANG_POLICIES,
    time_limit: float = 120.0,
) -> None:
    """Print mean completion time per policy, of the plan, and the bound that no schedule lies below.

    Parameters
    ----------
    window
        From and to when jobs are submitted, such as ``"2160000 s" "3024000 s"``; none: the whole log.
    time_limit
        Seconds for the plan and its bound; 0: policies alone.
    """
    found = import_trace(
        "elasticflow",
        [log],
        window=(window[0], window[1]) if window else None,
        override=lambda hardware: replace(hardware, servers=servers, gpus_per_server=gpus_per_server),
    )
    scenario = found.scenario
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


main = partial(ask, gangs)
