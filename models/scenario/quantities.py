"""Types of the document's fields: each reads text exactly, keeps it in range, and describes itself to an editor."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, PlainValidator, WithJsonSchema

from truenorth.models.cluster import FOREVER, Interval
from truenorth.models.objective import Objective
from truenorth.models.scenario.errors import Plain, allowed, quote
from truenorth.models.scenario.section import kind_of, problem
from truenorth.models.slo import ServiceLevel, ServiceLevels
from truenorth.models.tables import LARGEST
from truenorth.models.units import BANDWIDTH, RATE_PER_SECOND, SIZE_BYTES, TIME_US, QuantityError, parse_number
from truenorth.models.units import parse_bandwidth as read_bandwidth
from truenorth.models.units import parse_fine_time as read_fine_time
from truenorth.models.units import parse_rate as read_rate
from truenorth.models.units import parse_size as read_size
from truenorth.models.units import parse_time as read_time
from truenorth.models.workload import WHOLE

MAX_FINE_TIME_PS = 10**9
"""Of a time that counts per token: 1 ms."""
MAX_TIME_US = 10**15
"""Longest time: about 32 years."""
MAX_SIZE_BYTES = LARGEST
MAX_JOBS = 1_000_000
MAX_GPUS = 100_000
MAX_BATCH = 9_999
MAX_TOKENS = 10**8
MAX_NUMBER = 10**9
MAX_BANDWIDTH = 10**18
_LONGEST_NUMBER = 60
LONGEST_NAME = 200

_DIGITS = r"(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?"
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_BATCH_SIZE = re.compile(r"[1-9]\d{0,3}", re.ASCII)
_PLAIN_NUMBER = re.compile(_DIGITS, re.ASCII)
_SERVER = re.compile(r"s?\d{1,9}", re.ASCII)

Value = TypeVar("Value", int, Fraction)


def _text(value: object, what: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise problem(f"{kind_of(value)} stands here; allowed is {what}")
    text = str(value)
    if len(text) > _LONGEST_NUMBER:
        raise problem(f"{quote(text)} is too long; allowed is {what} of at most {_LONGEST_NUMBER} characters")
    return text


def _quantity(
    read: Callable[[str], Value], units: Mapping[str, object], what: str, least: Value, most: Value, base: str
) -> Callable[[object], Value]:
    """Return a validator for a number with a unit, and its description."""

    def validate(value: object) -> Value:
        """Read a quantity; refuse one that is malformed or out of range."""
        text = _text(value, f"a {what}, a number with one of {', '.join(units)}")
        try:
            quantity = read(text)
        except QuantityError as error:
            raise problem(str(error)) from None
        if not least <= quantity <= most:
            raise problem(
                f"{quote(text)} is out of range; allowed is {float(least):g} {base} to {float(most):g} {base}"
            )
        return quantity

    return validate


def _describe(what: str, units: Mapping[str, object], *examples: str) -> WithJsonSchema:
    names = "|".join(re.escape(unit) for unit in units)
    return _said("string", what, pattern=rf"^\s*\+?{_DIGITS}\s*({names})\s*$", examples=list(examples))


def _said(kind: str | list[str], what: str = "", **more: object) -> WithJsonSchema:
    """Return what an editor is told of a field: its type in JSON, what it is, and more keys of JSON Schema."""
    return WithJsonSchema({"type": kind} | ({"description": what} if what else {}) | more)


def _time(least: int) -> Callable[[object], int]:
    return _quantity(read_time, TIME_US, "time", least, MAX_TIME_US, "us")


def _size(least: int) -> Callable[[object], int]:
    return _quantity(read_size, SIZE_BYTES, "size", least, MAX_SIZE_BYTES, "B")


_read_time, _read_size = _time(0), _size(0)
Time = Annotated[
    int, PlainValidator(_read_time), _describe("A time, in microseconds once read.", TIME_US, "0 us", "560 ms")
]
PositiveTime = Annotated[
    int, PlainValidator(_time(1)), _describe("A time of at least 1 us.", TIME_US, "560 ms", "1.5 s")
]
FineTime = Annotated[
    int,
    PlainValidator(_quantity(read_fine_time, TIME_US, "time", 0, MAX_FINE_TIME_PS, "ps")),
    _describe("A time, in picoseconds once read.", TIME_US, "0 us", "0.03 us"),
]
Size = Annotated[int, PlainValidator(_read_size), _describe("A size in bytes.", SIZE_BYTES, "0 B", "2 KB")]
PositiveSize = Annotated[
    int, PlainValidator(_size(1)), _describe("A size of at least 1 B.", SIZE_BYTES, "5.72 GB", "14 GiB")
]
Bandwidth = Annotated[
    Fraction,
    PlainValidator(
        _quantity(read_bandwidth, BANDWIDTH, "bandwidth", Fraction(1, 8), Fraction(MAX_BANDWIDTH), "bytes/s")
    ),
    _describe("A bandwidth.", BANDWIDTH, "10.17 GB/s", "25 Gbit/s"),
]
Rate = Annotated[
    Fraction,
    PlainValidator(_quantity(read_rate, RATE_PER_SECOND, "rate", Fraction(1, MAX_NUMBER), Fraction(MAX_NUMBER), "/s")),
    _describe("Events per time.", RATE_PER_SECOND, "2 /s", "30 /min"),
]


def read_number(text: str) -> Fraction:
    """Return a plain number from 0 to 10^9, exactly; positive ones are at least 10^-9.

    Raises
    ------
    QuantityError
        If the text is no such number.
    """
    number = parse_number(text) if len(text) <= _LONGEST_NUMBER else Fraction(-1)
    if number != 0 and not Fraction(1, MAX_NUMBER) <= number <= MAX_NUMBER:
        raise QuantityError(f"{quote(text)} is no such number; allowed is 0, or a number from 1e-9 to 1e9")
    return number


def _number(value: object) -> Fraction:
    text = _text(value, "a plain number")
    if isinstance(value, str) and not isinstance(value, Plain):
        raise problem(f"text {quote(text)} stands here; allowed is a plain number without quotes")
    try:
        return read_number(text)
    except QuantityError as error:
        raise problem(str(error)) from None


def _positive_number(value: object) -> Fraction:
    number = _number(value)
    if not number:
        raise problem("0 is no factor; write a number above 0, for example 2")
    return number


def _share(value: object) -> int:
    text = _text(value, "a share of a GPU")
    parts = parse_number(text) * WHOLE if _PLAIN_NUMBER.fullmatch(text) else Fraction(0)
    quoted = isinstance(value, str) and not isinstance(value, Plain)
    if quoted or not 0 < parts <= WHOLE or parts.denominator != 1:
        raise problem(f"{quote(text)} is no share; allowed is a number above 0 and at most 1, to four decimal places")
    return int(parts)


def _together(what: str) -> PlainValidator:
    """Return a validator for how many run together, also where that is the key of a mapping, and so text."""

    def validate(value: object) -> int:
        """Read a whole number of at least 1."""
        if isinstance(value, bool) or not _BATCH_SIZE.fullmatch(str(value)):
            raise problem(f"{quote(str(value))} is no {what}; allowed is a whole number from 1 to {MAX_BATCH}")
        return int(str(value))

    return PlainValidator(validate)


def _read_whole(least: int, most: int) -> Callable[[object], int]:
    def validate(value: object) -> int:
        """Read a plain whole number within the range."""
        what = f"a whole number from {least} to {most}"
        text = _text(value, what)
        quoted = isinstance(value, str) and not isinstance(value, Plain)
        if quoted or not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
            raise problem(f"{quote(text)} is no such number; allowed is {what}")
        return int(text)

    return validate


def whole(least: int, most: int) -> PlainValidator:
    """Return what reads a plain whole number within a range."""
    return PlainValidator(_read_whole(least, most))


def _list_of(length: int, **each: object) -> dict[str, Any]:
    """Return what an editor is told of a list of so many."""
    return {"type": "array", "items": each, "minItems": length, "maxItems": length}


def _describe_whole(what: str, least: int, most: int) -> WithJsonSchema:
    return _said("integer", what, minimum=least, maximum=most)


Number = Annotated[Fraction, PlainValidator(_number), _said("number", "A plain number.", minimum=0, maximum=MAX_NUMBER)]
PositiveNumber = Annotated[
    Fraction,
    PlainValidator(_positive_number),
    _said("number", "A plain number above 0.", exclusiveMinimum=0, maximum=MAX_NUMBER),
]
Share = Annotated[
    int,
    PlainValidator(_share),
    _said("number", "A share of a GPU's compute, with up to four decimal places.", exclusiveMinimum=0, maximum=1),
]
"""Read as a whole number of parts of `WHOLE`."""
BatchSize = Annotated[int, _together("batch size"), _said("string", pattern="^[1-9][0-9]{0,3}$", examples=["4"])]
Concurrency = Annotated[
    int, _together("concurrency"), _said(["string", "integer"], pattern="^[1-9][0-9]{0,3}$", minimum=1, examples=["64"])
]
GPUCount = Annotated[int, whole(1, MAX_GPUS), _describe_whole("How many.", 1, MAX_GPUS)]
JobCount = Annotated[int, whole(1, MAX_JOBS), _describe_whole("How many jobs.", 1, MAX_JOBS)]
Index = Annotated[int, whole(0, MAX_GPUS), _describe_whole("A position, from 0.", 0, MAX_GPUS)]
MAX_LINE = 10**9 - 1
Line = Annotated[int, whole(0, MAX_LINE), _describe_whole("A line of a file.", 0, MAX_LINE)]
MAX_PRIORITY = 1_000
Priority = Annotated[int, whole(0, MAX_PRIORITY), _describe_whole("Urgency; a higher one goes first.", 0, MAX_PRIORITY)]
Seed = Annotated[int, whole(0, 2**63 - 1), _describe_whole("Seed of the random numbers.", 0, 2**63 - 1)]
TokenCount = Annotated[int, whole(1, MAX_TOKENS), _describe_whole("How many tokens.", 1, MAX_TOKENS)]
UncachedCount = Annotated[int, whole(0, MAX_TOKENS), _describe_whole("How many tokens.", 0, MAX_TOKENS)]
KV = -1
"""Stands for the bytes of an edge along which KV is moved."""


def read_edge_size(value: object) -> int:
    """Read the bytes of an edge, KV where its KV is moved."""
    return KV if value == "kv" else _read_size(value)


EdgeSize = Annotated[
    int,
    PlainValidator(read_edge_size),
    _said(
        "string",
        "A size in bytes; `kv`: the KV of the predecessor's prompt.",
        pattern=rf"^(kv|\s*\+?{_DIGITS}\s*({'|'.join(map(re.escape, SIZE_BYTES))})\s*)$",
        examples=["2 KB", "kv"],
    ),
]


def _token_triple(value: object) -> tuple[int, int, int]:
    if not isinstance(value, (list, tuple)) or len(value) != len(_TRIPLE):
        raise problem(f"{kind_of(value)} stands here; allowed is a list {_TRIPLE_TEXT} such as [900, 100, 200]")
    counts = [read(count) for read, count in zip(_TRIPLE, value, strict=True)]
    return counts[0], counts[1], counts[2]


_TRIPLE = tuple(_read_whole(least, MAX_TOKENS) for least in (1, 0, 1))
_TRIPLE_TEXT = "[prompt, uncached, output]"
TokenTriple = Annotated[
    tuple[int, int, int],
    PlainValidator(_token_triple),
    WithJsonSchema(
        _list_of(3, type="integer", minimum=0)
        | {
            "description": "Tokens of a request: of the prompt, uncached ones of these, of the answer.",
            "examples": [[900, 100, 200]],
        }
    ),
]


def _block_numbers(value: object) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)):
        raise problem(f"{kind_of(value)} stands here; allowed is a list of numbers of blocks such as [0, 1, 17]")
    # Long lists, which requests have many of, come as numbers.
    if all(type(number) is int and 0 <= number <= _MOST_BLOCKS for number in value):
        return tuple(value)
    return tuple(_read_block(number) for number in value)


_MOST_BLOCKS = 10**18
_read_block = _read_whole(0, _MOST_BLOCKS)
BlockNumbers = Annotated[
    tuple[int, ...],
    PlainValidator(_block_numbers),
    WithJsonSchema(
        {
            "type": "array",
            "items": {"type": "integer", "minimum": 0},
            "description": "Leading blocks of a prompt; equal ones behind equal ones are the same tokens.",
            "examples": [[0, 1, 17]],
        }
    ),
]


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, Plain) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise problem(f"{quote(value)} is no truth value; allowed are true, false")


Flag = Annotated[bool, PlainValidator(_flag), WithJsonSchema({"type": "boolean"})]


def _name(value: object) -> str:
    text = str(value)
    if not isinstance(value, str) or not 0 < len(text) <= LONGEST_NAME or not text.isprintable():
        raise problem(f"{kind_of(value)} stands here; allowed is a name of 1 to {LONGEST_NAME} printable characters")
    return text


_NAME_SCHEMA = {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}
Name = Annotated[str, PlainValidator(_name), WithJsonSchema(_NAME_SCHEMA)]


def _kind(value: object) -> str:
    if value == "*":
        raise problem("'*' is no kind of GPU; allowed is a name such as T4")
    return _name(value)


Kind = Annotated[str, PlainValidator(_kind), WithJsonSchema(_NAME_SCHEMA | {"examples": ["T4"]})]


def read_server(text: str) -> int:
    """Return the index of a server that is written ``s3`` or ``3``.

    Raises
    ------
    QuantityError
        If the text is neither.
    """
    if not _SERVER.fullmatch(text):
        raise QuantityError(f"{quote(text)} is no server; allowed is a server such as s0")
    return int(text.removeprefix("s"))


def _server(value: object) -> int:
    try:
        return read_server(_text(value, "a server such as s0"))
    except QuantityError as error:
        raise problem(str(error)) from None


Server = Annotated[
    int, PlainValidator(_server), _said(["string", "integer"], pattern="^s?[0-9]+$", minimum=0, examples=["s0"])
]


def _two_times(value: object, what: str, such: str, last: Callable[[object], int]) -> tuple[int, int]:
    """Read a list of two times, the first before the second."""
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise problem(f"is no {what}; allowed is a list of two times such as {such}")
    start, end = _read_time(value[0]), last(value[1])
    if start >= end:
        raise problem(f"is an empty {what}, from {start} us to {end} us; allowed is a start before the end")
    return start, end


def _window(value: object) -> tuple[int, int]:
    return _two_times(value, "window", "[0 s, 60 s]", _read_time)


Window = Annotated[
    tuple[int, int],
    PlainValidator(_window),
    WithJsonSchema(
        _list_of(2, type="string")
        | {
            "description": "Arrivals from the first time to before the second; releases count from the first.",
            "examples": [["0 s", "60 s"]],
        }
    ),
]


def _interval(value: object) -> Interval:
    such = "[0 s, 600 s], the second may be end"
    return _two_times(value, "interval", such, lambda end: FOREVER if end == "end" else _read_time(end))


def _ascending(intervals: tuple[Interval, ...]) -> tuple[Interval, ...]:
    for position, (before, after) in enumerate(pairwise(intervals), 1):
        if after[0] < before[1]:
            until = "end" if before[1] == FOREVER else f"{before[1]} us"
            text = f"begins at {after[0]} us, and the one before lasts until {until}"
            raise problem(f"{text}; allowed are intervals in their order, none over another", position)
    return intervals


Intervals = Annotated[
    tuple[Annotated[Interval, PlainValidator(_interval)], ...],
    AfterValidator(_ascending),
    _said(
        "array",
        "Intervals in which the servers are there, the last one maybe until `end`.",
        minItems=1,
        items=_list_of(2, type="string"),
        examples=[[["0 s", "600 s"], ["900 s", "end"]]],
    ),
]


def _objective(value: object) -> Objective:
    try:
        return Objective(str(value))
    except ValueError:
        raise problem(f"unknown objective {quote(value)}; {allowed(str(value), list(Objective))}") from None


def _service_levels(value: object) -> ServiceLevels:
    if isinstance(value, ServiceLevels):
        return value
    texts = value if isinstance(value, (list, tuple)) else [value]
    try:
        levels = [ServiceLevel.parse(_text(text, "a service level such as 'p99 slowdown <= 2'")) for text in texts]
    except QuantityError as error:
        raise problem(str(error)) from None
    if not levels:
        raise problem("there is no service level; allowed is one, or a list of at least one")
    return ServiceLevels(tuple(levels))


Minimised = Annotated[
    Objective,
    PlainValidator(_objective),
    WithJsonSchema({"enum": [str(objective) for objective in Objective], "default": str(Objective.MEAN_SLOWDOWN)}),
]
_LEVEL = {
    "type": "string",
    "examples": [
        "p99 slowdown <= 2", "p95 latency <= 800 ms", "mean latency <= 1 s", "95 % within deadline", "no late jobs",
        "p95 latency of chat <= 2 s", "p95 first token <= 2 s", "p95 time per token of chat <= 50 ms",
    ],
}  # fmt: skip
Levels = Annotated[
    ServiceLevels,
    PlainValidator(_service_levels),
    WithJsonSchema({"anyOf": [_LEVEL, {"type": "array", "minItems": 1, "items": _LEVEL}]}),
]
