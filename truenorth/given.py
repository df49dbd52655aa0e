"""How the keywords of a call are read: by the options of its question, which the command and sweeps read as well."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field, replace
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import Scenario
from truenorth.models.slo import ServiceLevels
from truenorth.models.units import QuantityError, parse_time
from truenorth.planner.questions.options import Option, OptionKind, name_of, options_of
from truenorth.planner.questions.question import Question
from truenorth.planner.questions.sizes import SizesQuestion

Answer = TypeVar("Answer")
Parameters = ParamSpec("Parameters")
Asked = TypeVar("Asked", bound=Question)
_OWN = {"watch", "stop", "hint", "starts", "told", "plan_for", "samples", "folder", "policy"}
"""Fields of questions without an option, that a caller may fill."""


def asks(question: type[Question]) -> Callable[[Callable[Parameters, Answer]], Callable[Parameters, Answer]]:
    """Return a decorator for a call whose further keywords are the options of a question; `help` shows them."""

    def decorate(call: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
        @functools.wraps(call)
        def run(*given: Parameters.args, **named: Parameters.kwargs) -> Answer:
            return call(*given, **named)

        own = [p for p in inspect.signature(call).parameters.values() if p.kind is not p.VAR_KEYWORD]
        known = {parameter.name for parameter in own}
        rest = [
            inspect.Parameter(
                name_of(each), inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=_given_as(each, option)
            )
            for each, option in options_of(question)
            if name_of(each) not in known
        ]
        del run.__wrapped__  # whoever unwraps it would miss the options
        run.__signature__ = inspect.Signature([*own, *rest])  # type: ignore[attr-defined]
        said = "\n".join(f"{name_of(each)}\n    {_help(option)}" for each, option in options_of(question))
        run.__doc__ = f"{inspect.cleandoc(call.__doc__ or '')}\n\nParameters\n----------\n{said}\n"
        return run

    return decorate


def _help(option: Option) -> str:
    """Return what an option is, and the words that are allowed."""
    return f"{option.help} One of {', '.join(option.choices)}." if option.choices else option.help


def _given_as(each: Field[Any], option: Option) -> str:
    """Return what type of value an option takes."""
    types = _TYPES.get(option.kind, "str")
    return f"{types} | None" if each.default is None and "None" not in types else types


_TYPES = {
    OptionKind.WHOLE: "int",
    OptionKind.SECONDS: "str | float",
    OptionKind.TIME: "str | float",
    OptionKind.SHARE: "float",
    OptionKind.FACTOR: "float",
    OptionKind.FILE: "str | Path",
    OptionKind.NAMES: "str | Sequence[str]",
    OptionKind.LEVELS: "str | Sequence[str]",
    OptionKind.FLAG: "bool",
}


@contextmanager
def asking(kind: type[Asked], scenario: Scenario, given: Mapping[str, Any]) -> Iterator[Asked]:
    """Yield the question that is put by the names of the command's options.

    In a notebook a line says meanwhile how far its answer has come, unless somebody watches.
    """
    from truenorth.planner.command.console import ProgressLine, in_notebook, servers_line

    asked = read_question(kind, given)
    if not in_notebook() or getattr(asked, "watch", asked) is not None:
        yield asked
        return
    line = servers_line() if isinstance(asked, SizesQuestion) else ProgressLine(scenario.objective, asked.verb)
    with line.shown():
        yield replace(asked, watch=line.watch)  # type: ignore[call-arg]


@contextmanager
def watch_cells(watch: Callable[[Any], None] | None) -> Iterator[Callable[[Any], None] | None]:
    """Return who watches a grid; in a notebook, unless somebody does, a line."""
    from truenorth.planner.command.console import cells_line, in_notebook

    if watch is not None or not in_notebook():
        yield watch
        return
    line = cells_line()
    with line.shown():
        yield line.watch


def read_question(question: type[Asked], given: Mapping[str, Any]) -> Asked:
    """Return a question with what is given by the names of the command's options.

    Raises
    ------
    QuestionError
        If there is no such option, or its value is none; it lists what is allowed.
    """
    options = {name_of(each): (each.name, option) for each, option in options_of(question)}
    told: dict[str, Any] = {}
    for name, value in given.items():
        if name in options:
            field, option = options[name]
            told |= {} if value is None else {field: read(name, option, value)}
        elif name in _OWN and name in question.__dataclass_fields__:
            told[name] = value
        else:
            near = "".join(f", did you mean {word!r}?" for word in get_close_matches(name, options, n=1))
            raise QuestionError(f"is no option{near}; allowed are {', '.join(options)}", name)
    return question(**told)


def read(name: str, option: Option, value: Any) -> Any:
    """Return an option's value from what a person gives.

    Raises
    ------
    QuestionError
        If it is none; the message says what is allowed.
    """
    kind = option.kind
    if kind is OptionKind.CHOICE:
        return choose(name, value, option.choices)
    if kind is OptionKind.WHOLE:
        return _whole(name, option, value)
    if kind is OptionKind.SECONDS:
        return seconds(name, value)
    if kind is OptionKind.TIME:
        return round(seconds(name, value) * MICROSECONDS_PER_SECOND)
    if kind in (OptionKind.SHARE, OptionKind.FACTOR):
        return _number(name, kind, value)
    if kind is OptionKind.FILE:
        return Path(value)
    if kind is OptionKind.FLAG:
        return bool(value)
    if kind is OptionKind.NAMES:
        return _names(name, value)
    return _levels(name, value) if kind is OptionKind.LEVELS else str(value)


def choose(name: str, word: Any, words: Sequence[str]) -> str:
    """Return one of a few words.

    Raises
    ------
    QuestionError
        If it is another one.
    """
    if word not in words:
        raise QuestionError(f"{word!r} is unknown; allowed are {', '.join(words)}", name)
    return str(word)


def seconds(name: str, value: str | float) -> float:
    """Return a time above 0 in seconds: text with its unit, or seconds.

    >>> seconds("time_limit", "1.5 min"), seconds("time_limit", 5)
    (90.0, 5.0)
    """
    try:
        found = parse_time(value) / MICROSECONDS_PER_SECOND if isinstance(value, str) else float(value)
    except QuantityError as error:
        raise QuestionError(f"{error}, or seconds", name) from None
    except (TypeError, ValueError):
        found = math.nan
    if not 0 < found < math.inf:
        raise QuestionError(f"{value!r} is no time above 0; allowed is text such as '5 s', or seconds", name)
    return found


def _whole(name: str, option: Option, value: Any) -> int:
    least, most = option.least or 0, math.inf if option.most is None else option.most
    if isinstance(value, bool) or not hasattr(value, "__index__") or not least <= value <= most:
        to = "" if option.most is None else f" to {option.most:.0f}"
        raise QuestionError(f"{value!r} is no such number; allowed is a whole number from {least:g}{to}", name)
    return value.__index__()  # type: ignore[no-any-return]


def _number(name: str, kind: OptionKind, value: Any) -> Fraction:
    """Return a number exactly as it is written: 0.1 is a tenth."""
    try:
        found = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        found = Fraction(-1)
    if found < 0 or (found >= 1 if kind is OptionKind.SHARE else found == 0):
        allowed = "a share of at least 0 and below 1" if kind is OptionKind.SHARE else "a number above 0"
        raise QuestionError(f"{value!r} is none; allowed is {allowed}", name)
    return found


def _names(name: str, value: Any) -> list[str]:
    from truenorth.planner.answers.policies.parse import split_policies

    if isinstance(value, str):
        return split_policies(value)
    if isinstance(value, Sequence) and all(isinstance(each, str) for each in value):
        return list(value)
    raise QuestionError(f"{value!r} names no policies; allowed is text with commas, or a list of text", name)


def _levels(name: str, value: Any) -> ServiceLevels:
    if isinstance(value, ServiceLevels):
        return value
    texts = [value] if isinstance(value, str) else list(value)
    try:
        return ServiceLevels.parse(*texts)
    except QuantityError as error:
        raise QuestionError(str(error), name) from None
