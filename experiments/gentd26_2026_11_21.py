"""``python -m experiments.gentd26_2026_11_21 --time-limit 30``: fills results.csv, prints the table, draws the picture.

A cell is one window on one number of GPUs. Cells that the file already holds, for the same time limit, are not
computed again, so an interrupted run goes on where it was. The trace is read from ``../shared/data/gentd26`` (it is not
part of this repository).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

import truenorth as tn
from experiments.bench import ask
from experiments.study import Study, canvas, markdown, shown
from truenorth.models import Instance
from truenorth.models.objective import reported_bound, reported_value
from truenorth.models.scenario import Scenario, build
from truenorth.models.scenario.document import PlaceSection, RestrictionsSection
from truenorth.planner.answers.simulate import simulate
from truenorth.planner.inputs.importers.format import Override
from truenorth.planner.inputs.importers.trace import import_trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FOLDER = Path(__file__).with_suffix("")
DATA = FOLDER.parents[1].parent / "shared" / "data" / "gentd26"
FILES = [DATA / "lora_request_trace.csv.gz", DATA / "pipeline_update_latency_anon.csv.gz"]
PEAK_HOUR = ("2024-12-06T00:00", "2024-12-06T01:00")
POLICIES = ("compass", "srpt", "receding")
PLAN, BOUND, STATIC = "plan", "lower bound", "static assignment"
_STYLE = {
    # contender: colour (P. Tol's bright set), words
    STATIC: ("#CCBB44", "static assignment"),
    "compass": ("#EE6677", "Compass"),
    "srpt": ("#228833", "srpt"),
    "receding": ("#4477AA", "receding horizon"),
    PLAN: ("#000000", "best plan\n(knows the future)"),
}


@dataclass(frozen=True, slots=True)
class SizesRow:
    """What one contender reaches in one cell; the bound has only an objective."""

    start: str
    end: str
    gpus: int
    time_limit_s: float
    contender: str
    mean_slowdown: float
    mean_latency_s: float | None = None
    p95_latency_s: float | None = None
    loads: int | None = None
    hit_rate: float | None = None


def peak_hour(
    time_limit: Annotated[float, "seconds per cell for plan and bound together"] = 30.0,
    window: Annotated[tuple[str, ...], "any window of the trace: from, to"] = PEAK_HOUR,
    gpus: tuple[int, ...] = (2, 3, 4),
    folder: Annotated[Path, "where results.csv and the picture lie"] = FOLDER,
) -> None:
    """Fill the missing cells, print the table and draw the picture."""
    start, end = window
    study = Study(SizesRow, 4, measured, [table], figure, "slowdown.png")
    study.run(((start, end, count, time_limit) for count in gpus), folder)


def measured(start: str, end: str, gpus: int, time_limit_s: float) -> Iterator[SizesRow]:
    """Yield what every policy, the plan and the lower bound reach; the plan starts from the policies' timelines."""
    scenario = imported(start, end, gpus)
    simulations = {policy: simulate(scenario, policy) for policy in POLICIES}
    simulations[STATIC] = simulate(assigned(scenario), "jit")
    starts = [simulation.timeline for simulation in simulations.values()]
    planned = tn.plan(scenario, time_limit=time_limit_s, starts=starts)
    assert planned.result.value is not None
    assert planned.result.lower_bound is not None
    assert planned.metrics is not None
    cell = start, end, gpus, time_limit_s
    reached = {name: (simulation.exact, simulation.metrics) for name, simulation in simulations.items()}
    for name, (value, metrics) in {**reached, PLAN: (planned.result.value, planned.metrics)}.items():
        latencies = round(metrics.mean_latency_s, 3), round(metrics.p95_latency_s, 3)
        slowdown = reported_value(scenario.objective, value)
        yield SizesRow(*cell, name, slowdown, *latencies, metrics.loads, metrics.hit_rate)
    yield SizesRow(*cell, BOUND, reported_bound(scenario.objective, planned.result.lower_bound))


def imported(start: str, end: str, gpus: int) -> Scenario:
    """Return a window of the trace on servers of one GPU each."""
    return import_trace("gentd26", FILES, window=(start, end), override=Override(servers=gpus).apply).scenario


def assigned(scenario: Scenario) -> Scenario:
    """Return the scenario with every model pinned to the GPUs that `owners` gives it."""
    pins = tuple(PlaceSection(model=model, on=on) for model, on in owners(scenario.instance).items())
    document = scenario.document.model_copy(update={"restrictions": RestrictionsSection(pin=pins)})
    return build(document, scenario.source)


def owners(instance: Instance) -> dict[str, tuple[str, ...]]:
    """Return the GPUs of each model, so that the work of the window is spread evenly.

    A model gets as many GPUs as its share of the work asks for, rounded, at least one; then models take the GPUs with
    the least work so far, most work per GPU first. The shares are those of the window itself, which flatters it.
    """
    work = np.zeros(len(instance.models), np.int64)
    tasks, models = instance.model_uses()
    np.add.at(work, models, instance.run_us[instance.task_template[tasks]].max(axis=1))
    copies = np.maximum(1, np.rint(work * instance.n_gpus / work.sum())).astype(np.int64)
    load = np.zeros(instance.n_gpus)
    found: dict[str, tuple[str, ...]] = {}
    for model in np.argsort(-work / copies, kind="stable").tolist():
        chosen = sorted(np.argsort(load, kind="stable")[: copies[model]].tolist())
        load[chosen] += work[model] / copies[model]
        found[instance.models[model].name] = tuple(instance.cluster.gpus[gpu].id for gpu in chosen)
    return found


def table(rows: Sequence[SizesRow]) -> str:
    """Return the rows as Markdown, the worst contender of each cell first."""
    heads = "GPUs", "", "mean slowdown", "x plan", "mean latency in s", "p95 latency in s", "loads", "hit rate"
    plans = {row.gpus: row.mean_slowdown for row in rows if row.contender == PLAN}
    lines = [
        [
            str(row.gpus), row.contender, f"{row.mean_slowdown:.4g}", f"{row.mean_slowdown / plans[row.gpus]:.2f}",
            shown(row.mean_latency_s, ".1f"), shown(row.p95_latency_s, ".0f"),
            shown(row.loads, "d"), shown(row.hit_rate, ".3f"),
        ]
        for row in sorted(rows, key=lambda row: (row.gpus, -row.mean_slowdown))
    ]  # fmt: skip
    return markdown(heads, lines)


def figure(rows: Sequence[SizesRow]) -> Figure:
    """Return the chart: a panel per number of GPUs, a bar per contender, the lower bound as a line."""
    value = {(row.contender, row.gpus): row.mean_slowdown for row in rows}
    counts = sorted({row.gpus for row in rows})
    made = canvas(12, 4.2)
    panels = made.subplots(1, len(counts), sharex=True, sharey=True, squeeze=False)[0]
    for axes, gpus in zip(panels, counts, strict=True):
        reached = [value[contender, gpus] for contender in _STYLE]
        bound = value[BOUND, gpus]
        axes.barh(range(len(_STYLE)), reached, color=[colour for colour, _ in _STYLE.values()], height=0.65)
        for place, slowdown in enumerate(reached):
            axes.annotate(f"{slowdown:.3g}", (slowdown, place), (4, 0), textcoords="offset points", va="center")
        axes.axvline(bound, color="#777777", linestyle="--", linewidth=1.5)
        axes.set_title(f"{gpus} GPUs: lower bound {bound:.3g} (dashed)", loc="left", fontsize=11)
        axes.set_xscale("log")
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(1, 1.6 * max(value[contender, gpus] for contender in _STYLE for gpus in counts))
    axes.set_yticks(range(len(_STYLE)), [words for _, words in _STYLE.values()])
    axes.invert_yaxis()
    marks = [mark for mark in (1, 2, 5, 10, 20, 50, 100, 200, 500) if mark <= axes.get_xlim()[1]]
    axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
    axes.minorticks_off()
    window = f"{rows[0].start} to {rows[0].end}"
    made.suptitle(f"GenTD26, {window}: mean slowdown (log scale)", x=0.01, ha="left", fontsize=12)
    return made


if __name__ == "__main__":
    ask(peak_hour)
