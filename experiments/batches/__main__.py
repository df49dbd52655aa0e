"""``python -m experiments.batches BENCHMARK``: plans and bounds where tasks run in batches or side by side."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from experiments.batches import loaded, oracles


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one benchmark."""
    parser = argparse.ArgumentParser(prog="python -m experiments.batches", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="benchmark")
    for name, words in (
        ("one-class", "40 tasks of one class on one GPU against the dynamic programme"),
        ("shares", "tasks of share 1/k on one GPU against k GPUs"),
    ):
        command = commands.add_parser(name, help=words)
        command.add_argument("--count", type=int, default=100, help="draws")
        command.add_argument("--time-limit", type=float, default=5.0, help="seconds for each plan")
    for name, words, seconds in (
        ("plan", "plan and bound of the authors' workload", 60.0),
        ("bound", "its bound alone", 60.0),
        ("policies", "what policies reach on it", None),
    ):
        command = commands.add_parser(name, help=words)
        command.add_argument("--rates", type=int, nargs="+", default=[6, 8], help="jobs per second")
        command.add_argument(
            "--jobs", type=int, default=100, help="the first recorded ones, or a draw if there are fewer"
        )
        if seconds is None:
            command.add_argument("policies", nargs="+", help="such as compass:batch=greedy")
        else:
            command.add_argument("--time-limit", type=float, default=seconds)
    _run(parser.parse_args(arguments))


def _run(chosen: argparse.Namespace) -> None:
    if chosen.benchmark == "one-class":
        oracles.print_rows(oracles.compare_one_class, chosen.count, chosen.time_limit, 0.0)
    elif chosen.benchmark == "shares":
        oracles.print_rows(oracles.compare_shares, chosen.count, chosen.time_limit, 0.005)
    for rate in chosen.rates if "rates" in chosen else ():
        if chosen.benchmark == "plan":
            loaded.print_plan(rate, chosen.jobs, chosen.time_limit)
        elif chosen.benchmark == "bound":
            loaded.print_bound(rate, chosen.jobs, chosen.time_limit)
        else:
            loaded.print_policies(rate, chosen.jobs, chosen.policies)


if __name__ == "__main__":
    main()
