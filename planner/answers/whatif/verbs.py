"""The verbs that can answer a cell: what a sweep says becomes their question, and their answer becomes rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainValidator, create_model

from truenorth.models.errors import QuestionError
from truenorth.models.objective import reported_bound, reported_value
from truenorth.models.record import ABSENT, Spreading, encode, spread, take
from truenorth.models.scenario import Scenario
from truenorth.models.scenario.errors import FieldError, Source, quote
from truenorth.models.scenario.section import Section, problem, validate
from truenorth.planner.answers.policies.parse import parse
from truenorth.planner.answers.servers.record import Size
from truenorth.planner.answers.shown import is_converged
from truenorth.planner.answers.simulate import Simulation, is_file
from truenorth.planner.answers.uncertain.spec import parse_uncertainty, refuse_estimates
from truenorth.planner.questions.options import SEED, Option, name_of, options_of
from truenorth.planner.questions.policies import CompareQuestion, SimulateQuestion
from truenorth.planner.questions.question import Question
from truenorth.planner.questions.read import read
from truenorth.planner.questions.searches import BoundQuestion, PlanQuestion
from truenorth.planner.questions.sizes import ServersQuestion

if TYPE_CHECKING:
    from truenorth.planner.answers.bound import Bound
    from truenorth.planner.answers.compare import Comparison
    from truenorth.planner.answers.plan import Plan
    from truenorth.planner.answers.servers import ServersAnswer
    from truenorth.solvers.result import Result

PLAN = "plan"
"""Name of the plan's row."""
Row = dict[str, str | int | float | bool | None]
"""One line of the table, by column."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb that answers cells.

    Parameters
    ----------
    question
        What it asks.
    rows
        Returns the rows of its answer, in the units of the command's ``--json``: records, or columns by name.
    """

    question: type[Question]
    rows: Callable[[Any, Any], Sequence[object]]

    @property
    def settings(self) -> type[Section]:
        """What a sweep may say of the question, by the names of the command's options."""
        return _settings_of(self.question.verb)

    def ask(self, told: Mapping[str, object], source: Source) -> Question:
        """Return the question with what it is told.

        Raises
        ------
        InputError
            If a setting is wrong.
        """
        said = validate(self.settings, told, source)
        given = ((each.name, getattr(said, name_of(each), None)) for each, _ in options_of(self.question))
        return self.question(**{name: value for name, value in given if value is not None})


@cache
def _settings_of(verb: str) -> type[Section]:
    told: dict[str, Any] = {}
    question = VERBS[verb].question
    for each, option in sorted(options_of(question), key=lambda pair: pair[1] is not SEED):
        if option.in_sweeps:
            taken = Annotated[Any, PlainValidator(_reader(name_of(each), option, each.default is MISSING))]
            told[name_of(each)] = taken, ... if each.default is MISSING else None
    return create_model(f"{verb}_settings", __base__=Section, **told)


def _reader(name: str, option: Option, needed: bool) -> Callable[[object], Any]:
    """Return how a setting is read: as everywhere; null is none, where it may be left out."""

    def take(value: object) -> Any:
        try:
            return None if value is None and not needed else read(name, option, value)
        except QuestionError as error:
            raise problem(error.problem) from None

    return take


def check(question: Question, scenario: Scenario) -> None:
    """Refuse what is known to be wrong of a question before a cell asks it.

    Raises
    ------
    FieldError
        With the option.
    """
    noise, where = getattr(question, "noise", None), ("noise",)
    try:
        if noise is not None:
            (refuse_estimates if isinstance(question, ServersQuestion) else parse_uncertainty)(noise)
        where = ("policy",) if isinstance(question, SimulateQuestion) else ("policies",)
        for name in policy_names(question):
            if is_file(name):
                raise FieldError(where, f"{quote(name)} is the plan of one scenario; allowed are online policies")
            parse(name, scenario)
    except ValueError as error:
        raise FieldError(where, str(error)) from None


def policy_names(question: Question) -> Sequence[str]:
    """Return the policies that a question names."""
    if isinstance(question, SimulateQuestion):
        return (question.policy,)
    return getattr(question, "policies", None) or ()


def _simulate_rows(asked: SimulateQuestion, done: Simulation) -> list[Row]:
    """Return one row with the objective's value and the metrics."""
    return [{"policy": asked.policy, **_valued(done.scenario, done.exact), **encode(done.metrics)}]


def _plan_rows(asked: PlanQuestion, done: Plan) -> list[Row]:
    """Return one row with status, value, lower bound, gap and the plan's metrics."""
    result = done.result
    row: Row = {
        "status": str(result.status),
        **_valued(done.scenario, result.value),
        **_bounded(done.scenario, result),
        "gap": result.gap,
        "converged": is_converged(result.gap, result.bound_method),
    }
    return [row if done.metrics is None else {**row, **encode(done.metrics)}]


@dataclass(frozen=True, slots=True)
class ComparedRow(Spreading):
    """What a cell says of the plan, or of a policy, of a comparison.

    Parameters
    ----------
    lower_bound, bound_method, plan_gap, converged
        Of the plan, in every row.
    figures
        The metrics, and what parts lose.
    """

    policy: str
    clairvoyant: bool
    objective: str
    unit: str
    value: float | None
    twin: bool
    problem: str | None
    ratio_to_best: float | None
    ratio_to_bound: float | None
    lower_bound: float | None
    bound_method: str | None
    plan_gap: float | None
    converged: bool | None
    gap_to_bound: float | None
    figures: Mapping[str, float | None] = field(metadata=spread())


def _compare_rows(asked: CompareQuestion, done: Comparison) -> list[ComparedRow]:
    """Return a row for the plan and one for every policy, best first; with `regret` what its parts lose."""
    objective, bounded = done.scenario.objective, _bounded(done.scenario, done.plan.result)
    lost = {regret.policy: regret.rows for regret in done.regrets} if asked.regret is not None else {}
    return [
        take(
            ComparedRow,
            row,
            **bounded,
            objective=str(objective),
            unit=objective.unit,
            value=row.objective,
            figures=(encode(row.metrics) if row.metrics else {})
            | {f"lost_to_{part.part.replace(' ', '_')}": part.lost for part in lost.get(row.policy, ())},
        )
        for row in done.rows
    ]


def _bound_rows(asked: BoundQuestion, made: Bound) -> list[Row]:
    """Return one row with the certified lower bound and, where it is higher, the one without a certificate."""
    done = made.record()
    return [
        {
            "objective": str(done.objective),
            "unit": made.scenario.objective.unit,
            "lower_bound": done.lower_bound,
            "bound_method": done.method,
            "uncertified_lower_bound": done.uncertified_lower_bound,
        }
    ]


@dataclass(frozen=True, slots=True)
class SizeFound:
    """A size, a mix as the servers of each group; of the plan's also what is proved."""

    servers: int | None
    mix: str | None = ABSENT
    price_per_hour: float | None = ABSENT
    lower_bound: int | None = ABSENT
    lower_bound_price_per_hour: float | None = ABSENT
    proved: bool = ABSENT


@dataclass(frozen=True, slots=True)
class SizeRow(Spreading):
    """What a cell says of the plan's size, or of a policy's."""

    policy: str
    slo: str
    found: SizeFound = field(metadata=spread(SizeFound))


def _servers_rows(asked: ServersQuestion, answer: ServersAnswer) -> list[SizeRow]:
    """Return a row for the plan and one for every policy with its fewest servers; `lower_bound` is of the plan's."""
    done = answer.record()
    bound = "lower_bound_price_per_hour" if done.priced else "lower_bound"
    known = {bound: getattr(done.minimum, bound), "proved": done.minimum.proved}
    sizes = {PLAN: done.minimum.size, **{who: found.size for who, found in done.policies.items()}}
    return [
        SizeRow(who, str(answer.levels), take(SizeFound, size, mix=_in_words(size), **(known if who == PLAN else {})))
        for who, size in sizes.items()
    ]


def _in_words(size: Size) -> Any:
    """Return a mix as text; None or absent as it is."""
    return " + ".join(map(str, size.mix)) if isinstance(size.mix, list) else size.mix


def _valued(scenario: Scenario, value: Fraction | None) -> Row:
    objective = scenario.objective
    reported = None if value is None else reported_value(objective, value)
    return {"objective": str(objective), "unit": objective.unit, "value": reported}


def _bounded(scenario: Scenario, result: Result) -> Row:
    bound = result.lower_bound
    reported = None if bound is None else reported_bound(scenario.objective, bound)
    return {"lower_bound": reported, "bound_method": result.bound_method}


VERBS: Mapping[str, Verb] = {
    "simulate": Verb(SimulateQuestion, _simulate_rows),
    "plan": Verb(PlanQuestion, _plan_rows),
    "compare": Verb(CompareQuestion, _compare_rows),
    "bound": Verb(BoundQuestion, _bound_rows),
    "servers": Verb(ServersQuestion, _servers_rows),
}
"""The verbs by name."""
