"""Configuration files to settings: YAML, JSON and TOML, with limits on depth, size and aliases."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

from models.scenario import InputError
from models.scenario.errors import Node
from models.scenario.reading import parse_document
from planner.inputs.estimate.sources.description import Problem
from planner.inputs.estimate.sources.setting import Origin, Setting

MAX_SETTINGS = 20_000
_DEEPEST = 30
_TABLE = re.compile(r"\s{0,40}\[{1,2}([^\[\]]{1,200})\]{1,2}")
_KEY = re.compile(r"\s{0,40}([\w.\"'-]{1,200})\s{0,40}=")


def read_settings(text: str, file: str, suffix: str) -> list[Setting] | Problem:
    """Return the scalars, and the lists of scalars, of a configuration; or why it cannot be read."""
    try:
        if suffix == ".toml":
            return list(_take_first(_of_table(tomllib.loads(text), (), file, _toml_lines(text), 1)))
        root = parse_document(text, file, suffix)
    except InputError as error:
        return Problem(file, error.line or 1, error.problem)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        return Problem(file, int(found[1]) if found else 1, f"{error}; allowed is TOML")
    except (RecursionError, ValueError):
        return Problem(file, 1, "is nested too deeply or holds a number without end; allowed is less")
    return list(_take_first(_of_node(root, (), file)))


def _take_first(settings: Iterator[Setting]) -> Iterator[Setting]:
    for setting, _ in zip(settings, range(MAX_SETTINGS), strict=False):
        yield setting


def _of_node(root: Node, path: tuple[str, ...], file: str) -> Iterator[Setting]:
    waiting = [(path, root)]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node.content, dict):
            waiting += [((*path, key), value) for key, (_, value) in reversed(node.content.items())]
        elif isinstance(node.content, list):
            nested = [item for item in node.content[:MAX_SETTINGS] if isinstance(item.content, dict | list)]
            waiting += [(path, item) for item in reversed(nested)]
            if not nested and path:
                items = tuple(item.content for item in node.content[:MAX_SETTINGS])
                yield Setting(path, items, Origin.CONFIG, file, node.line)
        elif node.content is not None and path:
            yield Setting(path, str(node.content), Origin.CONFIG, file, node.line)


def _of_table(
    table: object, path: tuple[str, ...], file: str, lines: dict[tuple[str, ...], int], line: int
) -> Iterator[Setting]:
    line = lines.get(path, line)
    if isinstance(table, dict) and len(path) < _DEEPEST:
        for key, value in table.items():
            yield from _of_table(value, (*path, key), file, lines, line)
    elif isinstance(table, list) and any(isinstance(item, dict) for item in table):
        for item in table:
            yield from _of_table(item, path, file, lines, line)
    elif isinstance(table, list):
        yield Setting(path, tuple(table), Origin.CONFIG, file, line)
    elif isinstance(table, str | int | float | bool):
        yield Setting(path, table, Origin.CONFIG, file, line)


def _toml_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of every key that stands on a line of its own."""
    table: tuple[str, ...] = ()
    lines: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if found := _TABLE.match(line):
            table = _parts(found[1])
            lines.setdefault(table, number)
        elif found := _KEY.match(line):
            lines.setdefault((*table, *_parts(found[1])), number)
    return lines


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
