"""What moves of the local search draw at random: distances and GPUs."""

from __future__ import annotations

import numpy as np

from solvers.compiled import RandomState, inlined, random_below, random_unit
from solvers.search.current_plan import Plan, may_run
from solvers.search.decoder_tables import Tables


@inlined
def draw_distance(random: RandomState, size: int) -> int:
    """Return a distance in the order, small ones more often: its logarithm is uniform up to that of `size`."""
    return int(np.exp(random_unit(random) * np.log(size)))


@inlined
def draw_other_gpu(tables: Tables, plan: Plan, random: RandomState, task: int) -> int:
    """Return a random GPU that can run a task, preferably another than its own."""
    gpus = tables.gpu_class.shape[0]
    gpu = random_below(random, gpus)
    for _ in range(gpus):
        if gpu != plan.gpu[task] and may_run(tables, task, gpu):
            return gpu
        # The next one rather than another draw: ends even where a single GPU is eligible.
        gpu = 0 if gpu + 1 == gpus else gpu + 1
    return plan.gpu[task]
