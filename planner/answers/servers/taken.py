"""What no job takes: a mix that lacks some group may be unable to serve it, and is not to be blamed for that.

Models, workflows and branches that nobody asks for are left out of a scenario where nothing can hold or run them, and
restrictions on them, so that the mix answers for its jobs alone and its scenario, written down, can be read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from truenorth.models import Cluster, Instance, InstanceError, Job, MLModel, Restrictions, Workflow
from truenorth.models.branches import branch_of
from truenorth.models.scenario import ScenarioDocument
from truenorth.models.streams import Tokens

_DECIMALS = 6


def taken_models(jobs: Iterable[Job]) -> frozenset[str]:
    """Return the names of the models that jobs need."""
    workflows = {id(job.workflow): job.workflow for job in jobs}
    return frozenset(name for workflow in workflows.values() for task in workflow.tasks for name in task.models)


def without_idle_parts(document: ScenarioDocument, cluster: Cluster, jobs: Sequence[Job]) -> ScenarioDocument:
    """Return a document without models that no job needs and no GPU holds, and without restrictions on the idle."""
    needed, asked = taken_models(jobs), {job.workflow.name for job in jobs}
    gpus = set(cluster.gpus)
    models = {
        name: section
        for name, section in document.models.items()
        if name in needed or any(gpu.fits([section.weights]) for gpu in gpus)
    }
    bound = {
        key: tuple(entry for entry in entries if entry.model in needed or entry.workflow in asked)
        for key, entries in (("pin", document.restrictions.pin), ("forbid", document.restrictions.forbid))
    }
    replicas = {name: most for name, most in document.restrictions.max_replicas.items() if name in models}
    restrictions = document.restrictions.model_copy(update=bound | {"max_replicas": replicas})
    return document.model_copy(update={"models": models, "restrictions": restrictions})


def runnable(
    catalogue: Iterable[Workflow], cluster: Cluster, models: tuple[MLModel, ...], restrictions: Restrictions
) -> tuple[Workflow, ...]:
    """Return the workflows of which every task can run on some GPU."""

    def run(workflows: Iterable[Workflow]) -> bool:
        try:
            Instance(cluster, models, tuple(map(_least_job, workflows)), restrictions=restrictions)
        except InstanceError:
            return False
        return True

    every = tuple(catalogue)
    return every if run(every) else tuple(workflow for workflow in every if run([workflow]))


def _least_job(workflow: Workflow) -> Job:
    """Return the job of a workflow that asks for least: one token each where only a job says how many."""
    unsaid = [task.name for task in workflow.tasks if task.stream is not None and task.tokens is None]
    return Job(workflow, 0, tokens=dict.fromkeys(unsaid, Tokens(1, 1, 1)) or None)


def leave_out_idle(data: dict[str, Any], instance: Instance, models: Collection[str]) -> None:
    """Leave out of a scenario's data what an instance has not: models, workflows that no job takes, their branches.

    Parameters
    ----------
    data
        With the jobs of the instance in ``workload``; it is changed.
    models
        The names of those that stay.
    """
    if data.get("models"):
        data["models"] = {name: model for name, model in data["models"].items() if name in models}
    runs = {workflow.name for workflow in instance.catalogue}
    takers: dict[str, set[int]] = {}
    for job in instance.jobs:
        takers.setdefault(job.workflow.name, set()).add(branch_of(job.workflow))
    cut = {name for name in takers if name not in runs}
    data["workflows"] = {
        name: _without_branches(flow, sorted(takers[name])) if name in cut else flow
        for name, flow in data["workflows"].items()
        if name in runs or name in takers
    }
    for job in data["workload"]["jobs"]:
        if job["workflow"] in cut:
            kept = sorted(takers[job["workflow"]])
            branch = kept.index(job.pop("path", 0))
            job.update({"path": branch} if len(kept) > 1 else {})


def _without_branches(workflow: Mapping[str, Any], kept: Sequence[int]) -> dict[str, Any]:
    """Return a workflow with some of its branches; what they may have been chosen with is shared among them."""
    branches = workflow["branches"]
    gone = {task for index, branch in enumerate(branches) if index not in kept for task in branch["tasks"]}
    tasks = {name: _without_inputs(task, gone) for name, task in workflow["tasks"].items() if name not in gone}
    if len(kept) == 1:
        return {"tasks": tasks}
    chances = [Fraction(branches[index]["probability"]) for index in kept]
    shares = [round(chance / sum(chances), _DECIMALS) for chance in chances[1:]]
    shares.insert(0, 1 - sum(shares, Fraction(0)))
    written = [{**branches[index], "probability": float(share)} for index, share in zip(kept, shares, strict=True)]
    return {"tasks": tasks, "branches": written}


def _without_inputs(task: Mapping[str, Any], gone: Collection[str]) -> dict[str, Any]:
    after = task.get("after") or []
    if isinstance(after, Mapping):
        return {**task, "after": {name: size for name, size in after.items() if name not in gone}}
    return {**task, "after": [name for name in ([after] if isinstance(after, str) else after) if name not in gone]}
