"""What a person sees of an import before anything is planned: two columns of figures, and what to keep in mind."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from rich.console import Group
from rich.table import Table
from rich.text import Text

from planner.inputs.importers.classes import Rounding
from planner.inputs.importers.summary import LISTED_MODELS, QUANTILES, ROUNDED_QUANTILES, Summary
from planner.inputs.importers.trace import Imported

_LISTED_REASONS = 6


def imported_view(imported: Imported) -> Group:
    """Return the summary as two columns, and the notes below it."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for what, figure in summary_rows(imported).items():
        table.add_row(what, Text(figure))
    return Group(table, Text(), *(Text(f"- {note}", style="italic") for note in imported.notes))


def summary_rows(imported: Imported) -> dict[str, str]:
    """Return what a person wants to know of an import, in words."""
    summary, tally = imported.summary, imported.tally
    jobs = len(imported.workload.release_us)
    workflows = "1 workflow" if summary.workflows == 1 else f"{summary.workflows:,} different workflows"
    length = f"in {summary.length_us / 1e6:,.6g} s" if summary.length_us else "all at once"
    return {
        "format": f"{imported.format.name}: {imported.format.title}",
        "rows": f"{tally.read:,} read, {_counted('left out', tally.left_out)}, {_counted('refused', tally.refused)}",
        "jobs": f"{jobs:,} {length}, {workflows}; {imported.workload.mapping}",
        "arrivals": _arrivals(summary),
        "models": f"{len(summary.model_requests)}: {_shares(summary)}" if summary.model_requests else "none",
        "run time in s": _runtimes(summary),
        **_rounding(imported.workload.rounding),
        "work": f"{summary.job_work_us.sum() / 1e6:,.6g} GPU-seconds: run times, each times its share of a GPU",
        "cluster": imported.target.words,
        "fluid load": _load(summary),
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
    return "all at once" if mean is None else f"{mean:.3g} per minute, at most {most:,} in one minute"


def _load(summary: Summary) -> str:
    load, loads = summary.fluid_load, summary.load_of_loads
    if load is None or loads is None:
        return f"{summary.job_work_us.sum() / 1e6:,.6g} s of work at once"
    grows = ", so the queue grows" if load > 1 else ""
    return f"{load:.0%} of the GPUs' time{grows}; loads, if every task needed one: {loads:.0%}"


def _shares(summary: Summary) -> str:
    total = sum(summary.model_requests.values())
    named = list(summary.model_requests.items())[:LISTED_MODELS]
    rest = total - sum(tasks for _, tasks in named)
    shares = [f"{model} {tasks / total:.1%}" for model, tasks in named]
    return ", ".join(shares + ([f"others {rest / total:.1%}"] if rest else []))


def _runtimes(summary: Summary) -> str:
    quantiles = [f"p{percent} {summary.runtime_s(percent):.4g}" for percent in QUANTILES]
    mean = float(summary.task_runtime_us.mean()) / 1e6
    return ", ".join([f"mean {mean:.4g}", *quantiles, f"max {summary.runtime_s(100):.4g}"])
