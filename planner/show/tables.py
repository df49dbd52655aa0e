"""Tables for the terminal: a plan, a simulation, a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from models.metrics import Metrics
from models.objective import Objective
from models.scenario import Scenario
from models.units import say_size
from planner.answers.bound import Bound
from planner.answers.compare import Comparison
from planner.answers.contenders import PLAN
from planner.answers.convergence import describe_bound
from planner.answers.plan import Plan
from planner.answers.regret import AS_IT_RAN, BATCHES, NOTE, OPEN, ORDER, PLACEMENT, RESIDENCY, TOGETHER, Regret
from planner.answers.replications import Replicated
from planner.answers.simulate import Simulation
from planner.answers.uncertain.planning import UncertainPlan
from planner.show.rounded import rounded_in_words
from solvers.faults import SOLVER_OF


def plan_view(plan: Plan | UncertainPlan) -> Group:
    """Return a plan's summary and, if run times are estimates, what its candidates are worth under samples of them."""
    if isinstance(plan, Plan):
        return Group(plan_table(plan))
    return Group(plan_table(plan.plan), Text(), candidates_table(plan))


def candidates_table(plan: UncertainPlan) -> Table:
    """Return the candidates of a plan for uncertain run times, the chosen one first."""
    objective, document = plan.plan.scenario.objective, plan.as_dict()["estimates"]
    title = f"{_words(objective)} if run times are drawn from the estimates ({document['samples']} samples)"
    table = Table(title=title, title_justify="left")
    table.add_column("plan for")
    for name in ("medians hold", "mean of the samples", "worst sample"):
        table.add_column(name, justify="right")
    for row in document["candidates"]:
        figures = (_number(row[key], objective) for key in ("with_medians", "mean", "worst"))
        table.add_row(row["made_for"], *figures)
    return table


def plan_table(plan: Plan) -> Table:
    """Return a plan's summary as two columns."""
    return _two_columns(plan_summary(plan))


def plan_summary(plan: Plan) -> dict[str, str]:
    """Return what a person wants to know of a plan, in words."""
    summary, objective = plan.as_dict(), plan.scenario.objective
    instance, result = plan.scenario.instance, plan.result
    rows = {
        "scenario": plan.scenario.name,
        "size": f"{len(instance.jobs)} jobs, {instance.n_tasks} tasks, {instance.n_gpus} GPUs",
        "status": str(result.status),
        _words(objective): _number(summary["objective"]["value"], objective),
        "lower bound": f"{_number(summary['lower_bound'], objective)}  ({describe_bound(result.bound_method)})",
        "gap": "-" if result.gap is None else f"{result.gap:.2%}",
    }
    if result.proved_by in SOLVER_OF:
        rows["proof"] = f"{SOLVER_OF[result.proved_by]}'s word, {_confirmation(result.confirmed_by)}"
    if plan.metrics is not None:
        rows |= _metrics_rows(plan.metrics)
    if result.fell_back is not None:
        rows["fell back"] = result.fell_back
    took = {"took": f"{result.runtime_s:.1f} s, {result.cpu_s:.1f} s of CPU"}
    return rows | _left_out_rows(result.left_out) | _rounded(plan.scenario) | took


def _rounded(scenario: Scenario) -> dict[str, str]:
    """Return the row that says what proofs are about, where run times were rounded up."""
    share = scenario.document.rounded_up
    said = rounded_in_words(None if share is None else float(share))
    return {} if said is None else {"about": said}


def _confirmation(confirmed_by: str | None) -> str:
    return "confirmed by nobody" if confirmed_by is None else f"confirmed by {confirmed_by}"


def bound_view(bound: Bound) -> Group:
    """Return a bound's summary and, if a schedule was given, its regret."""
    if bound.regret is None:
        return Group(bound_table(bound))
    return Group(bound_table(bound), Text(), regret_table(bound.regret), Text(NOTE, style="italic"))


def bound_table(bound: Bound) -> Table:
    """Return a bound's summary as two columns."""
    return _two_columns(bound_summary(bound))


def bound_summary(bound: Bound) -> dict[str, str]:
    """Return what a person wants to know of a bound, in words."""
    objective, summary = bound.scenario.objective, bound.as_dict()
    rows = {
        "scenario": bound.scenario.name,
        f"lower bound of {_words(objective)}": _number(summary["lower_bound"], objective),
        "method": bound.method,
    }
    if summary["uncertified_lower_bound"] is not None:
        value, method = _number(summary["uncertified_lower_bound"], objective), summary["uncertified_method"]
        rows["without a certificate"] = f"{value}  ({method}: holds, but cannot be computed again without a solver)"
    took = {"took": f"{bound.runtime_s:.1f} s, {bound.cpu_s:.1f} s of CPU"}
    return rows | _left_out_rows(bound.left_out) | _rounded(bound.scenario) | took


def _left_out_rows(left_out: Mapping[str, str]) -> dict[str, str]:
    """Return a row for every method that was left out."""
    return {f"{method} left out": reason for method, reason in left_out.items()}


def regret_table(regret: Regret) -> Table:
    """Return what a policy's timeline loses to each part, from its value down to the lower bound."""
    objective, document = regret.scenario.objective, regret.as_dict()
    title = f"{regret.policy}: what its {_words(objective)} is made of"
    table = Table(title=title, title_justify="left", caption=regret.warning, caption_justify="left")
    table.add_column("")
    for name in ("value", "lost", "share", "exactly between"):
        table.add_column(name, justify="right")
    values = [step["value"] for step in document["steps"]] + [document["lower_bound"]]
    names = [_MEANING[step.part] for step in regret.steps] + [f"lower bound of all plans ({regret.bound_method})"]
    for name, value, loss in zip(names, values, [None, *document["losses"]], strict=True):
        lost = [] if loss is None else [_number(loss["lost"], objective), _share(loss["share"])]
        if loss is not None and loss["part"] != OPEN:
            lost.append(f"{_number(loss['at_least'], objective)} and {_number(loss['at_most'], objective)}")
        table.add_row(name, _number(value, objective), *lost)
    if regret.clairvoyance is not None:
        known = document["clairvoyance"]
        table.add_section()
        name = f"beside the chain: {known['policy']}, arrivals unknown, and all known"
        values = [_number(known[key], objective) for key in ("online", "all_known", "worth")]
        table.add_row(name, f"{values[0]}, {values[1]}", values[2])
    return table


_MEANING = {
    AS_IT_RAN: "as it ran",
    RESIDENCY: "its GPUs and order, loads and evictions with the window known",
    BATCHES: "its GPUs and order, which neighbours run together free as well",
    ORDER: "its GPUs, order free",
    PLACEMENT: "everything free: the plan",
    TOGETHER: "everything free: the plan (order and GPUs not told apart on so wide a cluster)",
}


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def simulation_table(simulation: Simulation) -> Table:
    """Return a simulation's summary as two columns."""
    return _two_columns(simulation_summary(simulation))


def simulation_summary(simulation: Simulation) -> dict[str, str]:
    """Return what a person wants to know of a simulation, in words."""
    objective = simulation.scenario.objective
    value = _number(simulation.as_dict()["objective"]["value"], objective)
    who = simulation.policy + (" (on a twin)" if simulation.on_a_twin else "")
    head = {"scenario": simulation.scenario.name, "policy": who, _words(objective): value}
    return head | _metrics_rows(simulation.metrics)


def _two_columns(rows: Mapping[str, str]) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _metrics_rows(metrics: Metrics) -> dict[str, str]:
    """Return metrics in words; latencies in seconds."""
    figures = metrics.as_dict()
    spread = {
        what: ", ".join(f"{name} {figures[f'{name}_{key}']:.4g}" for name in ("mean", "p50", "p95", "p99", "max"))
        for what, key in (("latency in s", "latency_s"), ("slowdown", "slowdown"))
    }
    hits = "-" if metrics.hit_rate is None else f"{metrics.hit_rate:.3f}"
    return {
        "jobs, tasks": f"{metrics.jobs}, {metrics.tasks}",
        **spread,
        "makespan": f"{metrics.makespan_s:.5g} s",
        "loads": f"{metrics.loads} ({say_size(metrics.load_bytes)}), {metrics.evictions} evictions, hit rate {hits}",
        "busy": f"compute {metrics.compute_busy:.1%}, copy {metrics.copy_busy:.1%}, {metrics.gpus_used} GPUs used",
        **({} if metrics.slo_attainment is None else {"within service level": f"{metrics.slo_attainment:.2%}"}),
    }


def comparison_view(comparison: Comparison) -> Group:
    """Return a comparison's table with the remark that belongs to it, and what policies lose, part by part."""
    table, remark = comparison_table(comparison), Text(comparison.note, style="italic")
    if not comparison.regrets:
        return Group(table, remark)
    return Group(table, remark, Text(), losses_table(comparison.regrets), Text(NOTE, style="italic"))


def losses_table(regrets: Sequence[Regret]) -> Table:
    """Return one row per policy: its value, what each part costs, and the lower bound that is left.

    A part that is only bounded shows what search found and, below, the interval in which the exact loss lies.
    """
    objective = regrets[0].scenario.objective
    title = (
        f"What stands between a policy and the lower bound of {_words(objective)}\n"
        "Losses as far as search found them; where that is no proof, the exact one lies in the interval below."
    )
    warning = regrets[0].warning
    table = Table(title=title, title_justify="left", caption=warning, caption_justify="left")
    table.add_column("policy")
    parts = [loss.part for loss in regrets[0].losses]
    for name in (_words(objective), *parts, "lower bound"):
        table.add_column(name, justify="right")
    for regret in regrets:
        document = regret.as_dict()
        losses = [_loss(loss, objective) for loss in document["losses"]]
        value, bound = document["steps"][0]["value"], document["lower_bound"]
        table.add_row(regret.policy, _number(value, objective), *losses, _number(bound, objective))
    return table


def _loss(loss: Mapping[str, Any], objective: Objective) -> str:
    found = f"{_number(loss['lost'], objective)}  {_share(loss['share'])}"
    if loss["at_least"] == loss["at_most"]:
        return found
    return f"{found}\n{_number(loss['at_least'], objective)} to {_number(loss['at_most'], objective)}"


def comparison_table(comparison: Comparison) -> Table:
    """Return a comparison, best contender first; below it stands that ratios to the plan understate, if they do."""
    objective = comparison.scenario.objective
    title = f"{comparison.scenario.name}: {_words(objective)}"
    table = Table(title=title, title_justify="left", caption=caption_of(comparison), caption_justify="left")
    table.add_column("policy")
    table.add_column("knows")
    for name in (
        _words(objective),
        "x best",
        "x bound",
        "gap to bound",
        "p50 slowdown",
        "p95",
        "p99",
        "hit rate",
        "loads",
        "busy",
    ):
        table.add_column(name, justify="right")
    for row in comparison.rows:
        table.add_row(
            name_with_marks(row, comparison.warning is not None),
            row["knows"],
            _number(row["objective"], objective),
            *("-" if row[ratio] is None else f"{row[ratio]:.3f}" for ratio in ("ratio_to_best", "ratio_to_bound")),
            "-" if row["gap_to_bound"] is None else f"{row['gap_to_bound']:.1%}",
            *_metrics_cells(row["metrics"]),
        )
    table.add_section()
    table.add_row("lower bound", "-", _number(comparison.as_dict()["lower_bound"], objective))
    return table


def caption_of(answer: Comparison | Replicated) -> str:
    """Return what is proved of the plans of a table, and that ratios to them understate, if they do."""
    return answer.proof + ("" if answer.warning is None else f"\n{answer.warning}")


def _metrics_cells(metrics: Mapping[str, Any] | None) -> list[str]:
    if metrics is None:
        return []
    return [
        *(f"{metrics[f'{quantile}_slowdown']:.3g}" for quantile in ("p50", "p95", "p99")),
        "-" if metrics["hit_rate"] is None else f"{metrics['hit_rate']:.3f}",
        str(metrics["loads"]),
        f"{metrics['compute_busy']:.0%}",
    ]


def name_with_marks(row: Mapping[str, Any], unconverged: bool) -> str:
    """Return the name of a row's policy with what has to be known of its figures.

    >>> name_with_marks({"policy": "plan", "twin": False, "problem": None}, unconverged=True)
    'plan (unconverged)'
    """
    marks = {
        "on a twin": row["twin"],
        "breaks the rules": row["problem"],
        "unconverged": unconverged and row["policy"] == PLAN,
    }
    return str(row["policy"]) + "".join(f" ({mark})" for mark, holds in marks.items() if holds)


def _words(objective: Objective) -> str:
    return str(objective).replace("_", " ")


def _number(value: Any, objective: Objective) -> str:
    return "-" if value is None else f"{value:.5g} {objective.unit}".strip()
