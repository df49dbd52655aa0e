"""Who answers which question: a table of names, so that what is not asked is not imported; and how one is answered.

A question that searches has a budget of time, from which the compilation of kernels is not taken, and may be
interrupted; a simulation of a policy and a run on devices need no kernels, and are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

from truenorth.planner.questions.devices import ProfileQuestion, ReplayQuestion, TrialQuestion
from truenorth.planner.questions.policies import CompareQuestion, SimulateQuestion
from truenorth.planner.questions.question import Question
from truenorth.planner.questions.searches import BoundQuestion, PlanQuestion, UncertainPlanQuestion
from truenorth.planner.questions.sizes import ScheduleQuestion, ServersQuestion, SizesQuestion

if TYPE_CHECKING:
    from truenorth.models.instance import Instance
    from truenorth.models.scenario import Scenario
    from truenorth.planner.answers.bound import Bound
    from truenorth.planner.answers.compare import Comparison
    from truenorth.planner.answers.plan import Plan
    from truenorth.planner.answers.profile import Profile
    from truenorth.planner.answers.replayed import Replayed
    from truenorth.planner.answers.servers.answer import ServersAnswer
    from truenorth.planner.answers.servers.scheduled import ScheduleAnswer
    from truenorth.planner.answers.simulate import Simulation
    from truenorth.planner.answers.trial import Trial
    from truenorth.planner.answers.uncertain.planning import UncertainPlan
    from truenorth.solvers.budget import Budget
    from truenorth.solvers.farm import Farm


@dataclass(frozen=True, slots=True)
class Answerer:
    """Who answers a kind of question.

    Parameters
    ----------
    function
        ``module:function`` below `planner.answers`; it takes the question, the scenario and the budget.
    searches
        Whether it searches: with kernels of the solvers, within a time limit.
    extra
        Packages that it cannot do without.
    """

    function: str
    searches: bool = True
    extra: str = ""

    def answer(self, question: Question, scenario: Scenario, budget: Budget) -> Any:
        """Return the answer."""
        module, _, name = self.function.partition(":")
        return getattr(import_module(f"truenorth.planner.answers.{module}"), name)(question, scenario, budget)


ANSWERERS: Mapping[type[Question], Answerer] = {
    PlanQuestion: Answerer("plan:answer_plan"),
    UncertainPlanQuestion: Answerer("uncertain.planning:answer_uncertain_plan"),
    BoundQuestion: Answerer("bound:answer_bound"),
    SimulateQuestion: Answerer("simulate:answer_simulation", searches=False),
    CompareQuestion: Answerer("compare:answer_comparison"),
    ServersQuestion: Answerer("servers.forms:answer_forms"),
    ScheduleQuestion: Answerer("servers.schedule:answer_schedule"),
    ProfileQuestion: Answerer("profile:answer_profile", searches=False, extra="devices"),
    ReplayQuestion: Answerer("replay:answer_replay", searches=False, extra="devices"),
    TrialQuestion: Answerer("trial:answer_trial", searches=False, extra="devices"),
}


@overload
def ask(question: PlanQuestion, scenario: Scenario) -> Plan: ...
@overload
def ask(question: UncertainPlanQuestion, scenario: Scenario) -> UncertainPlan: ...
@overload
def ask(question: BoundQuestion, scenario: Scenario) -> Bound: ...
@overload
def ask(question: SimulateQuestion, scenario: Scenario) -> Simulation: ...
@overload
def ask(question: CompareQuestion, scenario: Scenario) -> Comparison: ...
@overload
def ask(question: ServersQuestion, scenario: Scenario) -> ServersAnswer: ...
@overload
def ask(question: ScheduleQuestion, scenario: Scenario) -> ScheduleAnswer: ...
@overload
def ask(question: ProfileQuestion, scenario: Scenario) -> Profile: ...
@overload
def ask(question: ReplayQuestion, scenario: Scenario) -> Replayed: ...
@overload
def ask(question: TrialQuestion, scenario: Scenario) -> Trial: ...
def ask(question: Question, scenario: Scenario) -> Any:
    """Return the answer to a question within its own limits; kernels that it needs are compiled before they count.

    An interrupt ends a search, and what was found is returned, marked as `interrupted`; a second one raises.

    Raises
    ------
    QuestionError
        If packages that it needs are missing, or nobody listens at its cluster's address.
    """
    from truenorth.models.errors import require_extra

    _refuse_open_engines(question, scenario)
    answerer = ANSWERERS[type(question)]
    if answerer.extra:
        require_extra(answerer.extra)
    if not answerer.searches:
        return answerer.answer(question, scenario, budget_of(question))
    from truenorth.planner.answers.pool import farm_at, refuse_absent
    from truenorth.solvers.budget import interruptible, own_interrupts
    from truenorth.solvers.first_use import compile_once

    ray = getattr(question, "ray", None)
    refuse_absent(ray)
    if needs_kernels(question, scenario.instance):
        compile_once(scenario.instance, method=method_of(question))
    with farm_at(ray) as farm:
        if getattr(question, "stop", None) is not None:  # whoever stops it knows that it was stopped
            return answerer.answer(question, scenario, budget_of(question, farm))
        with interruptible(*own_interrupts()) as stop:
            made = answerer.answer(question, scenario, replace(budget_of(question, farm), stop=stop))
    return replace(made, interrupted=True) if stop.is_set() else made


def needs_kernels(question: Question, instance: Instance) -> bool:
    """Say whether answering takes kernels: fleets of language models are sized by floors and simulations alone."""
    return not isinstance(question, ServersQuestion) or instance.streams is None


def method_of(question: Question) -> str | None:
    """Return how plans are searched for, which refuses a window before anything is compiled; None if none are."""
    return "auto" if isinstance(question, CompareQuestion) else getattr(question, "method", None)


def ask_within(question: Question, scenario: Scenario, budget: Budget) -> Any:
    """Return the answer to a question within a budget, which need not be its own."""
    _refuse_open_engines(question, scenario)
    return ANSWERERS[type(question)].answer(question, scenario, budget)


def _refuse_open_engines(question: Question, scenario: Scenario) -> None:
    """Refuse a scenario whose engines are still to be chosen, unless that is what is asked."""
    from truenorth.models.features import refuse_open_engines

    if not isinstance(question, SizesQuestion):
        refuse_open_engines(scenario.instance)


def budget_of(question: Question, farm: Farm | None = None) -> Budget:
    """Return what a question may take by itself, from now on."""
    from truenorth.solvers.budget import Budget

    said = {each.name: getattr(question, each.name, None) for each in fields(Budget) if each.init}
    return Budget(**({name: value for name, value in said.items() if value is not None} | {"farm": farm}))
