"""From a question's fields to the options of its verb, and from what is typed to the question and its answer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, replace
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from planner.answers.options import Kind, Option, name_of, options_of
from planner.command import manners
from planner.command.verbs.options import assert_finite

if TYPE_CHECKING:
    from models.scenario import Scenario
    from planner.answers.questions import Question
    from planner.command.console import Line

Answer = TypeVar("Answer")
_TYPES: Mapping[Kind, type] = {Kind.WHOLE: int, Kind.SECONDS: float, Kind.FILE: Path, Kind.LEVELS: list[str]}
"""What typer reads; text of every other kind is read here."""


@dataclass(frozen=True, slots=True)
class Before:
    """Where an option stands that is the command's alone: before one of the question's."""

    name: str


def asks(question: type[Question[Any]]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator for a verb: its first argument is the question, with an option for every field that has one.

    The others are typer's; those that are annotated with `Before` stand among the question's.
    """

    def decorate(verb: Callable[..., int]) -> Callable[..., int]:
        hints = get_type_hints(verb, include_extras=True)
        _, *own = inspect.signature(verb).parameters.values()
        rest = [parameter.replace(annotation=hints[parameter.name]) for parameter in own]
        places = {parameter.name: _place(parameter) for parameter in rest}
        asked = [(each, option) for each, option in options_of(question)]
        parameters = [p for p in rest if p.default is p.empty]
        for each, option in asked:
            parameters += [p for p in rest if places[p.name] == each.name]
            parameters.append(_parameter(each, option))
        parameters += [p for p in rest if p not in parameters]

        def run(**typed: Any) -> int:
            told = {each.name: _read(each, option, typed.pop(each.name)) for each, option in asked}
            return verb(question(**told), **typed)

        keyword = inspect.Parameter.KEYWORD_ONLY
        run.__signature__ = inspect.Signature([p.replace(kind=keyword) for p in parameters])  # type: ignore[attr-defined]
        run.__name__, run.__doc__ = verb.__name__, verb.__doc__
        return run

    return decorate


def _place(parameter: inspect.Parameter) -> str | None:
    """Return before which option of the question a parameter stands; None: after all of them."""
    marks = getattr(parameter.annotation, "__metadata__", ())
    return next((mark.name for mark in marks if isinstance(mark, Before)), None)


def _parameter(each: Field[Any], option: Option) -> inspect.Parameter:
    """Return the parameter that typer makes an option of."""
    kind, default = _TYPES.get(option.kind, str), each.default
    if option.kind is Kind.CHOICE:
        choices = StrEnum(each.name.title(), {word: word for word in option.choices})  # type: ignore[misc]
        kind, default = choices, choices(str(default))
    elif isinstance(default, Fraction):
        default = str(default)
    shown = typer.Option(
        f"--{name_of(each).replace('_', '-')}",
        help=option.help,
        metavar=option.metavar,
        min=0.1 if option.kind is Kind.SECONDS else option.least,
        max=option.most,
        callback=assert_finite if option.kind is Kind.SECONDS else None,
    )
    annotation = Annotated[kind | None if default is None else kind, shown]  # type: ignore[valid-type]
    given = {} if default is MISSING else {"default": default}
    return inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, **given)


def _read(each: Field[Any], option: Option, typed: Any) -> Any:
    """Return what was typed as the field's value.

    Raises
    ------
    UsageError
        If it cannot be read.
    """
    name = f"--{name_of(each).replace('_', '-')}"
    if not typed and option.kind in (Kind.LEVELS, Kind.NAMES):
        return None
    if option.kind is Kind.NAMES:
        from planner.answers.policies.parse import split_policies

        return split_policies(typed)
    if option.kind is Kind.LEVELS:
        from models.slo import ServiceLevels
        from models.units import QuantityError

        try:
            return ServiceLevels.parse(*typed)
        except QuantityError as error:
            raise manners.UsageError(f"{name}: {error}") from None
    if option.kind is Kind.SHARE:
        return manners.fraction(typed, name)
    if option.kind is Kind.FACTOR:
        return _factor(typed, name)
    return str(typed) if option.kind is Kind.CHOICE else typed


def _factor(text: str, name: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise manners.UsageError(f"{name}: {text!r} is no number; allowed is one such as 1.5") from None


def ask_shown(question: Question[Answer], scenario: Scenario, line: Line) -> tuple[Answer, bool]:
    """Return the answer, and whether it was interrupted; meanwhile the line says how far it has come."""
    from planner.command.console import interruptible

    manners.compile_kernels(scenario.instance)
    with interruptible() as stop, line.shown():
        return replace(question, watch=line.watch, stop=stop).ask(scenario), stop.is_set()  # type: ignore[call-arg]
