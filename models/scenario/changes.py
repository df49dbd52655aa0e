"""Changes of a scenario by dotted paths: ``cluster.gpu.memory``, ``models.*.weights``, ``cluster.groups[0].count``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Context, Decimal
from itertools import pairwise
from pathlib import Path

from truenorth.models.scenario.document import ScenarioDocument
from truenorth.models.scenario.errors import FieldError, InputError, Plain, Source, Where, allowed, quote
from truenorth.models.scenario.section import validate

_POSITION = re.compile(r"\[(\d{1,9}|\*)\]")
_KEY = re.compile(r"[^.\[\]]+")
_SCALE = re.compile(r"x\s*(\d+(?:\.\d*)?|\.\d+)", re.ASCII)
_QUANTITY = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*(\S*(?:\s*\S+)*)\s*", re.ASCII)
_MISSING, _REMOVED = object(), object()
_LONGEST_PATH = 2_000
_FACTOR = "rate_factor"
_EXACT = Context(prec=200)
"""More digits than two numbers of a scenario have together."""


class PathError(ValueError):
    """A path leads nowhere, or the value there cannot be scaled; the message says what is allowed."""


def change(data: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """Return a scenario's plain data after changes, all made at once; what they do not touch is shared.

    A value replaces what stands at its path, a factor such as ``x2`` scales it, None removes it.

    >>> change({"name": "edge", "cluster": {"servers": 5}}, {"cluster.servers": "x2", "name": None})
    {'cluster': {'servers': '10'}}

    Raises
    ------
    FieldError
        With the path of a change that leads nowhere, cannot be made, or contradicts another.
    """
    wanted: dict[Where, object] = {}
    named: dict[Where, str] = {}
    for path, value in changes.items():
        try:
            for where in places(data, path):
                if where in named:
                    raise PathError(f"changes {_name(where)}, as {quote(named[where])} does; allowed is one of them")
                named[where], wanted[where] = path, _wanted(data, where, value)
        except PathError as error:
            raise FieldError((path,), str(error)) from None
    # Sorted, a place is followed by one below it if there is any.
    for outer, inner in pairwise(sorted(named, key=lambda where: [str(part) for part in where])):
        if inner[: len(outer)] == outer:
            problem = f"changes a part of {_name(outer)}, as {quote(named[outer])} does; allowed is one of them"
            raise FieldError((named[inner],), problem)
    changed = _replaced(data, wanted)
    return changed if isinstance(changed, dict) else {}


def _wanted(data: object, where: Where, value: object) -> object:
    """Return what is to stand at a place."""
    times = factor(value)
    missing = first_missing(data, where) if times is not None or value is None else None
    if missing == len(where) - 1 and where[-1] == _FACTOR and times is not None:
        return scale_quantity(1, times)  # a factor that is left out is 1
    if missing is not None and not _may_lack(data, where):
        verb = "remove" if value is None else f"scale by {times}"
        raise PathError(f"there is nothing to {verb}; {_known_beside(data, where, missing)}")
    if value is None:
        return _REMOVED
    return value if times is None else scale_quantity(value_at(data, where), times)


def _may_lack(data: object, where: Where) -> bool:
    """Say whether a scenario may have nothing at a place where it has nothing, so that there is no slip of the pen."""
    return refusal(_replaced(data, {where: None})) is None


def _known_beside(data: object, where: Where, depth: int) -> str:
    """Return which names there are where one is missing."""
    siblings = value_at(data, where[:depth])
    known = list(siblings) if isinstance(siblings, Mapping) else []
    return allowed(str(where[depth]), known) if known else "allowed is to change what it would be part of"


def refuse_new_names(data: Mapping[str, object], changes: Mapping[str, object]) -> None:
    """Refuse a missing key where any name would do: a slip of the pen would change nothing, and nobody would see.

    That any name would do shows when another one is accepted as well. What is added on purpose is known by its value,
    a whole section, or by its name, which the changed scenario refers to.

    Raises
    ------
    FieldError
        With the path of the change.
    """
    changed = change(data, changes)
    for path, value in changes.items():
        for where in places(data, path):
            missing = first_missing(data, where)
            if missing is None or value is None or (missing == len(where) - 1 and _on_purpose(changed, where)):
                continue
            for depth in range(missing, len(where)):
                elsewhere = (*where[:depth], f"{where[depth]} ", *where[depth + 1 :])
                if refusal(_replaced(data, {elsewhere: value})) is None:
                    raise FieldError(
                        (path,), f"{quote(where[depth])} is not in the scenario; {_known_beside(data, where, depth)}"
                    )


def _on_purpose(changed: Mapping[str, object], where: Where) -> bool:
    return isinstance(value_at(changed, where), Mapping) or where[-1] in _texts(_replaced(changed, {where: _REMOVED}))


def _texts(node: object) -> Iterator[object]:
    """Yield the keys and plain values of a document."""
    if isinstance(node, Mapping):
        yield from node
        node = list(node.values())
    if isinstance(node, (list, tuple)):
        for item in node:
            yield from _texts(item)
    else:
        yield node


def refusal(data: object) -> str | None:
    """Return why data is no scenario document, or None."""
    try:
        validate(ScenarioDocument, data, Source("", Path()))
    except InputError as error:
        return f"{error.field}: {error.problem}"
    return None


def plain(value: object) -> object:
    """Return Python's own numbers, lists and mappings where there may be those of numpy.

    >>> import numpy as np
    >>> plain({"servers": np.int64(2), "rates": np.array([0.5, 1.0])})
    {'servers': 2, 'rates': [0.5, 1.0]}
    """
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    own = getattr(value, "tolist", None)
    return value if own is None else plain(own())


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
    if len(path) > _LONGEST_PATH:
        raise PathError(f"is too long; allowed are paths of at most {_LONGEST_PATH} characters")
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


def _replaced(node: object, changes: Mapping[Where, object]) -> object:
    """Return a node with other values at places below it; what is not on the way to them is shared."""
    if () in changes:
        return changes[()]
    below: dict[str | int, dict[Where, object]] = {}
    for where, value in changes.items():
        below.setdefault(where[0], {})[where[1:]] = value
    if isinstance(node, (list, tuple)):
        items = [_replaced(item, below[at]) if at in below else item for at, item in enumerate(node)]
        return [item for item in items if item is not _REMOVED]
    mapping = dict(node) if isinstance(node, Mapping) else {}
    made = mapping | {part: _replaced(mapping.get(part), deeper) for part, deeper in below.items()}
    return {key: item for key, item in made.items() if item is not _REMOVED}


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
