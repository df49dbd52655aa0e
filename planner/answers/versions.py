"""Which software made a result."""

from __future__ import annotations

from importlib.metadata import version

_PACKAGES = ("truenorth", "numba", "numpy", "ortools")


def versions() -> dict[str, str]:
    """Return the versions of Truenorth and of the packages that decide what a search finds."""
    return {package: version(package) for package in _PACKAGES}
