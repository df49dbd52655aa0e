"""The section of a comparison: how far the online policies are from a plan, and the plan from the optimum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.answers.convergence import tell_proof
from planner.show.curves import Curves, gap_over_time, slowdown_ecdf
from planner.show.report import documents
from planner.show.report.folders import read_json, read_timelines
from planner.show.report.section import PageSection, PageTable
from planner.show.tables import name_with_marks

NAME = "comparison.json"
_PLAN, _COMPASS = "plan", "compass"


def section(folder: Path) -> PageSection:
    """Return what a page says of a folder that ``compare -o`` wrote.

    Raises
    ------
    InputError
        If a file in it cannot be read.
    """
    document, timelines = read_json(folder / NAME, documents.ComparisonFile), read_timelines(folder)
    scenario, words = document["scenario"], _words(document)
    figures: list[Curves | None] = [gap_over_time(document["incumbents"], document["runtime_s"])]
    if timelines is not None and timelines["timelines"]:
        figures.insert(0, _ecdf(timelines["timelines"]))
    return PageSection(
        f"{scenario['name']}: how far from the least possible {words} are online policies?",
        _answer(document),
        [
            *([document["warning"]] if document["warning"] else []),
            document["note"],
            f"The window holds {scenario['jobs']} jobs with {scenario['tasks']} tasks on {scenario['gpus']} GPUs.",
        ],
        [_contenders(document), *_losses(document)],
        [figure for figure in figures if figure is not None],
        timelines,
        _reproduce(document),
    )


def _words(document: Mapping[str, Any]) -> str:
    return str(document["objective"]).replace("_", " ")


def _figure(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.4g} {unit}".strip()


def _answer(document: Mapping[str, Any]) -> str:
    """Return the result in words: the plan, what is proved of it, the best online policy, and Compass."""
    rows, unit = {row["policy"]: row for row in document["rows"]}, document["unit"]
    online = [row for row in document["rows"] if not (row["clairvoyant"] or row["twin"] or row["problem"])]
    parts = [_planned(document, rows.get(_PLAN))]
    if online:
        parts.append(f"the best online policy, {online[0]['policy']}, is at {_set_beside(online[0], rows, unit)}")
    if _COMPASS in rows and online and online[0]["policy"] != _COMPASS:
        parts.append(f"Compass is at {_set_beside(rows[_COMPASS], rows, unit)}")
    return "; ".join(parts) + "."


def _planned(document: Mapping[str, Any], plan: Mapping[str, Any] | None) -> str:
    unit, words, bound = document["unit"], _words(document), document["lower_bound"]
    if plan is None:
        return f"No plan was found in the time; no plan can have a {words} below {_figure(bound, unit)}"
    value = _figure(plan["objective"], unit)
    if document["status"] == "OPTIMAL":
        return f"The plan's {words} of {value} is proved to be the least possible"
    if bound is None:
        return f"The plan's {words} is {value}; nothing is proved of it"
    return (
        f"The plan's {words} is {value} and no plan can be below {_figure(bound, unit)}, so that at most "
        f"{document['gap']:.1%} of it can be saved"
    )


def _set_beside(row: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], unit: str) -> str:
    value, plan = _figure(row["objective"], unit), rows.get(_PLAN)
    if plan is None or not plan["objective"]:
        return value
    beside = f"{value}, {row['objective'] / plan['objective']:.2f} times the plan"
    if plan["converged"] or row["ratio_to_bound"] is None:
        return beside
    return f"{beside} and at most {row['ratio_to_bound']:.2f} times the least possible"


def _contenders(document: Mapping[str, Any]) -> PageTable:
    unit, bound = document["unit"], document["lower_bound"]
    measured = [row["metrics"] for row in document["rows"] if row["metrics"] is not None]
    levels = any(metrics["slo_attainment"] is not None for metrics in measured)
    columns = ["policy", "knows", f"{_words(document)}{f' ({unit})' if unit else ''}", "x best", "x bound"]
    columns += ["gap to bound", "p50 slowdown", "p95", "p99", "hit rate", "loads", "busy"]
    if levels:
        columns.append("within service level")
    rows = [_contender(row, levels) for row in document["rows"]]
    rows.append(["lower bound", "-", _figure(bound, "")])
    rows = [row + [""] * (len(columns) - len(row)) for row in rows]
    slo = document["scenario"]["slo"]
    notes = [tell_proof(document["gap"], document["bound_method"]), *([f"Service level: {slo}."] if slo else [])]
    if document["warmup"] != "0":
        notes.append(
            f"The columns from p50 slowdown on leave out the first {document['warmup']} of the jobs; the others do not."
        )
    return PageTable("Contenders, best first", columns, rows, 2, " ".join(notes))


def _contender(row: Mapping[str, Any], levels: bool) -> list[str]:
    metrics = row["metrics"]
    cells = [name_with_marks(row, not row["converged"]), row["knows"]]
    if metrics is None:
        return cells
    cells += [
        f"{row['objective']:.5g}",
        *("-" if row[ratio] is None else f"{row[ratio]:.3f}" for ratio in ("ratio_to_best", "ratio_to_bound")),
        _share(row["gap_to_bound"]),
        *(f"{metrics[f'{quantile}_slowdown']:.3g}" for quantile in ("p50", "p95", "p99")),
        "-" if metrics["hit_rate"] is None else f"{metrics['hit_rate']:.3f}",
        str(metrics["loads"]),
        f"{metrics['compute_busy']:.0%}",
    ]
    return [*cells, _share(metrics["slo_attainment"])] if levels else cells


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _losses(document: Mapping[str, Any]) -> list[PageTable]:
    """Return what stands between policies and the lower bound, a row per policy and part."""
    regrets: Sequence[Mapping[str, Any]] = document["regret"]
    if not regrets:
        return []
    rows = [
        [regret["policy"], loss["part"], f"{loss['lost']:.4g}", _share(loss["share"]), _interval(loss)]
        for regret in regrets
        for loss in regret["losses"]
    ]
    columns = ["policy", "lost by", f"{_words(document)} lost", "share", "exactly between"]
    note = " ".join(said for said in (regrets[0]["warning"], regrets[0]["note"]) if said)
    return [PageTable("What stands between a policy and the lower bound", columns, rows, 2, note)]


def _interval(loss: Mapping[str, Any]) -> str:
    return f"{loss['at_least']:.4g} and {loss['at_most']:.4g}"


def _ecdf(timelines: Sequence[Mapping[str, Any]]) -> Curves:
    slowdowns = {str(entry["name"]): entry["slowdown"] for entry in timelines}
    return slowdown_ecdf(slowdowns, [str(entry["name"]) for entry in timelines if entry["clairvoyant"]])


def _reproduce(document: Mapping[str, Any]) -> dict[str, str]:
    scenario = document["scenario"]
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    return {"command": document["command"], "scenario hash (sha256)": scenario["hash"], "versions": versions}
