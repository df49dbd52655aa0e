"""Answers as files say them: frozen records as JSON and back, and text in CSV that no spreadsheet computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import Any, TypeVar, cast

from pydantic import GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema

Kind = TypeVar("Kind")
_PLAIN = (str, int, float, bool, type(None))


class Absent(Enum):
    """What a field holds whose key is left out; what should be there and is unknown is None, and null."""

    ABSENT = "absent"


ABSENT: Any = Absent.ABSENT
"""The default of a field whose key is left out where it says nothing, as the prices of groups without any."""


def key(name: str) -> dict[str, Any]:
    """Return the metadata of a field that has another name in JSON."""
    return {"key": name}


def spread(kind: type | None = None, prefix: str = "") -> dict[str, Any]:
    """Return the metadata of a field whose own fields stand among its neighbours, each behind a prefix.

    Parameters
    ----------
    kind
        Its type, by which it is gathered when it is read; None: a mapping, which gathers every key of nobody else's.
    """
    return {"spread": kind or dict, "prefix": prefix}


class Spreading:
    """A record with fields that are spread, and are to be read back."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return how pydantic reads such a record: its keys are gathered first."""
        return core_schema.no_info_before_validator_function(lambda found: _gather(cls, found), handler(source))


def _gather(kind: Any, found: Any) -> Any:
    """Return the content of a record of a kind with one key per field."""
    if not isinstance(found, Mapping):
        return found
    taken = {name for name, _ in _keys(kind)}
    gathered = {name: value for name, value in found.items() if name in taken}
    for one in fields(kind):
        within = one.metadata.get("spread")
        if within is dict:
            gathered[one.name] = {name: value for name, value in found.items() if name not in taken}
        elif within is not None:
            prefix = one.metadata["prefix"]
            inner = {name: own for name, own in _keys(within) if prefix + name in found}
            gathered[one.name] = {own: found[prefix + name] for name, own in inner.items()}
    return gathered


def _keys(kind: Any) -> Iterator[tuple[str, str]]:
    """Yield the keys of a record of a kind, those of what it spreads included, each with the name of its field."""
    for one in fields(kind):
        within = one.metadata.get("spread")
        if within is None:
            yield one.metadata.get("key", one.name), one.name
        elif within is not dict:
            yield from ((one.metadata["prefix"] + name, one.name) for name, _ in _keys(within))


def take(kind: type[Kind], *sources: object, **own: Any) -> Kind:
    """Return a record of a type: of each field what is given by its name, else what the first source has under it."""
    found, of = dict(own), cast(Any, kind)
    for name in (one.name for one in fields(of) if one.name not in own):
        held = (getattr(source, name, ABSENT) for source in sources)
        value = next((each for each in held if each is not ABSENT), ABSENT)
        found |= {} if value is ABSENT else {name: value}
    return kind(**found)


def decode(kind: type[Kind], document: object) -> Kind:
    """Return the record of a type that a JSON document holds; keys of nobody are left out.

    Raises
    ------
    pydantic.ValidationError
        If the document is none.
    """
    return TypeAdapter(kind).validate_python(document)


def encode(value: Any) -> Any:
    """Return a value as JSON data: of a record its fields in order, or the attributes that its type lists as ENCODED.

    >>> encode({"share": Fraction(1, 4), "sizes": (1, None)})
    {'share': 0.25, 'sizes': [1, None]}
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, (Enum, PurePath)):
        return str(value)
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, (str, float)):  # a subclass of theirs, as NumPy's
        return value
    if is_dataclass(value):
        return dict(_encoded(value))
    if isinstance(value, Mapping):
        return {str(name): encode(held) for name, held in value.items()}
    return [encode(held) for held in value]


def _encoded(record: Any) -> Iterator[tuple[str, Any]]:
    """Yield keys and values of a record."""
    listed: tuple[str, ...] | None = getattr(record, "ENCODED", None)
    if listed is not None:
        held = ((name, getattr(record, name)) for name in listed)
        yield from ((name, encode(value)) for name, value in held if value is not ABSENT)
        return
    for one in fields(record):
        value = getattr(record, one.name)
        if value is ABSENT:
            continue
        if "spread" in one.metadata:
            yield from ((one.metadata["prefix"] + name, held) for name, held in encode(value).items())
        else:
            yield one.metadata.get("key", one.name), encode(value)


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_GUARD = "'"


def guard(text: str) -> str:
    """Return a text as a cell that no spreadsheet computes; a number stays one, and `unguard` gives the text again.

    >>> guard("=1+2"), guard("-1.5"), guard("jit"), guard("'it")
    ("'=1+2", '-1.5', 'jit', "''it")
    """
    return _GUARD + text if text.startswith((_GUARD, *_FORMULA)) and not _is_number(text) else text


def unguard(cell: str) -> str:
    """Return the text that a cell stands for.

    >>> unguard("'=1+2"), unguard("-1.5"), unguard("''it")
    ('=1+2', '-1.5', "'it")
    """
    return cell[1:] if cell.startswith((_GUARD * 2, *(_GUARD + sign for sign in _FORMULA))) else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.strip() == text
