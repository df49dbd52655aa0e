"""Print tasks per CPU second of the engine, and the growth of memory with the jobs."""

from __future__ import annotations

import argparse
import time
import tracemalloc

from executor import parse_policy, simulate
from experiments.authors import instance, poisson
from models import Instance

WORK_PER_JOB_S = 0.996
"""Mean work of a job at an equal mix of the four workflows."""

LOAD = 0.75
"""Share of the GPUs' time that the arrivals ask for."""


def main() -> None:
    """Time the engine; with `--memory`, trace what it allocates instead."""
    options = argparse.ArgumentParser(prog="python -m experiments.engine_speed", description=__doc__)
    options.add_argument("--policy", default="compass")
    options.add_argument("--gpus", type=int, default=240)
    options.add_argument("--jobs", type=int, default=4_000)
    options.add_argument("--memory", action="store_true", help="peak memory at 1, 2 and 4 times as many jobs (slow)")
    given = options.parse_args()
    for factor in (1, 2, 4) if given.memory else (1,):
        on = workload(given.gpus, given.jobs * factor)
        if given.memory:
            print(f"{len(on.jobs):7} jobs: at most {peak_bytes(on, given.policy) / 1e6:.1f} MB while simulating")
        else:
            seconds = engine_seconds(on, given.policy)
            what = f"{given.policy}, {given.gpus} GPUs, {len(on.jobs)} jobs, {on.n_tasks} tasks"
            print(f"{what}: {seconds:.3f} CPU seconds, {on.n_tasks / seconds:,.0f} tasks/s")


def workload(gpus: int, jobs: int) -> Instance:
    """Return the authors' workload at 75 % load."""
    return instance(poisson(LOAD * gpus / WORK_PER_JOB_S, jobs, seed=1), gpus)


def engine_seconds(on: Instance, policy: str) -> float:
    """Return the CPU seconds of one simulation."""
    begin = time.process_time()
    simulate(on, parse_policy(policy))
    return time.process_time() - begin


def peak_bytes(on: Instance, policy: str) -> int:
    """Return the most bytes that are allocated at a time during one simulation."""
    tracemalloc.start()
    simulate(on, parse_policy(policy))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


if __name__ == "__main__":
    main()
