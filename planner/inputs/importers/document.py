"""The files of an import: a scenario document, and its arrivals as a CSV file beside it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pandas as pd

from models.cells import guard
from models.scenario.errors import Plain
from models.units import gigabytes, gigabytes_per_s, seconds
from models.workload import ANY_KIND, WHOLE, Task, Workflow
from planner.inputs.importers.format import Hardware
from planner.inputs.importers.workload import Workload


def document(hardware: Hardware, workload: Workload, arrivals: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a scenario file.

    Parameters
    ----------
    arrivals
        Its section ``workload``.
    """
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
        "models": {model: {"weights": gigabytes(hardware.weight_bytes)} for model in model_names(workload)},
        **work_sections(workload),
        "workload": arrivals,
    }


def model_names(workload: Workload) -> list[str]:
    """Return the models that any task needs, in order of their names."""
    return sorted({model for workflow in workload.workflows for task in workflow.tasks for model in task.models})


def work_sections(workload: Workload) -> dict[str, Any]:
    """Return the sections of batch classes, where there are any, and of workflows, and by how much they are rounded."""
    batches = _batches(workload.workflows)
    workflows = {workflow.name: {"tasks": _tasks(workflow)} for workflow in workload.workflows}
    rounding = workload.rounding
    rounded = {} if rounding is None else {"rounded_up": Plain(f"{rounding.most:.4f}")}
    return rounded | ({"batches": batches} if batches else {}) | {"workflows": workflows}


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
    """Return the sections of the batch classes."""
    classes = {task.batch.name: task.batch for of in workflows for task in of.tasks if task.batch is not None}
    return {
        name: {
            "models": list(batch.models),
            "runtime": _by_size(batch.runtime_us[ANY_KIND])
            if ANY_KIND in batch.runtime_us
            else {kind: _by_size(table) for kind, table in batch.runtime_us.items()},
            **_demand(batch.share, batch.memory_bytes),
        }
        for name, batch in classes.items()
    }


def _by_size(table: Mapping[int, int]) -> dict[str, str]:
    return {Plain(size): seconds(us) for size, us in table.items()}


def _demand(share: int, memory_bytes: int) -> dict[str, Any]:
    """Return share and memory where they are not the defaults."""
    section = {} if share == WHOLE else {"share": Plain(Decimal(share) / WHOLE)}
    return section | ({"memory": gigabytes(memory_bytes)} if memory_bytes else {})


def trace_text(workload: Workload) -> str:
    """Return the arrivals as the CSV file of a trace."""
    names = pd.Index([guard(workflow.name) for workflow in workload.workflows])
    workflow = pd.Categorical.from_codes(workload.workflow, categories=names)
    table = pd.DataFrame({"time_us": workload.release_us, "workflow": workflow})
    if workload.deadline_us is not None:
        deadline = pd.Series(workload.deadline_us).astype("Int64")
        table["deadline_us"] = deadline.where(deadline >= 0)
    if workload.weight is not None:
        table["weight"] = workload.weight
    text = io.StringIO()
    table.to_csv(text, index=False, lineterminator="\n")
    return text.getvalue()
