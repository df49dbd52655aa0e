"""The shape of the house: no import circle anywhere, and each wing of the planner imports only those to its left."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[2]
WINGS = ("inputs", "questions", "answers", "show", "command")


def modules() -> dict[str, Path]:
    """Return the files of the shipped modules by dotted name; a package stands for its __init__."""
    files = [
        path
        for top in ("models", "solvers", "executor", "planner")
        for path in (ROOT / "truenorth" / top).rglob("*.py")
    ]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


@cache
def imports(path: Path) -> set[str]:
    """Return what a file imports, late imports and those for type checkers included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.fixture(scope="module")
def graph() -> nx.DiGraph[str]:
    known = modules()
    made: nx.DiGraph[str] = nx.DiGraph()
    for name, path in known.items():
        for imported in imports(path):
            target = imported if imported in known else imported.rpartition(".")[0]
            if target in known and target != name:
                made.add_edge(name, target)
    return made


def test_no_import_circle(graph: nx.DiGraph[str]) -> None:
    assert [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1] == []


KNOWN = {
    frozenset({"truenorth.solvers.exact", "truenorth.solvers.search"}),
}
"""Circles of packages that are still to be taken apart; no other may come."""


def test_no_circle_of_packages(graph: nx.DiGraph[str]) -> None:
    """Of the parts of every package, none imports another that imports it, whatever lies inside them."""
    parts: dict[str, nx.DiGraph[str]] = {}
    for source, target in graph.edges:
        here, there = source.split("."), target.split(".")
        shared = next((n for n, pair in enumerate(zip(here, there, strict=False)) if pair[0] != pair[1]), None)
        if shared is not None:  # else one lies inside the other
            siblings = ".".join(here[: shared + 1]), ".".join(there[: shared + 1])
            parts.setdefault(".".join(here[:shared]), nx.DiGraph()).add_edge(*siblings)
    circles = {frozenset(found) for of in parts.values() for found in nx.strongly_connected_components(of)}
    assert {circle for circle in circles if len(circle) > 1} - KNOWN == set()


def test_wings_import_only_to_their_left(graph: nx.DiGraph[str]) -> None:
    def wing(module: str) -> int | None:
        parts = module.split(".")
        return WINGS.index(parts[2]) if parts[1] == "planner" and len(parts) > 2 else None

    upwards = [
        (source, target)
        for source, target in graph.edges
        if (here := wing(source)) is not None and (there := wing(target)) is not None and there > here
    ]
    assert upwards == []


def test_nothing_that_is_shipped_imports_tests() -> None:
    shipped = [*modules().values(), *(ROOT / "experiments").rglob("*.py")]
    assert [path for path in shipped if any(name.split(".")[0] == "tests" for name in imports(path))] == []
