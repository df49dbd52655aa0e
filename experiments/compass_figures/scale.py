"""``python -m experiments.compass_figures.scale``: Compass and the corrected simulator on larger clusters.

The arrivals are this repository's own: Poisson, an equal mix, as in the authors' workload. The corrected simulator is
`compass-released:remaining=on,shared=on`, which meets its recorded figures, adjustment off or on, whichever is better.
"""

from __future__ import annotations

import argparse

from executor import instance_for, parse_policy, simulate
from experiments.authors import instance, poisson
from experiments.compass_figures.__main__ import WARM_UP
from experiments.engine_speed.__main__ import WORK_PER_JOB_S
from models import Instance, measure

CORRECTED = ("compass-released:remaining=on,shared=on", "compass-released:remaining=on,shared=on,adjust=on")


def main() -> None:
    """Print a line per cluster, load and seed of the arrivals."""
    options = argparse.ArgumentParser(prog="python -m experiments.compass_figures.scale", description=__doc__)
    options.add_argument("--gpus", type=int, nargs="+", default=[5, 60, 240])
    options.add_argument("--loads", type=float, nargs="+", default=[0.4, 0.6, 0.8])
    options.add_argument("--jobs", type=int, default=2_000)
    options.add_argument("--seeds", type=int, nargs="+", default=[11, 12])
    given = options.parse_args()
    print(f"{'GPUs':>5} {'load':>5} {'seed':>5} {'compass':>9} {'corrected':>10} {'ratio':>6} {'jit':>8} {'heft':>8}")
    for gpus in given.gpus:
        for load in given.loads:
            for seed in given.seeds:
                on = instance(poisson(load * gpus / WORK_PER_JOB_S, given.jobs, seed), gpus)
                compass, theirs = slowdown(on, "compass"), min(slowdown(on, policy) for policy in CORRECTED)
                jit, heft = slowdown(on, "jit"), slowdown(on, "heft")
                cells = f"{compass:9.3f} {theirs:10.3f} {compass / theirs:6.3f} {jit:8.3f} {heft:8.2f}"
                print(f"{gpus:5} {load:5} {seed:5} {cells}", flush=True)


def slowdown(on: Instance, policy: str) -> float:
    """Return the mean slowdown of a policy after the warm-up."""
    parsed = parse_policy(policy)
    twin = instance_for(on, parsed)
    return measure(twin, simulate(twin, parsed), warmup=WARM_UP).mean_slowdown


if __name__ == "__main__":
    main()
