"""Who is assigned what in a piece of Python source, and the constant behind an expression; nothing is executed.

One walk over the tree, without recursion, finds the names; assignments, defaults and overrides say what they stand for.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from truenorth.planner.inputs.estimate.sources.settings import MAX_NUMBER, Constant, Setting, SettingOrigin, canonical

Function = ast.FunctionDef | ast.AsyncFunctionDef
_BRANCHES = (ast.If, ast.For, ast.While, ast.Try, ast.AsyncFor, ast.ExceptHandler)
_DECLARES = frozenset(("add_argument", "option", "argument"))


@dataclass(frozen=True, slots=True)
class Scope:
    """A module or a function; `parent` is where names go on being looked up."""

    parent: Scope | None
    bindings: dict[str, list[NameBinding]] = field(default_factory=dict)

    def add(self, name: str, binding: NameBinding) -> None:
        """Note an assignment."""
        self.bindings.setdefault(name, []).append(binding)


@dataclass(frozen=True, slots=True)
class NameBinding:
    """An assignment.

    Parameters
    ----------
    value
        None if it is no expression that stands for the name alone.
    scope
        Where the value's own names are looked up.
    certain
        False in a branch or a loop, which may not run.
    default
        Whether it is the default of a parameter, an option or a class attribute.
    """

    value: ast.expr | None
    scope: Scope
    line: int
    certain: bool = True
    default: bool = False


@dataclass(slots=True)
class Names:
    """What a file assigns and declares.

    Parameters
    ----------
    module
        The file's own scope.
    keyed
        Assignments to attributes (``self.batch_size``), class attributes, keys of literal
        dictionaries and options, by canonical name: what ``args.batch_size`` may be.
    names, switches, positionals
        The declared options, as `launch.Options` wants them.
    imports
        From a name to what it stands for: ``models`` to ``torchvision.models``.
    calls, loops
        With the scope they stand in; of calls also whether they surely run.
    targets
        From a call's identity to the name that its result is assigned to.
    scopes
        The module's, and every function's.
    """

    module: Scope
    keyed: dict[str, list[NameBinding]] = field(default_factory=lambda: defaultdict(list))
    names: dict[str, str] = field(default_factory=dict)
    switches: set[str] = field(default_factory=set)
    positionals: list[str] = field(default_factory=list)
    imports: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[ast.Call, Scope, bool]] = field(default_factory=list)
    loops: list[tuple[ast.For, Scope]] = field(default_factory=list)
    targets: dict[int, str] = field(default_factory=dict)
    scopes: list[Scope] = field(default_factory=list)

    @classmethod
    def of(cls, tree: ast.Module) -> Names:
        """Walk a tree, in the order of the source."""
        module = Scope(None)
        found = cls(module, scopes=[module])
        waiting: list[tuple[ast.AST, Scope, bool, bool]] = [(tree, module, True, False)]
        while waiting:
            node, scope, certain, in_class = waiting.pop()
            found._note(node, scope, certain, in_class)
            inner, certain, in_class = found._enter(node, scope, certain, in_class)
            outside = _find_outside(node)
            children = [(child, inner if id(child) not in outside else scope) for child in ast.iter_child_nodes(node)]
            waiting += [(child, where, certain, in_class) for child, where in reversed(children)]
        return found

    def _enter(self, node: ast.AST, scope: Scope, certain: bool, in_class: bool) -> tuple[Scope, bool, bool]:
        """Return what holds inside a node."""
        if isinstance(node, Function | ast.Lambda):
            inner = Scope(scope)
            self.scopes.append(inner)
            for argument, default in _parameters(node.args):
                inner.add(argument.arg, NameBinding(default, scope, argument.lineno, default=True))
            return inner, True, False
        if isinstance(node, ast.ClassDef):
            return scope, certain, True
        branches = isinstance(node, _BRANCHES) and not _is_main(node)
        return scope, certain and not branches, in_class and not isinstance(node, ast.expr)

    def _note(self, node: ast.AST, scope: Scope, certain: bool, in_class: bool) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value, scope, certain, in_class)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            self._assign(node.target, node.value, scope, certain, in_class)
        elif isinstance(node, ast.AugAssign):
            self._assign(node.target, None, scope, certain, in_class)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self._assign(node.target, None, scope, certain, in_class)
            if isinstance(node, ast.For):
                self.loops.append((node, scope))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node)
        elif isinstance(node, ast.Call):
            self.calls.append((node, scope, certain))
            self._declare(node, scope)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    self.keyed[canonical(key.value)].append(NameBinding(value, scope, value.lineno, certain))

    def _assign(self, target: ast.expr, value: ast.expr | None, scope: Scope, certain: bool, in_class: bool) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) else ()
            same = len(parts) == len(target.elts)
            for at, part in enumerate(target.elts):
                self._assign(part, parts[at] if same else None, scope, certain, in_class)
            return
        key = member(target)
        if key is None:
            return
        binding = NameBinding(value, scope, target.lineno, certain, default=in_class)
        if isinstance(target, ast.Name) and not in_class:
            scope.add(target.id, binding)
        else:
            self.keyed[canonical(key)].append(binding)
        if isinstance(value, ast.Call):
            self.targets[id(value)] = key

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        source = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module else ""
        for alias in node.names:
            name = alias.asname or (alias.name if source else alias.name.split(".")[0])
            self.imports[name] = source + alias.name if alias.asname or source else name

    def _declare(self, call: ast.Call, scope: Scope) -> None:
        """Note an option of argparse, click or absl."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        texts = [word.value for word in call.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        if name.startswith("DEFINE_") and texts:
            default = call.args[1] if len(call.args) > 1 else keywords.get("default")
            self.names[f"--{texts[0]}"] = texts[0]
            self.keyed[canonical(texts[0])].append(NameBinding(default, scope, call.lineno, default=True))
        if name not in _DECLARES or not texts:
            return
        flags = [flag for text in texts for flag in text.split("/") if flag.startswith("-")]
        long = [flag for flag in flags if flag.startswith("--")]
        stated = keywords.get("dest")
        plain = (long or flags or texts)[0].lstrip("-").replace("-", "_")
        key = str(stated.value) if isinstance(stated, ast.Constant) else plain
        self.names |= dict.fromkeys(flags, key)
        action = keywords.get("action")
        means = _SWITCHES.get(str(action.value)) if isinstance(action, ast.Constant) else None
        if means is not None or _is_true(keywords.get("is_flag")):
            self.switches |= set(flags)
        if not flags:
            self.positionals.append(key)
        default = keywords.get("default")
        if default is None and means is not None:
            default = ast.copy_location(ast.Constant(not means), call)
        self.keyed[canonical(key)].append(NameBinding(default, scope, call.lineno, default=True))


_SWITCHES = {"store_true": True, "store_false": False, "count": True}


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def member(node: ast.expr) -> str | None:
    """Return a name, the last name of an attribute, or the last key of a subscript."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return node.slice.value if isinstance(node.slice.value, str) else None
    return None


def _parameters(arguments: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """Yield each parameter with its default."""
    ordered = arguments.posonlyargs + arguments.args
    without = len(ordered) - len(arguments.defaults)
    for at, argument in enumerate(ordered):
        yield argument, arguments.defaults[at - without] if at >= without else None
    yield from zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    for rest in (arguments.vararg, arguments.kwarg):
        if rest is not None:
            yield rest, None


def _find_outside(node: ast.AST) -> frozenset[int]:
    """Return the children of a function that belong to the scope around it."""
    if isinstance(node, Function):
        return frozenset(id(decorator) for decorator in node.decorator_list)
    return frozenset()


def _is_main(node: ast.AST) -> bool:
    """Say whether this is ``if __name__ == ...``, which runs whenever the file is a script."""
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


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
