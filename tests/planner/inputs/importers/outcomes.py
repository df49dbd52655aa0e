"""What an import makes of a log, in a form that tests can compare."""

from __future__ import annotations

from truenorth.planner.inputs.importers.trace import Imported


def jobs(made: Imported) -> list[tuple[int, str]]:
    """Return release in microseconds and workflow of each job."""
    workload = made.workload
    return [(int(r), workload.workflows[w].name) for r, w in zip(workload.release_us, workload.workflow, strict=True)]
