"""Every question says the command that asks it again, with every option that was given."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from truenorth.models.slo import ServiceLevels
from truenorth.planner.answers.ask import ANSWERERS
from truenorth.planner.command import manners
from truenorth.planner.command.cli import app
from truenorth.planner.command.verbs import devices, plans, policies
from truenorth.planner.questions.devices import ProfileQuestion, ReplayQuestion, TrialQuestion
from truenorth.planner.questions.options import options_of
from truenorth.planner.questions.policies import CompareQuestion, SimulateQuestion
from truenorth.planner.questions.question import Question
from truenorth.planner.questions.searches import BoundQuestion, PlanQuestion, UncertainPlanQuestion
from truenorth.planner.questions.sizes import ScheduleQuestion, ServersQuestion

DEVICES: dict[str, Any] = {
    "runner": "synthetic",
    "virtual": "serial",
    "ray": "auto",
    "limit_s": 2.5,
    "samples": Path("a b.json"),
}
SIZES: dict[str, Any] = {
    "policies": ("jit", "compass:period=100ms"),
    "most": 3,
    "failures": "1 per node per week, 10 min",
    "noise": "told=mean",
    "rate": Fraction(3, 2),
}
LEVELS = ServiceLevels.parse("p99 slowdown <= 2", "mean latency <= 1 s")
TENTH = Fraction(1, 10)
DIFFERENT = [
    PlanQuestion(time_limit_s=7.5, method="search", workers=1, seed=4, iterations=9, ray="auto"),
    BoundQuestion(time_limit_s=7, schedule=Path("a b.json"), workers=1, seed=4, ray="auto"),
    SimulateQuestion("compass:period=100ms,prefetch=0", noise="run=lognormal:0.2", warmup=TENTH, seed=4),
    CompareQuestion(
        ("jit", "compass:period=100ms"), noise="told=mean", time_limit_s=7.0, warmup=TENTH, regret=("jit",),
        ray="auto", workers=1, seed=4,
    ),
    ServersQuestion(LEVELS, **SIZES, spare=1, split=True, time_limit_s=7.0, workers=1, seed=4),
    ScheduleQuestion(LEVELS, **SIZES, time_limit_s=7.0, workers=1, seed=4, by_us=90_000_000),
    ProfileQuestion("cuda", runner="synthetic", rounds=3, beside=2, memory=True, ray="auto"),
    ReplayQuestion(Path("a b.json"), device="cuda", **DEVICES, check_outputs=True, seed=4),
    ReplayQuestion("jit", check_outputs=False),
    TrialQuestion(
        ("plan", "jit"), repeats=2, device="cuda", **DEVICES, count_faults=True, time_limit_s=7.0, seed=4
    ),
]  # fmt: skip
"""Every option differs from its default."""
PLAIN = [
    PlanQuestion(),
    BoundQuestion(),
    SimulateQuestion("jit"),
    CompareQuestion(),
    ServersQuestion(),
    ScheduleQuestion(by_us=1),
    ProfileQuestion("cpu"),
    TrialQuestion(),
]


class CaughtError(Exception):
    """Carries the question that the command has read."""


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command read a question, and go no further."""

    def caught(question: Question, scenario: object) -> Any:
        raise CaughtError(question.alone())

    for module in (devices, plans, policies):
        monkeypatch.setattr(module, "ask", caught)
    monkeypatch.setattr(manners, "compile_kernels", lambda instance, method: None)


def read_by_the_command(words: list[str]) -> Question:
    with pytest.raises(CaughtError) as caught:
        manners.run(app, words)
    question = caught.value.args[0]
    assert isinstance(question, Question)
    return question


@pytest.mark.usefixtures("command")
@pytest.mark.parametrize("asked", [*DIFFERENT, *PLAIN], ids=lambda asked: type(asked).__name__)
def test_a_question_is_read_again_from_the_command_that_it_says(asked: Question) -> None:
    if isinstance(asked, ProfileQuestion | ReplayQuestion | TrialQuestion):
        pytest.importorskip("torch")
    scenario = "experiments/scenarios/paper_small.yaml"
    assert read_by_the_command([asked.verb, scenario, *asked.typed()]) == asked.alone()


def test_every_question_and_every_option_is_tried() -> None:
    """But for plans for estimates: these are data, which the command reads from a file."""
    assert {type(asked) for asked in DIFFERENT} == ANSWERERS.keys() - {UncertainPlanQuestion}
    alike = {
        f"{type(asked).__name__}.{each.name}"
        for asked in DIFFERENT[:-2] + DIFFERENT[-1:]
        for each, _ in options_of(asked)
        if getattr(asked, each.name) == each.default
    }
    asked = {name for name in alike if not name.endswith((".estimates", ".progress"))}  # they become --noise
    assert asked <= {"ScheduleQuestion.spare", "ScheduleQuestion.split"}  # which the command refuses with --by


def test_the_command_quotes_what_the_shell_would_split() -> None:
    asked = ReplayQuestion("jit", seed=7, samples=Path("a b.json"), check_outputs=True, limit_s=2.5, runner="synthetic")
    assert asked.command("s.yaml") == (
        "truenorth replay s.yaml --policy jit --device cpu --runner synthetic --limit 2.5 --samples 'a b.json' "
        "--check-outputs --seed 7"
    )
