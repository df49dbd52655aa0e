"""``python -m experiments.compass_figures.scale``: Compass and the corrected simulator on larger clusters.

The arrivals are this repository's own: Poisson, an equal mix, as in the authors' workload. The corrected simulator
meets its recorded figures; adjustment is off or on, whichever is better.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from experiments import authors
from experiments.bench import ask, bench
from experiments.compass_figures.__main__ import SIMULATORS, after_warm_up


def scale(
    gpus: tuple[int, ...] = (5, 60, 240),
    loads: tuple[float, ...] = (0.4, 0.6, 0.8),
    jobs: int = 2_000,
    seeds: tuple[int, ...] = (11, 12),
) -> None:
    """Print a line per cluster, load and seed of the arrivals."""

    def slowdowns(asked: tuple[int, float, int]) -> dict[str, Any]:
        on = authors.at_load(asked[1], asked[0], jobs, asked[2])
        found = {policy: after_warm_up(on, policy).mean_slowdown for policy in ("compass", *SIMULATORS, "jit", "heft")}
        theirs = min(found[policy] for policy in SIMULATORS)
        return {"asked": asked, **found, "theirs": theirs, "ratio": found["compass"] / theirs}

    bench(
        ((str(asked), asked) for asked in product(gpus, loads, seeds)),
        slowdowns,
        "{asked[0]:5} {asked[1]:5} {asked[2]:5} {compass:9.3f} {theirs:10.3f} {ratio:6.3f} {jit:8.3f} {heft:8.2f}",
        f"{'GPUs':>5} {'load':>5} {'seed':>5} {'compass':>9} {'corrected':>10} {'ratio':>6} {'jit':>8} {'heft':>8}",
    )


if __name__ == "__main__":
    ask(scale)
