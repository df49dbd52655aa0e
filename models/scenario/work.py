"""From the document's workflows to the workflows of the core types."""

from __future__ import annotations

from models.scenario.document import ScenarioDocument, TaskSection, WorkflowSection
from models.scenario.errors import FieldError, allowed, blame, shown
from models.workload import Edge, Task, Workflow, WorkflowCycleError


def build_workflows(document: ScenarioDocument) -> dict[str, Workflow]:
    """Return the workflows by name.

    Raises
    ------
    FieldError
        For an unknown model or predecessor, a model named twice, or a cycle.
    """
    return {name: _workflow(document, name, section) for name, section in document.workflows.items()}


def _workflow(document: ScenarioDocument, name: str, section: WorkflowSection) -> Workflow:
    tasks = tuple(_task(document, name, section, task) for task in section.tasks)
    try:
        return Workflow(name, tasks)
    except WorkflowCycleError as error:
        problem = f"{error}; allowed is an order without cycles"
        raise FieldError(("workflows", name, "tasks", error.cycle[0]), problem) from None


def _task(document: ScenarioDocument, workflow: str, section: WorkflowSection, name: str) -> Task:
    task, where = section.tasks[name], ("workflows", workflow, "tasks", name)
    for position, model in enumerate(task.models):
        if model not in document.models:
            problem = f"unknown model {shown(model)}; {allowed(model, document.models)}"
            raise FieldError((*where, "models", position), problem)
    for source in task.after:
        if source not in section.tasks:
            raise FieldError((*where, "after", source), f"unknown task; {allowed(source, section.tasks)}")
    with blame((*where, "models"), "each model once"):
        return Task(name, task.runtime, task.models, _inputs(task, section))


def _inputs(task: TaskSection, section: WorkflowSection) -> tuple[Edge, ...]:
    return tuple(
        Edge(source, section.tasks[source].output if size is None else size) for source, size in task.after.items()
    )
