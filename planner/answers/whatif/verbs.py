"""The verbs that can answer a cell: what a sweep says becomes their question, and their answer becomes rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainValidator, create_model

from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.objective import reported_bound, reported_value
from truenorth.models.record import encode
from truenorth.models.scenario import Scenario
from truenorth.models.scenario.errors import FieldError, Source, allowed, quote
from truenorth.models.scenario.quantities import MAX_JOBS, Levels, Name, Number, PositiveTime, Seed, whole
from truenorth.models.scenario.section import Section, problem, validate
from truenorth.planner.answers.policies.parse import parse, split_policies
from truenorth.planner.answers.servers.record import Size
from truenorth.planner.answers.shown import is_converged
from truenorth.planner.answers.simulate import Simulation, is_file
from truenorth.planner.answers.uncertain.spec import parse_uncertainty, refuse_estimates
from truenorth.planner.questions.options import SEED, Option, OptionKind, name_of, options_of
from truenorth.planner.questions.policies import CompareQuestion, SimulateQuestion
from truenorth.planner.questions.question import Question
from truenorth.planner.questions.searches import BoundQuestion, PlanQuestion
from truenorth.planner.questions.sizes import ServersQuestion

if TYPE_CHECKING:
    from truenorth.planner.answers.bound import Bound
    from truenorth.planner.answers.compare import Comparison
    from truenorth.planner.answers.plan import Plan
    from truenorth.planner.answers.servers import ServersAnswer

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
        Returns the rows of its answer, in the units of the command's ``--json``.
    """

    question: type[Question]
    rows: Callable[[Any, Any], list[Row]]

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
        fields = {name_of(each): (each.name, option.kind) for each, option in options_of(self.question)}
        given = {name: getattr(said, name) for name in said.model_fields_set}
        return self.question(
            **{
                fields[name][0]: value / MICROSECONDS_PER_SECOND if fields[name][1] is OptionKind.SECONDS else value
                for name, value in given.items()
                if value is not None
            }
        )


@cache
def _settings_of(verb: str) -> type[Section]:
    told: dict[str, Any] = {}
    question = VERBS[verb].question
    for each, option in sorted(options_of(question), key=lambda pair: pair[1] is not SEED):
        if option.in_sweeps:
            read = _type_of(option) | None if each.default is None else _type_of(option)
            told[name_of(each)] = read, ... if each.default is MISSING else None
    return create_model(f"{verb}_settings", __base__=Section, **told)


def _type_of(option: Option) -> Any:
    """Return how a setting is read."""
    if option is SEED:
        return Seed
    if option.kind is OptionKind.WHOLE:
        return Annotated[int, whole(int(option.least or 0), int(option.most or MAX_JOBS))]
    return _TYPES[option.kind]


def _names(value: object) -> list[str]:
    """Read policies: a list of them, or text with commas."""
    if isinstance(value, str):
        return split_policies(value)
    if isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value):
        return list(value)
    raise problem("is no list of policies; allowed is a list, or text with commas")


def check(question: Question, scenario: Scenario) -> None:
    """Refuse what is known to be wrong of a question before a cell asks it.

    Raises
    ------
    FieldError
        With the option.
    """
    for each, option in options_of(question):
        value, where = getattr(question, each.name), (name_of(each),)
        if value is None:
            continue
        if option.kind is OptionKind.WHOLE and option.most is not None and value > option.most:
            raise FieldError(where, f"{value} is out of range; allowed is {option.least:g} to {option.most:.0f}")
        if option.kind is OptionKind.SHARE and value >= 1:
            raise FieldError(where, f"{float(value):g} is no share; allowed is 0 to below 1")
        if option.kind is OptionKind.CHOICE and value not in option.choices:
            raise FieldError(where, f"unknown {each.name} {quote(value)}; {allowed(value, option.choices)}")
        try:
            if option.kind is OptionKind.NOISE:
                (refuse_estimates if isinstance(question, ServersQuestion) else parse_uncertainty)(value)
        except ValueError as error:
            raise FieldError(where, str(error)) from None
        if where[0] in ("policy", "policies"):
            for name in policy_names(question):
                _check_policy(name, scenario, where)


def _check_policy(name: str, scenario: Scenario, where: tuple[str]) -> None:
    if is_file(name):
        raise FieldError(where, f"{quote(name)} is the plan of one scenario; allowed are online policies")
    try:
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
        **_bounded(done.scenario, result.lower_bound, result.bound_method),
        "gap": result.gap,
        "converged": is_converged(result.gap, result.bound_method),
    }
    return [row if done.metrics is None else {**row, **encode(done.metrics)}]


def _compare_rows(asked: CompareQuestion, done: Comparison) -> list[Row]:
    """Return a row for the plan and one for every policy, best first; with `regret` what its parts lose."""
    result, objective = done.plan.result, done.scenario.objective
    lost = {regret.policy: regret.rows for regret in done.regrets} if asked.regret is not None else {}
    return [
        {
            "policy": row.policy,
            "clairvoyant": row.clairvoyant,
            "objective": str(objective),
            "unit": objective.unit,
            "value": row.objective,
            "twin": row.twin,
            "problem": row.problem,
            "ratio_to_best": row.ratio_to_best,
            "ratio_to_bound": row.ratio_to_bound,
            **_bounded(done.scenario, result.lower_bound, result.bound_method),
            "plan_gap": row.plan_gap,
            "converged": row.converged,
            "gap_to_bound": row.gap_to_bound,
            **(encode(row.metrics) if row.metrics else {}),
            **{f"lost_to_{part.part.replace(' ', '_')}": part.lost for part in lost.get(row.policy, ())},
        }
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


def _servers_rows(asked: ServersQuestion, answer: ServersAnswer) -> list[Row]:
    """Return a row for the plan and one for every policy with its fewest servers; `lower_bound` is of the plan's."""
    done = answer.record()
    least, sizes = done.minimum, {PLAN: done.minimum.size, **{who: found.size for who, found in done.policies.items()}}
    known: Row = {"lower_bound": least.lower_bound, "proved": least.proved}
    if done.priced:
        known = {"lower_bound_price_per_hour": least.lower_bound_price_per_hour, "proved": least.proved}
    return [
        {"policy": who, "slo": str(answer.levels), **_plain(size)} | (known if who == PLAN else {})
        for who, size in sizes.items()
    ]


def _plain(size: Size) -> Row:
    """Return a size as columns, a mix as the servers of each group."""
    found: dict[str, Any] = encode(size)
    mix = found.get("mix")
    return found | ({} if mix is None else {"mix": " + ".join(map(str, mix))})


def _valued(scenario: Scenario, value: Fraction | None) -> Row:
    objective = scenario.objective
    reported = None if value is None else reported_value(objective, value)
    return {"objective": str(objective), "unit": objective.unit, "value": reported}


def _bounded(scenario: Scenario, bound: Fraction | None, method: str | None) -> Row:
    reported = None if bound is None else reported_bound(scenario.objective, bound)
    return {"lower_bound": reported, "bound_method": method}


_TYPES: Mapping[OptionKind, Any] = {
    OptionKind.TEXT: Name,
    OptionKind.POLICY: Name,
    OptionKind.NOISE: Name,
    OptionKind.CHOICE: Name,
    OptionKind.SECONDS: PositiveTime,
    OptionKind.SHARE: Number,
    OptionKind.FACTOR: Number,
    OptionKind.LEVELS: Levels,
    OptionKind.NAMES: Annotated[list[str], PlainValidator(_names)],
}
"""How a setting is read, by what it is."""
VERBS: Mapping[str, Verb] = {
    "simulate": Verb(SimulateQuestion, _simulate_rows),
    "plan": Verb(PlanQuestion, _plan_rows),
    "compare": Verb(CompareQuestion, _compare_rows),
    "bound": Verb(BoundQuestion, _bound_rows),
    "servers": Verb(ServersQuestion, _servers_rows),
}
"""The verbs by name."""
