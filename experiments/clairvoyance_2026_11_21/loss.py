"""Where the loss comes from: order, memory or not knowing the future; with models and without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from experiments import authors
from experiments.bench import ask, bench, carry_out
from experiments.clairvoyance_2026_11_21.__main__ import ONLINE, RATES, annealed, receding
from truenorth.models import Instance, Objective, Timeline, timeline_value
from truenorth.planner.answers.policies.receding_horizon import EVERYTHING, RecedingOptions


def loss(
    rate: Annotated[int, "jobs per second", RATES] = 4,
    jobs: Annotated[int, "how many of the recorded jobs"] = 100,
    plan: Annotated[float, "seconds for an offline plan"] = 30.0,
) -> None:
    """Print a row per policy."""
    on = authors.instance(authors.recorded(rate, jobs))
    free = on.with_tasks(lambda task: replace(task, models=()))
    cases: dict[str, Callable[[Instance], Timeline]] = {
        policy: (lambda each, policy=policy: carry_out(each, policy)[1])  # type: ignore[misc]
        for policy in ONLINE
    }
    for name, lookahead in (("0 s", 0), ("all", EVERYTHING)):
        chosen = RecedingOptions(moves=6_000, lookahead=lookahead)
        cases[f"receding, look-ahead {name}"] = lambda each, chosen=chosen: receding(each, chosen)[0]  # type: ignore[misc]
    cases[f"plan, {plan:g} s"] = lambda each: annealed(each, plan)

    def slowdowns(make: Callable[[Instance], Timeline]) -> dict[str, Any]:
        values = [float(timeline_value(Objective.MEAN_SLOWDOWN, each, make(each))) for each in (on, free)]
        return {"with_models": values[0], "without": values[1]}

    head = f"mean slowdown, {jobs} jobs at {rate} jobs/s     with models   without"
    bench(cases.items(), slowdowns, "{name:45} {with_models:12.3f} {without:9.3f}", head)


if __name__ == "__main__":
    ask(loss)
