"""A comparison, shown: its table, its section of a page, and what ``compare -o FOLDER`` leaves.

That is tables, the plan, a Gantt chart per contender worth a look, an ECDF, a trace; ``comparison.json`` and
``timelines.json`` hold all that ``truenorth report`` needs of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from truenorth.models.metrics import CacheMetrics, Metrics, StreamMetrics
from truenorth.models.objective import Objective, Status
from truenorth.models.record import encode
from truenorth.models.scenario import write_atomically
from truenorth.models.units import say_size
from truenorth.planner.answers.compare import (
    COMPASS,
    PLAN,
    ComparedPolicy,
    Comparison,
    ComparisonOrigin,
    ComparisonRecord,
)
from truenorth.planner.answers.plan import write_plan
from truenorth.planner.answers.regret import NOTE
from truenorth.planner.answers.shown import tell_proof
from truenorth.planner.answers.simulate import Simulation
from truenorth.planner.show import timelines
from truenorth.planner.show.canvas import png, write_figure, write_vectors
from truenorth.planner.show.curves import draw, draw_in_a_column, gap_over_time, slowdown_ecdf
from truenorth.planner.show.gantt import gantt
from truenorth.planner.show.regret import in_words, losses_table, parts_table, regret_bars
from truenorth.planner.show.section import PageSection
from truenorth.planner.show.table import Column, Table, csv_text, say, terminal, write_table
from truenorth.planner.show.timelines import trace_events
from truenorth.planner.show.written import read_both

FILE = "comparison.json"
StreamRow = tuple[str, StreamMetrics]
"""A policy and its figures, where tasks are requests of streams."""


def contenders(record: ComparisonRecord) -> Table[ComparedPolicy]:
    """Return a row per contender, best first, and the lower bound."""
    objective = record.objective
    columns: list[Column[ComparedPolicy]] = [
        Column("policy", lambda row: name_with_marks(row.policy, row.twin, row.problem, row.converged), words=True),
        Column("information used", lambda row: row.information_used, words=True),
        Column(in_words(objective), lambda row: row.objective, ".5g", objective.unit),
        Column("ratio to best", lambda row: row.ratio_to_best, ".3f"),
        Column("ratio to bound", lambda row: row.ratio_to_bound, ".3f"),
        Column("gap to bound", lambda row: row.gap_to_bound, ".1%"),
        *_percentiles(objective),
        Column("hit rate", _measured(lambda metrics: metrics.hit_rate), ".3f"),
        Column("model loads", _measured(lambda metrics: metrics.loads)),
        Column("utilisation", _measured(lambda metrics: metrics.compute_busy), ".0%"),
    ]
    return Table("", columns, record.rows, ["lower bound", "-", record.lower_bound])


def _percentiles(objective: Objective) -> list[Column[ComparedPolicy]]:
    """Return the percentiles of slowdowns where the objective is about them, else of latencies."""
    what, end, unit = ("slowdown", "", "") if "slowdown" in objective else ("latency", "_s", "s")
    names = {"p50": f"p50 {what}", "p95": "p95", "p99": "p99"}
    return [Column(name, _measured(attrgetter(f"{rank}_{what}{end}")), ".3g", unit) for rank, name in names.items()]


def _measured(figure: Callable[[Metrics], Any]) -> Callable[[ComparedPolicy], Any]:
    """Return what a column takes of the metrics; nothing of a policy without."""
    return lambda row: None if row.metrics is None else figure(row.metrics)


_SERVICE = Column[ComparedPolicy]("within service level", _measured(lambda metrics: metrics.slo_attainment), ".1%")


def tokens(rows: Iterable[tuple[str, Metrics | None]]) -> list[Table[StreamRow]]:
    """Return the table of first tokens, time per token and tokens, row by row; none without streams."""
    served = [(name, metrics) for name, metrics in rows if isinstance(metrics, StreamMetrics)]
    columns: list[Column[StreamRow]] = [
        Column("policy", lambda row: row[0], words=True),
        Column("mean first token in s", lambda row: row[1].mean_first_token_s, ".4g"),
        Column("p50", lambda row: row[1].p50_first_token_s, ".4g"),
        Column("p95", lambda row: row[1].p95_first_token_s, ".4g"),
        Column("p99", lambda row: row[1].p99_first_token_s, ".4g"),
        Column("mean ms per token", lambda row: row[1].mean_time_per_token_s, _in_ms),
        Column("p50", lambda row: row[1].p50_time_per_token_s, _in_ms),
        Column("p95", lambda row: row[1].p95_time_per_token_s, _in_ms),
        Column("p99", lambda row: row[1].p99_time_per_token_s, _in_ms),
        Column("output tokens/s", lambda row: row[1].output_tokens_per_s, ",.0f"),
        Column("KV peak", lambda row: row[1].kv_peak_bytes, say_size),
    ]
    if any(metrics.preemptions for _, metrics in served):
        columns += [
            Column("preemptions", lambda row: row[1].preemptions, ",d"),
            Column("tokens computed again", lambda row: row[1].recomputed_tokens, ",d"),
        ]
    if any(isinstance(metrics, CacheMetrics) for _, metrics in served):
        columns.append(Column("prompt tokens cached", lambda row: _hit_share(row[1]), ".1%"))
    whose = next((f" ({metrics.whose_first_token})" for _, metrics in served if metrics.whose_first_token), "")
    return [Table(f"First tokens{whose}, and time per token behind them", columns, served)] if served else []


def _hit_share(metrics: StreamMetrics) -> float | None:
    return metrics.hit_share if isinstance(metrics, CacheMetrics) else None


def _in_ms(seconds: float) -> str:
    return f"{1000 * seconds:.4g}"


def name_with_marks(policy: str, twin: bool, problem: str | None, converged: bool) -> str:
    """Return the name of a row's policy with what has to be known of its figures.

    >>> name_with_marks("plan", twin=False, problem=None, converged=False)
    'plan (unconverged)'
    """
    unconverged = policy == PLAN and not converged
    marks = {"on a twin": twin, "breaks the rules": problem, "unconverged": unconverged}
    return policy + "".join(f" ({mark})" for mark, holds in marks.items() if holds)


def comparison_table(comparison: Comparison) -> Table[ComparedPolicy]:
    """Return the contenders under the scenario's name; below stand what is proved, and that ratios understate."""
    note = "\n".join(filter(None, (comparison.proof, comparison.warning)))
    title = f"{comparison.scenario.name}: {in_words(comparison.scenario.objective)}"
    return replace(contenders(comparison.record), title=title, note=note)


def comparison_view(comparison: Comparison) -> Group:
    """Return a comparison's table with the remark that belongs to it, tokens, and what policies lose, part by part."""
    parts: list[Any] = [terminal(comparison_table(comparison)), Text(comparison.note, style="italic")]
    for table in tokens((row.policy, row.metrics) for row in comparison.record.rows):
        parts += [Text(), terminal(table)]
    if comparison.regrets:
        losses = losses_table([regret.record for regret in comparison.regrets])
        parts += [Text(), terminal(losses), Text(NOTE, style="italic")]
    return Group(*parts)


def section(folder: Path) -> PageSection:
    """Return what a page says of a folder that ``compare -o`` wrote.

    Raises
    ------
    InputError
        If a file in it cannot be read.
    """
    drawn = timelines.read(folder)
    found, origin = read_both(folder / FILE, ComparisonRecord, ComparisonOrigin)
    scenario, served = origin.scenario, tokens((row.policy, row.metrics) for row in found.rows)
    figures = [gap_over_time(origin.incumbents, origin.runtime_s)]
    if drawn is not None and drawn.timelines:
        values = {entry.name: entry.slowdown for entry in drawn.timelines}
        figures.insert(0, slowdown_ecdf(values, [entry.name for entry in drawn.timelines if entry.clairvoyant]))
    return PageSection(
        f"{scenario.name}: how far from the least possible {in_words(found.objective)} are online policies?",
        _answer(found),
        [
            *([found.warning] if found.warning else []),
            found.note,
            f"The window holds {scenario.jobs} jobs with {scenario.tasks} tasks on {scenario.gpus} GPUs.",
        ],
        [_on_page(found, origin), *served, *([parts_table(found.regret)] if found.regret else [])],
        [figure for figure in figures if figure is not None],
        drawn,
        origin.steps,
        leading=1 + len(served),
        scenario=origin.scenario.titled,
    )


def _answer(found: ComparisonRecord) -> str:
    """Return the result in words: the plan, what is proved of it, the best online policy, and Compass."""
    rows = {row.policy: row for row in found.rows}
    online = [row for row in found.rows if not (row.clairvoyant or row.twin or row.problem)]
    parts = [_planned(found, rows.get(PLAN))]
    if online:
        beside = _set_beside(online[0], rows.get(PLAN), found.objective)
        parts.append(f"the best online policy, {online[0].policy}, is at {beside}")
    if COMPASS in rows and online and online[0].policy != COMPASS:
        parts.append(f"Compass is at {_set_beside(rows[COMPASS], rows.get(PLAN), found.objective)}")
    return "; ".join(parts) + "."


def _planned(found: ComparisonRecord, plan: ComparedPolicy | None) -> str:
    words, bound = in_words(found.objective), say(found.lower_bound, ".4g", found.objective.unit)
    if plan is None and found.lower_bound is None:
        return "No plan was made or found, and nothing is proved of one"
    if plan is None:
        return f"No plan was found in the time; no plan can have a {words} below {bound}"
    value = say(plan.objective, ".4g", found.objective.unit)
    if found.status is Status.OPTIMAL:
        return f"The plan's {words} of {value} is proved to be the least possible"
    if found.lower_bound is None:
        return f"The plan's {words} is {value}; nothing is proved of it"
    return (
        f"The plan's {words} is {value} and no plan can be below {bound}, so that at most {found.gap or 0:.1%} of it "
        "can be saved"
    )


def _set_beside(row: ComparedPolicy, plan: ComparedPolicy | None, objective: Objective) -> str:
    value = say(row.objective, ".4g", objective.unit)
    if plan is None or not plan.objective or row.objective is None:
        return value
    beside = f"{value}, {row.objective / plan.objective:.2f} times the plan"
    if plan.converged or row.ratio_to_bound is None:
        return beside
    return f"{beside} and at most {row.ratio_to_bound:.2f} times the least possible"


def _on_page(found: ComparisonRecord, origin: ComparisonOrigin) -> Table[ComparedPolicy]:
    table, slo = contenders(found), origin.scenario.slo
    levels = any(row.metrics is not None and row.metrics.slo_attainment is not None for row in found.rows)
    notes = [tell_proof(found.gap, found.bound_method), *([f"Service level: {slo}."] if slo else [])]
    if origin.warmup != "0":
        notes.append(f"The columns from p50 on leave out the first {origin.warmup} of the jobs; the others do not.")
    columns = [*table.columns, _SERVICE] if levels else table.columns
    return replace(table, title="Contenders, best first", columns=columns, note=" ".join(notes))


def write(comparison: Comparison, folder: Path) -> list[Path]:
    """Write every file of a comparison; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written, record, origin = [folder / "table.csv", folder / FILE], comparison.record, comparison.origin
    write_atomically(written[0], csv_text(comparison.frame()))
    write_atomically(written[1], json.dumps(encode(record) | encode(origin), indent=2))
    rows = comparison_table(comparison)
    note = "\n".join(filter(None, (rows.note, comparison.told)))
    written += write_table(replace(rows, note=note), folder / "table")
    for table in tokens((row.policy, row.metrics) for row in record.rows):
        written += write_table(table, folder / "tokens")
    written.append(timelines.write(folder, comparison.shown))
    if comparison.certifiable is not None:
        written.append(folder / "certificate.json")
        write_atomically(written[-1], json.dumps(comparison.certifiable.certificate()))
    if comparison.plan.timeline is not None:
        written.append(folder / "plan.json")
        write_plan(comparison.plan, written[-1], origin.command)
    return written + _pictures(comparison, folder) + [_trace(comparison, folder / "trace.json")]


def _pictures(comparison: Comparison, folder: Path) -> list[Path]:
    """Draw the plan, the best online policy, and everybody's slowdowns."""
    instance, paths = comparison.scenario.instance, []
    if comparison.plan.timeline is not None:
        title = f"Plan of {comparison.scenario.name}: it knows every arrival in advance. {_headline(comparison, PLAN)}"
        paths += write_figure(gantt(instance, comparison.plan.timeline, title), folder / "gantt_plan")
    online = _best_online(comparison)
    if online is not None:
        headline = _headline(comparison, online.policy)
        title = f"Best online policy ({online.policy}): it learns of a job at its release. {headline}"
        paths += write_figure(gantt(online.instance, online.timeline, title), folder / "gantt_online")
    if comparison.regrets:
        paths += write_figure(regret_bars(comparison.regrets), folder / "regret")
        paths += write_table(losses_table([regret.record for regret in comparison.regrets]), folder / "losses")
    if shown := comparison.shown:
        ecdf = slowdown_ecdf({e.name: timelines.slowdowns(e) for e in shown}, [e.name for e in shown if e.clairvoyant])
        paths.append(folder / "slowdown_ecdf.png")
        write_atomically(paths[-1], png(draw(ecdf)))
        paths += write_vectors(draw_in_a_column(ecdf), folder / "slowdown_ecdf")
    return paths


def _headline(comparison: Comparison, name: str) -> str:
    value = next(row.objective for row in comparison.rows if row.policy == name)
    return f"{in_words(comparison.scenario.objective)} {say(value, '.4g', comparison.scenario.objective.unit)}"


def _best_online(comparison: Comparison) -> Simulation | None:
    online = [ran for ran in comparison.simulations if not ran.clairvoyant and not ran.on_a_twin]
    return min(online, key=lambda simulation: simulation.value, default=None)


def _trace(comparison: Comparison, path: Path) -> Path:
    """Write plan and best online policy as one Perfetto trace."""
    events, process = [], 1
    if comparison.plan.timeline is not None:
        events += trace_events(comparison.scenario.instance, comparison.plan.timeline, PLAN, process)
        process += comparison.scenario.instance.n_gpus
    online = _best_online(comparison)
    if online is not None:
        events += trace_events(online.instance, online.timeline, online.policy, process)
    write_atomically(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
    return path
