"""What a policy may know beforehand and of the jobs released so far: cluster, models, workflows, tables.

The tables of jobs and tasks grow with the releases; a job that is not released yet is nowhere in them, so that whoever
holds them cannot look ahead. The catalogue of workflows is known from the start, as a deployment knows it.
"""

from __future__ import annotations

from models import NEVER, Cluster, Instance, Job, MLModel, Restrictions, Workflow


class Knowledge:
    """Cluster, models and workflows, and the jobs so far.

    Parameters
    ----------
    instance
        Taken apart for its tables; its jobs stay with the engine.

    Attributes
    ----------
    cluster, models, workflows, restrictions, overlap_loads
        As in the instance.
    gpu_class, gpu_server
        Per GPU.
    run_us, load_us, needs, inputs, outputs, transfer_us, template_first, weight_bytes
        The instance's tables as plain lists: run time by template and GPU class, load time by model and class,
        and so on.
    template, job
        Per task released so far.
    jobs, job_workflow, job_ingress, job_tasks
        Per job released so far: the job, its workflow's index, the server that plans it, its tasks.
    """

    def __init__(self, instance: Instance) -> None:
        self.cluster: Cluster = instance.cluster
        self.models: tuple[MLModel, ...] = instance.models
        self.workflows: tuple[Workflow, ...] = instance.workflows
        self.restrictions: Restrictions = instance.restrictions
        self.overlap_loads = instance.overlap_loads
        self.n_gpus = instance.n_gpus
        self.gpu_class: list[int] = instance.gpu_class.tolist()
        self.gpu_server: list[int] = instance.gpu_server.tolist()
        self.run_us: list[list[int]] = instance.run_us.tolist()
        self.load_us: list[list[int]] = instance.load_us.tolist()
        self.weight_bytes: list[int] = instance.weight_bytes.tolist()
        self.template_first: list[int] = instance.template_first.tolist()
        self.needs, self.inputs, self.outputs = instance.needs, instance.inputs, instance.outputs
        self.transfer_us: list[list[list[list[int]]]] = instance.transfer_us.tolist()
        self.template: list[int] = []
        self.job: list[int] = []
        self.jobs: list[Job] = []
        self.job_workflow: list[int] = []
        self.job_ingress: list[int] = []
        self.job_tasks: list[range] = []
        self._eligible: dict[int, tuple[int, ...]] = {}

    def run_time(self, task: int, gpu: int) -> int:
        """Return the given run time of a task on a GPU, NEVER if it cannot run there."""
        return self.run_us[self.template[task]][self.gpu_class[gpu]]

    def load_time(self, model: int, gpu: int) -> int:
        """Return the given load time of a model on a GPU, NEVER if it may not be there."""
        return self.load_us[model][self.gpu_class[gpu]]

    def transfer_time(self, edge: int, source: int, target: int) -> int:
        """Return the transfer time along an edge between two GPUs; zero on the same one (rule T2)."""
        if source == target:
            return 0
        row = self.transfer_us[edge][self.gpu_class[source]][self.gpu_class[target]]
        return row[self.gpu_server[source] == self.gpu_server[target]]

    def eligible_gpus(self, task: int) -> tuple[int, ...]:
        """Return the GPUs that can run a task, in order."""
        template = self.template[task]
        if template not in self._eligible:
            row = self.run_us[template]
            self._eligible[template] = tuple(gpu for gpu, c in enumerate(self.gpu_class) if row[c] != NEVER)
        return self._eligible[template]

    def learn(self, job: Job, workflow: int, ingress: int) -> range:
        """Make a job known and return its tasks."""
        templates = range(self.template_first[workflow], self.template_first[workflow + 1])
        tasks = range(len(self.template), len(self.template) + len(templates))
        self.template.extend(templates)
        self.job.extend([len(self.jobs)] * len(templates))
        self.jobs.append(job)
        self.job_workflow.append(workflow)
        self.job_ingress.append(ingress)
        self.job_tasks.append(tasks)
        return tasks
