"""Run both sweeps and set every change beside the run without it, draw by draw."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd

import truenorth as tn
from experiments.bench import ask
from experiments.study import canvas, draw
from truenorth.models.scenario import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


HERE = Path(__file__).with_suffix("")
RATE, SEED, CHANGE = "workload.poisson.rate_per_s", "workload.poisson.seed", "change"
AS_IT_IS = "none"
_COLOURS = {2.0: "#4477AA", 3.0: "#EE8866", 4.0: "#AA3377"}
_HEIGHT = 0.26


def compare_changes(
    folder: Annotated[Path, "where the sweeps are kept"] = Path("build/worth"), workers: int = 2
) -> None:
    """Run what is not known yet, write results.csv and worth.png, and print the tables."""
    long, short = (
        tn.frame(tn.sweep(HERE / f"{name}.yaml", folder / name, workers=workers)) for name in ("compass", "plans")
    )
    windows = {"1,000 jobs, 3 draws": worth(long), "100 jobs, 1 draw": worth(short.assign(**{SEED: 1}))}
    table = pd.concat([rows.assign(window=words) for words, rows in windows.items()])
    write_atomically(HERE / "results.csv", table.round(5).to_csv(index=False))
    draw(figure(windows["1,000 jobs, 3 draws"]), HERE / "worth.png")
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


def figure(rows: pd.DataFrame) -> Figure:
    """Return the chart: a bar per change and load, whiskers from the least to the greatest ratio of a draw."""
    made = canvas(10, 7)
    axes = made.add_subplot()
    changes = [change for change in rows["change"].unique() if change != AS_IT_IS]
    for position, (rate, colour) in enumerate(_COLOURS.items()):
        of_rate = rows[rows["jobs_per_s"] == rate].set_index("change").loc[changes]
        heights = [place + (position - 1) * _HEIGHT for place in range(len(changes))]
        axes.barh(heights, of_rate["ratio"] - 1, _HEIGHT, 1.0, color=colour, label=f"{rate:g} jobs/s")
        axes.hlines(heights, of_rate["least_ratio"], of_rate["greatest_ratio"], color="#333333", linewidth=1)
    axes.set_xscale("log")
    low, high = rows["least_ratio"].min() / 1.5, rows["greatest_ratio"].max() * 1.5
    marks = [mark for mark in (0.25, 0.5, 0.8, 1, 1.25, 2, 4, 8, 16, 32) if low <= mark <= high]
    axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
    axes.minorticks_off()
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(changes)), changes)
    axes.invert_yaxis()
    axes.grid(axis="x", color="#EEEEEE", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    axes.set_xlabel("mean slowdown of Compass, as a multiple of that without the change (log scale)")
    axes.set_title(
        "What is each of Compass's means worth? Right of 1: worse.\n"
        "Authors' workload, 5 GPUs of 14 GB, 1,000 jobs; bars: mean of 3 draws, lines: least to greatest.",
        loc="left",
        fontsize=11,
    )
    return made


if __name__ == "__main__":
    ask(compare_changes)
