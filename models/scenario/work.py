"""From the document's batch classes and workflows to those of the core types."""

from __future__ import annotations

from models.scenario.document import BatchSection, ScenarioDocument, TaskSection, WorkflowSection
from models.scenario.errors import FieldError, Where, allowed, blame, quote
from models.workload import BatchClass, Branch, Edge, Task, Workflow, WorkflowCycleError


def build_workflows(document: ScenarioDocument) -> dict[str, Workflow]:
    """Return the workflows by name.

    Raises
    ------
    FieldError
        For an unknown model, batch class or predecessor, a model named twice, or a cycle.
    """
    batches = {name: _batch_class(document, name, section) for name, section in document.batches.items()}
    return {name: _workflow(document, batches, name, section) for name, section in document.workflows.items()}


def _batch_class(document: ScenarioDocument, name: str, section: BatchSection) -> BatchClass:
    where = ("batches", name)
    _refuse_unknown_models(document, section.models, where)
    with blame((*where, "models"), "each model once"):
        return BatchClass(name, section.runtime, section.models, section.share, section.memory)


def _refuse_unknown_models(document: ScenarioDocument, models: tuple[str, ...], where: Where) -> None:
    for position, model in enumerate(models):
        if model not in document.models:
            problem = f"unknown model {quote(model)}; {allowed(model, document.models)}"
            raise FieldError((*where, "models", position), problem)


def _workflow(
    document: ScenarioDocument, batches: dict[str, BatchClass], name: str, section: WorkflowSection
) -> Workflow:
    tasks = tuple(_task(document, batches, name, section, task) for task in section.tasks)
    for index, part in enumerate(section.branches):
        for position, task in enumerate(part.tasks):
            if task not in section.tasks:
                where = ("workflows", name, "branches", index, "tasks", position)
                raise FieldError(where, f"unknown task; {allowed(task, section.tasks)}")
    branches = tuple(Branch(part.probability, part.tasks) for part in section.branches)
    try:
        return Workflow(name, tasks, branches)
    except WorkflowCycleError as error:
        problem = f"{error}; allowed is an order without cycles"
        raise FieldError(("workflows", name, "tasks", error.cycle[0]), problem) from None
    except ValueError as error:
        problem = f"{error}; allowed are branches of tasks of their own, whose probabilities add up to 1"
        raise FieldError(("workflows", name, "branches"), problem) from None


def _task(
    document: ScenarioDocument, batches: dict[str, BatchClass], workflow: str, section: WorkflowSection, name: str
) -> Task:
    task, where = section.tasks[name], ("workflows", workflow, "tasks", name)
    _refuse_unknown_models(document, task.models, where)
    if task.batch is not None and task.batch not in batches:
        raise FieldError((*where, "batch"), f"unknown batch class {quote(task.batch)}; {allowed(task.batch, batches)}")
    for source in task.after:
        if source not in section.tasks:
            raise FieldError((*where, "after", source), f"unknown task; {allowed(source, section.tasks)}")
    inputs = _inputs(task, section)
    if task.batch is not None:
        return Task.of_class(name, batches[task.batch], inputs, task.input)
    with blame((*where, "models"), "each model once"):
        return Task(name, task.runtime or {}, task.models, inputs, task.share, task.memory, None, task.input)


def _inputs(task: TaskSection, section: WorkflowSection) -> tuple[Edge, ...]:
    return tuple(
        Edge(source, section.tasks[source].output if size is None else size) for source, size in task.after.items()
    )
