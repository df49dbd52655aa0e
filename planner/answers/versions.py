"""Where an answer comes from: scenario, command, software, solvers tried or not; and reports of those at fault."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truenorth.models.identity import canonical, scenario_hash
from truenorth.models.instance import Instance
from truenorth.models.scenario import Scenario, write_atomically
from truenorth.models.timeline import Timeline

if TYPE_CHECKING:
    from truenorth.solvers.trust import SolverFaultWarning  # a GPU host has no solver

_PACKAGES = ("truenorth", "highspy", "numba", "numpy", "ortools", "pulp")
_ROOT = Path(__file__).resolve().parents[2]

TESTED = {"ortools": ("9.14.6206",), "highspy": ("1.14.0",)}
"""The solvers that prove, in the versions that passed ``python -m experiments exact versions``."""


def versions() -> dict[str, str]:
    """Return the versions of Truenorth and of the packages that decide what a search finds, of those installed.

    A GPU host has no solver, and a checkout that runs in place is not installed at all.
    """
    found: dict[str, str] = {}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


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


def untested_solvers() -> list[str]:
    """Return the solvers that are installed in other versions than those that were tried, with their versions."""
    return [f"{name} {version(name)}" for name, tested in TESTED.items() if version(name) not in tested]


@dataclass(frozen=True, slots=True)
class ScenarioNamed:
    """The scenario of an answer; the hash is that of the instance that was asked about."""

    name: str
    file: str
    hash: str

    @property
    def titled(self) -> str:
        """The name with the file."""
        return f"{self.name} ({Path(self.file).name})" if self.file != self.name else self.name


@dataclass(frozen=True, slots=True)
class Origin:
    """Of what an answer is, and how to repeat it: what its file says besides."""

    scenario: ScenarioNamed
    command: str
    versions: Mapping[str, str]

    @property
    def steps(self) -> dict[str, str]:
        """What one needs to repeat it, by name."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return {"command": self.command, "scenario hash (sha256)": self.scenario.hash, "versions": versions}


def named(scenario: Scenario, instance: Instance | None = None) -> tuple[str, str, str]:
    """Return name, file and hash of a scenario."""
    return scenario.name, scenario.source.file, scenario_hash(instance or scenario.instance)


def write_report(fault: SolverFaultWarning) -> Path:
    """Write the report of a fault to the folder for temporary files, and return where it lies.

    Raises
    ------
    InputError
        If it cannot be written.
    """
    identity = scenario_hash(fault.instance)
    path = Path(tempfile.gettempdir()) / f"truenorth-fault-{identity[:12]}.json"
    document = {
        "solver": fault.solver,
        "said": fault.said,
        "versions": versions(),
        "objective": str(fault.objective),
        "scenario_hash": identity,
        "instance": canonical(fault.instance),
        "plan": None if fault.timeline is None else _plan(fault.timeline),
    }
    write_atomically(path, json.dumps(document))
    return path


def _plan(timeline: Timeline) -> dict[str, Any]:
    """Return a plan by the numbers of tasks, GPUs and models; times in microseconds."""
    return {
        "tasks": [[p.task, p.gpu, p.start_us, p.end_us] for p in timeline.placements],
        "residencies": [
            [r.model, r.gpu, r.slot, r.load_start_us, r.ready_us, r.end_us, r.initial] for r in timeline.residencies
        ],
    }
