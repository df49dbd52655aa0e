"""Python source to settings: parsed by `ast`, never executed, never imported.

Calls of well-known libraries say settings by their arguments, or by their very names.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from truenorth.planner.inputs.estimate.sources.constants import Constants, KnownConstants, Names, Scope
from truenorth.planner.inputs.estimate.sources.description import Problem
from truenorth.planner.inputs.estimate.sources.outside import LaunchOptions
from truenorth.planner.inputs.estimate.sources.settings import (
    EVALUATION,
    VOCABULARY,
    Setting,
    SettingOrigin,
    canonical,
    field_of,
    listed,
    words,
)

_LOOPS = {"epoch": "num_epochs", "ep": "num_epochs", "step": "max_steps", "iteration": "max_steps", "it": "max_steps"}
Found = tuple[tuple[str, ...], ast.expr | str, bool]
"""A key, its value (an expression, or a text that is known), and whether it is a helper's."""

_POSITION, _WHOLE_NAME, _KEYWORD = (VOCABULARY[of] for of in ("positions", "whole_names", "keywords"))
_MODEL_ZOOS, _DATASET_ZOOS, _HELPERS, _TAKE_DTYPE = (
    listed(sort) for sort in ("model_zoos", "dataset_zoos", "helpers", "take_dtype")
)
_NOT_SETTINGS, _NOT_MODELS, _BUILDERS, _WEAK = (
    frozenset(listed(sort)) for sort in ("not_settings", "not_models", "builders", "weak")
)
_CASTS = {"half": "fp16", "bfloat16": "bf16"}
_MODELS = ("model", "pipe", "net")


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
                found = self._constants.find_name(name, scope) if field_of((name,), SettingOrigin.ASSIGNMENT) else None
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
                yield _setting((key,), found, SettingOrigin.CALL)
            elif found is not None and first is not None:
                yield from _between(key, first, found)

    def _call(self, call: ast.Call, scope: Scope) -> Iterator[Setting]:
        name = self._constants.name_in_full(call.func)
        if self._last(call) in _NOT_SETTINGS or self._last(call).startswith("DEFINE_"):
            return
        if self._last(call) == "autocast" and self._is_disabled(call, scope):
            return
        weak = self._of_evaluation(call)
        for path, node, helper in name_arguments(call, name, self._constants.name_in_full):
            found = KnownConstants(node, SettingOrigin.CALL, self._file, call.lineno) if isinstance(node, str) else None
            if found is not None:
                yield _setting(path, found, SettingOrigin.CALL, weak or helper)
            elif isinstance(node, ast.expr):
                yield from self._argument(path, node, scope, weak or helper)
        for keyword in call.keywords:
            if keyword.arg is None or (keyword.arg == "dtype" and not takes_dtype(name)):
                continue
            if keyword.arg == "device_ids" and not name.endswith(".DataParallel"):
                continue  # one process's own device
            path = ("torch_dtype" if keyword.arg == "dtype" else keyword.arg,)
            yield from self._argument(path, keyword.value, scope, weak or is_helper(name))

    def _argument(self, path: tuple[str, ...], node: ast.expr, scope: Scope, weak: bool) -> Iterator[Setting]:
        found = self._constants.of(node, scope)
        if found is not None:
            yield _setting(path, found, SettingOrigin.CALL, weak)
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
        yield _setting((key,), replace(last, value=last.value - first.value), SettingOrigin.CALL)


def _setting(
    path: tuple[str, ...], found: KnownConstants, least: SettingOrigin = SettingOrigin.DEFAULT, weak: bool = False
) -> Setting:
    return Setting(path, found.value, max(found.origin, least), found.file, found.line, weak)


def takes_dtype(name: str) -> bool:
    """Say whether ``dtype=`` of this call is the precision of a model, and not that of a tensor."""
    return name.endswith(_TAKE_DTYPE)


def is_helper(name: str) -> bool:
    """Say whether a call makes a tokeniser, a configuration or another part beside the model."""
    owner = name.rsplit(".", 2)[-2:]
    return len(owner) == 2 and owner[0].endswith(_HELPERS)


def name_arguments(call: ast.Call, name: str, dotted: Callable[[ast.expr], str]) -> Iterator[Found]:
    """Yield the settings of a call that no keyword of the vocabulary states.

    Parameters
    ----------
    call
        The call.
    name
        Its dotted name, imports followed.
    dotted
        The dotted name of any expression.
    """
    last = name.rsplit(".", 1)[-1]
    yield from _zoos(call, name, last, dotted)
    if last == "load_dataset" and _is_builder(call):
        yield from (
            (("dataset",), word.value, False) for word in call.keywords if word.arg in ("data_files", "data_dir")
        )
    else:
        yield from _positional(call, name, last)
    if last == "autocast":
        yield from _autocast(call, name)
    if isinstance(call.func, ast.Attribute) and any(word in _owner(call.func).lower() for word in _MODELS):
        yield from _cast(call, call.func.attr)


def _zoos(call: ast.Call, name: str, last: str, dotted: Callable[[ast.expr], str]) -> Iterator[Found]:
    """Yield what calls into collections of models and datasets name by the very function they call."""
    if name.startswith(_MODEL_ZOOS) and last not in (*_NOT_MODELS, *_POSITION) and not last.endswith("_Weights"):
        if not name.startswith(_MODEL_ZOOS[0]) or last.islower():
            yield ("model",), last, False
    elif name.startswith(_DATASET_ZOOS) and last not in _POSITION and last[:1].isupper():
        yield ("dataset",), last, False
    elif isinstance(call.func, ast.Subscript) and dotted(call.func.value).endswith("models.__dict__"):
        yield ("model",), call.func.slice, False
    elif isinstance(call.func, ast.Call) and _gets_attribute(call.func, dotted):
        yield ("model",), call.func.args[1], False


def _gets_attribute(call: ast.Call, dotted: Callable[[ast.expr], str]) -> bool:
    """Say whether a call is ``getattr(models, name)`` of a collection of models."""
    if dotted(call.func) != "getattr" or len(call.args) < 2:
        return False
    return f"{dotted(call.args[0])}.".startswith(_MODEL_ZOOS)


def _positional(call: ast.Call, name: str, last: str) -> Iterator[Found]:
    field, index = _WHOLE_NAME.get(name) or _POSITION.get(last) or ("", 0)
    helper = last in _WEAK or is_helper(name)
    if field and len(call.args) > index and not any(isinstance(word, ast.Starred) for word in call.args):
        yield (field,), call.args[index], helper
    if last in _KEYWORD:
        spelled, field = _KEYWORD[last]
        yield from (((field,), word.value, helper) for word in call.keywords if word.arg == spelled)


def _is_builder(call: ast.Call) -> bool:
    """Say whether ``load_dataset`` names a format, so that the data are its files."""
    first = call.args[0] if call.args else None
    return isinstance(first, ast.Constant) and first.value in _BUILDERS


def _autocast(call: ast.Call, name: str) -> Iterator[Found]:
    """Yield the precision of automatic casts that state none: PyTorch's default for the device."""
    if any(word.arg == "dtype" for word in call.keywords):
        return
    device = call.args[0] if call.args else next((w.value for w in call.keywords if w.arg == "device_type"), None)
    kind = device.value if isinstance(device, ast.Constant) else None
    if kind == "cuda" or ".cuda." in name:
        yield ("precision",), "fp16", False
    else:
        yield ("precision",), "bf16" if kind == "cpu" or ".cpu." in name else "amp", False


def _cast(call: ast.Call, method: str) -> Iterator[Found]:
    """Yield the precision that a model is cast to: ``model.half()``, ``pipe.to("cuda", torch.float16)``."""
    if method in _CASTS and not call.args:
        yield ("precision",), _CASTS[method], False
    elif method == "to":
        yield from (
            (("precision",), argument, False) for argument in call.args[:2] if isinstance(argument, ast.Attribute)
        )
        yield from ((("precision",), word.value, False) for word in call.keywords if word.arg == "dtype")


def _owner(function: ast.Attribute) -> str:
    """Return the last name of what a method is called on."""
    value = function.value
    return value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else ""
