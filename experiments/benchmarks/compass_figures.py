"""Compare our Compass with the figures of the authors' simulator, on the arrivals that it recorded."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Annotated, Any, NamedTuple

from experiments import authors
from experiments.bench import ask, bench, carry_out
from truenorth.models import Instance, Metrics, measure

WARM_UP = Fraction(1, 10)


class Figures(NamedTuple):
    """What the released simulator gives: mean, median and p95 of the slowdown, and the hit rate."""

    mean: float
    median: float
    p95: float
    hit_rate: float


RELEASED = {2: Figures(2.02, 1.61, 4.65, 0.997), 3: Figures(4.80, 2.42, 16.9, 0.942), 4: Figures(186, 139, 389, 0.805)}
"""By jobs per second; the "released" rows with adjustment off."""

RELEASED_ADJUSTED = {
    2: Figures(1.87, 1.58, 3.85, 0.996),
    3: Figures(4.40, 2.40, 14.4, 0.939),
    4: Figures(376, 287, 905, 0.613),
}
"""The "released" rows with adjustment on."""

CORRECTED_ADJUSTED = {
    2: Figures(1.55, 1.10, 3.26, 0.993),
    3: Figures(2.38, 1.64, 6.21, 0.971),
    4: Figures(197, 147, 493, 0.723),
}
"""The "corrected" rows with adjustment on."""

CORRECTED = {
    2: Figures(1.50, 1.00, 3.19, 0.996),
    3: Figures(2.12, 1.48, 5.46, 0.986),
    4: Figures(85.3, 61.0, 169, 0.855),
}
"""The better of the "corrected" rows, adjustment off at all three rates."""

SIMULATORS = ("compass-released:remaining=on,shared=on", "compass-released:remaining=on,shared=on,adjust=on")
"""The corrected simulator, with adjustment off and on."""

THEIRS: Mapping[str, Mapping[int, Figures]] = {
    "compass": CORRECTED,
    "compass:adjust=off": CORRECTED,
    "compass-released": RELEASED,
    "compass-released:adjust=on": RELEASED_ADJUSTED,
    SIMULATORS[0]: CORRECTED,
    SIMULATORS[1]: CORRECTED_ADJUSTED,
    **dict.fromkeys(("jit", "jit:roots=hash", "srpt", "heft", "static", "hash"), CORRECTED),
}


def compass_figures(seeds: Annotated[int, "how many seeds of the random ingress"] = 5) -> None:
    """Run every row of the table for every rate and seed."""
    if not authors.ARRIVALS.is_dir():
        raise SystemExit(f"the recorded arrivals are not at {authors.ARRIVALS}")

    def beside_theirs(asked: tuple[int, str]) -> dict[str, Any]:
        rate, policy = asked
        found = [figures(rate, policy, seed) for seed in range(seeds)]
        means, theirs = [metrics.mean_slowdown for metrics in found], THEIRS[policy][rate]
        ends = {"least": min(means), "most": max(means), "ratio": means[0] / theirs.mean}
        return {"rate": rate, "first": found[0], "theirs": theirs, **ends}

    print("2,000 recorded jobs, 5 GPUs, first 10 % left out; seed 0, and lowest to highest mean over the seeds")
    heads = ("jobs/s", "policy", "mean", "lowest to highest", "median", "p95", "hit")
    bench(
        ((policy, (rate, policy)) for rate in (2, 3, 4) for policy in THEIRS),
        beside_theirs,
        "{rate:6} {name:50} {first.mean_slowdown:8.3f} {least:8.3f} to {most:7.3f} {first.p50_slowdown:7.2f} "
        "{first.p95_slowdown:7.2f} {first.hit_rate:6.3f}   "
        "{theirs.mean:g} {theirs.median:g} {theirs.p95:g} {theirs.hit_rate:.3f} (x {ratio:.3f})",
        "{:>6} {:50} {:>8} {:>19} {:>7} {:>7} {:>6}   theirs".format(*heads),
    )


def figures(rate: int, policy: str, seed: int) -> Metrics:
    """Return the metrics of a policy on the arrivals recorded at a rate (jobs per second)."""
    return after_warm_up(authors.instance(authors.recorded(rate, from_zero=False)), policy, seed)


def after_warm_up(on: Instance, policy: str, seed: int = 0) -> Metrics:
    """Return the metrics of a policy without the first tenth of the jobs."""
    return measure(*carry_out(on, policy, seed), warmup=WARM_UP)


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


main = partial(ask, {"recorded": compass_figures, "scale": scale})
