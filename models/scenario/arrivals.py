"""From the document's workload to jobs in release order: a Poisson process, a trace, or a list."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from models.branches import draw_branch, paths_of
from models.scenario.document import PoissonSection, ScenarioDocument, TraceSection
from models.scenario.errors import FieldError, allowed, quote
from models.scenario.quantities import MAX_TIME_US
from models.scenario.trace import Arrival, read_trace
from models.workload import Job, Workflow


def build_jobs(document: ScenarioDocument, workflows: Mapping[str, Workflow], folder: Path) -> tuple[Job, ...]:
    """Return the jobs in release order, equal releases in file order.

    Parameters
    ----------
    folder
        What the path of a trace is relative to.

    Raises
    ------
    FieldError
        For an unknown workflow or server, an empty window, or releases beyond all bounds.
    InputError
        If a row of the trace is wrong.
    """
    workload = document.workload
    if workload.poisson is not None:
        arrivals: Sequence[Arrival] = _poisson(workload.poisson, list(workflows))
    elif workload.trace is not None:
        arrivals = _trace(workload.trace, document, folder)
    else:
        arrivals = _list_jobs(document)
    ordered = sorted(arrivals, key=lambda arrival: arrival.release_us)
    paths = {name: paths_of(workflow) for name, workflow in workflows.items()}
    seed = workload.poisson.seed if workload.poisson is not None else 0
    return tuple(
        Job(
            _take_path(workflows[a.workflow], paths[a.workflow], a, seed, job),
            a.release_us,
            a.weight,
            a.deadline_us,
            a.ingress,
        )
        for job, a in enumerate(ordered)
    )


def _take_path(workflow: Workflow, paths: Sequence[Workflow], arrival: Arrival, seed: int, job: int) -> Workflow:
    """Return the path that an arrival takes; where it names none it is drawn."""
    if arrival.path is None:
        return paths[draw_branch(workflow, seed, job)] if workflow.branches else workflow
    if arrival.path >= len(workflow.branches):
        problem = f"job {job} takes branch {arrival.path} of {workflow.name}, which has {len(workflow.branches)}"
        raise FieldError(("workload",), f"{problem}; allowed are numbers of branches, from 0")
    return paths[arrival.path]


def _poisson(section: PoissonSection, workflows: Sequence[str]) -> list[Arrival]:
    """Return a Poisson process from time 0 (so the first release is a gap too), workflows drawn by their weights.

    `random.Random` draws a gap and then a workflow for each job: a longer sequence continues a shorter
    one, and another rate only stretches it.
    """
    weights = section.mix if section.mix is not None else dict.fromkeys(workflows, 1)
    for name in weights:
        if name not in workflows:
            where = ("workload", "poisson", "mix", name)
            raise FieldError(where, f"unknown workflow; {allowed(name, workflows)}")
    cumulative = list(accumulate(float(weight) for weight in weights.values()))
    if not cumulative[-1]:
        raise FieldError(("workload", "poisson", "mix"), "has only zeros; allowed is at least one positive weight")
    rng = random.Random(section.seed)  # noqa: S311
    names, rate = list(weights), float(section.rate)
    release_s, arrivals = 0.0, []
    for _ in range(section.jobs):
        release_s += rng.expovariate(rate)
        arrivals.append(Arrival(round(release_s * 1e6), rng.choices(names, cum_weights=cumulative)[0]))
    if arrivals[-1].release_us > MAX_TIME_US:
        problem = f"spreads the jobs over more than {MAX_TIME_US} us; allowed is a higher rate"
        raise FieldError(("workload", "poisson", "rate"), problem)
    return arrivals


def _trace(section: TraceSection, document: ScenarioDocument, folder: Path) -> Sequence[Arrival]:
    path = folder / section.file
    try:
        trace = read_trace(path, list(document.workflows), document.cluster.n_servers, section.window)
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}; allowed is a readable CSV file"
        raise FieldError(("workload", "trace", "file"), problem) from None
    if not trace.arrivals:
        spans = f"the {trace.rows} arrivals of {path} lie from {trace.first_us} us to {trace.last_us} us"
        problem = f"is an empty window: {spans}; allowed is a window with an arrival"
        raise FieldError(("workload", "trace", "window"), problem)
    return trace.arrivals


def _list_jobs(document: ScenarioDocument) -> list[Arrival]:
    arrivals, servers = [], document.cluster.n_servers
    for position, job in enumerate(document.workload.jobs or ()):
        where = ("workload", "jobs", position)
        if job.workflow not in document.workflows:
            problem = f"unknown workflow {quote(job.workflow)}; {allowed(job.workflow, document.workflows)}"
            raise FieldError((*where, "workflow"), problem)
        if job.ingress is not None and job.ingress >= servers:
            problem = f"unknown server {quote(f's{job.ingress}')}; allowed are s0 to s{servers - 1}"
            raise FieldError((*where, "ingress"), problem)
        arrivals.append(Arrival(job.release, job.workflow, job.deadline, job.weight, job.ingress, job.path))
    return arrivals
