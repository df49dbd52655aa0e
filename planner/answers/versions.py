"""Which software made a result."""

from __future__ import annotations

import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

_PACKAGES = ("truenorth", "highspy", "numba", "numpy", "ortools", "pulp")
_ROOT = Path(__file__).parents[2]


def versions() -> dict[str, str]:
    """Return the versions of Truenorth and of the packages that decide what a search finds."""
    return {package: version(package) for package in _PACKAGES}


def provenance() -> dict[str, str]:
    """Return the versions and, where a checkout runs, its commit; with ``-dirty`` where files differ from it."""
    commit = _commit()
    return versions() | ({} if commit is None else {"commit": commit})


@cache
def _commit() -> str | None:
    """Return the commit of the checkout that runs; None of an installed wheel, or without git."""
    if not (_ROOT / ".git").exists():  # a wheel may lie in an environment inside somebody else's checkout
        return None
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
