"""The files of an import: a scenario document, and its arrivals as a CSV file beside it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pandas as pd

from models.scenario.source import Plain
from models.workload import ANY_KIND, WHOLE, Task, Workflow
from planner.inputs.importers.format import Hardware
from planner.inputs.importers.quantities import gigabytes, gigabytes_per_s, seconds
from planner.inputs.importers.workload import Workload


def document(hardware: Hardware, workload: Workload, arrivals: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a scenario file.

    Parameters
    ----------
    arrivals
        Its section ``workload``.
    """
    models = sorted({model for workflow in workload.workflows for task in workflow.tasks for model in task.models})
    batches = _batches(workload.workflows)
    return {
        "cluster": {
            "servers": hardware.servers,
            "gpus_per_server": hardware.gpus_per_server,
            "gpu": {
                "kind": hardware.kind,
                "memory": gigabytes(hardware.memory_bytes),
                "load_bandwidth": gigabytes_per_s(hardware.load_bandwidth),
                "load_overhead": seconds(hardware.load_overhead_us),
            },
            "network": {
                "bandwidth": gigabytes_per_s(hardware.network_bandwidth),
                "latency": seconds(hardware.network_latency_us),
            },
        },
        "models": {model: {"weights": gigabytes(hardware.weight_bytes)} for model in models},
        **({"batches": batches} if batches else {}),
        "workflows": {workflow.name: {"tasks": _tasks(workflow)} for workflow in workload.workflows},
        "workload": arrivals,
    }


def _tasks(workflow: Workflow) -> dict[str, Any]:
    return {task.name: _task(task) for task in workflow.tasks}


def _task(task: Task) -> dict[str, Any]:
    if task.batch is not None:
        section: dict[str, Any] = {"batch": task.batch.name}
    else:
        runtimes = {kind: seconds(us) for kind, us in task.runtime_us.items()}
        section = {"models": list(task.models), "runtime": runtimes.get(ANY_KIND, runtimes)}
        section |= _demand(task.share, task.memory_bytes)
    if task.inputs:
        section["after"] = {edge.source: f"{edge.size_bytes} B" for edge in task.inputs}
    return section


def _batches(workflows: Sequence[Workflow]) -> dict[str, Any]:
    """Return the sections of the batch classes, whose tables hold for every kind of GPU."""
    classes = {task.batch.name: task.batch for of in workflows for task in of.tasks if task.batch is not None}
    return {
        name: {
            "models": list(batch.models),
            "runtime": {Plain(size): seconds(us) for size, us in batch.runtime_us[ANY_KIND].items()},
            **_demand(batch.share, batch.memory_bytes),
        }
        for name, batch in classes.items()
    }


def _demand(share: int, memory_bytes: int) -> dict[str, Any]:
    """Return share and memory where they are not the defaults."""
    section = {} if share == WHOLE else {"share": Plain(Decimal(share) / WHOLE)}
    return section | ({"memory": gigabytes(memory_bytes)} if memory_bytes else {})


def trace_text(workload: Workload) -> str:
    """Return the arrivals as the CSV file of a trace."""
    names = pd.Index([workflow.name for workflow in workload.workflows])
    workflow = pd.Categorical.from_codes(workload.workflow, categories=names)
    table = pd.DataFrame({"time_us": workload.release_us, "workflow": workflow})
    if workload.deadline_us is not None:
        deadline = pd.Series(workload.deadline_us).astype("Int64")
        table["deadline_us"] = deadline.where(deadline >= 0)
    text = io.StringIO()
    table.to_csv(text, index=False, lineterminator="\n")
    return text.getvalue()
