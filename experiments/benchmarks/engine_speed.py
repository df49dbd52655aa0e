"""Tasks per CPU second of the engine, and how its memory grows with the jobs."""

from __future__ import annotations

import time
import tracemalloc
from functools import partial
from typing import Annotated

from experiments.authors import at_load
from experiments.bench import ask
from truenorth.executor import parse_policy, simulate

LOAD = 0.75
"""Share of the GPUs' time that the arrivals ask for."""


def engine_speed(
    policy: str = "compass",
    gpus: int = 240,
    jobs: int = 4_000,
    memory: Annotated[bool, "peak memory at 1, 2 and 4 times as many jobs (slow)"] = False,
) -> None:
    """Time the engine; with `--memory`, trace what it allocates instead."""
    for factor in (1, 2, 4) if memory else (1,):
        on = at_load(LOAD, gpus, jobs * factor, seed=1)
        begin_s = time.process_time()
        if memory:
            tracemalloc.start()
        simulate(on, parse_policy(policy))
        if memory:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            print(f"{len(on.jobs):7} jobs: at most {peak / 1e6:.1f} MB while simulating")
        else:
            seconds = time.process_time() - begin_s
            what = f"{policy}, {gpus} GPUs, {len(on.jobs)} jobs, {on.n_tasks} tasks"
            print(f"{what}: {seconds:.3f} CPU seconds, {on.n_tasks / seconds:,.0f} tasks/s")


main = partial(ask, engine_speed)
