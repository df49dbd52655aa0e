"""Python source to settings: parsed by `ast`, never executed, never imported."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace

from planner.inputs.estimate.sources import constructors
from planner.inputs.estimate.sources.constants import Constants, KnownConstants
from planner.inputs.estimate.sources.description import Problem
from planner.inputs.estimate.sources.launch import LaunchOptions
from planner.inputs.estimate.sources.names import Names, Scope
from planner.inputs.estimate.sources.setting import EVALUATION, Origin, Setting, canonical, words
from planner.inputs.estimate.sources.vocabulary import field_of

_NOT_SETTINGS = frozenset(
    ["add_argument", "option", "argument", "set_printoptions", "set_print_options", "Field", "field"]
)
_LOOPS = {"epoch": "num_epochs", "ep": "num_epochs", "step": "max_steps", "iteration": "max_steps", "it": "max_steps"}


def parse(data: bytes, file: str) -> ast.Module | Problem:
    """Return the tree of a source file, or why there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(data, file)
    except SyntaxError as error:
        return Problem(file, max(1, error.lineno or 1), f"is not Python 3: {error.msg}; allowed is Python source")
    except (RecursionError, MemoryError):
        return Problem(file, 1, "is nested too deeply; allowed is Python source that people write")
    except ValueError as error:
        return Problem(file, 1, f"is not Python 3: {error}; allowed is Python source")


class CodeReader:
    """Reads one parsed file."""

    def __init__(self, tree: ast.Module, file: str) -> None:
        self.names = Names.of(tree)
        self._file = file
        self._constants = Constants(file, self.names)

    @property
    def options(self) -> LaunchOptions:
        """The options that the file declares."""
        return LaunchOptions(dict(self.names.names), frozenset(self.names.switches), tuple(self.names.positionals))

    def settings(self, overrides: Mapping[str, Setting], environment: Mapping[str, str | None]) -> Iterator[Setting]:
        """Yield what the file sets, given what configurations and launch lines override."""
        self._constants = Constants(self._file, self.names, overrides, environment)
        for key in self.names.keyed:
            found = self._constants.find_key(key)
            if found is not None:
                yield _setting((key,), found)
        for scope in self.names.scopes:
            for name in scope.bindings:
                found = self._constants.find_name(name, scope) if field_of((name,), Origin.ASSIGNMENT) else None
                if found is not None:
                    yield _setting((name,), found)
        for loop, scope in self.names.loops:
            yield from self._loop(loop, scope)
        for call, scope, certain in self.names.calls:
            for setting in self._call(call, scope):
                yield setting if certain else replace(setting, certain=False)

    def _loop(self, loop: ast.For, scope: Scope) -> Iterator[Setting]:
        """Yield the epochs or steps of ``for epoch in range(10)``, with or without a progress bar around it."""
        target = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and loop.target.elts else loop.target
        key = _LOOPS.get(canonical(target.id)) if isinstance(target, ast.Name) else None
        over = loop.iter
        while isinstance(over, ast.Call) and self._last(over) in ("tqdm", "enumerate", "track") and over.args:
            over = over.args[0]
        if key and isinstance(over, ast.Call) and self._last(over) in ("range", "trange") and 1 <= len(over.args) <= 2:
            first = self._constants.of(over.args[0], scope) if len(over.args) == 2 else None
            found = self._constants.of(over.args[-1], scope)
            if found is not None and len(over.args) == 1:
                yield _setting((key,), found, Origin.CALL)
            elif found is not None and first is not None:
                yield from _between(key, first, found)

    def _call(self, call: ast.Call, scope: Scope) -> Iterator[Setting]:
        name = self._constants.name_in_full(call.func)
        if self._last(call) in _NOT_SETTINGS or self._last(call).startswith("DEFINE_"):
            return
        if self._last(call) == "autocast" and self._is_disabled(call, scope):
            return
        weak = self._of_evaluation(call)
        for path, node, helper in constructors.name_arguments(call, name, self._constants.name_in_full):
            found = KnownConstants(node, Origin.CALL, self._file, call.lineno) if isinstance(node, str) else None
            if found is not None:
                yield _setting(path, found, Origin.CALL, weak or helper)
            elif isinstance(node, ast.expr):
                yield from self._argument(path, node, scope, weak or helper)
        for keyword in call.keywords:
            if keyword.arg is None or (keyword.arg == "dtype" and not constructors.takes_dtype(name)):
                continue
            if keyword.arg == "device_ids" and not name.endswith(".DataParallel"):
                continue  # one process's own device
            path = ("torch_dtype" if keyword.arg == "dtype" else keyword.arg,)
            yield from self._argument(path, keyword.value, scope, weak or constructors.is_helper(name))

    def _argument(self, path: tuple[str, ...], node: ast.expr, scope: Scope, weak: bool) -> Iterator[Setting]:
        found = self._constants.of(node, scope)
        if found is not None:
            yield _setting(path, found, Origin.CALL, weak)
        elif self._constants.blocked is not None:
            yield replace(self._constants.blocked, path=path, weak=weak)

    def _is_disabled(self, call: ast.Call, scope: Scope) -> bool:
        """Say whether ``enabled=`` of automatic casts is off, or nobody knows."""
        stated = [self._constants.of(word.value, scope) for word in call.keywords if word.arg == "enabled"]
        return any(found is None or not found.value for found in stated)

    def _of_evaluation(self, call: ast.Call) -> bool:
        """Say whether a call names a split for evaluation: in its first argument, its target, or ``split=``."""
        first = call.args[0] if call.args else None
        said = [self.names.targets.get(id(call), "")]
        said.append(first.id if isinstance(first, ast.Name) else first.attr if isinstance(first, ast.Attribute) else "")
        for keyword in call.keywords:
            if keyword.arg in ("split", "dataset") and isinstance(keyword.value, ast.Constant | ast.Name):
                value = keyword.value
                said.append(value.id if isinstance(value, ast.Name) else str(value.value))
            if keyword.arg == "train" and isinstance(keyword.value, ast.Constant) and keyword.value.value is False:
                return True
        return any(EVALUATION.intersection(words(text)) for text in said)

    def _last(self, call: ast.Call) -> str:
        return self._constants.name_in_full(call.func).rsplit(".", 1)[-1]


def _between(key: str, first: KnownConstants, last: KnownConstants) -> Iterator[Setting]:
    """Yield the length of ``range(1, epochs + 1)``."""
    if isinstance(first.value, int | float) and isinstance(last.value, int | float):
        yield _setting((key,), replace(last, value=last.value - first.value), Origin.CALL)


def _setting(
    path: tuple[str, ...], found: KnownConstants, least: Origin = Origin.DEFAULT, weak: bool = False
) -> Setting:
    return Setting(path, found.value, max(found.origin, least), found.file, found.line, weak)
