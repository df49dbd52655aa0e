"""``make figure``: draw README's picture from what ``make compare`` writes: the plan above Compass, with values."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tests.documentation.pages import ROOT
from truenorth.planner.show.canvas import PLAIN, colour_of
from truenorth.planner.show.timelines import Timelines, TimelineShown, read

PICTURE = ROOT / "docs" / "pictures" / "plan_and_compass.svg"
SHOWN = {"plan": "Plan", "compass": "Compass"}
BOUND = "#B22222"


def draw(folder: Path) -> Figure:
    """Return the picture of a folder that ``truenorth compare -o`` has written."""
    shown = read(folder)
    if shown is None:
        raise SystemExit(f"{folder} holds no comparison; write it by: make compare")
    record = json.loads((folder / "comparison.json").read_text())
    values = {row["policy"]: float(row["objective"]) for row in record["rows"]}
    timelines = {timeline.name: timeline for timeline in shown.timelines}
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    grid = figure.add_gridspec(3, 1, height_ratios=[4, 4, 1.1])
    above: Axes | None = None
    for row, (name, title) in enumerate(SHOWN.items()):
        axes = above = figure.add_subplot(grid[row], sharex=above)
        _runs(axes, shown, timelines[name])
        axes.set_title(f"{title}: mean slowdown {values[name]:.2f}", loc="left", fontsize=10, fontweight="bold")
    axes.set_xlabel("time in s")
    _values(figure.add_subplot(grid[2]), values, float(record["lower_bound"]))
    models = shown.instances[0].models
    handles = [Patch(color=colour_of(index), label=model.name) for index, model in enumerate(models)]
    handles.append(Patch(facecolor="white", edgecolor="#555555", hatch="//////", label="load"))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=8)
    return figure


def _runs(axes: Axes, shown: Timelines, timeline: TimelineShown) -> None:
    """Draw the runs of every GPU, in the colour of the model, over its loads."""
    instance = shown.instances[timeline.instance]
    models = _model_of_each_task(instance)
    runs: dict[tuple[int, int | None], list[tuple[float, float]]] = {}
    for task, (gpu, start, run) in enumerate(zip(timeline.gpu, timeline.start_us, timeline.run_us, strict=True)):
        runs.setdefault((gpu, models[task]), []).append((start / 1e6, run / 1e6))
    for (gpu, model), spans in runs.items():
        axes.broken_barh(spans, (gpu - 0.25, 0.5), facecolor=PLAIN if model is None else colour_of(model), linewidth=0)
    for gpu, model, start, ready, _, _, initial in timeline.residencies:
        if not initial:
            style: dict[str, Any] = {"facecolor": "white", "edgecolor": colour_of(model), "hatch": "//////"}
            axes.broken_barh([(start / 1e6, (ready - start) / 1e6)], (gpu + 0.27, 0.2), linewidth=0.4, **style)
    axes.set_yticks(range(len(instance.gpus)), [f"GPU {gpu + 1}" for gpu in range(len(instance.gpus))])
    axes.set_xlim(left=0)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.spines[["right", "left"]].set_visible(False)


def _model_of_each_task(instance: Any) -> list[int | None]:
    needs = [[task.models for task in workflow.tasks] for workflow in instance.workflows]
    return [models[0] if models else None for job in instance.jobs.workflow for models in needs[job]]


def _values(axes: Axes, values: dict[str, float], bound: float) -> None:
    """Draw both mean slowdowns as bars, and the lower bound across them."""
    for row, name in enumerate(SHOWN):
        axes.barh(row, values[name], height=0.6, color="#4C5B70")
        axes.text(values[name], row, f" {values[name]:.2f}", va="center")
    axes.set_yticks(range(len(SHOWN)), list(SHOWN.values()))
    axes.axvline(bound, color=BOUND, linestyle="--", linewidth=1.4)
    axes.text(bound, -0.55, f" lower bound {bound:.2f}: no schedule is better", color=BOUND, va="bottom")
    axes.set_xlim(left=0)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("mean slowdown")
    axes.spines[["right", "left"]].set_visible(False)


if __name__ == "__main__":
    with rc_context({"font.size": 9, "svg.fonttype": "path", "svg.hashsalt": "truenorth", "axes.spines.top": False}):
        drawn = draw(Path(sys.argv[1]))
        drawn.savefig(PICTURE, metadata={"Date": None})
