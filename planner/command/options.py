"""Options and arguments of the verbs: what several share, and those that follow from the fields of a question."""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import MISSING, Field, dataclass, replace
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from truenorth.planner.command import manners
from truenorth.planner.questions.options import RAY, SEED, WORKERS, Option, OptionKind, options_of, say, typed_as
from truenorth.planner.questions.read import read

if TYPE_CHECKING:
    from truenorth.models.scenario import Scenario
    from truenorth.planner.command.console import Line
    from truenorth.planner.questions.question import Question


ScenarioPath = Annotated[Path, typer.Argument(metavar="SCENARIO", help="Scenario file, YAML or JSON.")]


def to(metavar: str, text: str) -> Any:
    """Return the option that says where a result is written."""
    return typer.Option("-o", "--output", metavar=metavar, help=text)


Output = Annotated[Path | None, to("FILE", "Write the result to this file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Workers = Annotated[int, typer.Option(min=1, max=64, help=WORKERS.help)]
Ray = Annotated[str | None, typer.Option(metavar=RAY.metavar, help=RAY.help)]
Seed = Annotated[int, typer.Option(min=0, max=2**31 - 1, help=SEED.help)]


Asked = TypeVar("Asked", bound="Question")
Shown = TypeVar("Shown")
_WHOLE_LISTS = (OptionKind.LEVELS, OptionKind.FLAG)
"""What is read when typer has read all of it."""
_TYPES: Mapping[OptionKind, type] = {
    OptionKind.WHOLE: int,
    OptionKind.FILE: Path,
    OptionKind.LEVELS: list[str],
    OptionKind.FLAG: bool,
}
"""What typer shows in the help; of every other kind it is text."""


@dataclass(frozen=True, slots=True)
class Before:
    """Where an option stands that is the command's alone: before one of the question's."""

    name: str


def asks(question: type[Question]) -> Callable[[Callable[..., int]], Callable[..., int]]:
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
            return verb(question(**{each.name: _given(each, typed.pop(each.name)) for each, _ in asked}), **typed)

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
    if option.kind is OptionKind.CHOICE:
        choices = StrEnum(each.name.title(), {word: word for word in option.choices})  # type: ignore[misc]
        kind, default = choices, choices(default) if isinstance(default, str) else default
    elif isinstance(default, Fraction | tuple) or (option.kind is OptionKind.SECONDS and default is not MISSING):
        (default,) = say(default, option.kind)
    name, timed = typed_as(each), option.kind is OptionKind.SECONDS and default not in (None, MISSING)

    def parser(text: Any) -> Any:
        return read(name, option, text)

    shown = typer.Option(
        name,
        parser=None if option.kind in _WHOLE_LISTS else parser,
        help=f"{option.help[:-1]} (default: {default} s)." if timed else option.help,
        metavar=option.metavar or ("TIME" if option.kind in (OptionKind.SECONDS, OptionKind.TIME) else None),
        show_default=option.otherwise or not timed,
        min=option.least,
        max=option.most,
    )
    annotation = Annotated[kind | None if default is None else kind, shown]  # type: ignore[valid-type]
    given = {} if default is MISSING else {"default": default}
    return inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, **given)


def _given(each: Field[Any], typed: Any) -> Any:
    """Return the value of a field from what typer has read: of several times the same option all of them together."""
    option: Option = each.metadata["option"]
    if option.kind is OptionKind.LEVELS and typed:
        return read(typed_as(each), option, typed)
    return each.default if typed in ((), []) else typed


@contextmanager
def stoppable(shown: AbstractContextManager[Shown]) -> Iterator[tuple[threading.Event, Shown]]:
    """Have Ctrl-C and SIGTERM set an event while a line is shown; yield the event, and what the line yields."""
    from truenorth.solvers.budget import interruptible

    with interruptible(signal.SIGINT, signal.SIGTERM) as stop, shown as watch:
        yield stop, watch


@contextmanager
def watched(question: Asked, scenario: Scenario, line: Line) -> Iterator[tuple[Asked, threading.Event]]:
    """Yield a question whose answer may be interrupted, and what is set then; the line says how far it has come."""
    from truenorth.planner.answers.ask import method_of, needs_kernels

    if needs_kernels(question, scenario.instance):
        manners.compile_kernels(scenario.instance, method_of(question))
    with stoppable(line.shown()) as (stop, _):
        yield replace(question, watch=line.watch, stop=stop), stop  # type: ignore[call-arg]
