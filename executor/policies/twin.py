"""The twin of an instance in which no two workflows share a model."""

from __future__ import annotations

from dataclasses import replace

from models import InitialResidency, Instance, MLModel, Restrictions, Task, Workflow


def twin_instance(instance: Instance) -> Instance:
    """Return the twin of an instance: every workflow has its own copy of each model, named ``workflow/model``.

    A cache entry of the released Compass simulator is a workflow's model, so that a model which two workflows use is
    on a GPU twice. Tasks and jobs keep their numbers. A model without users keeps its name; an initial residency goes
    to the first workflow that uses the model. A twin is its own twin.
    """
    used: dict[str, dict[str, None]] = {}
    for workflow in instance.workflows:
        models = (model for task in (workflow.of or workflow).tasks for model in task.models)
        used.setdefault(workflow.name, {}).update(dict.fromkeys(models))
    if all(model.startswith(f"{name}/") for name, models in used.items() for model in models):
        return instance
    twins: dict[str, list[str]] = {
        model.name: [f"{name}/{model.name}" for name, models in used.items() if model.name in models] or [model.name]
        for model in instance.models
    }
    listed = [MLModel(twin, model.weight_bytes) for model in instance.models for twin in twins[model.name]]
    position = {model.name: index for index, model in enumerate(listed)}
    workflows = [_own_models(workflow) for workflow in instance.workflows]
    of_job = instance.job_workflow.tolist()
    return Instance(
        instance.cluster,
        tuple(listed),
        tuple(replace(job, workflow=workflows[index]) for job, index in zip(instance.jobs, of_job, strict=True)),
        instance.overlap_loads,
        tuple(
            InitialResidency(resident.gpu, position[twins[instance.models[resident.model].name][0]], resident.slot)
            for resident in instance.initial
        ),
        _restrictions(instance.restrictions, twins),
    )


def _own_models(workflow: Workflow) -> Workflow:
    def own(task: Task) -> Task:
        return replace(task, batch=None, models=tuple(f"{workflow.name}/{model}" for model in task.models))

    return workflow.with_tasks(own)


def _restrictions(restrictions: Restrictions, twins: dict[str, list[str]]) -> Restrictions:
    return replace(
        restrictions,
        model_gpus={twin: gpus for model, gpus in restrictions.model_gpus.items() for twin in twins[model]},
        max_replicas={twin: most for model, most in restrictions.max_replicas.items() for twin in twins[model]},
    )
