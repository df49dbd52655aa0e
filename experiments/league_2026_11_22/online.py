"""``python -m experiments.league_2026_11_22.online``: the online policies alone, without plans and bounds: minutes.

Fills online.csv cell by cell, a cell being a policy on one replication of a workload, then prints the table of the
answer. An interrupted run goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated

import truenorth as tn
from experiments.bench import ask
from experiments.league_2026_11_22.workloads import FOLDER, WORKLOADS, drawn
from experiments.study import Study, markdown
from truenorth.executor import PolicyError
from truenorth.models.scenario import Scenario
from truenorth.planner.answers.compare import BATCHING_POLICIES, DEFAULT_POLICIES
from truenorth.planner.answers.intervals import interval_of
from truenorth.planner.answers.policies.parse import RECEDING
from truenorth.planner.answers.replicated_servers import scenarios

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


def online(
    jobs: Annotated[int, "per replication, where arrivals are drawn"] = 100,
    replications: int = 10,
    workloads: Annotated[tuple[str, ...], tuple(WORKLOADS)] = tuple(WORKLOADS),
    kept: Annotated[Path, "where scenarios are kept"] = Path("league"),
    folder: Annotated[Path, "where online.csv lies"] = FOLDER,
) -> None:
    """Fill what is missing and print the table."""

    @cache
    def replicated(name: str) -> list[Scenario]:
        found, _ = scenarios(drawn(name, kept, jobs), replications)
        return found

    def measured(name: str, replication: int, jobs: int, policy: str) -> Iterator[OnlineResult]:
        """Yield the figures of one policy on one draw."""
        scenario, begun = replicated(name)[replication], time.process_time()
        try:
            value = float(tn.simulate(scenario, policy).value)
        except PolicyError:
            value = None
        took_us = 1e6 * (time.process_time() - begun) / scenario.instance.n_tasks
        yield OnlineResult(name, replication, jobs, policy, value, round(took_us, 1))

    Study(OnlineResult, 4, measured, [table], results="online.csv").run(
        (
            (name, replication, jobs, policy)
            for policy, name, replication in product(POLICIES, workloads, range(replications))
            if runs_on(policy, name)
        ),
        folder,
    )


def runs_on(policy: str, workload: str) -> bool:
    """Say whether a policy takes part on a workload."""
    return (policy not in BATCHING_POLICIES or workload in BATCHED) and (policy != RECEDING or workload not in TOO_LONG)


def table(rows: Sequence[OnlineResult]) -> str:
    """Return each policy's objective, times that of the best one of the same replication."""
    value = {(row.workload, row.replication, row.policy): row.value for row in rows}
    workloads = sorted({row.workload for row in rows}, key=list(WORKLOADS).index)
    lines = [[f"`{policy}`", *(_cell(value, workload, policy) for workload in workloads)] for policy in POLICIES]
    return markdown(["policy", *workloads], lines, " --: |")


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
    ask(online)
