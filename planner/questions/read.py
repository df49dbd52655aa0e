"""From what a person gives to an option's value: text typed at the command or in a sweep file, or a value of Python.

One reader for all three, and so one wording of what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from truenorth.planner.questions.options import Option, OptionKind

if TYPE_CHECKING:
    from truenorth.models.slo import ServiceLevels

MICROSECONDS_PER_SECOND = 1_000_000


def read(name: str, option: Option, value: Any) -> Any:
    """Return an option's value from what a person gives; of a value that was read already, the same.

    Parameters
    ----------
    name
        What the option is called where it is given, for the error.

    Raises
    ------
    QuestionError
        If it is none; the message says what is allowed.
    """
    return _READERS[option.kind](name, option, value)


def split_policies(text: str) -> list[str]:
    """Split ``--policies``: an item ``key=value`` without a policy's name continues the policy before it.

    >>> split_policies("compass:prefetch=0,period=100ms,jit")
    ['compass:prefetch=0,period=100ms', 'jit']
    """
    policies: list[str] = []
    for item in (part.strip() for part in text.split(",")):
        head = item.split(":", 1)[0]
        if policies and "=" in head:
            separator = "," if ":" in policies[-1] else ":"
            policies[-1] += separator + item
        elif item:
            policies.append(item)
    return policies


def _refuse(name: str, problem: str) -> NoReturn:
    from truenorth.models.errors import QuestionError  # with NumPy, which help does without

    raise QuestionError(problem, name)


def _text(name: str, option: Option, value: Any) -> str:
    if not isinstance(value, str | Path) or not str(value):
        _refuse(name, f"{value!r} is no text" if value != "" else "is empty; name one, or leave the option out")
    return str(value)


def _choice(name: str, option: Option, value: Any) -> str:
    if value not in option.choices:
        _refuse(name, f"{value!r} is unknown; allowed are {', '.join(option.choices)}")
    return str(value)


def _whole(name: str, option: Option, value: Any) -> int:
    least, most, number = option.least or 0, math.inf if option.most is None else option.most, value
    try:
        number = int(value) if isinstance(value, str) else value.__index__()
    except (AttributeError, ValueError):
        number = None
    if number is None or isinstance(value, bool) or not least <= number <= most:
        to = "" if option.most is None else f" to {option.most:.0f}"
        _refuse(name, f"{value!r} is no such number; allowed is a whole number from {least:g}{to}")
    return int(number)


def _seconds(name: str, option: Option, value: Any) -> float:
    """Read a time limit: a number of seconds, or a time with its unit."""
    from_text = isinstance(value, str) and not value.strip()[-1:].isdigit()
    try:
        found = _microseconds(value) / MICROSECONDS_PER_SECOND if from_text else float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not 0 < found < math.inf:
        _refuse(name, f"{value!r} is no time limit; write seconds, at least 0.1, or a time: 10 s, 2 min")
    return found


def _time(name: str, option: Option, value: Any) -> int:
    """Read the length of an interval, in microseconds: text with its unit; of Python seconds, too."""
    try:
        found = _microseconds(value) if isinstance(value, str) else MICROSECONDS_PER_SECOND * value
    except ValueError as error:
        _refuse(name, str(error))
    if not isinstance(found, int | float) or not 1 <= found < math.inf:
        _refuse(name, f"{value!r} is no length of an interval; allowed is at least 1 us")
    return round(found)


def _microseconds(text: str) -> int:
    from truenorth.models.units import parse_time

    return parse_time(text)


def _share(name: str, option: Option, value: Any) -> Fraction:
    """Read a share exactly as it is written: 0.1 is a tenth."""
    found = _fraction(value)
    if found is None or not 0 <= found < 1:
        _refuse(name, f"{value!r} is no share; allowed is a number of at least 0 and below 1, such as 0.1")
    return found


def _progress(name: str, option: Option, value: Any) -> Fraction | Path:
    """Read a share, or the path of a folder where the text is no number."""
    if isinstance(value, Path) or _fraction(value) is None:
        path = _text(name, option, value)
        number = path.replace(",", ".")
        if "," in path and _fraction(number) is not None:
            _refuse(name, f"{path!r} is no share; write {number}, with a point")
        return Path(path)
    return _share(name, option, value)


def _factor(name: str, option: Option, value: Any) -> Fraction:
    found = _fraction(value)
    if found is None:
        _refuse(name, f"{value!r} is no number; allowed is one such as 1.5")
    return found


def _fraction(value: Any) -> Fraction | None:
    try:
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        return None


def _names(name: str, option: Option, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(split_policies(value))
    if isinstance(value, Sequence) and all(isinstance(each, str) for each in value):
        return tuple(value)
    _refuse(name, f"{value!r} names no policies; allowed is text with commas, or a list of text")


def _levels(name: str, option: Option, value: Any) -> ServiceLevels:
    from truenorth.models.slo import ServiceLevels
    from truenorth.models.units import QuantityError

    if isinstance(value, ServiceLevels):
        return value
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        _refuse(name, f"{value!r} is no service level; allowed is text, or a list of text")
    try:
        return ServiceLevels.parse(*texts)
    except QuantityError as error:
        _refuse(name, str(error))


_READERS: Mapping[OptionKind, Callable[[str, Option, Any], Any]] = {
    OptionKind.TEXT: _text,
    OptionKind.POLICY: _text,
    OptionKind.NOISE: _text,
    OptionKind.FILE: lambda name, option, value: Path(_text(name, option, value)),
    OptionKind.CHOICE: _choice,
    OptionKind.FLAG: lambda name, option, value: bool(value),
    OptionKind.WHOLE: _whole,
    OptionKind.SECONDS: _seconds,
    OptionKind.TIME: _time,
    OptionKind.SHARE: _share,
    OptionKind.PROGRESS: _progress,
    OptionKind.FACTOR: _factor,
    OptionKind.NAMES: _names,
    OptionKind.LEVELS: _levels,
}
