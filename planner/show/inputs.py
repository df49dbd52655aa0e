"""What a person sees of inputs: what became of an imported log, estimates of run times, and logs of training jobs."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from operator import itemgetter
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from rich.console import Group
from rich.text import Text

from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.planner.inputs.estimate.ladder import NOMINAL
from truenorth.planner.inputs.estimate.logs import LogReading
from truenorth.planner.inputs.estimate.logs.progress import Remaining
from truenorth.planner.inputs.estimate.run import Estimates, as_dict
from truenorth.planner.inputs.estimate.table import ESTIMATE_COLUMNS, JOB, LINE
from truenorth.planner.inputs.importers.summary import LISTED_MODELS, QUANTILES, ROUNDED_QUANTILES, Summary
from truenorth.planner.inputs.importers.trace import Imported
from truenorth.planner.inputs.importers.workload import Rounding
from truenorth.planner.show.canvas import AS_DATA, COLOURS, PLAIN
from truenorth.planner.show.table import Column, Table, facts, say, terminal

_LISTED_REASONS = 6
_RUN_TIMES = "run times, each times its share of a GPU"
_LEAST = "the least that prefills and decodes can take, where they are quickest"
_BINS_S = (1, 10, 60, 600, 3_600, 6 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)
_MOST_BINS = 200
_PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
"""Behind words that may come to lie upon a line."""
_CLOCK = ((3 * 86_400, 86_400, "days"), (3 * 3_600, 3_600, "hours"), (300, 60, "minutes"), (0, 1, "seconds"))


def imported_view(imported: Imported) -> Group:
    """Return the summary as two columns, and the notes below it."""
    warnings = (Text(f"- warning: {each}", style="bold") for each in imported.warnings)
    notes = (Text(f"- {note}", style="italic") for note in imported.notes)
    return Group(facts(summary_rows(imported)), Text(), *warnings, *notes)


def summary_rows(imported: Imported) -> dict[str, str]:
    """Return what a person wants to know of an import, in words."""
    summary, tally = imported.summary, imported.tally
    jobs = len(imported.workload.release_us)
    workflows = "1 workflow" if summary.workflows == 1 else f"{summary.workflows:,} different workflows"
    alone = "alone in s" if summary.tokens else "run time in s"
    work = f"{_LEAST if summary.tokens else _RUN_TIMES}{_nothing_cached(summary)}"
    length = f"in {summary.length_us / 1e6:,.6g} s" if summary.length_us else "all at once"
    return {
        "format": f"{imported.format.name}: {imported.format.title}",
        "rows": f"{tally.read:,} read, {_counted('left out', tally.left_out)}, {_counted('refused', tally.refused)}",
        "jobs": f"{jobs:,} {length}, {workflows}; {imported.workload.mapping}",
        "arrivals": _arrivals(summary),
        "models": f"{len(summary.model_requests)}: {_shares(summary)}" if summary.model_requests else "none",
        **_tokens(summary),
        alone: f"{_runtimes(summary)}{_nothing_cached(summary)}",
        **_rounding(imported.workload.rounding),
        "work": f"{summary.job_work_us.sum() / 1e6:,.6g} GPU-seconds: {work}",
        "cluster": imported.target.words,
        "fluid load": _load(summary),
    }


def _tokens(summary: Summary) -> dict[str, str]:
    """Return how many tokens go in and come out."""
    return {
        f"{what} tokens": f"{of['total']:,}; " + ", ".join(f"{key} {of[key]:,}" for key in of if key != "total")
        for what, of in summary.tokens.items()
    }


def _rounding(rounding: Rounding | None) -> dict[str, str]:
    """Return what rounding run times up costs, percentile by percentile."""
    if rounding is None:
        return {}
    pairs = {percent: rounding.quantiles_s(Fraction(percent, 100)) for percent in ROUNDED_QUANTILES}
    quantiles = [
        f"{'max' if percent == 100 else f'p{percent}'} {exact:.4g} -> {rounded:.4g}"
        for percent, (exact, rounded) in pairs.items()
    ]
    raised = f"by up to {100 * rounding.most:.4g} %, work +{rounding.work_added:.2%}"
    return {"rounded up": f"{raised}; {', '.join(quantiles)}; a refutation or bound is about the rounded log"}


def _counted(what: str, reasons: Mapping[str, int]) -> str:
    total = sum(reasons.values())
    most = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    listed = [f"{count:,} {reason}" for reason, count in most[:_LISTED_REASONS]]
    if len(most) > len(listed):
        listed.append(f"{len(most) - len(listed):,} other reasons")
    return f"{total:,} {what}" + (f" ({', '.join(listed)})" if listed else "")


def _arrivals(summary: Summary) -> str:
    mean, most = summary.mean_per_minute, int(summary.per_minute.max())
    return "all at once" if mean is None else f"{say(mean, '.3g')} per minute, at most {most:,} in one minute"


def _load(summary: Summary) -> str:
    load, loads = summary.fluid_load, summary.load_of_loads
    if load is None or loads is None:
        return f"{summary.job_work_us.sum() / 1e6:,.6g} s of work at once{_nothing_cached(summary)}"
    grows = ", so the queue grows" if load > 1 and not summary.cached_by_nodes else ""
    return (
        f"{load:.0%} of the GPUs' time{_nothing_cached(summary)}{grows}; loads, if every task needed one: {loads:.0%}"
    )


def _nothing_cached(summary: Summary) -> str:
    return ", if nothing were cached" if summary.cached_by_nodes else ""


def _shares(summary: Summary) -> str:
    total = sum(summary.model_requests.values())
    named = list(summary.model_requests.items())[:LISTED_MODELS]
    rest = total - sum(tasks for _, tasks in named)
    shares = [f"{model} {tasks / total:.1%}" for model, tasks in named]
    return ", ".join(shares + ([f"others {rest / total:.1%}"] if rest else []))


def _runtimes(summary: Summary) -> str:
    quantiles = [f"p{percent} {say(summary.runtime_s(percent), '.4g')}" for percent in QUANTILES]
    mean = float(summary.task_runtime_us.mean()) / 1e6
    return ", ".join([f"mean {say(mean, '.4g')}", *quantiles, f"max {say(summary.runtime_s(100), '.4g')}"])


@AS_DATA
def figure(summary: Summary, title: str) -> Figure:
    """Return four charts of a workload."""
    made = Figure(figsize=(13, 8), layout="constrained")
    FigureCanvasAgg(made)
    grid = made.subplots(2, 2)
    length_s = max(summary.length_us, float(summary.workload.release_us[-1]) + 1) / 1e6
    width_s = next((width for width in _BINS_S if length_s <= width * _MOST_BINS), _BINS_S[-1])
    _draw_arrivals(grid[0][0], summary, length_s, width_s)
    _models(grid[0][1], summary)
    _draw_load(grid[1][0], summary, length_s, width_s)
    _draw_runtimes(grid[1][1], summary)
    made.suptitle(title, x=0.01, ha="left", fontsize=13)
    for axes in made.axes:
        axes.spines[["top", "right"]].set_visible(False)
    return made


def _over_time(axes: Axes, summary: Summary, weights: np.ndarray, length_s: float, width_s: float, colour: str) -> None:
    """Draw the sum of some weight of the jobs per bin of time as steps; the last bin takes what is left."""
    unit_s, unit = next((unit_s, unit) for least, unit_s, unit in _CLOCK if length_s >= least)
    bins = max(1, round(length_s / width_s))
    position = np.minimum(summary.workload.release_us / 1e6 // width_s, bins - 1).astype(np.int64)
    edges = np.append(np.arange(bins) * width_s, length_s) / unit_s
    axes.stairs(np.bincount(position, weights, bins) / np.diff(edges) / unit_s, edges, fill=True, color=colour)
    axes.set_xlabel(f"time in {unit}")
    axes.set_xlim(0, edges[-1])


def _name_below(axes: Axes) -> None:
    """Name what is drawn beneath the axes at their right end, where no data are."""
    axes.legend(loc="upper right", bbox_to_anchor=(1, -0.07), ncols=2, frameon=False, fontsize=9, borderaxespad=0)


def _draw_arrivals(axes: Axes, summary: Summary, length_s: float, width_s: float) -> None:
    per_minute = np.full(len(summary.job_work_us), 60.0)
    _over_time(axes, summary, per_minute, length_s, width_s, COLOURS[0])
    mean = summary.mean_per_minute
    said = "" if mean is None else f" (mean {say(mean, '.3g')})"
    axes.set_title(f"arrivals per minute{said}", loc="left", fontsize=11)


def _draw_load(axes: Axes, summary: Summary, length_s: float, width_s: float) -> None:
    _over_time(axes, summary, summary.job_work_us / 1e6 / summary.gpus, length_s, width_s, COLOURS[2])
    axes.axhline(1, color="black", linewidth=1, label="what the GPUs can do")
    axes.set_ylim(0, max(1.15, axes.get_ylim()[1]))
    load = summary.fluid_load
    mean = "" if load is None else f" (mean {load:.2f})"
    said = f"fluid load: work arriving per second / {summary.gpus} GPUs{mean}{_nothing_cached(summary)}"
    axes.set_title(said, loc="left", fontsize=11)
    _name_below(axes)


def _models(axes: Axes, summary: Summary) -> None:
    total, work = sum(summary.model_requests.values()), sum(summary.model_work_us.values())
    named = list(summary.model_requests)[:LISTED_MODELS]
    requests = [summary.model_requests[model] / total for model in named]
    works = [summary.model_work_us[model] / work for model in named]
    labels = [model if len(model) <= 20 else model[:9] + "…" + model[-10:] for model in named]
    if len(summary.model_requests) > len(named):
        labels.append(f"{len(summary.model_requests) - len(named)} others")
        requests.append(1 - sum(requests))
        works.append(1 - sum(works))
    places = np.arange(len(labels))
    axes.barh(places - 0.2, requests, 0.38, color=COLOURS[0], label="requests")
    axes.barh(places + 0.2, works, 0.38, color=COLOURS[2], label="run time")
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(lambda share, position: f"{share:.0%}")
    _name_below(axes)
    axes.set_title(f"shares of {len(summary.model_requests)} models", loc="left", fontsize=11)


def _draw_runtimes(axes: Axes, summary: Summary) -> None:
    """Draw the distribution of the run times, thinned to what a picture can show."""
    runtimes = summary.task_runtime_us / 1e6
    share = np.arange(1, len(runtimes) + 1) / len(runtimes)
    step = max(1, len(runtimes) // 5_000)
    shown = np.unique(np.append(np.arange(0, len(runtimes), step), len(runtimes) - 1))
    axes.step(runtimes[shown], share[shown], where="post", color=COLOURS[3], linewidth=2)
    for percent in QUANTILES:
        value = summary.runtime_s(percent)
        axes.plot(value, percent / 100, "o", color="black", markersize=4)
        axes.annotate(
            f"p{percent}: {say(value, '.3g', 's')}",
            (value, percent / 100),
            (6, -11),
            textcoords="offset points",
            bbox=_PAPER,
        )
    if load_s := summary.mean_load_us / 1e6:
        axes.axvline(load_s, color=PLAIN, linewidth=1.5, linestyle="--")
        axes.annotate(f"a load: {load_s:.3g} s", (load_s, 0.5), (-4, 0), ha="right", va="center", rotation=90,
                      textcoords="offset points", fontsize=9)  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("run time in seconds (log scale)")
    axes.set_title("share of tasks at or below", loc="left", fontsize=11)


_MOST_ROWS, _MOST_NAMES = 20, 10


def estimates_view(made: Estimates) -> Group:
    """Return the summary of estimates: what they rest on, the rungs, how good they were, and the first of them."""
    found, key = as_dict(made), made.ladder.columns.key
    left_out = ", ".join(f"{count} {reason}" for reason, count in found["left_out"].items())
    head = f"{found['requests_estimated']} requests from {found['past_tasks']} past tasks"
    parts: list[Any] = [
        Text.assemble((head, "bold"), f" (left out: {left_out})" if left_out else "", f"\nkey: {', '.join(key)}"),
        terminal(_rungs(found["rungs"])),
    ]
    if (score := found["score"]) is not None:
        median, covered = (say(score[name], ".1%") for name in ("median_error", "covered"))
        spearman, r2 = (say(score[name], ".3f") for name in ("spearman", "r2"))
        of = f"Against the run times of {score['cases']} requests: median error {median}, covered {covered}"
        parts.append(Text(f"{of}, Spearman {spearman}, R2 {r2}"))
    if found["unseen"]:
        named = [f"{value or '(none)'} ({count})" for value, count in found["unseen"].items()]
        more = f" and {len(named) - _MOST_NAMES} more" if len(named) > _MOST_NAMES else ""
        first = ", ".join(named[:_MOST_NAMES])
        parts.append(Text(f"Profile first, no past task has this {key[0]}: {first}{more}", style="yellow"))
    return Group(*parts, terminal(_first(found["estimates"])))


def _rungs(rungs: list[dict[str, Any]]) -> Table[dict[str, Any]]:
    shares = {
        "covered as it comes": "covered_before",
        "calibrated": "covered_after",
        "median error": "median_error",
        "within a factor of 2": "within_factor_two",
    }
    columns: list[Column[dict[str, Any]]] = [
        Column("rung", itemgetter("name"), words=True),
        Column("answered", itemgetter("answered")),
        Column("judged by", itemgetter("cases")),
        *(Column[dict[str, Any]](name, itemgetter(key), ".1%") for name, key in shares.items()),
    ]
    return Table(
        f"Rungs as they are asked; nominal {NOMINAL:.0%} intervals on the latest fifth of the history", columns, rungs
    )


def _first(rows: list[dict[str, Any]]) -> Table[dict[str, Any]]:
    more = f", the first {_MOST_ROWS} of {len(rows)}" if len(rows) > _MOST_ROWS else ""
    names = (name for name in rows[0] if name not in ESTIMATE_COLUMNS)
    seconds = {"p10 in s": "p10_s", "p50": "p50_s", "p90": "p90_s"}
    columns: list[Column[dict[str, Any]]] = [
        *(Column[dict[str, Any]](name, itemgetter(name), str, words=name not in (LINE, JOB)) for name in names),
        *(Column[dict[str, Any]](name, itemgetter(key), ".4g") for name, key in seconds.items()),
        Column("source", itemgetter("source"), words=True),
        Column("confidence", itemgetter("confidence"), ".2f", words=True),
        Column("neighbours", lambda row: "; ".join(row["neighbours"][:1]), words=True),
    ]
    return Table(f"Estimates{more}", columns, rows[:_MOST_ROWS])


def log_view(reading: LogReading) -> Text:
    """Return what a log says, a line each for progress, speed, remaining time and failure; brackets are no mark-up."""
    share = "" if reading.fraction is None else f", {reading.fraction:.1%} done"
    parts = [f"{reading.state}{share}"]
    for count in reading.counts:
        of = "" if count.total is None else f" of {count.total:g}"
        parts.append(f"{count.done:g}{of} {count.unit}s, line {count.line}")
    if reading.rates:
        parts.append(", ".join(f"{rate.per_second:.4g} {rate.unit}s/s" for rate in reading.rates))
    if reading.state == "unfinished":
        parts.append(f"remaining: {_left(reading.remaining)}")
    failure = reading.failure
    if failure is not None:
        again = "may succeed if started again" if failure.retry else "fails again unless something is changed"
        where = ", ".join(map(str, failure.lines))
        parts += [f"{failure.failure}: {failure.reason}", f"line {where}; {again}"]
    return Text("\n".join(parts))


def _left(remaining: Remaining | None) -> str:
    if remaining is None:
        return "cannot be known from this log"
    if remaining.low_us is None or remaining.high_us is None:
        return f"{_duration(remaining.expected_us)}; too little is logged for an interval"
    low, high = _duration(remaining.low_us), _duration(remaining.high_us)
    return f"{_duration(remaining.expected_us)}, from {low} to {high} at the recent window's fast and slow pace"


def _duration(microseconds: int) -> str:
    """Return a time as a person says it.

    >>> _duration(1_500_000), _duration(3_725_000_000)
    ('1.5 s', '62 min')
    """
    seconds = microseconds / MICROSECONDS_PER_SECOND
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
