"""The command as it starts: interrupts end it in one line at any instant, and planning needs no package of devices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.night import by_day

SCENARIO = Path(__file__).parents[2] / "experiments" / "scenarios" / "compass_edge.yaml"

INTERRUPTED_WHILE_LOADING = """
import os, signal, sys
from truenorth.planner.command import start

class Interrupting:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{sign})

sys.meta_path.insert(0, Interrupting())
sys.argv = ["truenorth", "schema"]
start.main()
"""


@pytest.mark.parametrize("module", ["truenorth.planner.command.cli", "typer", "pydantic", "pydantic_core"])
@pytest.mark.parametrize("sign", ["SIGINT", "SIGTERM"])
def test_while_it_is_being_loaded(module: str, sign: str) -> None:
    program = INTERRUPTED_WHILE_LOADING.format(module=module, sign=sign)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: S603
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "truenorth: interrupted\n")


def test_the_installed_command_starts_there() -> None:
    program = "import sys; from truenorth.planner.command.start import main; sys.argv = ['truenorth', '--help']; main()"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: S603
    assert ended.returncode == 0
    assert "simulate" in ended.stdout


LACKING = """
import sys
from truenorth.planner.command.start import main

class Lacking:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {lacking!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Lacking())
sys.argv = ["truenorth", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("verb", by_day(["compare", "simulate"], 1))
def test_what_needs_no_device_needs_no_package_of_devices(verb: str, tmp_path: Path) -> None:
    asked = {"simulate": ["--policy", "jit"], "compare": ["--policies", "jit", "--time-limit", "1"]}[verb]
    _run_without(("torch", "transformers", "safetensors", "pynvml", "ray"), verb, *asked, made=tmp_path / "made")


def test_a_simulation_of_a_plain_policy_needs_neither_kernels_nor_solvers(tmp_path: Path) -> None:
    asked = ["--policy", "compass", "--seed", "1"]
    _run_without(("numba", "scipy", "ortools", "pulp", "highspy"), "simulate", *asked, made=tmp_path / "made")


def _run_without(lacking: tuple[str, ...], verb: str, *asked: str, made: Path) -> None:
    """Answer a verb where some packages are missing."""
    command = [sys.executable, "-c", LACKING.format(lacking=lacking), verb, str(SCENARIO), *asked, "-o", str(made)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert (ended.returncode, "Error" in ended.stderr) == (0, False), ended.stderr
    assert made.exists()
