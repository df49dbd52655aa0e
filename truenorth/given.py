"""How the keywords of a call are read: by the options of its question, which the command and sweeps read as well."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, replace
from difflib import get_close_matches
from typing import Any, ParamSpec, TypeVar

from truenorth.models.errors import QuestionError
from truenorth.models.scenario import Scenario
from truenorth.planner.questions.options import Option, OptionKind, name_of, options_of
from truenorth.planner.questions.question import Question
from truenorth.planner.questions.read import read
from truenorth.planner.questions.sizes import SizesQuestion

Answer = TypeVar("Answer")
Parameters = ParamSpec("Parameters")
Asked = TypeVar("Asked", bound=Question)
ASKING: list[Callable[..., Any]] = []
"""The calls that put a question: each is a method of scenarios as well."""
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
        returned = inspect.signature(call).return_annotation
        run.__signature__ = inspect.Signature([*own, *rest], return_annotation=returned)  # type: ignore[attr-defined]
        said = "\n".join(f"{name_of(each)}\n    {_help(option)}" for each, option in options_of(question))
        run.__doc__ = f"{inspect.cleandoc(call.__doc__ or '')}\n\nParameters\n----------\n{said}\n"
        ASKING.append(run)
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
    OptionKind.PROGRESS: "float | str | Path",
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
            refuse_unknown({name}, options)
    return question(**told)


def refuse_unknown(given: Iterable[str], known: Collection[str]) -> None:
    """Refuse a keyword that is no option, with the nearest one.

    Raises
    ------
    QuestionError
        If there is one.
    """
    for name in given:
        if name not in known:
            near = "".join(f", did you mean {word!r}?" for word in get_close_matches(name, known, n=1))
            raise QuestionError(f"is no option{near}; allowed are {', '.join(known)}", name)
