"""Dotted paths into a document: ``cluster.gpu.memory``, ``models.*.weights``, ``cluster.groups[0].count``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Context, Decimal

from truenorth.models.scenario.errors import Plain, Where, quote

_POSITION = re.compile(r"\[(\d{1,9}|\*)\]")
_KEY = re.compile(r"[^.\[\]]+")
_SCALE = re.compile(r"x\s*(\d+(?:\.\d*)?|\.\d+)", re.ASCII)
_QUANTITY = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*(\S*(?:\s*\S+)*)\s*", re.ASCII)
_MISSING = object()
_EXACT = Context(prec=200)
"""More digits than two numbers of a scenario have together."""


class PathError(ValueError):
    """A path leads nowhere, or the value there cannot be scaled; the message says what is allowed."""


def places(document: object, path: str) -> list[Where]:
    """Return the places that a path names; a key that is missing is taken as it is written.

    ``*`` stands for every key of a mapping and ``[*]`` for every item of a list. Names that contain dots are found by
    the keys that are there.

    >>> places({"models": {"opt": {"weights": "2 GB"}, "nli-1.5": {}}}, "models.*.weights")
    [('models', 'opt', 'weights'), ('models', 'nli-1.5', 'weights')]
    >>> places({"models": {"nli-1.5": {}}}, "models.nli-1.5.weights")
    [('models', 'nli-1.5', 'weights')]

    Raises
    ------
    PathError
        If the path is none, or leads below a plain value or beyond the end of a list.
    """
    found = list(_walk(document, path, ()))
    if not found:
        raise PathError(f"{quote(path)} names nothing; allowed is a path to a value of the scenario")
    return found


def _walk(node: object, rest: str, done: Where) -> Iterator[Where]:
    if not rest:
        yield done
    elif isinstance(node, (list, tuple)):
        yield from _walk_list(node, rest, done)
    elif isinstance(node, Mapping) and re.match(r"\*(?=$|[.\[])", rest):
        for key, value in node.items():
            yield from _walk(value, _after(rest, "*"), (*done, key))
    elif isinstance(node, Mapping) or node is None:
        key = _key(node or {}, rest, done)
        yield from _walk((node or {}).get(key), _after(rest, key), (*done, key))
    else:
        raise PathError(f"{_name(done)} is the value {quote(node)}; allowed is a path that ends there")


def _walk_list(items: list[object] | tuple[object, ...], rest: str, done: Where) -> Iterator[Where]:
    position = _POSITION.match(rest)
    if position is None:
        raise PathError(f"{_name(done)} is a list; allowed is {_name(done)}[0], {_name(done)}[*], or the whole list")
    chosen = range(len(items)) if position[1] == "*" else [int(position[1])]
    for index in chosen:
        if index >= len(items):
            raise PathError(f"{_name(done)} has {len(items)} items; allowed are [0] to [{len(items) - 1}]")
        yield from _walk(items[index], _after(rest, position[0]), (*done, index))


def _key(node: Mapping[str, object], rest: str, done: Where) -> str:
    """Return the longest key that the rest of a path begins with, or the next word of the path."""
    known = [key for key in node if rest == key or rest.startswith((f"{key}.", f"{key}["))]
    if known:
        return max(known, key=len)
    word = _KEY.match(rest)
    if word is None or word[0] == "*":
        raise PathError(f"{quote(rest)} after {_name(done)} names nothing; allowed are names with dots between them")
    return word[0]


def _after(rest: str, part: str) -> str:
    following = rest[len(part) :]
    if following == ".":
        raise PathError("the path ends with a dot; allowed are names with dots between them")
    return following.removeprefix(".")


def _name(where: Where) -> str:
    named = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
    return named.lstrip(".") or "the document"


def value_at(document: object, where: Where) -> object:
    """Return the value at a place; None where there is nothing."""
    found = _value_at(document, where)
    return None if found is _MISSING else found


def first_missing(document: object, where: Where) -> int | None:
    """Return the position in `where` of the first key that the document lacks; None if it has them all."""
    return next((depth for depth in range(len(where)) if _value_at(document, where[: depth + 1]) is _MISSING), None)


def _value_at(document: object, where: Where) -> object:
    for part in where:
        children = dict(enumerate(document)) if isinstance(document, (list, tuple)) else document
        if not isinstance(children, Mapping) or part not in children:
            return _MISSING
        document = children[part]
    return document


def replace_at(document: Mapping[str, object], where: Where, value: object) -> dict[str, object]:
    """Return a copy with another value at a place; what is not on the way there is shared.

    >>> replace_at({"a": {"b": 1}, "c": 2}, ("a", "b"), 3)
    {'a': {'b': 3}, 'c': 2}
    """
    key = str(where[0])
    return {**document, key: _replace_at(document.get(key), where[1:], value)}


def _replace_at(document: object, where: Where, value: object) -> object:
    if not where:
        return value
    part, rest = where[0], where[1:]
    if isinstance(document, (list, tuple)) and isinstance(part, int):
        return [*document[:part], _replace_at(document[part], rest, value), *document[part + 1 :]]
    mapping = document if isinstance(document, Mapping) else {}
    return {**mapping, part: _replace_at(mapping.get(part), rest, value)}


def factor(value: object) -> str | None:
    """Return the factor of a value that scales, such as ``x2``; None for any other value.

    >>> factor("x0.5"), factor("2 GB")
    ('0.5', None)
    """
    match = _SCALE.fullmatch(value) if isinstance(value, str) else None
    return None if match is None else match[1]


def scale_quantity(value: object, times: str) -> str:
    """Return a number or quantity times a factor, exactly, as text with the same unit.

    >>> scale_quantity("14 GB", "0.5"), scale_quantity(5, "2")
    ('7 GB', '10')

    Raises
    ------
    PathError
        If the value is no number.
    """
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, (str, int, float)) else None
    if match is None or isinstance(value, bool):
        stands = "nothing stands" if value is None else f"{quote(value)} stands"
        raise PathError(f"x{times}: {stands} there in the scenario; allowed is to scale a number")
    text = f"{_EXACT.multiply(Decimal(match[1]), Decimal(times)):f}"
    return Plain(f"{text.rstrip('0').rstrip('.') if '.' in text else text} {match[2]}".rstrip())
