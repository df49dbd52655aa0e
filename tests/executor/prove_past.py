"""``python -m tests.executor.prove_past``: no policy's past depends on the future, on many random instances.

What `test_properties` asserts of a few draws, of as many as are asked for: every policy with all its readings, the
receding horizon, every kind of workload, with noise (odd seeds) and without. For 1,000 most of an hour of one core.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product

from tests.executor.test_properties import BATCHES, BATCHING, KINDS, NOISE, POLICIES, compare_pasts, run
from truenorth.executor import simulate
from truenorth.models import Instance, Timeline
from truenorth.planner.answers.policies.receding_horizon import RecedingHorizon, RecedingOptions

RECEDING = "receding:moves=80"


def main() -> int:
    """Print a line per policy and kind of workload; 1 if a past differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.executor.prove_past", description=__doc__)
    parser.add_argument("--draws", type=int, default=1_000)
    parser.add_argument("--policies", nargs="+", default=[*BATCHING, RECEDING])
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    asked = [
        (policy, kind, options.draws)
        for policy, kind in product(options.policies, (*KINDS, BATCHES))
        if kind == BATCHES or policy not in {*BATCHING} - {*POLICIES}
    ]
    failed = 0
    with ProcessPoolExecutor(options.workers) as pool:
        for (policy, kind, draws), (compared, differ) in zip(asked, pool.map(_compare, asked), strict=True):
            failed += len(differ)
            found = f"differ with seeds {differ}" if differ else "none differs"
            print(f"{policy}, {kind}: {compared} of {draws} draws compared, {found}", flush=True)
    return min(failed, 1)


def _compare(asked: tuple[str, str, int]) -> tuple[int, list[int]]:
    """Compare the pasts of one policy on one kind of workload; draws that it refuses are refused either way."""
    policy, kind, draws = asked

    def run_one(on: Instance, seed: int) -> tuple[Instance, Timeline] | None:
        noisy = seed % 2 == 1
        if policy != RECEDING:
            return run(on, policy, seed, noisy)
        return on, simulate(on, lambda: RecedingHorizon(RecedingOptions(moves=80)), seed, NOISE if noisy else None)

    return compare_pasts(kind, range(draws), run_one)


if __name__ == "__main__":
    sys.exit(main())
