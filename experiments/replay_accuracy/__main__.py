"""Profile the paper's workflows with small models, plan them, carry plan and Compass out, and print the errors."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import yaml

from executor.devices.run import LiveSettings
from executor.runners.parse import parse_runner
from models.scenario import load_scenario
from planner import save
from planner.answers.plan import plan
from planner.answers.profile import profile
from planner.answers.replay import replay_on_devices

SCENARIO = Path(__file__).parents[1] / "scenarios" / "paper_small.yaml"
JOBS_PER_S_AND_GPU = 4


def main() -> None:
    """Print one row per number of planned GPUs, each a core, and policy."""
    options = argparse.ArgumentParser(prog="python -m experiments.replay_accuracy", description=__doc__)
    options.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    options.add_argument("--runner", default="transformers")
    options.add_argument("--rounds", type=int, default=5, help="rounds of the profile")
    given = options.parse_args()
    settings = LiveSettings("cpu", None, 30.0)
    runner = parse_runner(given.runner)
    print(
        f"{'GPUs':>4}  {'policy':8}{'rules':>8}{'as planned':>12}{'makespan':>10}{'job latency':>13}{'run times':>11}"
    )
    for gpus in given.gpus:
        data = yaml.safe_load(SCENARIO.read_text())
        data["cluster"]["servers"] = gpus
        data["workload"]["poisson"]["rate"] = f"{JOBS_PER_S_AND_GPU * gpus} /s"
        with tempfile.TemporaryDirectory() as folder:
            path, changed = Path(folder) / "plan.json", Path(folder) / "scenario.yaml"
            changed.write_text(yaml.safe_dump(data))
            measured = profile(load_scenario(changed), runner, device="cpu", rounds=given.rounds).measured
            save(plan(measured, time_limit_s=3), path)
            for policy in (path, "compass"):
                report = replay_on_devices(measured, policy, runner, settings, runner_name=given.runner).as_dict()
                same = report["same_placement"] and report["same_order"]
                print(
                    f"{gpus:4}  {'plan' if policy is path else 'compass':8}{'kept' if report['valid'] else 'BROKEN':>8}"
                    f"{'yes' if same else 'no':>12}{report['makespan_s']['error']:>+10.1%}"
                    f"{report['latency_error']:>13.1%}{report['run_times']['absolute_error']:>11.1%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
