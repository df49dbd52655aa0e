"""Which entry is at fault when an instance refuses its parts: the parts are tried one by one.

The rules stay where they are, in the core types; this only looks for the first entry that alone breaks one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from models.cluster import Cluster
from models.instance import Instance
from models.restrictions import InitialResidency, InstanceError, Restrictions, check_initial
from models.scenario.errors import FieldError, blame
from models.workload import Job, MLModel, Workflow


def blame_workflows(
    cluster: Cluster, models: Sequence[MLModel], workflows: Mapping[str, Workflow], restrictions: Restrictions
) -> None:
    """Refuse a task that no GPU can run, also in a workflow that no job uses.

    Raises
    ------
    FieldError
        At the first such task.
    """
    unconnected = {name: [replace(task, inputs=()) for task in workflow.tasks] for name, workflow in workflows.items()}
    together = [Workflow(name, tuple(tasks)) for name, tasks in unconnected.items()]
    if _refusal(cluster, models, together, restrictions) is None:
        return
    for name, tasks in unconnected.items():
        for task in tasks:
            problem = _refusal(cluster, models, [Workflow(name, (task,))], restrictions)
            if problem is not None:
                where = ("workflows", name, "tasks", task.name)
                raise FieldError(where, f"{problem}; allowed is a task that some GPU can run")


def blame_initial(
    cluster: Cluster, models: Sequence[MLModel], restrictions: Restrictions, initial: Sequence[InitialResidency]
) -> None:
    """Refuse initial residencies that contradict the cluster, the restrictions or each other.

    Raises
    ------
    FieldError
        At the first entry that does not go with those before it.
    """
    try:
        check_initial(initial, cluster, models, restrictions)
    except InstanceError:
        for position in range(len(initial)):
            where = ("options", "initial_residency", position)
            with blame(where, "a set of models that can be there together"):
                check_initial(initial[: position + 1], cluster, models, restrictions)


def _refusal(
    cluster: Cluster, models: Sequence[MLModel], workflows: Iterable[Workflow], restrictions: Restrictions
) -> str | None:
    """Return why there is no instance with one job of each workflow, or None if there is one."""
    jobs = tuple(Job(workflow, 0) for workflow in workflows)
    try:
        Instance(cluster, tuple(models), jobs, restrictions=restrictions)
    except InstanceError as error:
        return str(error)
    return None
