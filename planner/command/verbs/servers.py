"""The verb ``servers``."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truenorth.planner.answers.questions import ScheduleQuestion, ServersQuestion
from truenorth.planner.command import manners
from truenorth.planner.command.manners import name_untested
from truenorth.planner.command.options import Before, Json, ScenarioPath, ask_shown, asks, stoppable, to

if TYPE_CHECKING:
    from truenorth.models.scenario import Scenario

_KEPT = "what is known so far is kept"


@asks(ServersQuestion)
def servers(
    ask: ServersQuestion,
    scenario: ScenarioPath,
    replications: Annotated[
        int, typer.Option(min=1, max=10_000, help="Ask on so many seeds, or windows of the trace."), Before("workers")
    ] = 1,
    confidence: Annotated[
        str,
        typer.Option(help="With which the next window is served, too; needs --replications."),
        Before("workers"),
    ] = "0.9",
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
    from truenorth.models.record import take
    from truenorth.models.scenario import load_scenario
    from truenorth.planner.answers.servers.written import write
    from truenorth.planner.command.console import servers_line

    sure = manners.fraction(confidence, "--confidence")
    loaded = load_scenario(scenario)
    if output is not None:
        manners.prepare_folder(output)
    if by is not None:
        if ask.spare or replications > 1:
            raise manners.UsageError("--by: is given with --replications or --spare; allowed is one of them")
        schedule = take(ScheduleQuestion, ask, by_us=_interval_us(by), folder=output)
        return _by_interval(schedule, loaded, as_json)
    if replications > 1:
        return _replicate(ask, loaded, replications, sure, ray, output, as_json)
    if ray is not None:
        raise manners.UsageError("--ray: runs replications; allowed is with --replications above 1")
    answer, interrupted = ask_shown(ask, loaded, servers_line())
    written, fault = list[Path](), None
    try:
        written = [] if output is None else write(answer, output)
    except UserError as error:  # what took its time is shown even where it cannot be kept
        fault = error
    by_name = {path.name: path for path in written}
    document = answer.record(by_name.get("plan.json"), by_name.get("certificate.json"))
    manners.show(name_untested(document), manners.lazily("servers.view", answer), as_json, written)
    if fault is not None:
        raise fault
    return manners.ended(answer.servers is not None, _KEPT if interrupted else None)


def _replicate(
    ask: ServersQuestion,
    loaded: Scenario,
    count: int,
    confidence: Fraction,
    ray: str | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Ask over replications."""
    from truenorth.planner.answers.replicated_servers import replicate_servers
    from truenorth.planner.command.console import cells_line

    line = cells_line()
    with stoppable(line.shown()) as (stop, _):
        asked = replace(ask, stop=stop)
        made = replicate_servers(asked, loaded, count, confidence=confidence, folder=output, ray=ray, watch=line.watch)
    manners.show(name_untested(made.record), manners.lazily("servers.replications_view", made), as_json)
    return manners.ended_replications(made.sweep, made.found, len(made.replications))


def _interval_us(text: str) -> int:
    """Return the length of an interval in microseconds."""
    from truenorth.models.units import QuantityError, parse_time

    try:
        by_us = parse_time(text)
    except QuantityError as error:
        raise manners.UsageError(f"--by: {error}") from None
    if by_us < 1:
        raise manners.UsageError(f"--by: {text!r} is no length of an interval; allowed is at least 1 us")
    return by_us


def _by_interval(ask: ScheduleQuestion, scenario: Scenario, as_json: bool) -> int:
    """Answer for counts of servers that change over the day."""
    from truenorth.planner.answers.servers.written import write_schedule
    from truenorth.planner.command.console import servers_line

    answer, interrupted = ask_shown(ask, scenario, servers_line())
    manners.show(name_untested(answer.record), manners.lazily("schedule.schedule_view", answer), as_json)
    if ask.folder is not None:
        manners.say(f"wrote {write_schedule(answer, ask.folder)}")
    return manners.ended(answer.optimum.schedule is not None, _KEPT if interrupted else None)
