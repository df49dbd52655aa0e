"""The vendored scenario of six models on two kinds of GPU: it loads, plans, and every policy serves it."""

from __future__ import annotations

from pathlib import Path

from truenorth.executor import POLICIES, instance_for, parse_policy, simulate
from truenorth.models import check, measure
from truenorth.models.features import Feature
from truenorth.models.scenario import load_scenario
from truenorth.planner.answers.plan import solve
from truenorth.solvers.budget import Budget

SCENARIO = Path(__file__).parents[2] / "experiments" / "scenarios" / "six_models.yaml"


def test_it_plans_and_every_policy_serves_it() -> None:
    scenario = load_scenario(SCENARIO)
    instance = scenario.instance
    assert (len(instance.models), len(instance.batches), {gpu.kind for gpu in instance.cluster.gpus}) == (
        6, 6, {"A100", "A10"},
    )  # fmt: skip
    batched = {}
    for name in (name for name, of in POLICIES.items() if Feature.SLOTS in of.supports):
        parsed = parse_policy(name)
        on = instance_for(instance, parsed)
        timeline = simulate(on, parsed)
        assert check(on, timeline) == []
        batched[name] = measure(on, timeline).mean_batch_size
    assert (batched["jit"] or 0) > 1.2
    found = solve(instance, scenario.objective, Budget(2.0, iterations=1))
    assert found.timeline is not None
    assert check(instance, found.timeline) == []
