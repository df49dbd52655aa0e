"""Who is assigned what in a piece of Python source: one walk over its tree, without recursion."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from truenorth.planner.inputs.estimate.sources.settings import canonical

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
