"""``python -m experiments.dispatch``: run chains on GPUs that only wait, and print how late their tasks start."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import quantiles
from unittest.mock import patch

import torch
from torch import Tensor, nn

from executor import Policy, parse_policy, replay, simulate
from executor.devices.physical import Physical
from executor.devices.run import LiveSettings, run_live
from executor.runners.runner import RunnerCall
from experiments.dispatch.chains import chains
from models import Instance, MLModel

_US_PER_S = 1_000_000


class Waiting:
    """Stands for a GPU that computes by itself: a run occupies Python for a share of its time and waits for the rest.

    Parameters
    ----------
    launch
        The share, as code that launches kernels one by one occupies it.
    """

    def __init__(self, launch: float) -> None:
        self._launch = launch

    def weights(self, model: MLModel) -> Mapping[str, Tensor]:
        """Return zeros."""
        return {"weight": torch.zeros(8, 8), "bias": torch.zeros(8)}

    def module(self, model: MLModel) -> nn.Module:
        """Return a layer without weights."""
        return nn.Linear(8, 8, device="meta").eval()

    def run(self, call: RunnerCall) -> Tensor:
        """Occupy Python, then wait."""
        until_ns = time.perf_counter_ns() + round(call.run_us * self._launch * 1000)
        while time.perf_counter_ns() < until_ns:
            pass
        time.sleep(call.run_us * (1 - self._launch) / _US_PER_S)
        return torch.zeros(16)

    def run_batch(self, calls: Sequence[RunnerCall]) -> Sequence[Tensor]:
        """Run one after the other."""
        return [self.run(call) for call in calls]


def dispatch_us(instance: Instance, policy: str, launch: float) -> list[int]:
    """Return, for every task, how long after it could it started; policy ``plan``: what SRPT makes of it, replayed."""
    plan = simulate(instance, parse_policy("srpt")) if policy == "plan" else None
    chosen: Callable[[], Policy] = parse_policy(policy) if plan is None else replay(instance, plan)
    cores = [Physical(torch.device("cpu"), f"virtual GPU {gpu}") for gpu in range(instance.n_gpus)]
    with patch("executor.devices.crew.physical_devices", lambda kind: cores):
        live = run_live(instance, chosen, Waiting(launch), LiveSettings(), plan=plan)
    if live.records.failures:
        raise SystemExit(f"a task failed: {live.records.failures[0].message}")
    return [run.dispatch_us for run in live.records.runs]


def main() -> None:
    """Print a row per policy and number of GPUs."""
    parser = argparse.ArgumentParser(prog="python -m experiments.dispatch", description=__doc__)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--policies", nargs="+", default=["plan", "compass", "srpt"])
    parser.add_argument("--jobs", type=int, default=60, help="per GPU")
    parser.add_argument("--run-us", type=int, default=5000)
    parser.add_argument("--load", type=float, default=0.8, help="how busy the GPUs are")
    parser.add_argument("--launch", type=float, nargs="+", default=[0.0, 0.1], help="share of a run that holds Python")
    given = parser.parse_args()
    print(f"{'launch':>6}{'policy':>10}{'GPUs':>6}{'tasks':>7}{'median us':>11}{'p95 us':>9}{'at once':>9}")
    for launch in given.launch:
        for policy in given.policies:
            for gpus in given.gpus:
                instance = chains(gpus, given.jobs * gpus, given.run_us, given.load)
                late = dispatch_us(instance, policy, launch)
                cuts = quantiles(late, n=20, method="inclusive")
                at_once = sum(us <= 50 for us in late) / len(late)
                print(
                    f"{launch:6.0%}{policy:>10}{gpus:6}{len(late):7}{cuts[9]:11.0f}{cuts[18]:9.0f}{at_once:9.0%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
