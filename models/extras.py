"""Packages that only some questions need, and the one command that adds them."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

from truenorth.models.errors import UserError

_NEEDS = {"cluster": ("ray", "Ray"), "devices": ("torch", "PyTorch"), "estimates": ("sklearn", "scikit-learn")}
_TREE = Path(__file__).resolve().parents[1]  # of a checkout, where this folder is imported through a link


def require_extra(extra: str) -> None:
    """Refuse to go on without the packages of an extra of this distribution.

    Raises
    ------
    UserError
        If they are not installed; it names the command that installs them.
    """
    module, name = _NEEDS[extra]
    if find_spec(module) is None:
        raise UserError(f"{name} is not installed; this adds it: {_command(extra)}")


def _command(extra: str) -> str:
    """Return what installs an extra into the environment that runs."""
    words = [sys.executable, "-m", "pip", "install"]
    constraints = _TREE / "constraints.txt"
    if not constraints.is_file():
        return shlex.join([*words, f"truenorth[{extra}]"])
    return shlex.join([*words, "--constraint", str(constraints), "--editable", f"{_TREE}[{extra}]"])
