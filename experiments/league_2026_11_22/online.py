"""``python -m experiments.league_2026_11_22.online``: the online policies alone, without plans and bounds: minutes.

Fills online.csv cell by cell, a cell being a policy on one replication of a workload, then prints the table of the
answer. An interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from executor import PolicyError
from experiments.league_2026_11_22.workloads import WORKLOADS
from experiments.resumed import fill
from models.scenario import Scenario, load_scenario
from planner import simulate
from planner.answers.compare import BATCHING_POLICIES, DEFAULT_POLICIES
from planner.answers.intervals import interval_of
from planner.answers.policies.parse import RECEDING
from planner.answers.replicated_servers import scenarios

FOLDER = Path(__file__).parent
BATCHED = ("batches", "two-kinds")
"""Workloads whose tasks come in batch classes."""
TOO_LONG = ("azure-code",)
"""Workloads of thousands of tasks, whose bursts take the receding horizon hours."""
POLICIES = (*(policy for policy in DEFAULT_POLICIES if policy != RECEDING), *BATCHING_POLICIES, RECEDING)
"""The receding horizon last: its decisions take longest."""


@dataclass(frozen=True, slots=True)
class OnlineResult:
    """The objective of a policy on a replication, None where it cannot serve it; and CPU time per task."""

    workload: str
    replication: int
    jobs: int
    policy: str
    value: float | None
    us_per_task: float

    @property
    def cell(self) -> tuple[str, int, int, str]:
        """What was asked."""
        return self.workload, self.replication, self.jobs, self.policy


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill what is missing and print the table."""
    parser = argparse.ArgumentParser(prog="python -m experiments.league_2026_11_22.online", description=__doc__)
    parser.add_argument("--jobs", type=int, default=100, help="per replication, where arrivals are drawn")
    parser.add_argument("--replications", type=int, default=10)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--kept", type=Path, default=Path("league"), help="where scenarios are kept")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where online.csv lies")
    options = parser.parse_args(arguments)

    @cache
    def drawn(name: str) -> list[Scenario]:
        folder: Path = options.kept / name
        folder.mkdir(parents=True, exist_ok=True)
        found, _ = scenarios(load_scenario(WORKLOADS[name].write(folder, options.jobs)), options.replications)
        return found

    def measured(cell: tuple[str, int, int, str]) -> Iterator[OnlineResult]:
        """Yield the figures of one policy on one draw."""
        name, replication, jobs, policy = cell
        scenario, begun = drawn(name)[replication], time.process_time()
        try:
            value = float(simulate(scenario, policy).value)
        except PolicyError:
            value = None
        took_us = 1e6 * (time.process_time() - begun) / scenario.instance.n_tasks
        yield OnlineResult(name, replication, jobs, policy, value, round(took_us, 1))

    cells = [
        (name, replication, options.jobs, policy)
        for policy in POLICIES
        for name in options.workloads
        for replication in range(options.replications)
        if runs_on(policy, name)
    ]
    for line in table(fill(options.folder / "online.csv", OnlineResult, cells, measured), options.workloads):
        print(line)


def runs_on(policy: str, workload: str) -> bool:
    """Say whether a policy takes part on a workload."""
    return (policy not in BATCHING_POLICIES or workload in BATCHED) and (policy != RECEDING or workload not in TOO_LONG)


def table(rows: Sequence[OnlineResult], workloads: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table: each policy's objective, times that of the best one of the same replication."""
    value = {(row.workload, row.replication, row.policy): row.value for row in rows}
    yield f"| policy | {' | '.join(workloads)} |"
    yield f"| --- |{' --: |' * len(workloads)}"
    for policy in POLICIES:
        yield f"| `{policy}` | {' | '.join(_cell(value, workload, policy) for workload in workloads)} |"


def _cell(value: dict[tuple[str, int, str], float | None], workload: str, policy: str) -> str:
    ratios = []
    for index in {index for name, index, _ in value if name == workload}:
        mine = value.get((workload, index, policy))
        others = [value.get((workload, index, other)) for other in POLICIES]
        if mine is not None:
            ratios.append(mine / min(other for other in others if other is not None))
    if not ratios:
        return "-"
    found = interval_of(ratios)
    return f"{found.mean:.3g}" + ("" if found.low is None else f" [{found.low:.3g}, {found.high:.3g}]")


if __name__ == "__main__":
    main()
