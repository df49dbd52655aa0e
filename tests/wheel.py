"""The wheel as a stranger has it, ``python -m tests.wheel``: built, installed elsewhere, asked from an empty folder.

pip fetches what builds it; the packages that it needs are those of this environment, of which the tree is no part.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import truenorth as tn
from tests.documentation.pages import ROOT, steps

FOLDERS = ("executor", "models", "planner", "solvers")
SCENARIO = "experiments/scenarios/compass_edge.yaml"
SHOWN = "print(plan.result.status, *sorted(tn.frame(tn.compare(scenario, ['jit'], time_limit=1)).index))"


def run(*words: object, at: Path) -> str:
    """Return what a command says that sees neither the tree nor this environment's variables."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run([str(word) for word in words], cwd=at, env=own, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    return done.stdout


def build(folder: Path) -> Path:
    """Return the wheel of the tree."""
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", ROOT, "--wheel-dir", folder, at=folder)
    [wheel] = folder.glob("*.whl")
    return wheel


def build_again(folder: Path) -> Path:
    """Return the wheel that is made of the source distribution, as `pip install truenorth.tar.gz` makes it."""
    tools, packed = folder / "tools", folder / "packed"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--target", tools, "hatchling", at=folder)
    pack = (
        f"import sys; sys.path[:0] = [{str(tools)!r}]; from hatchling.build import build_sdist as b; b({str(packed)!r})"
    )
    packed.mkdir()
    run(sys.executable, "-c", pack, at=ROOT)
    [source] = packed.glob("*.tar.gz")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", source, "--wheel-dir", packed, at=folder)
    [wheel] = packed.glob("*.whl")
    return wheel


def held(wheel: Path) -> set[str]:
    """Return the files of a wheel, but for what is said about it."""
    with ZipFile(wheel) as packed:
        return {entry for entry in packed.namelist() if ".dist-info/" not in entry}


def shipped() -> set[str]:
    """Return the files that belong into the wheel: all of the four folders and of the face that git tracks."""
    listed = run("git", "ls-files", "-z", *FOLDERS, "truenorth", at=ROOT).split("\0")
    links = {f"truenorth/{folder}" for folder in FOLDERS}
    return {name if name.startswith("truenorth/") else f"truenorth/{name}" for name in listed if name} - links


def install(wheel: Path, folder: Path) -> Path:
    """Return the folder of the commands of a new environment with the wheel in it."""
    venv.create(folder, with_pip=False)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    # Packages beside the tree's are found by a path, whose own .pth files, such as that of the tree, do not count.
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(sys.executable, "-m", "pip", f"--python={folder}", "install", "--quiet", "--no-deps", wheel, at=folder)
    return folder / "bin"


def ask(commands: Path, empty: Path) -> None:
    """Ask what the README asks, and compare with what the tree says."""
    said = run(commands / "truenorth", "--version", at=empty)
    assert said.split()[:2] == ["truenorth", "0.2.0"], said
    found = run(commands / "python", "-c", "import truenorth; print(truenorth.__file__)", at=empty)
    assert str(commands.parent) in found, found
    for folder in FOLDERS:
        absent = f"import importlib.util as u; print(u.find_spec({folder!r}), u.find_spec('experiments'))"
        assert run(commands / "python", "-c", absent, at=empty) == "None None\n", folder

    (empty / SCENARIO).parent.mkdir(parents=True)
    (empty / SCENARIO).write_bytes((ROOT / SCENARIO).read_bytes())
    simulated = json.loads(run(commands / "truenorth", "simulate", SCENARIO, "--policy", "srpt", "--json", at=empty))
    assert simulated["objective"]["value"] == float(tn.simulate(ROOT / SCENARIO, "srpt").value)

    run(commands / "python", "-m", "truenorth.solvers.warm_up", "search", "bound", at=empty)
    [snippet] = [step.text for step in steps((ROOT / "README.md").read_text()) if "import truenorth as tn" in step.text]
    *_, last = run(commands / "python", "-c", snippet + SHOWN, at=empty).splitlines()
    status, *policies = last.split()
    assert status in ("OPTIMAL", "FEASIBLE"), status
    assert policies == ["jit", "plan"], policies


def main() -> None:
    """Build the wheel, install it, and ask."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "empty").mkdir()
        wheel = build(folder)
        files = held(wheel)
        assert files == shipped(), files ^ shipped()
        again = held(build_again(folder))
        assert again == files, again ^ files
        ask(install(wheel, folder / "environment"), folder / "empty")
    print(f"{wheel.name}: {len(files)} files, installed and asked")


if __name__ == "__main__":
    main()
