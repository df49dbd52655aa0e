"""Calls take the words of the command, or refuse them in one line that lists what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import truenorth as tn
from truenorth.executor.devices.crew import assign
from truenorth.executor.devices.physical import physical_devices
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import Scenario
from truenorth.planner.answers.ask import ask
from truenorth.planner.inputs.told import Told
from truenorth.planner.questions.options import PlanFor
from truenorth.planner.questions.searches import UncertainPlanQuestion
from truenorth.solvers.budget import Budget, Method


def _objective(scenario: Scenario, word: str) -> object:
    return replace(scenario, objective=word).objective  # type: ignore[arg-type]


def _method(scenario: Scenario, word: str) -> object:
    return tn.plan(scenario, method=word, time_limit=5).result.options["method"]


def _plan_for(scenario: Scenario, word: str) -> object:
    told = Told.exactly(scenario.instance)
    return ask(UncertainPlanQuestion(told, word, time_limit_s=5, iterations=1), scenario).plan_for


def _device(_: Scenario, word: str) -> object:
    return physical_devices(word)[0].device.type


def _sharing(_: Scenario, word: str) -> object:
    return len(assign(2, physical_devices("cpu")[:1], word))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "word", "means", "allowed"),
    [
        (_objective, "makespan", "makespan", "mean_latency, mean_slowdown"),
        (_method, "auto", "auto", "auto, cp-sat, milp, search"),
        (_plan_for, "p90", PlanFor.P90, "p50, p90, samples"),
        (_device, "cpu", "cpu", "cpu, cuda"),
        (_sharing, "serial", 2, "parallel, serial"),
    ],
)
def test_a_word_means_what_it_means_to_the_command(
    scenario: Scenario, call: Callable[[Scenario, str], object], word: str, means: object, allowed: str
) -> None:
    assert call(scenario, word) == means
    with pytest.raises(Exception, match=f"'nonsense'.*allowed are {allowed}") as refused:
        call(scenario, "nonsense")
    assert "\n" not in str(refused.value)


def test_a_text_is_the_method_itself() -> None:
    # Whoever compared it with `is` took the text "auto" for a method of its own, and never asked CP-SAT.
    assert Budget(method="auto").method is Method.AUTO  # type: ignore[arg-type]
    with pytest.raises(QuestionError, match="method: 'cpsat' is unknown; allowed are auto, cp-sat, milp, search"):
        Budget(method="cpsat")  # type: ignore[arg-type]
