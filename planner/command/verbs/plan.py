"""The verb ``plan``."""

from __future__ import annotations

from dataclasses import fields, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.answers.questions import PlanQuestion, Question, SearchQuestion, UncertainPlanQuestion
from planner.command import manners
from planner.command.asking import Before, ask_shown, asks
from planner.command.faults import name_untested
from planner.command.verbs.options import Json, Output, ScenarioPath

if TYPE_CHECKING:
    from models.scenario import Scenario
    from planner.answers.plan import Plan
    from planner.answers.uncertain.planning import UncertainPlan


class PlanForChoice(StrEnum):
    """The values of ``--plan-for``."""

    P50 = "p50"
    P90 = "p90"
    SAMPLES = "samples"


@asks(PlanQuestion)
def plan(
    ask: PlanQuestion,
    scenario: ScenarioPath,
    output: Annotated[Output, Before("time_limit_s")] = None,
    hint: Annotated[
        Path | None, typer.Option(metavar="PLAN", help="A plan or timeline file to start from."), Before("ray")
    ] = None,
    estimates: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Run times are uncertain: estimates of them, as CSV."),
        Before("ray"),
    ] = None,
    plan_for: Annotated[
        PlanForChoice | None, typer.Option(help="With --estimates: what to plan for (p50)."), Before("ray")
    ] = None,
    as_json: Json = False,
) -> int:
    """Plan a window: task placement and model residency together, with a lower bound."""
    from models.scenario import load_scenario, promise
    from planner.answers.check import feasible_timeline
    from planner.answers.plan import Plan, write_plan
    from planner.command.console import ProgressLine

    if output is not None:
        promise(output)
    loaded = load_scenario(scenario)
    asked: Question[Any] = _uncertain(ask, loaded, estimates, plan_for, hint)
    if hint is not None:
        asked = replace(ask, hint=feasible_timeline(loaded.instance, hint))
    done, interrupted = ask_shown(asked, loaded, ProgressLine(loaded.objective, "planning", ask.time_limit_s))
    made = done if isinstance(done, Plan) else done.plan
    found = made.timeline is not None
    if output is not None and found:
        write_plan(made, output, manners.typed())

    def view() -> object:
        from planner.show.tables import plan_view

        return plan_view(done)

    manners.show(name_untested(done.as_dict(output if found else None)), view, as_json)
    if interrupted:
        manners.say(f"truenorth: interrupted; {'the best plan found is kept' if found else 'no plan was found yet'}")
        return manners.INTERRUPTED
    manners.say_if_late(made.result)
    return manners.DONE if found else manners.NOT_ACHIEVED


def _uncertain(
    ask: PlanQuestion, scenario: Scenario, estimates: Path | None, plan_for: PlanForChoice | None, hint: Path | None
) -> Question[Plan] | Question[UncertainPlan]:
    """Return the question, or the one for the estimates of a file.

    Raises
    ------
    UsageError
        If the options contradict each other.
    """
    if estimates is None:
        if plan_for is not None:
            raise manners.UsageError(
                "--plan-for: needs the estimates to plan for; allowed is together with --estimates"
            )
        return ask
    if hint is not None:
        raise manners.UsageError("--hint: cannot go with --estimates, which make plans of their own; allowed is one")
    if ask.ray is not None:
        raise manners.UsageError("--ray: helps to make one plan; allowed is without --estimates, which make several")
    from planner.answers.uncertain.estimates_file import read_told

    same = {each.name: getattr(ask, each.name) for each in fields(SearchQuestion)}
    return UncertainPlanQuestion(read_told(estimates, scenario), (plan_for or PlanForChoice.P50).value, **same)
