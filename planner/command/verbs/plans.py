"""The verbs that search: plan, bound, servers; and those that check what was found."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truenorth.planner.answers.ask import ask
from truenorth.planner.command import manners
from truenorth.planner.command.manners import name_untested
from truenorth.planner.command.options import Before, Json, Output, ScenarioPath, asks, stoppable, to, watched
from truenorth.planner.questions.options import BY, CONFIDENCE, PlanFor
from truenorth.planner.questions.read import read
from truenorth.planner.questions.searches import BoundQuestion, PlanQuestion, UncertainPlanQuestion
from truenorth.planner.questions.sizes import ScheduleQuestion, ServersQuestion

if TYPE_CHECKING:
    from truenorth.models.scenario import Scenario


@asks(PlanQuestion)
def plan(
    asked: PlanQuestion,
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
        PlanFor | None, typer.Option(help="With --estimates: what to plan for (p50)."), Before("ray")
    ] = None,
    as_json: Json = False,
) -> int:
    """Plan a window: task placement and model residency together, with a lower bound."""
    from truenorth.models.scenario import load_scenario, promise
    from truenorth.planner.answers.check import feasible_timeline
    from truenorth.planner.answers.plan import Plan, write_plan
    from truenorth.planner.command.console import ProgressLine

    if output is not None:
        promise(output)
    loaded = load_scenario(scenario)
    wanted = _uncertain(asked, loaded, estimates, plan_for, hint)
    if hint is not None:
        wanted = replace(asked, hint=feasible_timeline(loaded.instance, hint))
    with watched(wanted, loaded, ProgressLine(loaded.objective, "planning", asked.time_limit_s)) as (question, stop):
        done = ask(question, loaded)
    made = done if isinstance(done, Plan) else done.plan
    found = made.timeline is not None
    if output is not None and found:
        write_plan(made, output, manners.typed())
    document = name_untested(done.record(output if found else None))
    manners.show(document, manners.lazily("summaries.plan_view", done), as_json)
    if not stop.is_set():
        manners.say_if_late(made.result)
    kept = manners.kept("the best plan found", output) if found else "no plan was found yet"
    return manners.ended(found, kept if stop.is_set() else None)


def _uncertain(
    asked: PlanQuestion, scenario: Scenario, estimates: Path | None, plan_for: PlanFor | None, hint: Path | None
) -> PlanQuestion | UncertainPlanQuestion:
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
        return asked
    if hint is not None:
        raise manners.UsageError("--hint: cannot go with --estimates, which make plans of their own; allowed is one")
    if asked.ray is not None:
        raise manners.UsageError("--ray: helps to make one plan; allowed is without --estimates, which make several")
    from truenorth.models.record import take
    from truenorth.planner.inputs.told import read_told

    plan_for = plan_for or PlanFor.P50
    return take(UncertainPlanQuestion, asked, told=read_told(estimates, scenario), plan_for=plan_for.value)


@asks(BoundQuestion)
def bound(
    asked: BoundQuestion,
    scenario: ScenarioPath,
    output: Annotated[Path | None, to("CERTIFICATE", "Write the certificate to this file."), Before("schedule")] = None,
    as_json: Json = False,
) -> int:
    """Find a value that no plan lies below, with a certificate that anyone can check."""
    from truenorth.models.scenario import load_scenario, promise
    from truenorth.planner.command.console import ProgressLine
    from truenorth.planner.show.saving import save

    if output is not None:
        promise(output)
    loaded = load_scenario(scenario)
    with watched(asked, loaded, ProgressLine(loaded.objective, "bounding")) as (question, stop):
        made = ask(question, loaded)
    written = [] if output is None else save(made, output)
    view = manners.lazily("summaries.bound_view", made)
    manners.show(name_untested(made.record(output)), view, as_json, written[1:])
    return manners.ended(True, manners.kept("the best bound found", output) if stop.is_set() else None)


def check(
    scenario: ScenarioPath,
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan or timeline file.")],
    as_json: Json = False,
) -> int:
    """Check a plan or timeline against every rule, and against what its file says of it."""
    from truenorth.models.scenario import load_scenario
    from truenorth.planner.answers.check import checked, read

    loaded = load_scenario(scenario)
    outcome = checked(loaded.objective, *read(loaded.instance, plan))
    manners.show(outcome.record, manners.lazily("summaries.check_view", outcome), as_json)
    return manners.ended(not outcome.violations)


def verify(
    scenario: ScenarioPath,
    certificate: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="What bound -o wrote.")],
    window: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the window as the canonical JSON that is hashed.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Compute a certificate's bound again, without a solver, and accept or refuse it."""
    from truenorth.models.identity import canonical_text
    from truenorth.models.scenario import load_scenario, write_atomically
    from truenorth.planner.answers.verify import verdict_record, verify_file

    loaded = load_scenario(scenario)
    if window is not None:
        write_atomically(window, canonical_text(loaded.instance))
    verdict = verify_file(loaded, certificate)
    found = verdict_record(loaded, verdict)
    manners.show(found, manners.lazily("summaries.verdict_view", (loaded.objective, found)), as_json)
    return manners.ended(verdict.valid)


_KNOWN = "what is known so far"


@asks(ServersQuestion)
def servers(
    asked: ServersQuestion,
    scenario: ScenarioPath,
    replications: Annotated[
        int, typer.Option(min=1, max=10_000, help="Ask on so many seeds, or windows of the trace."), Before("workers")
    ] = 1,
    confidence: Annotated[str, typer.Option(help=CONFIDENCE.help), Before("workers")] = "0.9",
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run replications on this Ray cluster, not on processes."),
        Before("workers"),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(help="Servers by the interval, such as '1 h': the cheapest schedule of counts."),
        Before("workers"),
    ] = None,
    output: Annotated[
        Path | None, to("FOLDER", "Write answer, plan, certificate and scenarios here."), Before("workers")
    ] = None,
    as_json: Json = False,
) -> int:
    """Find the least number of servers, or the cheapest mix, that meets a service level."""
    from truenorth.models.errors import UserError
    from truenorth.models.record import ABSENT, take
    from truenorth.models.scenario import load_scenario
    from truenorth.planner.answers.servers.answer import write
    from truenorth.planner.command.console import servers_line

    sure = read("--confidence", CONFIDENCE, confidence)
    loaded = load_scenario(scenario)
    if output is not None:
        manners.prepare_folder(output)
    if by is not None:
        if asked.spare or asked.split or replications > 1:
            raise manners.UsageError("--by: is given with --replications, --spare or --split; allowed is one of them")
        schedule = take(ScheduleQuestion, asked, by_us=read("--by", BY, by), folder=output)
        return _by_interval(schedule, loaded, as_json)
    if replications > 1:
        return _replicate(asked, loaded, replications, sure, ray, output, as_json)
    if ray is not None:
        raise manners.UsageError("--ray: runs replications; allowed is with --replications above 1")
    with watched(asked, loaded, servers_line()) as (question, stop):
        answer = ask(question, loaded)
    written, fault = list[Path](), None
    try:
        written = [] if output is None else write(answer, output)
    except UserError as error:  # what took its time is shown even where it cannot be kept
        fault = error
    by_name = {path.name: path for path in written}
    document = answer.record(by_name.get("plan.json"), by_name.get("certificate.json"))
    manners.show(name_untested(document), manners.lazily("servers.view", answer), as_json, written)
    if output is not None and document.no_engines is not ABSENT:
        manners.say(f"wrote no manifest that starts the engines: {document.no_engines}")
    if fault is not None:
        raise fault
    found = answer.servers is not None or answer.recommended is not None
    return manners.ended(found, manners.kept(_KNOWN, output) if stop.is_set() else None)


def _replicate(
    asked: ServersQuestion,
    loaded: Scenario,
    count: int,
    confidence: Fraction,
    ray: str | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Ask over replications."""
    from truenorth.planner.answers.replications import replicate_servers
    from truenorth.planner.command.console import cells_line

    line = cells_line()
    with stoppable(line.shown()) as (stop, _):
        asked = replace(asked, stop=stop)
        made = replicate_servers(asked, loaded, count, confidence=confidence, folder=output, ray=ray, watch=line.watch)
    manners.show(name_untested(made.record), manners.lazily("servers.replications_view", made), as_json)
    return manners.ended_replications(made.sweep, made.found, len(made.replications))


def _by_interval(asked: ScheduleQuestion, scenario: Scenario, as_json: bool) -> int:
    """Answer for counts of servers that change over the day."""
    from truenorth.planner.answers.servers.scheduled import write_schedule
    from truenorth.planner.command.console import servers_line

    with watched(asked, scenario, servers_line()) as (question, stop):
        answer = ask(question, scenario)
    manners.show(name_untested(answer.record), manners.lazily("servers.schedule_view", answer), as_json)
    if asked.folder is not None:
        manners.say(f"wrote {write_schedule(answer, asked.folder)}")
    return manners.ended(
        answer.optimum.schedule is not None, manners.kept(_KNOWN, asked.folder) if stop.is_set() else None
    )
