"""With the packages of ``pip install truenorth`` alone every subcommand answers, or names in one line what it lacks."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import distribution, packages_distributions
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.night import by_day

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "experiments" / "scenarios"
TOPS = ("models", "solvers", "planner", "executor", "truenorth")
EDGE = SCENARIOS / "compass_edge.yaml"
START = "import sys; from truenorth.planner.command.start import main; sys.argv[0] = 'truenorth'; main()"
LOG = "2026-11-21 10:00:00 step 0/200 loss: 2.91\n2026-11-21 10:00:20 step 10/200 loss: 2.55\n"


def _imported(path: Path) -> set[str]:
    """Return the packages that a file imports, late imports included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found - sys.stdlib_module_names - {"truenorth"}


def test_what_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = (project["optional-dependencies"][extra] for extra in ("cluster", "devices", "estimates", "notebooks"))
    declared = {canonicalize_name(Requirement(each).name) for each in chain(project["dependencies"], *extras)}
    declared.add(canonicalize_name("IPython"))  # of the notebook that runs, if one does
    shipped = (path for top in TOPS for path in (ROOT / top).rglob("*.py"))
    names = packages_distributions()
    undeclared = {
        f"{path.relative_to(ROOT)}: {package}"
        for path in shipped
        for package in _imported(path)
        if not {canonicalize_name(each) for each in names.get(package, [package])} & declared
    }
    assert undeclared == set()


def test_scipy_comes_with_what_is_asked_for_before_it() -> None:
    """Estimates are refused without scikit-learn, and nothing else imports SciPy."""
    importing = {
        path.relative_to(ROOT) for top in TOPS for path in (ROOT / top).rglob("*.py") if "scipy" in _imported(path)
    }
    assert importing == {Path("planner/inputs/estimate/known.py")}
    assert "scipy" in _needed("scikit-learn", set())


def _needed(name: str, known: set[str]) -> set[str]:
    """Return a distribution and all that it needs without extras, beside what is known."""
    if name in known:
        return known
    needs = map(Requirement, distribution(name).requires or ())
    known = known | {name}
    for need in needs:
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            known = _needed(need.name, known)
    return known


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the variables of a process that sees the tree and its base packages alone, by links to each."""
    folder = tmp_path_factory.mktemp("base")
    for name in _needed("truenorth", set()):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not top.endswith(".pth") and not (folder / top).exists():
                (folder / top).symlink_to(str(found.locate_file(top)))
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}


def _run(base: dict[str, str], *words: object, at: Path) -> subprocess.CompletedProcess[str]:
    # Without `site` nothing is found but by PYTHONPATH.
    command = [sys.executable, "-S", "-c", START, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=base, cwd=at)  # noqa: S603


ASKED: dict[str, list[object]] = {
    "simulate": [EDGE, "--policy", "jit", "-o", "made.json"],
    "servers": [EDGE, "--slo", "p95 slowdown <= 100", "--policies", "jit", "--max", "5", "--time-limit", "1"],
    "sweep": ["sweep.yaml", "-o", "swept"],
    "progress": ["job.log"],
    "schema": [],
    "import": [
        "tokens",
        SCENARIOS / "AzureLLMInferenceTrace_conv.csv.gz",
        *("--window", "0 s", "600 s", "--catalogue", SCENARIOS / "chat_catalogue.yaml"),
        *("-o", "chat.yaml", "--figure", "chat.png"),
    ],
}
"""What succeeds; `import` is README's first command of language models."""
LACKING: dict[str, tuple[list[object], str]] = {
    "estimate": ([LOG, EDGE], "scikit-learn"),
    "replay": ([EDGE, "--policy", "jit", "--device", "cpu"], "PyTorch"),
    "trial": ([EDGE, "--policies", "jit", "--device", "cpu"], "PyTorch"),
    "profile": ([EDGE, "--device", "cpu", "-o", "profile.yaml"], "PyTorch"),
    "plan": ([EDGE, "--ray", "10.0.0.1:6379"], "Ray"),
}


@pytest.mark.parametrize("verb", by_day(ASKED, 2))
def test_what_base_packages_do(verb: str, base: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(LOG)
    sweep = {"scenario": str(EDGE), "verb": "simulate", "settings": {"policy": "jit"}, "grid": {"seed": [0, 1]}}
    (tmp_path / "sweep.yaml").write_text(json.dumps(sweep))
    ended = _run(base, verb, *ASKED[verb], at=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout


@pytest.mark.parametrize("verb", by_day(LACKING, 2))
def test_what_takes_more_packages_names_them(verb: str, base: dict[str, str], tmp_path: Path) -> None:
    asked, package = LACKING[verb]
    ended = _run(base, verb, *asked, at=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"truenorth: error: {package} is not installed; ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.nightly
def test_what_reads_what_another_wrote(base: dict[str, str], tmp_path: Path) -> None:
    for words in (
        ("plan", EDGE, "--time-limit", "1", "-o", "plan.json"),
        ("check", EDGE, "plan.json"),
        ("bound", EDGE, "--time-limit", "1", "-o", "certificate.json"),
        ("verify", EDGE, "certificate.json"),
        ("compare", EDGE, "--policies", "jit", "--time-limit", "1", "-o", "compared"),
        ("report", "compared", "-o", "report.html"),
    ):
        ended = _run(base, *words, at=tmp_path)
        assert ended.returncode == 0, ended.stderr


@pytest.mark.nightly
def test_the_reference_asks_for_no_more(base: dict[str, str], tmp_path: Path) -> None:
    # `make docs-site` looks at every name that the face lists.
    looked = "import truenorth as tn; [getattr(tn, name) for name in dir(tn)]"
    command = [sys.executable, "-S", "-c", looked]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=base, cwd=tmp_path)  # noqa: S603
    assert (ended.returncode, ended.stderr) == (0, "")
