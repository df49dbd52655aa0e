"""The windows of the study: two workloads, with and without batch classes, with models swapped freely or held."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from experiments import authors
from experiments.gentd26_2026_11_21.assignment import owners
from models import BatchClass, Instance, Restrictions, Task, Workflow
from planner.inputs.importers.format import Override
from planner.inputs.importers.trace import import_trace

AUTHORS, GENTD26 = "authors, 6 jobs/s", "GenTD26, 3 GPUs"
DATA = Path(__file__).parents[3] / "shared" / "data"
_LARGEST = 4
"""Of a batch of requests for a diffusion model: an assumption, as is what a batch takes."""


def window(workload: str, batches: bool, swaps: bool) -> Instance:
    """Return a window; without swaps models stay where they are once loaded, or are swapped among their own GPUs only.

    The authors' models fit their GPUs together, so none is ever evicted. The 18 of GenTD26 do not: each belongs to as
    many GPUs as its share of the work asks for, as in the study of that trace.
    """
    if workload == AUTHORS:
        arrivals = authors.recorded(4, 100)
        plain = authors.instance([(release * 4 // 6, name) for release, name in arrivals])
        made = authors.batched(plain) if batches else plain
        return made if swaps else replace(made, restrictions=Restrictions(no_swaps=True))
    folder = DATA / "gentd26"
    files = [folder / "lora_request_trace.csv.gz", folder / "pipeline_update_latency_anon.csv.gz"]
    hour = "2024-12-06T00:00", "2024-12-06T01:00"
    plain = import_trace("gentd26", files, window=hour, override=Override(servers=3).apply).scenario.instance
    made = in_classes(plain) if batches else plain
    if swaps:
        return made
    number = {gpu.id: index for index, gpu in enumerate(plain.cluster.gpus)}
    pins = {model: frozenset(number[gpu] for gpu in on) for model, on in owners(plain).items()}
    return replace(made, restrictions=Restrictions(model_gpus=pins))


def in_classes(plain: Instance) -> Instance:
    """Return an instance in which b tasks of equal models and run time p take p x (0.7 + 0.3 b) together."""
    made = {
        id(workflow): Workflow(workflow.name, tuple(map(_in_class, workflow.tasks))) for workflow in plain.workflows
    }
    by_index = [made[id(workflow)] for workflow in plain.workflows]
    of_job = plain.job_workflow.tolist()
    jobs = tuple(replace(job, workflow=by_index[index]) for job, index in zip(plain.jobs, of_job, strict=True))
    return replace(plain, jobs=jobs, catalogue=tuple(by_index))


def _in_class(task: Task) -> Task:
    runtime_us = task.runtime_us["*"]
    times = {size: runtime_us * (7 + 3 * size) // 10 for size in range(1, _LARGEST + 1)}
    batch = BatchClass(f"{'+'.join(task.models)} of {runtime_us} us", {"*": times}, task.models)
    return Task.of_class(task.name, batch, task.inputs)
