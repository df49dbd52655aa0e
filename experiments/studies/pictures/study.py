"""Draws the three pictures of `docs/how_it_works.md` from real runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import authors
from experiments.bench import ask
from truenorth.models import Instance, Objective, Timeline
from truenorth.models.objective import reported_value
from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.incumbents import Progress
from truenorth.solvers.portfolio import solve
from truenorth.solvers.search.annealing import improvements
from truenorth.solvers.search.decoder import Decisions, Decoder

PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
STANDS, AGAIN, MOVED, OPEN, PROVED = "#c9d3df", "#f2b56b", "#c0392b", "#eef1f5", "#2c5f8a"
NOW_S, LEAD, FIRST, BEYOND, LAST = 6.0, 12, 26, 46, 60
SECONDS = 20.0


def plan(instance: Instance) -> Timeline:
    """Return a plan of 20,000 moves."""
    *_, last = improvements(instance, Objective.MEAN_SLOWDOWN, None, 0, 20_000, lambda: 0.0)
    return last


def bars(axes: Axes, timeline: Timeline, colours: list[str], labels: list[str]) -> None:
    """Draw the runs of a timeline, one row per GPU."""
    for task, (gpu, start, end) in enumerate(zip(timeline.place, timeline.start_us, timeline.end_us, strict=True)):
        if colours[task]:
            axes.barh(gpu, (end - start) / 1e6, left=start / 1e6, height=0.7, color=colours[task], edgecolor="white")
            if labels[task] and end - start > 150_000:
                axes.text((start + end) / 2e6, gpu, labels[task], ha="center", va="center", fontsize=7, clip_on=True)
    gpus = range(int(timeline.place.max()) + 1)
    axes.set_yticks(gpus, [f"s{gpu}/g0" for gpu in gpus])
    axes.invert_yaxis()
    axes.set_xlabel("time in s")
    axes.spines[["top", "right", "left"]].set_visible(False)


def beam_state(instance: Instance, timeline: Timeline) -> Figure:
    """Draw what a state of a beam knows: when engines are free, what GPUs hold, and the stage of every open job."""
    now_us = int(NOW_S * 1e6)
    started = timeline.start_us < now_us
    jobs = instance.task_job
    done = [bool(started[instance.tasks_of(job)].all()) for job in range(len(instance.jobs))]
    known = started & ~np.array(done)[jobs] | (started & (timeline.end_us > now_us))
    figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
    colours = [AGAIN if known[task] else OPEN if started[task] else "" for task in range(instance.n_tasks)]
    bars(axes, timeline, colours, [f"job {job}" for job in jobs.tolist()])
    for gpu in range(instance.n_gpus):
        ends = timeline.end_us[started & (timeline.place == gpu)]
        free_s = max(NOW_S, int(ends.max(initial=now_us)) / 1e6)
        held = [r for r in timeline.residencies if r.gpu == gpu and r.load_start_us < now_us]
        names = sorted({instance.models[r.model].name for r in held if r.end_us is None or r.end_us > now_us})
        axes.plot([free_s, free_s], [gpu - 0.42, gpu + 0.42], color=MOVED, linewidth=2)
        axes.text(free_s + 0.08, gpu, f"free from {free_s:.2f} s; holds {', '.join(names)}", va="center", fontsize=7)
    axes.axvline(NOW_S, color="black", linestyle=":", linewidth=1)
    axes.text(NOW_S, -0.75, "now ", ha="right", fontsize=8)
    axes.set_xlim(NOW_S - 3, NOW_S + 3.4)
    open_jobs = sum(any(started[instance.tasks_of(job)]) and not done[job] for job in range(len(instance.jobs)))
    axes.set_title(
        f"A state: {int(started.sum())} tasks started; orange, what it remembers of them ({open_jobs} jobs are open)",
        fontsize=9,
        pad=14,
    )
    return figure


def retimed_window(instance: Instance, timeline: Timeline) -> Figure:
    """Draw which tasks are timed again when one moves to another GPU."""
    decoder = Decoder(instance, Objective.MEAN_SLOWDOWN)
    before = decoder.encode(timeline)
    decoded = decoder.timeline(before)
    if decoded is None:
        raise ValueError("the plan decodes to none")
    place, gpu = (FIRST + BEYOND) // 2, before.gpu.copy()
    task = int(before.order[place])
    gpu[task] = (gpu[task] + 1) % instance.n_gpus
    moved = decoder.timeline(Decisions(before.order, gpu))
    if moved is None:
        raise ValueError("the moved plan decodes to none")
    colours, labels = [""] * instance.n_tasks, [""] * instance.n_tasks
    for position in range(LEAD, LAST):
        other = int(before.order[position])
        same = moved.start_us[other] == decoded.start_us[other] and moved.place[other] == decoded.place[other]
        colours[other], labels[other] = STANDS if same else AGAIN, str(position)
    colours[task] = MOVED
    figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
    bars(axes, moved, colours, labels)
    starts_s = moved.start_us[before.order] / 1e6
    for position, name in ((LEAD, "lead"), (FIRST, "first"), (BEYOND, "beyond"), (LAST - 1, "last")):
        axes.axvline(starts_s[position], color="black", linestyle=":", linewidth=1)
        axes.text(starts_s[position], -0.75, name, ha="center", fontsize=8)
    again = colours.count(AGAIN)
    axes.set_title(
        f"A move: the red task changes GPU, {again} of {LAST - LEAD} tasks are timed again (orange), the others stand",
        fontsize=9,
        pad=14,
    )
    return figure


def bounds_over_time(instance: Instance) -> Figure:
    """Draw plan and bound of a run as they come together."""
    moments: list[Progress] = []
    budget = Budget(time_limit_s=SECONDS, method=Method.SEARCH, workers=2, watch=moments.append)
    solve(instance, Objective.MEAN_SLOWDOWN, budget)
    figure, axes = plt.subplots(figsize=(9, 3.0), layout="constrained")
    for name, colour in (("best plan", MOVED), ("bound", PROVED)):
        known = [(moment.seconds, moment.bound if name == "bound" else moment.value) for moment in moments]
        points = [
            (at, float(reported_value(Objective.MEAN_SLOWDOWN, exact))) for at, exact in known if exact is not None
        ]
        points.append((SECONDS, points[-1][1]))
        axes.step(*zip(*points, strict=True), where="post", color=colour, label=name)
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set_xlim(0, SECONDS)
    axes.set_ylim(bottom=1.0)
    axes.set_xlabel("seconds of search")
    axes.set_ylabel("mean slowdown")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw(folder: Annotated[Path | None, "draws them there, as PNG; else beside the page, as SVG"] = None) -> None:
    """Draw all of them."""
    mpl.rcParams.update({"svg.hashsalt": "truenorth", "svg.fonttype": "none", "font.size": 8})
    small = authors.instance(authors.poisson(4, 40, 2))
    timeline = plan(small)
    drawn = {
        "beam_state": beam_state(small, timeline),
        "retimed_window": retimed_window(small, timeline),
        "bounds_over_time": bounds_over_time(authors.instance(authors.poisson(4, 100, 2))),
    }
    for name, figure in drawn.items():
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            figure.savefig(folder / f"{name}.png", dpi=110)
        else:
            PICTURES.mkdir(exist_ok=True)
            figure.savefig(PICTURES / f"{name}.svg", metadata={"Date": None})


main = partial(ask, draw)
