"""``python -m experiments.league_2026_11_22``: every policy on every workload, ten replications each, then one table.

Every replication of a workload is kept when it is finished: killed at any time, the same command goes on. The traces
are read from ``../shared/data`` (they are no part of this repository).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.league_2026_11_22.row import Row
from experiments.league_2026_11_22.workloads import WORKLOADS
from experiments.resumed import write as write_rows
from models.record import encode
from models.scenario import load_scenario, write_atomically
from planner import replicate, save
from planner.answers.replications import Replicated

FOLDER = Path(__file__).parent
_QUICK = {"jobs": 20, "replications": 3, "time_limit": 1.0}


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill what is missing, then write and print the table."""
    parser = argparse.ArgumentParser(prog="python -m experiments.league_2026_11_22", description=__doc__)
    parser.add_argument("--jobs", type=int, default=100, help="per replication, where arrivals are drawn")
    parser.add_argument("--replications", type=int, default=10)
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds per replication for plan and bound")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ray", help="address of a Ray cluster in place of local processes")
    parser.add_argument("--quick", action="store_true", help="a few jobs and replications, to try it out in minutes")
    parser.add_argument("--kept", type=Path, default=Path("league"), help="where scenarios and replications are kept")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where league.csv and league.md lie")
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update(_QUICK)
    made = {name: played(name, options) for name in options.workloads}
    write_rows(options.folder / "league.csv", [row for name, one in made.items() for row in rows_of(name, one)])
    text = "\n".join(table(made)) + "\n"
    write_atomically(options.folder / "league.md", text)
    print(text)


def played(name: str, options: argparse.Namespace) -> Replicated:
    """Return the comparison of all policies over the replications of a workload."""
    folder: Path = options.kept / name
    folder.mkdir(parents=True, exist_ok=True)
    scenario = load_scenario(WORKLOADS[name].write(folder, options.jobs))
    found = replicate(
        scenario,
        options.replications,
        regret=("compass", "srpt", "ahead"),
        time_limit_s=options.time_limit,
        folder=folder,
        workers=options.workers,
        ray=options.ray,
    )
    if found.replications:
        save(found, folder)
    return found


def rows_of(name: str, made: Replicated) -> Iterator[Row]:
    """Yield the rows of a workload."""
    for row in made.rows:
        said = encode(row)
        figures: dict[str, Any] = {key: said.get(key) for key in Row.__dataclass_fields__ if key != "workload"}
        yield Row(workload=name, **figures)


def table(made: Mapping[str, Replicated]) -> Iterator[str]:
    """Yield the lines of two tables: per policy and workload its objective, times the best and times the bound."""
    policies = dict.fromkeys(row.policy for one in made.values() for row in one.rows)
    for ratio, words in (("ratio_to_best", "x best"), ("ratio_to_bound", "x bound")):
        yield f"| {words} | {' | '.join(made)} |"
        yield f"| --- |{' --: |' * len(made)}"
        for policy in policies:
            yield f"| `{policy}` | {' | '.join(_cell(one, policy, ratio) for one in made.values())} |"
        yield ""
    for name, one in made.items():
        yield f"{name}: {one.proof}{'' if one.warning is None else f' {one.warning}'}"


def _of(made: Replicated, policy: str, key: str) -> float | None:
    found: list[float | None] = [encode(row)[key] for row in made.rows if row.policy == policy]
    return found[0] if found else None


def _cell(made: Replicated, policy: str, ratio: str) -> str:
    mean, low, high = (_of(made, policy, f"{ratio}{end}") for end in ("", "_low", "_high"))
    if mean is None:
        return "-"
    shown = f"{mean:.3g}" if low is None or high is None else f"{mean:.3g} [{low:.3g}, {high:.3g}]"
    return f"**{shown}**" if policy == made.against else shown


if __name__ == "__main__":
    main()
