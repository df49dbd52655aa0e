"""What is needed to look into a solver that contradicted a plan: the window, the plan, and what the solver said."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from models.identity import canonical, scenario_hash
from models.scenario import write_atomically
from models.timeline import Timeline
from planner.answers.versions import versions
from solvers.faults import SolverFaultWarning


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
