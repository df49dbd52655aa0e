"""Plans, bounds, simulations and checks in words: what a person wants to know of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table as TerminalTable
from rich.text import Text

from truenorth.models.instance import Instance
from truenorth.models.metrics import CacheMetrics, Metrics, StreamMetrics
from truenorth.models.record import ABSENT, encode
from truenorth.models.scenario import Scenario
from truenorth.models.timeline import Timeline
from truenorth.models.units import say_size
from truenorth.planner.answers.check import Checked
from truenorth.planner.answers.regret import NOTE
from truenorth.planner.answers.shown import describe_bound
from truenorth.planner.answers.simulate import ActionDone, FutureChanged, Simulation
from truenorth.planner.answers.split import say_apart
from truenorth.planner.show.regret import in_words, regret_table
from truenorth.planner.show.table import Column, Table, facts, say, terminal
from truenorth.solvers.trust import SOLVER_OF

if TYPE_CHECKING:
    from truenorth.models.objective import Objective
    from truenorth.planner.answers.bound import Bound
    from truenorth.planner.answers.plan import Plan
    from truenorth.planner.answers.uncertain.planning import CandidateRow, UncertainPlan
    from truenorth.planner.answers.verify import VerdictRecord


def plan_view(plan: Plan | UncertainPlan) -> Group:
    """Return a plan's summary and, if run times are estimates, what its candidates are worth under samples of them."""
    from truenorth.planner.answers.plan import Plan  # with the solvers, which simulations do without

    if isinstance(plan, Plan):
        return Group(facts(plan_summary(plan)))
    made = f"Planned for {plan.plan_for} of the estimates; all figures above are under the scenario's run times."
    return Group(facts(plan_summary(plan.plan)), Text(made), terminal(_candidates(plan)))


def _candidates(plan: UncertainPlan) -> Table[CandidateRow]:
    """Return the candidates of a plan for uncertain run times, the chosen one first."""
    objective, worth = plan.plan.scenario.objective, plan.record().estimates
    title = f"{in_words(objective)} if run times are drawn from the estimates ({worth.samples} samples)"
    columns: list[Column[CandidateRow]] = [
        Column("plan for", lambda row: row.made_for, words=True),
        Column("medians hold", lambda row: row.with_medians, ".5g", objective.unit),
        Column("mean of the samples", lambda row: row.mean, ".5g", objective.unit),
        Column("worst sample", lambda row: row.worst, ".5g", objective.unit),
    ]
    return Table(title, columns, worth.candidates)


def scenario_summary(scenario: Scenario) -> dict[str, str]:
    """Return what a person wants to know of a scenario, in words."""
    gpus = Counter((gpu.kind, gpu.memory_bytes) for gpu in scenario.cluster.gpus)
    last_s = max(job.release_us for job in scenario.jobs) / 1e6
    rows = {
        "scenario": scenario.name,
        "GPUs": ", ".join(f"{count} x {kind} with {say_size(size)}" for (kind, size), count in gpus.items()),
        "models": ", ".join(f"{model.name} ({say_size(model.weight_bytes)})" for model in scenario.models[:_LISTED])
        + f" and {len(scenario.models) - _LISTED} more" * (len(scenario.models) > _LISTED),
        "jobs": f"{len(scenario.jobs)} of {len(scenario.workflows)} workflows in {last_s:.4g} s, "
        f"{scenario.instance.n_tasks} tasks",
        "objective": in_words(scenario.objective),
    }
    return rows | ({} if scenario.slo is None else {"service level": str(scenario.slo)}) | _rounded(scenario)


_LISTED = 8
"""So many models are named."""


def plan_summary(plan: Plan) -> dict[str, str]:
    """Return what a person wants to know of a plan, in words."""
    objective, instance, result = plan.scenario.objective, plan.scenario.instance, plan.result
    rows = {
        "scenario": plan.scenario.name,
        "size": f"{len(instance.jobs)} jobs, {instance.n_tasks} tasks, {instance.n_gpus} GPUs",
        "status": f"{result.status}{', interrupted' if plan.interrupted else ''}",
        in_words(objective): say(plan.value, ".5g", objective.unit),
        "lower bound": f"{say(plan.lower_bound, '.5g', objective.unit)}  ({describe_bound(result.bound_method)})",
        "gap": "-" if result.gap is None else f"{result.gap:.2%}",
    }
    if result.proved_by in SOLVER_OF:
        rows["proof"] = f"{SOLVER_OF[result.proved_by]}'s word, {_confirmation(result.confirmed_by)}"
    if plan.metrics is not None:
        rows |= _metrics_rows(plan.metrics)
    if result.fell_back is not None:
        rows["fell back"] = result.fell_back
    if plan.timeline is not None:
        rows |= _apart_rows(instance, plan.timeline)
    took = {"took": f"{result.runtime_s:.1f} s, {result.cpu_s:.1f} s of CPU"}
    return rows | _left_out_rows(result.left_out) | _rounded(plan.scenario) | took


def _apart_rows(instance: Instance, timeline: Timeline) -> dict[str, str]:
    """Return the row that says which jobs run in parts at different times, if any does."""
    said = say_apart(instance, timeline)
    return {"run apart": said} if said else {}


def _rounded(scenario: Scenario) -> dict[str, str]:
    """Return the row that says what proofs are about, where run times were rounded up."""
    share = scenario.document.rounded_up
    return {} if share is None else {"about": rounded_in_words(float(share))}


def rounded_in_words(share: float) -> str:
    """Return by how much the run times of an imported log are rounded up, and what proofs are then about.

    >>> rounded_in_words(0.125)
    'Run times are rounded up by up to 12.5 %: bounds and refutations are about the rounded log'
    """
    return f"Run times are rounded up by up to {100 * share:.4g} %: bounds and refutations are about the rounded log"


def _confirmation(confirmed_by: str | None) -> str:
    return "confirmed by nobody" if confirmed_by is None else f"confirmed by {confirmed_by}"


def bound_view(bound: Bound) -> Group:
    """Return a bound's summary and, if a schedule was given, its regret."""
    if bound.regret is None:
        return Group(facts(bound_summary(bound)))
    apart = terminal(regret_table(bound.regret.record))
    return Group(facts(bound_summary(bound)), Text(), apart, Text(NOTE, style="italic"))


def bound_summary(bound: Bound) -> dict[str, str]:
    """Return what a person wants to know of a bound, in words."""
    objective, found = bound.scenario.objective, bound.record()
    rows = {
        "scenario": bound.scenario.name,
        f"lower bound of {in_words(objective)}": say(found.lower_bound, ".5g", objective.unit),
        "method": f"{found.method}{', interrupted' if bound.interrupted else ''}",
    }
    if found.uncertified_lower_bound is not None:
        said = f"({found.uncertified_method}: holds, but cannot be computed again without a solver)"
        rows["without a certificate"] = f"{say(found.uncertified_lower_bound, '.5g', objective.unit)}  {said}"
    took = {"took": f"{bound.runtime_s:.1f} s, {bound.cpu_s:.1f} s of CPU"}
    return rows | _left_out_rows(bound.left_out) | _rounded(bound.scenario) | took


def _left_out_rows(left_out: Mapping[str, str]) -> dict[str, str]:
    """Return a row for every method that was left out."""
    return {f"{method} left out": reason for method, reason in left_out.items()}


def verdict_view(verified: tuple[Objective, VerdictRecord]) -> str:
    """Return what is proved, or why nothing is."""
    objective, found = verified
    if not found.valid:
        return f"refused: {found.reason}"
    how = "" if found.how is None else f" ({found.how})"
    unit = objective.unit if objective.unit == "s" else ""  # what the objective's name says is not said twice
    proved = f"the lower bound {say(found.lower_bound, '.5g', unit)} of {objective} is proved{how}"
    return f"valid: {found.how if found.lower_bound is None else proved}"


def simulation_view(simulation: Simulation) -> TerminalTable:
    """Return a simulation's summary."""
    return facts(simulation_summary(simulation))


def simulation_summary(simulation: Simulation) -> dict[str, str]:
    """Return what a person wants to know of a simulation, in words."""
    objective = simulation.objective
    who = simulation.policy + (" (on a twin)" if simulation.on_a_twin else "")
    value = {in_words(objective.name): say(objective.value, ".5g", objective.name.unit)}
    apart = _apart_rows(simulation.instance, simulation.timeline)
    rows = {"scenario": simulation.scenario.name, "policy": who} | value | _metrics_rows(simulation.metrics) | apart
    fitted = simulation.fitted
    return rows if fitted is ABSENT else rows | {"about": "\n".join(map(str, fitted))}


def _metrics_rows(metrics: Metrics) -> dict[str, str]:
    """Return metrics in words; latencies in seconds."""
    figures = encode(metrics)
    spread = {
        what: _spread(figures, key, ("mean", "p50", "p95", "p99", "max"))
        for what, key in (("latency in s", "latency_s"), ("slowdown", "slowdown"))
    }
    hits = "-" if metrics.hit_rate is None else f"{metrics.hit_rate:.3f}"
    return {
        "jobs, tasks": f"{metrics.jobs}, {metrics.tasks}",
        **spread,
        **(_tokens_rows(metrics) if isinstance(metrics, StreamMetrics) else {}),
        "makespan": say(metrics.makespan_s, ".5g", "s"),
        "loads": f"{metrics.loads} ({say_size(metrics.load_bytes)}), {metrics.evictions} evictions, hit rate {hits}",
        "busy": f"compute {metrics.compute_busy:.1%}, copy {metrics.copy_busy:.1%}, {metrics.gpus_used} GPUs used",
        **({} if metrics.slo_attainment is None else {"within service level": f"{metrics.slo_attainment:.2%}"}),
    }


def _tokens_rows(metrics: StreamMetrics) -> dict[str, str]:
    """Return what there is to say of requests of streams."""
    figures = encode(metrics)
    spread = {
        what: _spread(figures, key, ("mean", "p50", "p95", "p99"), scale)
        for what, key, scale in (("first token in s", "first_token_s", 1), ("ms per token", "time_per_token_s", 1000))
    }
    if whose := metrics.whose_first_token:
        spread["first token in s"] += f" ({whose})"
    made = f"{metrics.output_tokens:,} of answers, {metrics.output_tokens_per_s:,.4g} of them per s"
    kept = f"at most {say_size(metrics.kv_peak_bytes)} of KV on a GPU"
    if metrics.preemptions:
        kept += f", {metrics.preemptions:,} preemptions, {metrics.recomputed_tokens:,} tokens computed again"
    if metrics.cut:
        kept += f", {metrics.cut:,} times cut as a server went"
    cached = f" ({metrics.hit_share:.1%} cached)" if isinstance(metrics, CacheMetrics) else ""
    return spread | {"tokens": f"{metrics.prompt_tokens:,} of prompts{cached}, {made}; {kept}"}


def _spread(figures: Mapping[str, Any], key: str, names: Sequence[str], scale: int = 1) -> str:
    """Return mean and quantiles in words; a dash where there are none, as without answers of several tokens."""
    found = {name: figures[f"{name}_{key}"] for name in names}
    if None in found.values():
        return "-"
    return ", ".join(f"{name} {say(scale * value, '.4g')}" for name, value in found.items())


def check_view(outcome: Checked) -> Text:
    """Return every violation, or what holds; then what was taken from the file and what stays a claim."""
    if outcome.violations:
        return Text("\n".join(str(violation) for violation in outcome.violations))
    times, claims = outcome.own_times, outcome.claims
    if outcome.realised:
        lines = [
            "valid as a timeline that happened: every rule holds, with run and load times taken from the file",
            f"other times than the scenario's: {times['runs_of_other_times']} of {times['runs']} runs, "
            f"{times['loads_of_other_times']} of {times['loads']} loads",
        ]
    else:
        lines = ["valid: every rule holds"]
    if claims.checked:
        lines.append(f"as the file says: {', '.join(claims.checked)}")
    if "value" in claims.unchecked:
        lines.append(f"unchecked: value {claims.unchecked['value']}")
    if claims.unproved:
        lines.append(f"claimed, unproved without a certificate: {_listed(claims.unproved)}")
    made = [name for name in claims.unchecked if name != "value"]
    if made:
        lines.append(f"unchecked, of how it was made: {', '.join(made)}")
    return Text("\n".join(lines))


def _listed(unproved: dict[str, str]) -> str:
    return "; ".join(f"{name} {said}" for name, said in unproved.items())


def futures_view(made: FutureChanged) -> Text:
    """Return whether a policy's past depends on the future, and where it first does."""
    who, found = f"policy {made.policy}", made.difference
    if found is None and made.compared:
        untried = made.draws - made.compared
        refused = f" ({untried} more it could not serve)" if untried else ""
        return Text(f"{who}: with {made.compared} other futures its past stays the same{refused}")
    if found is None:
        return Text(f"{who}: could serve none of {made.draws} other futures; nothing was compared")
    return Text(
        f"{who}: its past depends on the future. Draw {found.draw} has the same jobs before "
        f"{_at(found.same_jobs_before_s)}, and the first action that differs is\n"
        f"  as the window stands:  {_said(found.as_it_was)}\n"
        f"  with another future:   {_said(found.changed)}"
    )


def _said(action: ActionDone | None) -> str:
    return "nothing" if action is None else f"at {_at(action.at_s)} {action.action}"


def _at(seconds: float) -> str:
    return f"{seconds:.6f} s"
