"""The verb ``servers``."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.command import manners
from planner.command.faults import name_untested
from planner.command.verbs.options import Json, ScenarioPath, Seed, TimeLimit, Workers

if TYPE_CHECKING:
    from models.scenario import Scenario
    from models.slo import ServiceLevels


def servers(
    scenario: ScenarioPath,
    slo: Annotated[
        list[str] | None,
        typer.Option(
            help="Service level, such as 'p99 slowdown <= 2' (default: the scenario's); several must all hold."
        ),
    ] = None,
    policies: Annotated[str | None, typer.Option(help="Policies, separated by commas (default: all).")] = None,
    most: Annotated[
        int | None, typer.Option("--max", min=1, max=100_000, help="Most servers, per group, to look at.")
    ] = None,
    spare: Annotated[
        int, typer.Option(min=0, max=20, help="The level must still be met with any so many servers gone.")
    ] = 0,
    noise: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="Policies run under this noise, such as told=mean; floor and plan do not."),
    ] = None,
    rate: Annotated[
        str, typer.Option(metavar="FACTOR", help="So many times as many requests per second, the same ones.")
    ] = "1",
    time_limit: TimeLimit = 300.0,
    replications: Annotated[
        int, typer.Option(min=1, max=10_000, help="Ask on so many seeds, or windows of the trace.")
    ] = 1,
    confidence: Annotated[
        str, typer.Option(help="With which the next window is served, too; needs --replications.")
    ] = "0.9",
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run replications on this Ray cluster, not on processes.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Servers by the interval, such as '1 h': the cheapest schedule of counts.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FOLDER", help="Write answer, plan, certificate and scenarios here."),
    ] = None,
    workers: Workers = 2,
    seed: Seed = 0,
    as_json: Json = False,
) -> int:
    """Find the least number of servers, or the cheapest mix, that meets a service level."""
    from models.errors import UserError
    from models.scenario import load_scenario
    from models.slo import ServiceLevels as Levels
    from models.units import QuantityError
    from planner.answers.compare import split_policies
    from planner.answers.servers import servers as ask
    from planner.answers.servers.written import write
    from planner.command.console import interruptible
    from planner.command.servers_progress import ServersLine

    try:
        levels = Levels.parse(*slo) if slo else None
    except QuantityError as error:
        raise manners.UsageError(f"--slo: {error}") from None
    sure = manners.fraction(confidence, "--confidence")
    loaded = load_scenario(scenario)
    if output is not None:
        manners.prepare_folder(output)
    manners.compile_kernels(loaded.instance)
    told: dict[str, Any] = {
        "policies": None if policies is None else split_policies(policies),
        "most": most,
        "spare": spare,
        "noise": noise,
        "rate": _factor(rate),
        "time_limit_s": time_limit,
        "workers": workers,
        "seed": seed,
    }
    if by is not None:
        if told.pop("spare") or replications > 1:
            raise manners.UsageError("--by: is given with --replications or --spare; allowed is one of them")
        return _by_interval(loaded, levels, _interval_us(by), output, as_json, **told)
    if replications > 1:
        return _replicate(loaded, levels, replications, output, as_json, confidence=sure, ray=ray, **told)
    if ray is not None:
        raise manners.UsageError("--ray: runs replications; allowed is with --replications above 1")
    line = ServersLine()
    with interruptible() as stop, line.shown():
        answer = ask(loaded, levels, tell=line.tell, stop=stop, **told)
    written, fault = list[Path](), None
    try:
        written = [] if output is None else write(answer, output)
    except UserError as error:  # what took its time is shown even where it cannot be kept
        fault = error

    def view() -> object:
        from planner.show import servers as views

        return views.view(answer)

    by_name = {path.name: path for path in written}
    document = answer.as_dict(by_name.get("plan.json"), by_name.get("certificate.json"))
    manners.show(name_untested(document), view, as_json, written)
    if fault is not None:
        raise fault
    if stop.is_set():
        manners.say("truenorth: interrupted; what is known so far is kept")
        return manners.INTERRUPTED
    return manners.DONE if answer.servers is not None else manners.NOT_ACHIEVED


def _replicate(
    loaded: Scenario, levels: ServiceLevels | None, count: int, output: Path | None, as_json: bool, **told: Any
) -> int:
    """Ask over replications."""
    from planner.answers.servers.replicate import replicate
    from planner.command.console import interruptible
    from planner.command.sweep_progress import SweepLine

    line = SweepLine()
    with interruptible() as stop, line.shown():
        made = replicate(loaded, levels, count, folder=output, watch=line.watch, stop=stop, **told)

    def view() -> object:
        from planner.show import servers as views

        return views.replications_view(made)

    manners.show(name_untested(made.as_dict()), view, as_json)
    for error in made.sweep.errors:
        manners.say(f"replication {error.cell}: {error.error}")
    if not made.sweep.complete:
        manners.say(f"truenorth: interrupted; {len(made.replications)} finished replications are kept")
        return manners.INTERRUPTED
    return manners.DONE if made.found else manners.NOT_ACHIEVED


def _factor(text: str) -> Fraction:
    """Return by how much requests come faster."""
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise manners.UsageError(f"--rate: {text!r} is no number; allowed is one such as 1.5") from None


def _interval_us(text: str) -> int:
    """Return the length of an interval in microseconds."""
    from models.units import QuantityError, parse_time

    try:
        by_us = parse_time(text)
    except QuantityError as error:
        raise manners.UsageError(f"--by: {error}") from None
    if by_us < 1:
        raise manners.UsageError(f"--by: {text!r} is no length of an interval; allowed is at least 1 us")
    return by_us


def _by_interval(
    scenario: Scenario, levels: ServiceLevels | None, by_us: int, output: Path | None, as_json: bool, **told: Any
) -> int:
    """Answer for counts of servers that change over the day."""
    from planner.answers.servers.schedule import schedule
    from planner.answers.servers.written import write_schedule
    from planner.command.console import interruptible
    from planner.command.servers_progress import ServersLine

    line = ServersLine()
    with interruptible() as stop, line.shown():
        answer = schedule(scenario, by_us, levels, tell=line.tell, stop=stop, folder=output, **told)

    def view() -> object:
        from planner.show.schedule import schedule_view

        return schedule_view(answer)

    manners.show(name_untested(answer.fixed.as_dict() | answer.as_dict()), view, as_json)
    if output is not None:
        manners.say(f"wrote {write_schedule(answer, output)}")
    if stop.is_set():
        manners.say("truenorth: interrupted; what is known so far is kept")
        return manners.INTERRUPTED
    return manners.DONE if answer.optimum.schedule is not None else manners.NOT_ACHIEVED
