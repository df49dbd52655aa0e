"""``python -m experiments.faults``: inject faults into runs on cores, and print what was lost by policy."""

from __future__ import annotations

import argparse
import resource

from experiments.faults.inject import forks, run_with_faults

POLICIES = ("plan", "jit", "compass", "srpt")


def main() -> None:
    """Print a row per policy; exit with 1 if a job was lost that was not on a fault, or something came out wrong."""
    parser = argparse.ArgumentParser(prog="python -m experiments.faults", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="over all policies")
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--gpus", type=int, default=3)
    given = parser.parse_args()
    on = forks(given.jobs, given.gpus)
    print(f"{'policy':<10}{'runs':>6}{'jobs':>8}{'faults':>8}{'lost':>6}{'undeserved':>12}{'wrong':>7}{'peak MB':>9}")
    bad = 0
    for place, policy in enumerate(POLICIES):
        seeds = range(place, given.runs, len(POLICIES))
        found = [run_with_faults(on, policy, seed) for seed in seeds]
        faults, lost = sum(outcome.faults for outcome in found), sum(outcome.lost for outcome in found)
        undeserved, wrong = sum(outcome.undeserved for outcome in found), sum(outcome.wrong for outcome in found)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        jobs = len(found) * given.jobs
        print(
            f"{policy:<10}{len(found):>6}{jobs:>8}{faults:>8}{lost:>6}{undeserved:>12}{wrong:>7}{peak:>9.0f}",
            flush=True,
        )
        bad += undeserved + wrong
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
