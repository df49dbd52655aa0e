"""The text of a job that retrieval compares: what its imports, names, strings and settings say, without repetition."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from planner.inputs.estimate.sources.setting import Setting

MAX_CHARACTERS = 8_000
_LONGEST_STRING = 200
_MOST_WORDS = 50_000
_WORD = re.compile(r"[A-Za-z_][\w./-]{1,79}")


def code_words(tree: ast.Module) -> list[str]:
    """Return the imports, then the names and attributes, then the short strings of a tree."""
    imports: list[str] = []
    names: list[str] = []
    strings: list[str] = []
    for node, _ in zip(ast.walk(tree), range(_MOST_WORDS), strict=False):
        if isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports += [node.module or "", *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= _LONGEST_STRING:
            strings.append(node.value)
        else:
            names += _list_names(node)
    return [*imports, *names, *strings]


def _list_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.keyword) and node.arg:
        yield node.arg


def plain_words(text: str) -> list[str]:
    """Return the words of a text that could not be parsed."""
    return [found[0] for found, _ in zip(_WORD.finditer(text), range(_MOST_WORDS), strict=False)]


def setting_words(settings: Iterable[Setting]) -> list[str]:
    """Return the keys and short values of configurations and launch lines."""
    return [
        f"{'.'.join(setting.path)}={setting.value}"
        for setting in settings
        if isinstance(setting.value, str | int | float) and len(str(setting.value)) <= _LONGEST_STRING
    ]


def join_bounded(parts: Sequence[str]) -> str:
    """Return the parts without repetition, in their order, as one line of at most `MAX_CHARACTERS`.

    >>> join_bounded(["torch", "train", "torch"])
    'torch train'
    """
    kept: dict[str, None] = {}
    length = 0
    for part in parts:
        word = " ".join("".join(letter if letter.isprintable() else " " for letter in part).split())
        if word and word not in kept:
            length += len(word) + 1
            if length > MAX_CHARACTERS + 1:
                break
            kept[word] = None
    return " ".join(kept)
