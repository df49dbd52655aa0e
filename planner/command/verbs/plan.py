"""The verb ``plan``."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.command import manners
from planner.command.faults import name_untested
from planner.command.verbs.options import Json, Output, Ray, ScenarioPath, Seed, TimeLimit, Workers

if TYPE_CHECKING:
    from models.scenario import Scenario
    from planner.answers.plan import Plan
    from planner.answers.uncertain.planning import UncertainPlan


class MethodChoice(StrEnum):
    """The values of ``--method``."""

    AUTO = "auto"
    CP_SAT = "cp-sat"
    MILP = "milp"
    SEARCH = "search"


class PlanForChoice(StrEnum):
    """The values of ``--plan-for``."""

    P50 = "p50"
    P90 = "p90"
    SAMPLES = "samples"


def plan(
    scenario: ScenarioPath,
    output: Output = None,
    time_limit: TimeLimit = 60.0,
    method: Annotated[MethodChoice, typer.Option(help="How to search.")] = MethodChoice.AUTO,
    workers: Workers = 2,
    seed: Seed = 0,
    iterations: Annotated[int | None, typer.Option(min=1, help="Steps of local search, for repeatable runs.")] = None,
    hint: Annotated[Path | None, typer.Option(metavar="PLAN", help="A plan or timeline file to start from.")] = None,
    estimates: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Run times are uncertain: estimates of them, as CSV.")
    ] = None,
    plan_for: Annotated[PlanForChoice | None, typer.Option(help="With --estimates: what to plan for (p50).")] = None,
    ray: Ray = None,
    as_json: Json = False,
) -> int:
    """Plan a window: task placement and model residency together, with a lower bound."""
    from models.scenario import load_scenario, promise
    from planner.answers import plan as planning
    from planner.answers.check import feasible_timeline
    from planner.answers.plan import write_plan
    from planner.command.console import ProgressLine, interruptible
    from solvers.options import Method

    if output is not None:
        promise(output)
    loaded = load_scenario(scenario)
    uncertain = _uncertain(loaded, estimates, plan_for, hint, ray)
    given = None if hint is None else feasible_timeline(loaded.instance, hint)
    manners.compile_kernels(loaded.instance)
    line = ProgressLine(loaded.objective, "planning", time_limit)
    with interruptible() as stop, line.shown():
        if uncertain is None:
            search: Callable[..., Plan | UncertainPlan] = partial(planning.plan, loaded, hint=given, ray=ray)
        else:
            search = uncertain
        done = search(
            time_limit_s=time_limit,
            method=Method(method.value),
            workers=workers,
            seed=seed,
            iterations=iterations,
            watch=line.watch,
            stop=stop,
        )
    made = done if isinstance(done, planning.Plan) else done.plan
    found = made.timeline is not None
    if output is not None and found:
        write_plan(made, output, manners.typed())

    def view() -> object:
        from planner.show.summaries import plan_view

        return plan_view(done)

    manners.show(name_untested(done.record(output if found else None)), view, as_json)
    if stop.is_set():
        manners.say(f"truenorth: interrupted; {'the best plan found is kept' if found else 'no plan was found yet'}")
        return manners.INTERRUPTED
    manners.say_if_late(made.result)
    return manners.DONE if found else manners.NOT_ACHIEVED


def _uncertain(
    scenario: Scenario, estimates: Path | None, plan_for: PlanForChoice | None, hint: Path | None, ray: str | None
) -> Callable[..., UncertainPlan] | None:
    """Return what plans for the estimates of a file; None if no file is given.

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
        return None
    if hint is not None:
        raise manners.UsageError("--hint: cannot go with --estimates, which make plans of their own; allowed is one")
    if ray is not None:
        raise manners.UsageError("--ray: helps to make one plan; allowed is without --estimates, which make several")
    from planner.answers.uncertain.estimates_file import read_told
    from planner.answers.uncertain.planning import plan_uncertain
    from planner.answers.uncertain.plans import PlanFor

    return partial(
        plan_uncertain, scenario, read_told(estimates, scenario), PlanFor((plan_for or PlanForChoice.P50).value)
    )
