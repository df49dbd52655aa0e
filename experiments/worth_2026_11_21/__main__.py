"""Run both sweeps and set every change beside the run without it, draw by draw."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from experiments.worth_2026_11_21.figure import figure
from models.scenario import write_atomically
from planner import frame, sweep
from planner.show.canvas import png

HERE = Path(__file__).parent
RATE, SEED, CHANGE = "workload.poisson.rate_per_s", "workload.poisson.seed", "change"
AS_IT_IS = "none"


def main() -> None:
    """Run what is not known yet, write results.csv and worth.png, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m experiments.worth_2026_11_21", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/worth"), help="where the sweeps are kept")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    long, short = (
        frame(sweep(HERE / f"{name}.yaml", options.folder / name, workers=options.workers))
        for name in ("compass", "plans")
    )
    windows = {
        "1,000 jobs, 3 draws": worth(long),
        "100 jobs, 1 draw": worth(short.assign(**{SEED: 1})),
    }
    table = pd.concat([rows.assign(window=words) for words, rows in windows.items()])
    write_atomically(HERE / "results.csv", table.round(5).to_csv(index=False))
    write_atomically(HERE / "worth.png", png(figure(windows["1,000 jobs, 3 draws"])))
    for words, rows in windows.items():
        print(words, rows.round(3).to_string(index=False), sep="\n")


def worth(frame: pd.DataFrame) -> pd.DataFrame:
    """Return mean slowdowns with and without every change.

    Returns
    -------
    pd.DataFrame
        A row per contender, rate and change: the mean slowdown over the draws; the mean of the ratios to the same draw
        without the change, and the least and greatest of them; the hit rate.
    """
    frame = frame.assign(contender=frame["policy"].str.partition(":")[0])
    draw = ["contender", RATE, SEED]
    as_it_is = frame[frame[CHANGE] == AS_IT_IS].set_index(draw)["value"]
    frame = frame.assign(ratio=frame["value"].to_numpy() / as_it_is.loc[list(frame.set_index(draw).index)].to_numpy())
    grouped = frame.groupby(["contender", RATE, CHANGE], sort=False)
    table: pd.DataFrame = grouped.agg(
        mean_slowdown=("value", "mean"),
        ratio=("ratio", "mean"),
        least_ratio=("ratio", "min"),
        greatest_ratio=("ratio", "max"),
        hit_rate=("hit_rate", "mean"),
    ).reset_index()
    return table.rename(columns={RATE: "jobs_per_s"})


if __name__ == "__main__":
    main()
