"""The constant behind an expression, as far as assignments, defaults and overrides say it; nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from truenorth.planner.inputs.estimate.sources.names import NameBinding, Names, Scope, member
from truenorth.planner.inputs.estimate.sources.settings import MAX_NUMBER, Constant, Setting, SettingOrigin, canonical

_DEEPEST = 20
_MOST_LOOKS = 2_000
_MOST_LOOKS_IN_ALL = 500_000
_LONGEST = 2_000
_TENSORS = ("torch", "np", "jnp", "tf")
_DTYPES = frozenset(["float64", "double", "float32", "float", "float16", "half", "bfloat16", "float8_e4m3fn", "int8"])
_CONVERSIONS = frozenset(
    ["int", "float", "str", "bool", "Path", "PurePath", "abspath", "expanduser", "list", "tuple", "tqdm"]
)
_DEFAULTS = frozenset(["field", "Field", "Option", "Argument"])


@dataclass(frozen=True, slots=True)
class KnownConstants:
    """A constant and where it stands."""

    value: Constant
    origin: SettingOrigin
    file: str
    line: int


@dataclass(slots=True)
class Constants:
    """Looks expressions up in one file.

    Parameters
    ----------
    overrides
        What configurations and launch lines set, by canonical name; None where the value is unknown.
    environment
        Variables that launch scripts set.
    """

    file: str
    names: Names
    overrides: Mapping[str, Setting] = field(default_factory=dict)
    environment: Mapping[str, str | None] = field(default_factory=dict)
    blocked: Setting | None = None
    """The override of unknown value that `of` met last."""
    _looks: int = 0
    _looks_in_all: int = 0
    _open: set[int] = field(default_factory=set)
    """Assignments that are being looked up, so that none answers for itself."""

    def of(self, node: ast.expr | None, scope: Scope) -> KnownConstants | None:
        """Return the constant that an expression stands for; None if that cannot be known: see `blocked`."""
        self._looks, self.blocked = 0, None
        return self._of(node, scope, 0)

    def find_name(self, name: str, scope: Scope) -> KnownConstants | None:
        """Return what a name that is bound in a scope stands for."""
        self._looks = 0
        return self._decide(scope.bindings[name], 0)

    def find_key(self, key: str) -> KnownConstants | None:
        """Return what an attribute, option or key of a dictionary of this name stands for."""
        self._looks = 0
        return self._find_key(key, 0)

    def _of(self, node: ast.expr | None, scope: Scope, depth: int) -> KnownConstants | None:
        self._looks += 1
        self._looks_in_all += 1
        if node is None or depth > _DEEPEST or self._looks > _MOST_LOOKS or self._looks_in_all > _MOST_LOOKS_IN_ALL:
            return None
        if isinstance(node, ast.Constant):
            return self._at(node, node.value) if isinstance(node.value, str | int | float) else None
        if isinstance(node, ast.Name):
            return self._name(node.id, scope, depth)
        if isinstance(node, ast.Attribute) and self._is_dtype(node):
            return self._at(node, node.attr)
        if isinstance(node, ast.Attribute | ast.Subscript):
            return self._member(node, depth)
        if isinstance(node, ast.Call):
            return self._call(node, scope, depth)
        return self._compound(node, scope, depth)

    def _compound(self, node: ast.expr, scope: Scope, depth: int) -> KnownConstants | None:
        """Return the constant of an expression that is made of others."""
        if isinstance(node, ast.IfExp):
            test = self._of(node.test, scope, depth + 1)
            chosen = None if test is None else node.body if test.value else node.orelse
            return self._of(chosen, scope, depth + 1)
        if isinstance(node, ast.UnaryOp):
            inner = self._all([node.operand], scope, depth)
            return None if inner is None else self._join(node, inner, _sign(node.op, inner[0].value))
        if isinstance(node, ast.BinOp):
            pair = self._all([node.left, node.right], scope, depth)
            return None if pair is None else self._join(node, pair, _combine(node.op, pair[0].value, pair[1].value))
        if isinstance(node, ast.JoinedStr):
            values = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
            parts = self._all(values, scope, depth)
            return None if parts is None else self._join(node, parts, "".join(str(part.value) for part in parts))
        if isinstance(node, ast.List | ast.Tuple):
            items = self._all(node.elts, scope, depth)
            return None if items is None else self._join(node, items, tuple(item.value for item in items))
        return None

    def _call(self, node: ast.Call, scope: Scope, depth: int) -> KnownConstants | None:
        name = self.name_in_full(node.func)
        last = name.rsplit(".", 1)[-1]
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        if name in ("os.environ.get", "os.getenv", "environ.get", "getenv") and node.args:
            return self._variable(node, scope, depth)
        if last in _DEFAULTS:
            return self._of(keywords.get("default", node.args[0] if node.args else None), scope, depth + 1)
        if last == "join" and name.endswith("path.join"):
            parts = self._all(node.args, scope, depth)
            return None if parts is None else self._join(node, parts, "/".join(str(part.value) for part in parts))
        if last == "get" and node.args and isinstance(node.args[0], ast.Constant) and len(node.args) <= 2:
            kept = self._find_key(str(node.args[0].value), depth)
            return kept or (self._of(node.args[1], scope, depth + 1) if len(node.args) == 2 else None)
        if last in _CONVERSIONS and node.args:
            return self._of(node.args[0], scope, depth + 1)
        return None

    def _variable(self, node: ast.Call, scope: Scope, depth: int) -> KnownConstants | None:
        """Return a variable of the environment, or the default that stands beside it."""
        name = self._of(node.args[0], scope, depth + 1)
        if name is not None and name.value in self.environment:
            value = self.environment[str(name.value)]
            return None if value is None else KnownConstants(value, SettingOrigin.SCRIPT, self.file, node.lineno)
        return self._of(node.args[1], scope, depth + 1) if len(node.args) == 2 else None

    def _name(self, name: str, scope: Scope, depth: int) -> KnownConstants | None:
        where: Scope | None = scope
        while where is not None:
            if name in where.bindings:
                return self._decide(where.bindings[name], depth)
            where = where.parent
        return None

    def _member(self, node: ast.Attribute | ast.Subscript, depth: int) -> KnownConstants | None:
        """Return what ``config.model.name`` or ``config["model"]["name"]`` stands for."""
        key, section = member(node), member(node.value)
        both = "" if key is None or section is None else canonical(f"{section}_{key}")
        if both in self.overrides:
            return self._overriding(self.overrides[both])
        return None if key is None else self._find_key(key, depth)

    def _find_key(self, key: str, depth: int) -> KnownConstants | None:
        key = canonical(key)
        if key in self.overrides:
            return self._overriding(self.overrides[key])
        return self._find_key_here(self.names.keyed.get(key, ()), depth)

    def _overriding(self, setting: Setting) -> KnownConstants | None:
        if setting.value is None:
            self.blocked = setting
            return None
        return KnownConstants(setting.value, setting.origin, setting.file, setting.line)

    def _decide(self, bindings: Sequence[NameBinding], depth: int) -> KnownConstants | None:
        """Return the last value that is certainly assigned to a name, else the one on which all branches agree."""
        certain = [binding for binding in bindings if binding.certain and id(binding) not in self._open]
        return self._bound(certain[-1], depth) if certain else self._agree(bindings, depth)

    def _find_key_here(self, bindings: Sequence[NameBinding], depth: int) -> KnownConstants | None:
        """Return what attributes, options and keys of one name say; objects are not told apart, so the known wins."""
        best: tuple[tuple[SettingOrigin, bool], KnownConstants] | None = None
        for binding in [binding for binding in bindings if binding.certain][-_DEEPEST:]:
            found = self._bound(binding, depth)
            if found is not None and (best is None or (found.origin, binding.default) >= best[0]):
                best = (found.origin, binding.default), found
        return best[1] if best else self._agree(bindings, depth)

    def _agree(self, bindings: Sequence[NameBinding], depth: int) -> KnownConstants | None:
        found = [self._bound(binding, depth) for binding in bindings[:_DEEPEST] if not binding.certain]
        return found[0] if found and len({None if one is None else one.value for one in found}) == 1 else None

    def _bound(self, binding: NameBinding, depth: int) -> KnownConstants | None:
        if id(binding) in self._open:
            return None
        self._open.add(id(binding))
        found = self._of(binding.value, binding.scope, depth + 1)
        self._open.discard(id(binding))
        if found is None or not binding.default or found.origin > SettingOrigin.ASSIGNMENT:
            return found
        return KnownConstants(found.value, SettingOrigin.DEFAULT, found.file, found.line)

    def _all(self, nodes: Iterable[ast.expr], scope: Scope, depth: int) -> list[KnownConstants] | None:
        found: list[KnownConstants] = []
        for node in nodes:
            known = self._of(node, scope, depth + 1)
            if known is None:
                return None
            found.append(known)
        return found

    def _at(self, node: ast.expr, value: Constant) -> KnownConstants | None:
        return KnownConstants(value, SettingOrigin.ASSIGNMENT, self.file, node.lineno) if _is_small(value) else None

    def _join(self, node: ast.expr, parts: Sequence[KnownConstants], value: Constant | None) -> KnownConstants | None:
        """Return what parts make together; it stands where its part of the highest origin stands."""
        if value is None or not _is_small(value):
            return None
        highest = max(parts, key=lambda part: part.origin, default=None)
        if highest is None or highest.origin <= SettingOrigin.ASSIGNMENT:
            return KnownConstants(value, SettingOrigin.ASSIGNMENT, self.file, node.lineno)
        return KnownConstants(value, highest.origin, highest.file, highest.line)

    def _is_dtype(self, node: ast.Attribute) -> bool:
        return node.attr in _DTYPES and isinstance(node.value, ast.Name) and node.value.id in _TENSORS

    def name_in_full(self, node: ast.expr) -> str:
        """Return a dotted name with its import followed, such as ``torchvision.models.resnet50``; else nothing."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ".".join(["", *reversed(parts)]) if parts else ""
        return ".".join([self.names.imports.get(node.id, node.id), *reversed(parts)])


def _is_small(value: Constant) -> bool:
    if isinstance(value, str | tuple):
        return len(value) <= _LONGEST
    return -MAX_NUMBER < value < MAX_NUMBER


def _sign(sign: ast.unaryop, value: Constant) -> Constant | None:
    if isinstance(sign, ast.Not):
        return not value
    if isinstance(value, int | float):
        return -value if isinstance(sign, ast.USub) else value if isinstance(sign, ast.UAdd) else None
    return None


def _combine(operator: ast.operator, left: Constant, right: Constant) -> Constant | None:
    """Return the outcome of an arithmetic operation, or of joining texts and paths."""
    if isinstance(left, str) and isinstance(right, str):
        joined = f"{left}/{right}" if isinstance(operator, ast.Div) else None
        return left + right if isinstance(operator, ast.Add) else joined
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return None
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.Mult):
        return left * right
    if right == 0:
        return None
    return (
        left / right if isinstance(operator, ast.Div) else left // right if isinstance(operator, ast.FloorDiv) else None
    )
