"""The public calls: what a person gives (a file's name, text with a unit, a word of the command) becomes a question.

Every verb of the command has its call here, with the command's options as keywords (``--time-limit`` is `time_limit`).
Times are text with a unit or seconds, values stand in the unit of the objective.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

from truenorth.given import ASKING, asking, asks, read_question, refuse_unknown, watch_cells
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import InputError, Scenario
from truenorth.models.slo import ServiceLevels
from truenorth.models.timeline import Timeline
from truenorth.planner.answers.ask import ask
from truenorth.planner.answers.shown import Answer, WithTimelines
from truenorth.planner.questions.devices import ProfileQuestion, ReplayQuestion, TrialQuestion
from truenorth.planner.questions.policies import CompareQuestion, SimulateQuestion
from truenorth.planner.questions.searches import BoundQuestion, PlanQuestion, UncertainPlanQuestion
from truenorth.planner.questions.sizes import ScheduleQuestion, ServersQuestion

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from truenorth.executor import Policy
    from truenorth.planner.answers.bound import Bound
    from truenorth.planner.answers.check import Checked
    from truenorth.planner.answers.compare import Comparison
    from truenorth.planner.answers.plan import Plan
    from truenorth.planner.answers.profile import Profile
    from truenorth.planner.answers.replayed import Replayed
    from truenorth.planner.answers.replications import Replicated, Replications
    from truenorth.planner.answers.servers.answer import ServersAnswer
    from truenorth.planner.answers.servers.scheduled import ScheduleAnswer
    from truenorth.planner.answers.simulate import Simulation
    from truenorth.planner.answers.trial import Trial
    from truenorth.planner.answers.uncertain.planning import UncertainPlan
    from truenorth.planner.answers.verify import VerdictRecord
    from truenorth.planner.answers.whatif import Sweep
    from truenorth.planner.inputs.importers.trace import Imported
    from truenorth.planner.inputs.told import Told

ScenarioGiven = Scenario | str | Path | Mapping[str, object]
"""A scenario that was loaded, the file of one, or its keys as Python data."""
LogGiven: TypeAlias = "str | Path | pd.DataFrame"
"""A file of a log, or its rows."""
LevelsGiven = ServiceLevels | str | Sequence[str] | None
"""Levels that were read, or their words; None: the scenario's own."""


def load(scenario: ScenarioGiven) -> Scenario:
    """Return the scenario of a YAML or JSON file, or of plain data with the keys of one.

    Raises
    ------
    InputError
        With file, line and field of what is wrong.
    """
    return Scenario.load(scenario)


@asks(PlanQuestion)
def plan(scenario: ScenarioGiven, **asked: Any) -> Plan:
    """Return a plan; `hint` may be a timeline, an answer that holds one, or the file of one."""
    known = load(scenario)
    if asked.get("hint") is not None:
        asked["hint"] = timeline(known, asked["hint"])
    with asking(PlanQuestion, known, asked) as question:
        return ask(question, known)


@asks(UncertainPlanQuestion)
def plan_uncertain(scenario: ScenarioGiven, estimates: Told | str | Path, **asked: Any) -> UncertainPlan:
    """Return a plan for run times that are estimates: a CSV file, or what is told of them."""
    from truenorth.planner.inputs.told import read_told

    known = load(scenario)
    told = read_told(Path(estimates), known) if isinstance(estimates, str | Path) else estimates
    with asking(UncertainPlanQuestion, known, asked | {"told": told}) as question:
        return ask(question, known)


@asks(BoundQuestion)
def bound(scenario: ScenarioGiven, **asked: Any) -> Bound:
    """Return a lower bound and its certificate."""
    known = load(scenario)
    with asking(BoundQuestion, known, asked) as question:
        return ask(question, known)


@asks(SimulateQuestion)
def simulate(scenario: ScenarioGiven, policy: str | Path | type[Policy], **asked: Any) -> Simulation:
    """Return what happens under a policy: its name, its file, or a class of your own."""
    name = f"{policy.__module__}:{policy.__qualname__}" if isinstance(policy, type) else str(policy)
    return ask(read_question(SimulateQuestion, asked | {"policy": name}), load(scenario))


@asks(CompareQuestion)
def compare(
    scenario: ScenarioGiven,
    policies: str | Sequence[str] | None = None,
    *,
    reference: ScenarioGiven | None = None,
    **asked: Any,
) -> Comparison:
    """Return a plan beside online policies; slowdowns divide by the ideal times of `reference` if that is given."""
    known = load(scenario)
    if reference is not None:
        known = known.with_ideals(load(reference).ideals_us)
    with asking(CompareQuestion, known, asked | {"policies": policies}) as question:
        return ask(question, known)


@asks(CompareQuestion)
def replicate(
    scenario: ScenarioGiven,
    replications: int,
    policies: str | Sequence[str] | None = None,
    *,
    folder: str | Path | None = None,
    **asked: Any,
) -> Replicated:
    """Return comparisons on so many seeds, or windows of the trace, with intervals; `folder` keeps what is finished."""
    from truenorth.planner.answers.replications import replicate_comparison

    with watch_cells(asked.pop("watch", None)) as watch:
        question = read_question(CompareQuestion, asked | {"policies": policies})
        return replicate_comparison(question, load(scenario), replications, folder, watch)


@asks(ServersQuestion)
def servers(scenario: ScenarioGiven, slo: LevelsGiven = None, **asked: Any) -> ServersAnswer:
    """Return the least number of servers, or the cheapest mix, that meets service levels."""
    known = load(scenario)
    with asking(ServersQuestion, known, asked | {"slo": slo}) as question:
        return ask(question, known)


@asks(ScheduleQuestion)
def servers_by(scenario: ScenarioGiven, by: str | float, slo: LevelsGiven = None, **asked: Any) -> ScheduleAnswer:
    """Return the cheapest schedule of servers by the interval, such as ``"1 h"``."""
    known = load(scenario)
    with asking(ScheduleQuestion, known, asked | {"slo": slo, "by": by}) as question:
        return ask(question, known)


@asks(ServersQuestion)
def replicate_servers(
    scenario: ScenarioGiven, replications: int, slo: LevelsGiven = None, **asked: Any
) -> Replications:
    """Return the least number of servers on so many seeds, or windows of the trace."""
    from truenorth.planner.answers.replications import replicate_servers as replicate_each

    return replicate_each(read_question(ServersQuestion, asked | {"slo": slo}), load(scenario), replications)


def whatif(scenario: ScenarioGiven, grid: Mapping[str, object], *, verb: str = "simulate", **settings: Any) -> Sweep:
    """Return the answer of every cell of a grid over a scenario, as rows.

    Parameters
    ----------
    grid
        Values by dotted path or by setting of the verb, as in a sweep file.
    settings
        What the verb is told in every cell, as in a sweep file (``policy="compass"``, ``time_limit="10 s"``), and
        `replications` (every cell in so many windows), `folder`, `workers`, `ray`, `watch`, `stop`.

    Raises
    ------
    InputError
        With the field that is wrong.
    """
    from truenorth.planner.answers.whatif import whatif as answer

    with watch_cells(settings.pop("watch", None)) as watch:
        return answer(scenario, grid, verb=verb, watch=watch, **settings)


def import_trace(format_text: str, files: LogGiven | Sequence[LogGiven], **asked: Any) -> Imported:
    """Import the files of a log, or tables as data frames, with the options of ``truenorth import`` as keywords.

    Parameters
    ----------
    format_text
        As the command names it, with options: ``table:unit=ms``.
    asked
        `catalogue` and `workflows` are files; figures of the cluster are `servers`, `gpus_per_server`, `memory`,
        `weights`, `load_time`, `load_bandwidth`, `network_bandwidth`; the others are as
        `planner.inputs.importers.trace` has them: `window`, `rate_factor`, `objective`.

    Raises
    ------
    InputError
        With file, line and column of what cannot be read.
    QuestionError
        If there is no such option, or two contradict each other.
    """
    from truenorth.planner.inputs.importers.trace import import_trace as run

    listed = files if isinstance(files, Sequence) and not isinstance(files, str) else [files]
    with TemporaryDirectory() as folder:
        logs = [_log_file(log, Path(folder) / f"{at}.csv") for at, log in enumerate(listed)]
        options = _import_options(asked, inspect.signature(run).parameters)
        try:
            return run(format_text, logs, **options)
        except InputError as error:
            if not error.file.startswith(folder):
                raise
            raise InputError("data frame", error.line, error.field, error.problem) from None


def read_csv(log: LogGiven | Sequence[LogGiven], *, format: str = "table", **asked: Any) -> Scenario:  # noqa: A002
    """Return the scenario of a log: CSV files, or data frames, with columns for the release and the run time.

    Parameters
    ----------
    format
        Of the log, as ``truenorth import`` names them, with options: ``table:unit=ms``.
    asked
        As of `import_trace`: ``servers=4, memory="24 GB"``, or a `catalogue` of models and GPUs.

    Raises
    ------
    InputError
        With file, line and column of what cannot be read.
    """
    return import_trace(format, log, **asked).scenario


def _import_options(asked: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords of an import as its function takes them."""
    from truenorth.planner.inputs.importers.catalogued import Catalogued
    from truenorth.planner.inputs.importers.format import Override
    from truenorth.planner.inputs.importers.target import Driven

    of_cluster = {each.name for each in fields(Override)}
    refuse_unknown(asked, [*of_cluster, "catalogue", "workflows", *list(known)[2:]])
    figures = {name: value for name, value in asked.items() if name in of_cluster}
    others = {name: value for name, value in asked.items() if name not in of_cluster}
    if figures and ("catalogue" in asked or "workflows" in asked):
        raise QuestionError("the catalogue, or the workflows, bring a cluster; leave it out", next(iter(figures)))
    if figures:
        others["override"] = Override(**figures).apply
    if "rate_factor" in others:
        others["rate_factor"] = _factor(others["rate_factor"])
    if others.get("window") is not None:
        others["window"] = tuple(each if isinstance(each, str) else f"{each} s" for each in others["window"])
    if isinstance(others.get("catalogue"), str | Path):
        others["catalogue"] = Catalogued.load(Path(others["catalogue"]))
    if "workflows" in others:
        others["driven"] = Driven.load(Path(others.pop("workflows")))
    return others


def _factor(given: object) -> Fraction:
    """Return a number of any sort, or its text, exactly."""
    try:
        return Fraction(str(given))
    except (ValueError, ZeroDivisionError):
        raise QuestionError(f"{given!r} is no number; allowed is one such as 2 or 0.5", "rate_factor") from None


def _log_file(log: LogGiven, path: Path) -> Path:
    """Return the file of a log; a data frame is written as CSV."""
    if isinstance(log, str | Path):
        return Path(log)
    log.to_csv(path, index=False)
    return path


def timeline(scenario: Scenario, given: Timeline | WithTimelines | str | Path) -> Timeline:
    """Return the timeline of an answer, or of a file that breaks no rule.

    Raises
    ------
    InputError
        If the file cannot be read, belongs to another scenario, or breaks a rule.
    """
    from truenorth.planner.answers.check import feasible_timeline

    if isinstance(given, Timeline):
        return given
    return (
        feasible_timeline(scenario.instance, Path(given)) if isinstance(given, str | Path) else given.chosen().timeline
    )


def check(scenario: ScenarioGiven, plan: Timeline | WithTimelines | str | Path) -> Checked:
    """Return what a timeline, that of an answer or of a file breaks, of the rules and of what its file says of it.

    Raises
    ------
    InputError
        If the file cannot be read, or belongs to another scenario.
    """
    from truenorth.models.scenario import PlanFile, TimelineHeader
    from truenorth.planner.answers.check import checked, read

    known = load(scenario)
    if isinstance(plan, str | Path):
        return checked(known.objective, *read(known.instance, Path(plan)))
    if isinstance(plan, Timeline):
        return checked(known.objective, known.instance, PlanFile(TimelineHeader(), plan))
    shown = plan.chosen()
    return checked(known.objective, shown.instance, PlanFile(TimelineHeader(), shown.timeline))


def verify(scenario: ScenarioGiven, certificate: Bound | Mapping[str, Any] | str | Path) -> VerdictRecord:
    """Return whether a bound's certificate holds: computed again, without a solver.

    Raises
    ------
    InputError
        If the file cannot be read or is no JSON.
    """
    from truenorth.planner.answers.verify import verdict_record, verify_document, verify_file

    known = load(scenario)
    if isinstance(certificate, str | Path):
        return verdict_record(known, verify_file(known, Path(certificate)))
    document = certificate if isinstance(certificate, Mapping) else certificate.certificate
    return verdict_record(known, verify_document(known, dict(document)))


@asks(ReplayQuestion)
def replay(scenario: ScenarioGiven, plan: str | Path, **asked: Any) -> Replayed:
    """Carry out a plan file or an online policy on devices, in real time; return predicted against measured."""
    return ask(read_question(ReplayQuestion, asked | {"policy": plan}), load(scenario))


@asks(TrialQuestion)
def trial(scenario: ScenarioGiven, policies: str | Sequence[str] | None = None, **asked: Any) -> Trial:
    """Run plans and policies on the same devices, again and again in random order; return paired differences."""
    return ask(read_question(TrialQuestion, asked | {"policies": policies}), load(scenario))


@asks(ProfileQuestion)
def profile(scenario: ScenarioGiven, device: str, **asked: Any) -> Profile:
    """Measure run times, loads and transfers, on this machine or a Ray cluster's; return the scenario that has them."""
    return ask(read_question(ProfileQuestion, asked | {"device": device}), load(scenario))


def gantt(answer: WithTimelines, of: str | None = None) -> Figure:
    """Return a picture of an answer's first timeline, or the one of that name: what runs and loads, where and when."""
    from truenorth.planner.show.gantt import gantt as draw

    shown = answer.chosen(of)
    return draw(shown.instance, shown.timeline, shown.name)


def _frame(scenario: Scenario) -> pd.DataFrame:
    """Return one row per job: workflow, release, deadline, critical path; times are in seconds."""
    from truenorth.planner.show.saving import frame

    return frame(scenario)


def _save(answer: Answer, path: str | Path) -> list[Path]:
    """Write the answer, each file whole or not at all; return the paths. See `truenorth.save`."""
    from truenorth.planner.show.saving import save

    return save(answer, path)


def add_methods() -> None:
    """Let scenarios and answers be asked as the calls are: they lie in packages that may not import these."""
    for call in (*ASKING, check, verify, whatif):
        setattr(Scenario, call.__name__, call)
    for kind, name, method in (
        (Scenario, "frame", _frame),
        (Scenario, "to_frame", _frame),
        (Answer, "save", _save),
        (WithTimelines, "gantt", gantt),
    ):
        setattr(kind, name, method)


add_methods()
