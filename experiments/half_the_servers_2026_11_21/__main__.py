"""Run both sweeps and read off the fewest servers with which everybody reaches the same slowdowns."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from experiments.half_the_servers_2026_11_21.figure import figure
from models.scenario import write_atomically
from planner import frame, sweep
from planner.show.canvas import png

HERE = Path(__file__).parent
RATE, SERVERS = "workload.poisson.rate_per_s", "cluster.servers"
TARGETS = [
    ("value", "mean slowdown", 1.5),
    ("value", "mean slowdown", 2.0),
    ("value", "mean slowdown", 3.0),
    ("p95_slowdown", "p95 slowdown", 5.0),
]
"""Column, its words, and what is to be reached."""
BOUND = "lower bound"


def main() -> None:
    """Run what is not known yet, write results.csv and servers.png, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m experiments.half_the_servers_2026_11_21", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/half_the_servers"), help="where the sweeps are kept")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    long, short = (
        frame(sweep(HERE / f"{name}.yaml", options.folder / name, workers=options.workers))
        for name in ("policies", "plans")
    )
    windows = {"1,000 jobs, mean of 3 draws": averaged(long), "100 jobs, 1 draw": averaged(with_bound(short))}
    table = pd.concat([needed(frame).assign(window=words) for words, frame in windows.items()]).set_index("window")
    write_atomically(HERE / "results.csv", table.to_csv())
    write_atomically(HERE / "servers.png", png(figure(windows)))
    print(table.to_string())


def averaged(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over the draws of arrivals, a row per rate, policy and number of servers."""
    columns = ["value", "p95_slowdown"]
    mean: pd.DataFrame = frame.groupby([RATE, "policy", SERVERS], sort=False)[columns].mean().reset_index()
    return mean


def with_bound(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of comparisons with one more per cell: the lower bound of the mean slowdown."""
    bound = frame.drop_duplicates("cell").assign(
        policy=BOUND, value=lambda rows: rows["lower_bound"], p95_slowdown=None
    )
    joined: pd.DataFrame = pd.concat([frame, bound.astype(frame.dtypes.to_dict())])
    return joined


def needed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the fewest servers for every target, a row per rate and target, a column per policy.

    Policies are not monotone in the servers: counted is the fewest number from which on every number that was tried
    reaches the target; none if the largest does not. For the lower bound it is the fewest that are not ruled out.
    """
    rows = []
    for rate in sorted(frame[RATE].unique()):
        for column, words, most in TARGETS:
            of_rate = frame[frame[RATE] == rate]
            counts = {
                policy: fewest(of_rate[of_rate["policy"] == policy], column, most)
                for policy in of_rate["policy"].unique()
            }
            rows.append({"jobs per s": rate, "target": f"{words} <= {most:g}", **counts})
    return pd.DataFrame(rows).astype(dict.fromkeys(frame["policy"].unique(), "Int64"))


def fewest(rows: pd.DataFrame, column: str, most: float) -> int | None:
    """Return the fewest servers from which on every tried number reaches a target.

    >>> tried = pd.DataFrame({SERVERS: [2, 3, 4, 5], "value": [1.9, 2.1, 2.0, 1.8]})
    >>> fewest(tried, "value", 2.0), fewest(tried, "value", 1.0)
    (4, None)
    """
    found = None
    for servers, value in sorted(zip(rows[SERVERS], rows[column], strict=True), reverse=True):
        if not value <= most:
            break
        found = int(servers)
    return found


if __name__ == "__main__":
    main()
