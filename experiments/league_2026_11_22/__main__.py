"""``python -m experiments.league_2026_11_22``: every policy on every workload, ten replications each, then one table.

Every replication of a workload is kept when it is finished: killed at any time, the same command goes on. The traces
are read from ``../shared/data`` (they are no part of this repository).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import truenorth as tn
from experiments.bench import ask
from experiments.league_2026_11_22.workloads import FOLDER, WORKLOADS, drawn
from experiments.study import markdown, write
from truenorth.models.record import encode
from truenorth.models.scenario import write_atomically
from truenorth.planner.answers.replications import Replicated


@dataclass(frozen=True, slots=True)
class LeagueRow:
    """What a contender came to on a workload: means over its replications, most with the ends of their intervals.

    The objective is mean slowdown; `ratio_to_best` is to the best contender of each replication, `ratio_to_bound` to
    its lower bound: the ratio to the optimum lies between. `difference` is to the best online policy of the workload;
    `converged_in` counts the replications whose plan is converged. What parts lose is known of policies that are taken
    apart.
    """

    workload: str
    policy: str
    replications: int
    objective: float
    objective_low: float | None
    objective_high: float | None
    ratio_to_best: float | None
    ratio_to_best_low: float | None
    ratio_to_best_high: float | None
    ratio_to_bound: float | None
    ratio_to_bound_low: float | None
    ratio_to_bound_high: float | None
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    better_in: int | None
    bound_methods: str
    converged_in: int
    gap_to_bound: float | None
    lost_to_residency: float | None
    lost_to_batches: float | None
    lost_to_order: float | None
    lost_to_placement: float | None
    lost_to_open: float | None


def league(
    jobs: Annotated[int, "per replication, where arrivals are drawn"] = 100,
    replications: int = 10,
    time_limit: Annotated[float, "seconds per replication for plan and bound"] = 20.0,
    workloads: Annotated[tuple[str, ...], tuple(WORKLOADS)] = tuple(WORKLOADS),
    workers: int = 2,
    ray: Annotated[str | None, "address of a Ray cluster in place of local processes"] = None,
    quick: Annotated[bool, "a few jobs and replications, to try it out in minutes"] = False,
    kept: Annotated[Path, "where scenarios and replications are kept"] = Path("league"),
    folder: Annotated[Path, "where league.csv and league.md lie"] = FOLDER,
) -> None:
    """Fill what is missing, then write and print the table."""
    jobs, replications, time_limit = (20, 3, 1.0) if quick else (jobs, replications, time_limit)
    made: dict[str, Replicated] = {}
    for name in workloads:
        made[name] = tn.replicate(
            drawn(name, kept, jobs),
            replications,
            regret=("compass", "srpt", "ahead"),
            time_limit=time_limit,
            folder=kept / name,
            workers=workers,
            ray=ray,
        )
        if made[name].replications:
            tn.save(made[name], kept / name)
    write(folder / "league.csv", [row for name, one in made.items() for row in rows_of(name, one)])
    text = "\n".join(table(made)) + "\n"
    write_atomically(folder / "league.md", text)
    print(text)


def rows_of(name: str, made: Replicated) -> Iterator[LeagueRow]:
    """Yield the rows of a workload."""
    for row in made.rows:
        said = encode(row)
        figures: dict[str, Any] = {key: said.get(key) for key in LeagueRow.__dataclass_fields__ if key != "workload"}
        yield LeagueRow(workload=name, **figures)


def table(made: Mapping[str, Replicated]) -> Iterator[str]:
    """Yield two tables: per policy and workload its objective, times the best and times the bound."""
    policies = dict.fromkeys(row.policy for one in made.values() for row in one.rows)
    for ratio, words in (("ratio_to_best", "x best"), ("ratio_to_bound", "x bound")):
        lines = [[f"`{policy}`", *(_cell(one, policy, ratio) for one in made.values())] for policy in policies]
        yield markdown([words, *made], lines, " --: |")
        yield ""
    for name, one in made.items():
        yield f"{name}: {one.proof}{'' if one.warning is None else f' {one.warning}'}"


def _cell(made: Replicated, policy: str, ratio: str) -> str:
    row: Mapping[str, Any] = next((encode(row) for row in made.rows if row.policy == policy), {})
    mean, low, high = (row.get(f"{ratio}{end}") for end in ("", "_low", "_high"))
    if mean is None:
        return "-"
    shown = f"{mean:.3g}" if low is None or high is None else f"{mean:.3g} [{low:.3g}, {high:.3g}]"
    return f"**{shown}**" if policy == made.against else shown


if __name__ == "__main__":
    ask(league)
