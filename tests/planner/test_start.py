"""An interrupt ends the command in one line at any instant, also while it is being loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
